# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Runs jobs beside each other, each as soon as what it needs is done, in the order in which they were
# added. Sourced by tests/run.sh; knows nothing of what a job is.
#
#   add NAME [NEEDS]     a job; NEEDS is the name of another, added at any time
#   jobs_run SLOTS       runs them all, so many at once. For each it calls, of the sourcing script:
#                        run_job NAME       in a shell of its own; its output goes to log_of NAME
#                        ended NAME RC      when it has ended; returns whether others may build on it.
#                                           RC is "needs" where what it needs did not succeed
# $logs/times gets a line for each: wall, user and system seconds, exit status, name.

order=()          # every job
declare -A needs=() state=() # state: waiting, running, good, bad
declare -A pids=() # of the running ones, by name
done_count=0
beat=30 # seconds after which a line says that it goes on

log_of() { echo "${logs:?}/${1//[^A-Za-z0-9._-]/_}.log"; }

add() {
	[ -z "${state[$1]:-}" ] || return 0
	order+=("$1")
	needs[$1]=${2:-}
	state[$1]=waiting
}

# 3:07
clock() { printf '%d:%02d' $((SECONDS / 60)) $((SECONDS % 60)); }

# progress DONE TEXT: a line with how far it has come
progress() { printf '[%3d/%d %6s] %s\n' "$1" "${#order[@]}" "$(clock)" "$2"; }

# A job that has ended writes "RC NAME" into a pipe: `wait -n` forgets one that ends beside another.
job_start() {
	local name=$1 log
	log=$(log_of "$name")
	(
		trap - INT TERM EXIT
		TIMEFORMAT='%R %U %S'
		{ time run_job "$name" >"$log" 2>&1 </dev/null 8>&-; } 2>"$log.time"
		echo "$? $name" >&8
	) &
	pids[$name]=$!
	state[$name]=running
}

# The next one that has ended, in rc and name; 1 if none has for $beat seconds.
job_next() {
	local dead
	read -r -t "$beat" -u 8 rc name && return
	for dead in "${!pids[@]}"; do
		kill -0 "${pids[$dead]}" 2>/dev/null && continue
		# It was killed, and could not say so; or it has said so just now.
		read -r -t 1 -u 8 rc name || rc=137 name=$dead
		return 0
	done
	return 1
}

# Everything below process $1, itself last.
kill_tree() {
	local child
	for child in $(cat "/proc/$1/task"/*/children 2>/dev/null); do
		kill_tree "$child"
	done
	kill "$1" 2>/dev/null
}

jobs_stop() {
	local pid
	for pid in "${pids[@]}"; do
		kill_tree "$pid"
	done
	wait
	rm -f "$logs/ended"
}

jobs_run() {
	local slots=$1 name rc more log
	: >"$logs/times"
	rm -f "$logs/ended" && mkfifo "$logs/ended" && exec 8<>"$logs/ended" || exit 1
	while :; do
		more=
		for name in "${order[@]}"; do
			[ "${state[$name]}" = waiting ] || continue
			case ${state[${needs[$name]:-none}]:-good} in
			bad)
				state[$name]=bad
				done_count=$((done_count + 1))
				ended "$name" needs
				more=yes # there may be who needs this one
				;;
			good)
				[ ${#pids[@]} -lt "$slots" ] || continue
				job_start "$name"
				;;
			esac
		done
		[ -z "$more" ] || continue
		[ ${#pids[@]} -gt 0 ] || break
		if ! job_next; then
			progress "$done_count" "running: ${!pids[*]}"
			continue
		fi
		wait "${pids[$name]}"
		unset "pids[$name]"
		done_count=$((done_count + 1))
		state[$name]=bad
		log=$(log_of "$name")
		echo "$(cat "$log.time" 2>/dev/null) $rc $name" >>"$logs/times"
		rm -f "$log.time"
		! ended "$name" "$rc" || state[$name]=good
	done
	exec 8>&-
	rm -f "$logs/ended"
}
