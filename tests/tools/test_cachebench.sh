#!/bin/sh
# SPDX-License-Identifier: MIT
# cachebench on the stand-in prints its figures, in words and as JSON.
# Usage: test_cachebench.sh BUILD_DIR SIM_DIR.
set -u

# shellcheck source=tests/tools/lib.sh
. "$(dirname "$0")/lib.sh"
tool=$build/cachebench

few="-n 2000 -r 200"

# shellcheck disable=SC2086 # a list of words
run "$tool" --sim "$sim" -a cuMemCreate $few
for text in "hit, notified" "hit, tag check" "pin, map, unmap, unpin"; do
	expect "prints \"$text\"" 0 "$text"
done
expect "200 regions" 0 '^ +200 +[0-9.]+ +[0-9.]+ '

# shellcheck disable=SC2086
run "$tool" --sim "$sim" -a cuMemCreate $few --json
check "JSON" python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert d["simulated"] is True
assert [g["regions"] for g in d["growth"]] == [10, 100, 200]
assert all(d[k] > 0 for k in ("hit_ns", "hit_with_tag_check_ns", "pin_map_unmap_unpin_ns"))
' "$out"
run "$tool" --sim "$sim" -n 0
expect "a bad count" 1 '' '.'
run "$tool" --help
expect "help" 0 ' --regions'
finish
