#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds and runs perf/queue/ports.cu on a GPU: what ports cost, beside a version with queues of posts.
#   ports.sh BUILD [-b TREE] [MILLIONS]
# BUILD: a build folder of this tree. TREE: a checkout of that version, built in TREE/build; without it, its
# column is left out. MILLIONS (20): of posts that are compared, with a tenth of calls.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
build=$(realpath "${1:?a build folder}")
shift
tree=
if [ "${1:-}" = -b ]; then
	tree=$(realpath "$2")
	shift 2
fi
PATH=$PATH:/usr/local/cuda/bin
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export CUDA_MODULE_LOADING=EAGER
nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.current,pcie.link.width.current --format=csv,noheader || true
grep -m 1 "model name" /proc/cpuinfo || true
# sm_90: a dependent launch overlaps the kernel before it from there on.
arch=${ARCH:-sm_90}

# run NAME TREE BUILD [ARGUMENT...]
run() {
	local name=$1 source=$2 lib=$3
	shift 3
	nvcc -O3 -std=c++17 -arch="$arch" ${flags:+"$flags"} -I"$source/include" -o "$tmp/$name" "$here/perf/queue/ports.cu" \
		-L"$lib" -lgdrapi
	LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} timeout 540 "$tmp/$name" "$@"
}
if [ -n "$tree" ]; then
	flags=-DTODAY run before "$tree" "$tree/build" | tee "$tmp/before.out"
fi
run ports "$here" "$build" "${1:-20}" | tee "$tmp/ports.out"
if [ -n "$tree" ]; then
	echo "--- ports beside before"
	awk '{ value = $(NF - 1); unit = $NF; what = substr($0, 10, 48) }
		NR == FNR { old[what] = value; next }
		what in old && unit ~ /^(M\/s|us)$/ {
			printf "%s %8.2f %8.2f %s, %.2f times\n", what, old[what], value, unit, value / old[what] }' \
		"$tmp/before.out" "$tmp/ports.out"
fi
