#!/bin/sh
# SPDX-License-Identifier: MIT
# gdrcopy_litmus against a thread and gdrcopy_copybench on host memory: they run without a GPU, their
# JSON is JSON, and their exit codes mean what they say.
#   test_copy_tools.sh BUILD_DIR
set -u
out=$1
passed=0 failed=0
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

# expect NAME EXIT_CODE COMMAND...
expect() {
	name=$1 want=$2
	shift 2
	"$@" >"$log" 2>&1
	got=$?
	if [ "$got" = "$want" ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "not ok: $name: exit $got, not $want"
		tail -n 5 "$log"
	fi
}

is_json() {
	"$@" | python3 -c 'import json, sys; json.load(sys.stdin)'
}

litmus="$out/gdrcopy_litmus --peer thread"
bench="$out/gdrcopy_copybench --host --max 4K --rounds 1"
# shellcheck disable=SC2086 # commands with their first arguments
{
	expect "litmus, all kinds" 0 $litmus -n 300
	expect "litmus, other offset" 0 $litmus -n 300 -o 40 -s 72
	expect "litmus, portable row" 0 $litmus -n 300 -i ref -k message
	expect "litmus finds nothing where stale data is wanted" 1 $litmus -n 300 -k write --expect-stale
	expect "litmus, no such row" 1 $litmus -n 1 -i nothing
	expect "litmus, size not of words" 1 $litmus -n 1 -s 65
	expect "litmus --json" 0 is_json $litmus -n 100 --json
	expect "copybench" 0 $bench
	expect "copybench --json" 0 is_json $bench --json
}
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
