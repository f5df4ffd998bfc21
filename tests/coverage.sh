#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Line coverage of src/ by the unit tests, the attacks, the GPU tests on the stand-in and the tests
# of the tools: a table per file, the total, and every line that was not reached.
#   tests/coverage.sh [BUILD_DIR]         default: build/coverage
#   tests/coverage.sh BUILD_DIR report    the table of what has been run there already
# What a fork's handlers do in the child is run by many tests, but never counted: gcov empties the
# child's counters after them.
# Exit 1 if a test failed or the total is below 90%.
set -u
cd "$(dirname "$0")/.." || exit 1
out=${1:-build/coverage}
case $out in /*) ;; *) out=$PWD/$out ;; esac
jobs=$(nproc 2>/dev/null || echo 1)
unset MAKEFLAGS MAKELEVEL MFLAGS LD_LIBRARY_PATH

failed=0
if [ "${2:-}" != report ]; then
	make --no-print-directory -j"$jobs" O="$out" CC=gcc \
		CFLAGS='-O0 -g --coverage -fprofile-update=atomic' LDFLAGS=--coverage build-tests \
		>"$out.log" 2>&1 || {
		tail -n 20 "$out.log"
		exit 1
	}
	find "$out" -name '*.gcda' -delete

	for t in "$out"/tests/test_* "$out"/tests/gpu_test_*; do
		[ -x "$t" ] || continue
		LD_LIBRARY_PATH=$out/sim GDRSIM_DIR=$out/sim timeout 600 "$t" >"$t.log" 2>&1 || {
			echo "FAIL $(basename "$t") (see $t.log)"
			failed=1
		}
	done
	for t in tests/tools/test_*.sh; do
		[ -f "$t" ] || continue
		timeout 600 bash "$t" "$out" "$out/sim" >"$out/$(basename "$t").log" 2>&1 || {
			echo "FAIL $(basename "$t")"
			failed=1
		}
	done
fi

# Every source is compiled twice, for the archive and for the shared library: a line is reached if
# it is reached in either.
work=$out/gcov
rm -rf "$work"
mkdir -p "$work"
root=$PWD
find "$out/src" -name '*.gcno' | while read -r note; do
	# From here, where the sources' relative names lead to them.
	gcov -t "$note" >"$work/$(echo "${note#"$out"/}" | tr / _).gcov" 2>/dev/null
done
find "$work" -name '*.gcov' -exec awk -F: -v root="$root/" '
	FNR == 1 { file = "" }
	$2 + 0 == 0 && $3 == "Source" { file = $4; sub("^" root, "", file); next }
	file ~ /^src\// && $2 + 0 > 0 {
		count = $1
		gsub(/[ *]/, "", count)
		if (count == "-")
			next
		key = file SUBSEP $2 + 0
		text = $0
		sub(/^[^:]*:[^:]*:/, "", text)
		lines[key] = text
		if (count !~ /^[#=]+$/ && count + 0 > 0)
			hit[key] = 1
	}
	END {
		for (key in lines) {
			split(key, part, SUBSEP)
			printf "%s\t%d\t%d\t%s\n", part[1], part[2], key in hit, lines[key]
		}
	}' {} + | LC_ALL=C sort -t "$(printf '\t')" -k1,1 -k2,2n >"$work/lines"

awk -F'\t' '
	{ all[$1]++; got[$1] += $3; if (!$3) {
		text = $0
		sub(/^[^\t]*\t[^\t]*\t[^\t]*\t/, "", text)
		missed[++n] = $1 ":" $2 ":" text
	} }
	!($1 in seen) { seen[$1] = 1; order[++files] = $1 }
	END {
		printf "%-40s %6s %6s %7s\n", "file", "lines", "hit", "%"
		for (i = 1; i <= files; i++) {
			f = order[i]
			printf "%-40s %6d %6d %6.1f%%\n", f, all[f], got[f], 100 * got[f] / all[f]
			a += all[f]
			g += got[f]
		}
		printf "%-40s %6d %6d %6.1f%%\n", "total", a, g, 100 * g / a
		if (n)
			print "\nnot reached:"
		for (i = 1; i <= n; i++)
			print missed[i]
		exit g < 0.9 * a
	}' "$work/lines" || failed=1
exit $failed
