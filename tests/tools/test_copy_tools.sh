#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# litmus against a thread, copybench and compare on the stand-in: they run without a GPU, their JSON is JSON, and their
# exit codes mean what they say. Usage: test_copy_tools.sh BUILD_DIR SIM_DIR.
# shellcheck source=tests/tools/lib.sh
. "$(dirname "$0")/lib.sh"

litmus="$build/litmus --peer thread"
bench="$build/copybench --sim $sim --max 4K --rounds 1"

# exits NAME EXIT_STATUS COMMAND...
exits() {
	name=$1 want=$2
	shift 2
	run "$@"
	expect "$name" "$want"
}

# shellcheck disable=SC2086 # commands with their first arguments
{
	exits "litmus, all kinds" 0 $litmus -n 300
	exits "litmus, other offset" 0 $litmus -n 300 -o 40 -s 72
	exits "litmus, portable implementation" 0 $litmus -n 300 -i ref -k message
	exits "litmus finds nothing where stale data is wanted" 1 $litmus -n 300 -k write --expect-stale
	exits "litmus, no such implementation" 1 $litmus -n 1 -i nothing
	exits "litmus, size not of words" 1 $litmus -n 1 -s 65
	exits "litmus has no JSON" 1 $litmus -n 100 --json
	exits "copybench" 0 $bench
	json "copybench: it is JSON" ''
	if command -v python3 >/dev/null; then
		cp "$out" "$tmp/copybench.json"
		exits "tables.py --show" 0 python3 -B "$root/perf/tables.py" --show "$tmp/copybench.json"
		expect "tables.py --show prints each table" 0 '^threads \(GB/s\)'
	fi
	refused "$build/copybench" 1 . <<<"-n 0"
	exits "copybench --help" 0 "$build/copybench" --help
	expect "copybench --help names --section" 0 ' --section'
}
exits "compare" 0 "$build/compare" "$build/libgdrapi.so.2" "$build/libgdrapi.so" --sim "$sim" --rounds 1
expect "compare measures each kind of call" 0 '^map, unmap '
exits "compare, no rounds" 2 "$build/compare" "$build/libgdrapi.so.2" "$build/libgdrapi.so" --rounds 0
run_full "$build/compare" "$build/libgdrapi.so.2" "$build/libgdrapi.so" --sim "$sim"
expect "compare: a full disk" 1 '' '^compare: standard output: '
finish
