#!/bin/sh
# SPDX-License-Identifier: MIT
# Measures the copies on a machine with a GPU and tests their order: copybench, litmus, and that
# litmus can fail. Some minutes on an H200.
#
#   perf/h200.sh [BUILD [OUT]]     prints its results; OUT: a folder for copybench.json (BUILD)
#
# Exits 0 if litmus found no wrong block in the library's copies, and some in unfenced ones. BUILD
# has copybench, litmus, libgdrapi.so.2* and, to run it too, tests/gpu_test_copy_options.
set -u

build=${1:-build}
out=${2:-$build}
status=0
start=$(date +%s)

say() {
	printf '\n==== %s s: %s\n' "$(($(date +%s) - start))" "$*"
}

run() {
	log=$(timeout 150 "$build/litmus" "$@" 2>&1)
	rc=$?
	printf '%s\n' "$log" | grep -vE '^(GPU|CPU|buffer|mapping):'
	return $rc
}

right() { # right WHAT ARG...
	say "litmus: $1"
	shift
	run "$@" || { status=1 && echo "WRONG: exit $?"; }
}

say "host: $(uname -srm), $(nproc) CPUs, $(date -u +%Y-%m-%d)"
grep -m1 'model name' /proc/cpuinfo
tr ' ' '\n' </proc/cpuinfo | grep -E '^(movdir|avx512f$)' | sort -u | paste -sd' '
[ ! -e "$build/litmus" ] || timeout 60 "$build/litmus" -n 1 -k message -s 64 | grep -E '^(GPU|CPU|buffer|mapping):'

say "copybench"
timeout 90 "$build/copybench" --max 32M >"$out/copybench.json" || status=1
python3 "$(dirname "$0")/tables.py" --show "$out/copybench.json"

# ---- copies that must be right ----
right "the library's copies" -n 100000
right "blocks at offset 40" -n 20000 -o 40
right "blocks under a line" -n 200000 -s 8
right "blocks under a line, at an offset" -n 100000 -s 24 -o 56
right "ORDERED reads" -n 500000 -k readv
right "posted flags" -n 1000000 -k post
# The three ways of a posted line: MOVDIR64B; 56 bytes, a fence and MOVDIRI; the same and a store with its fence.
for mask in all -movdir64b -movdir64b,-movdiri; do
	export GDRCOPY_CPU_MASK=$mask
	right "posted lines, features $mask" -n 10000000 -k line -s 64
done
unset GDRCOPY_CPU_MASK
for kind in message reread mapflag seqlock ring write; do
	right "by the GPU's copy engine, $kind" --engine -n 10000 -k $kind
done
if [ -x "$build/tests/gpu_test_copy_options" ]; then
	say "copy options on the GPU"
	GDRCOPY_TEST_FULL=1 timeout 120 "$build/tests/gpu_test_copy_options" || [ $? = 77 ] || status=1
fi

for kind in dmaread dmawrite; do
	right "no flush before CUDA's copy, $kind" -n 300000 -k $kind
	right "no flush before CUDA's copy of 64 KiB, $kind" -n 30000 -k $kind -s 64K
	right "no flush before CUDA's copy of 8 bytes, $kind" -n 300000 -k $kind -s 8
done

# ---- hardware behaviour on which the library does not rely ----
for impl in avx512 avx2 sse4.1; do
	say "litmus: $impl, no fences (for information)"
	run -n 20000 -k message -i $impl --no-fence
	right "$impl, fenced" -n 20000 -k message -i $impl
done
say "litmus: writes without fences (for information)"
run -n 20000 -k write --no-fence
run -n 20000 -k writev --no-fence

say "litmus: 32-byte loads, else plain ones, without fences must find stale blocks"
if run -n 20000 -k message -i avx2 --no-fence --expect-stale ||
	run -n 20000 -k message -i baseline --no-fence --expect-stale; then
	echo "as expected: stale blocks were found"
else
	echo "NO stale block was found: litmus has not shown that it can fail"
	status=1
fi

say "exit $status"
exit $status
