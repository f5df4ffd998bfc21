#!/bin/sh
# SPDX-License-Identifier: MIT
# gdrcopy_cachebench on the stand-in: its figures are there, in words and as JSON.
# Usage: test_cachebench.sh BUILD_DIR SIM_DIR.
set -u
build=$(cd "$1" && pwd) || exit 1
sim=$(cd "$2" && pwd) || exit 1
tool=$build/gdrcopy_cachebench
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
unset GDRSIM_FAIL GDRSIM_DEVICES GDRCOPY_BACKEND
passed=0 failed=0

check() {
	name=$1
	shift
	if "$@"; then
		passed=$((passed + 1))
		echo "ok $((passed + failed)) - $name"
	else
		failed=$((failed + 1))
		echo "not ok $((passed + failed)) - $name"
		sed 's/^/#   /' "$out"
	fi
}

few="-n 2000 -p 5 -r 200 -t 2"

# shellcheck disable=SC2086 # a list of words
"$tool" --sim "$sim" -a cuMemCreate $few >"$out" 2>&1
check "exit 0" [ $? = 0 ]
for text in "hit, notified" "hit, tag check" "pin, map, unmap, unpin" "2 threads at once"; do
	check "says \"$text\"" grep -q "$text" "$out"
done
check "200 regions" grep -Eq '^ +200 +[0-9.]+ +[0-9.]+ ' "$out"

# shellcheck disable=SC2086
"$tool" --sim "$sim" -a cuMemCreate $few --json >"$out" 2>&1
check "JSON" python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert d["simulated"] is True
assert [g["regions"] for g in d["growth"]] == [10, 100, 200]
assert all(d[k] > 0 for k in ("hit_ns", "hit_with_tag_check_ns", "pin_map_unmap_unpin_ns"))
' "$out"
"$tool" --sim "$sim" -t 0 >"$out" 2>&1
check "a bad count is exit 1" [ $? = 1 ]
"$tool" --help >"$out" 2>&1
check "help" grep -q -- --regions "$out"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
