#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What a tool inherits from its parent: closed standard descriptors, SIGCHLD ignored, a low limit of
# descriptors. It names the cause or works all the same; it never reports half a report as a success, and
# never a machine as broken. Usage: test_inherited.sh BUILD_DIR SIM_DIR.
# shellcheck source=tests/tools/lib.sh
. "$(dirname "$0")/lib.sh"
export GDRSIM_DRIVER_VERSION=13030

# least TOOL: sets $args, little work
least() {
	case $1 in
	copy*) args="-s 4K -w 3 -r 3" ;;
	pplat) args="-s 64 -t 3 -u 60" ;;
	apiperf) args="-s 64K -n 3" ;;
	sanity) args="-t offsets" ;;
	*) args="" ;;
	esac
}

# ---- closed descriptors ---------------------------------------------------------------------------
# The first file that is opened gets the lowest free number: what is printed must not go there.
for t in copybw copylat pplat apiperf sanity doctor; do
	least $t
	failure=1
	[ $t != doctor ] || failure=2
	for form in "" --json; do
		tool="$build/gdrcopy_$t --sim $sim $args $form"
		while IFS='|' read -r name redirected status words; do
			: >"$out"
			: >"$err"
			eval "timeout 60 $tool $redirected"
			rc=$?
			expect "$t: $form: $name" "$status" '' "$words"
		done <<-END
			no standard output|</dev/null >&- 2>"\$err"|$failure|^gdrcopy_$t: (standard output: Bad file descriptor|cannot write the JSON text)$
			neither input nor output|<&- >&- 2>"\$err"|$failure|^gdrcopy_$t: 
			no standard descriptor at all|<&- >&- 2>&-|$failure|
			output alone|<&- >"\$out" 2>&-|0|
		END
		check "$t: $form: output alone: is whole" grep -Eq 'verified|Passed: 1|passed": 1|In short|verdict' "$out"
	done
done

# ---- SIGCHLD is ignored ---------------------------------------------------------------------------
# Then the kernel reaps children by itself, and wait() finds none.
ignoring() {
	run timeout 60 python3 -c '
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])' "$@"
}
if command -v python3 >/dev/null; then
	ignoring "$build/gdrcopy_sanity" --sim "$sim" -t offsets --timeout 5
	expect "sanity: SIGCHLD is ignored" 0 'Passed: 1, Failed: 0'
	ignoring "$build/gdrcopy_doctor" --sim "$sim"
	expect "doctor: SIGCHLD is ignored" 0 'can be mapped on 1 of 1 GPU'
else
	skip "SIGCHLD is ignored" "no python3 to start a tool so"
fi

# ---- room for few descriptors ---------------------------------------------------------------------
few() {
	(ulimit -n 5 && exec timeout 60 "$@") >"$out" 2>"$err"
	rc=$?
}
for t in copybw sanity; do
	least $t
	# shellcheck disable=SC2086 # several words
	few "$build/gdrcopy_$t" --sim "$sim" $args
	expect "$t: 5 descriptors: exit 2" 2 '' 'cannot run here: .*(Too many open files|Error 24)'
	check "$t: 5 descriptors: nothing is called missing" sh -c "! grep -q 'not found' '$err'"
done
few "$build/gdrcopy_doctor" --sim "$sim"
expect "doctor: 5 descriptors: cannot be determined" 2 '' \
	'^gdrcopy_doctor: .* open 5 files .*ulimit -n'
# a limit that the process itself may raise is no obstacle
(
	ulimit -S -n 5 && exec "$build/gdrcopy_doctor" --sim "$sim"
) >"$out" 2>"$err"
rc=$?
expect "doctor: a limit that can be raised" 0 'can be mapped on 1 of 1 GPU'
finish
