# SPDX-License-Identifier: MIT
# shellcheck shell=sh
# For make targets that run for more than seconds with their output in a log: one line on a terminal. Sourced.

# progress [-s] [-n ALL] [-r RESULTS] NAME LOG COMMAND...: runs the command with all its output in LOG, and returns its
# exit status. Meanwhile, where standard error is a terminal, one line there is written anew each second, and removed at
# the end: NAME: WHAT: DONE of ALL, N s left
#   -s  what the command prints is shown too: on a terminal within a second; elsewhere there is no LOG
#   -r  DONE are the tests whose line tests/job has printed, WHAT those that run now, by their logs in RESULTS; else they
#       are the lines of the log and the last of them
#   -n  ALL; without it that of the last run that succeeded, which LOG.took keeps with the seconds that it took
progress() {
	progress_show='' progress_all='' progress_results=''
	while :; do
		case $1 in
		-s) progress_show=yes && shift ;;
		-n) progress_all=$2 && shift 2 ;;
		-r) progress_results=$2 && shift 2 ;;
		*) break ;;
		esac
	done
	progress_name=$1 progress_log=$2 progress_rc=0 progress_begun=$(date +%s)
	shift 2
	if [ ! -t 2 ] || [ "${TERM:-dumb}" = dumb ]; then
		if [ -n "$progress_show" ]; then
			"$@" || progress_rc=$?
		else
			"$@" >"$progress_log" 2>&1 || progress_rc=$?
		fi
		return $progress_rc
	fi
	: >"$progress_log"
	progress_draw 3>&2 2>/dev/null & # its programs lose their pipes when it ends, and would say so
	progress_pid=$!
	"$@" >"$progress_log" 2>&1 || progress_rc=$?
	kill $progress_pid 2>/dev/null || :
	wait $progress_pid 2>/dev/null || :
	printf '\r\033[K' >&2
	if [ -n "$progress_show" ]; then
		tail -n "+$(($(cat "$progress_log.shown" 2>/dev/null || echo 0) + 1))" "$progress_log"
		rm -f "$progress_log.shown"
	fi
	[ $progress_rc != 0 ] || echo "$(progress_done) $(($(date +%s) - progress_begun))" >"$progress_log.took"
	return $progress_rc
}

progress_done() {
	if [ -n "$progress_results" ]; then
		grep -cE '^(ok  |FAIL) ' "$progress_log" || :
	else
		wc -l <"$progress_log"
	fi
}

# As long as the caller lives, on descriptor 3. A process of the background does not write: the terminal may stop it.
progress_draw() {
	last='' took='' shown=0
	read -r last took <"$progress_log.took" || :
	: "${progress_all:=$last}"
	[ "$progress_all" = "$last" ] || took='' # of other tests
	while sleep 1 && kill -0 $$; do
		# state ppid pgrp session tty tpgid
		# shellcheck disable=SC2046 # words
		set -- $(sed 's/.*) //' /proc/$$/stat)
		[ "$3" = "$6" ] || continue
		lines=$(wc -l <"$progress_log")
		if [ -n "$progress_show" ] && [ "$lines" -gt "$shown" ]; then
			printf '\r\033[K' >&3
			sed -n "$((shown + 1)),${lines}p" "$progress_log"
			shown=$lines
			echo "$shown" >"$progress_log.shown"
		fi
		if [ -n "$progress_results" ]; then
			what=$(find "$progress_results" -name '*.log' | while read -r log; do
				[ -e "${log%.log}.result" ] || echo "${log#"$progress_results"/}"
			done | sed 's/\.log$//' | head -n 2 | paste -sd' ')
		else
			what=$(tail -n 1 "$progress_log" | tr -cd ' -~' | sed 's/^ *//' | cut -c1-50)
		fi
		spent=$(($(date +%s) - progress_begun)) finished=$(progress_done)
		text="$progress_name:${what:+ $what:}"
		[ -z "$progress_all" ] || text="$text $finished of $progress_all,"
		if [ -n "$took" ]; then
			text="$text $((took > spent ? took - spent : 0)) s left"
		else
			text="$text $spent s"
		fi
		width=$(stty size <&3 | cut -d' ' -f2)
		[ "${width:-0}" -gt 1 ] || width=80
		printf '\r\033[K%.*s' $((width - 1)) "$text" >&3
	done
}
