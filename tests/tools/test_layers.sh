#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The tools' files are layers: no two object files of a tool need each other, directly or in a circle. Usage: test_layers.sh BUILD_DIR SIM_DIR.
set -u

# shellcheck source=tests/tools/lib.sh
. "$(dirname "$0")/lib.sh"

# circle OBJECT...: prints files that need each other; fails if there are any
circle() {
	python3 -c '
import subprocess, sys
def nm(which, path):
    out = subprocess.run(["nm", "-g", which, path], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in out.splitlines() if line.strip()}
objects = sys.argv[1:]
owner = {s: o for o in objects for s in nm("--defined-only", o)}
needs = {o: {owner[s] for s in nm("--undefined-only", o) if s in owner} - {o} for o in objects}
def reaches(start):
    seen, todo = set(), list(needs[start])
    while todo:
        o = todo.pop()
        if o not in seen:
            seen.add(o)
            todo += needs[o]
    return seen
bad = sorted(o for o in objects if o in reaches(o))
for o in bad:
    print(o)
sys.exit(bool(bad) or not any(needs.values()))
' "$@" >"$out"
}

cd "$root" || exit 1
for tool in apiperf copybw copylat pplat sanity; do
	set --
	for source in "perf/$tool.c" perf/common/*.c "perf/$tool"/*.c; do
		[ -e "$source" ] && set -- "$@" "$build/${source%.c}.o"
	done
	check "$tool: no two files need each other" circle "$@"
done

# The test of the test: two files that do.
printf 'int b(void); int a(void) { return b(); }\n' >"$tmp/a.c"
printf 'int a(void); int b(void) { return a(); }\n' >"$tmp/b.c"
for f in a b; do
	${CC:-cc} -c -o "$tmp/$f.o" "$tmp/$f.c" 2>"$err"
done
circle "$tmp/a.o" "$tmp/b.o"
check "a circle is noticed" [ "$(wc -l <"$out")" -eq 2 ]
finish
