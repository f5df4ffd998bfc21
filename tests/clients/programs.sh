#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Programs that call GDRCopy, unmodified, on a GPU with this library. Build each by its own
# documentation, against this library's installed gdrapi.h.
#   programs.sh PREFIX NAME=PROGRAM...
# PREFIX: of `make install prefix=PREFIX`. NAME=PROGRAM, one or more of
#   dpdk=.../dpdk-test-gpudev             DPDK with its CUDA driver; add your GPU to its PCI table
#   aws_ofi_nccl=.../tests/unit/gdrcopy   aws-ofi-nccl's unit test
#   mscclpp=.../unit_tests                MSCCL++'s unit tests; see docs/clients.md
#   uccl=.../bench_gdrcopy                UCCL's copies, and cuMemcpy
#   uccl_fifo=.../bench_device_fifo       UCCL's queue from the CPU to a running kernel
# Prints `ok NAME` or `not ok NAME`, and the program's lines about its tests and times. A program
# without a pin through this library is `not ok`.
set -u
prefix=$(realpath "${1:?prefix of the installed library}")
shift
lib=$(dirname "$(find "$prefix" -name libgdrapi.so.2 | head -n 1)")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} GDRCOPY_PATH_L=$lib GDRCOPY_STATS=1
failed=0

# arguments NAME: the program's arguments. DPDK: no huge pages, no files of its own.
arguments() {
	case $1 in
	dpdk) echo "--no-huge --in-memory --no-telemetry -m 64 -l 0" ;;
	mscclpp) echo "--filter=Gdr" ;;
	uccl) echo "-s 65536 -c" ;;
	esac
}

# passed NAME FILE: whether its output says that every test passed.
passed() {
	case $1 in
	dpdk) [ "$(grep -c 'TEST: PASSED' "$2")" = 5 ] && ! grep -q 'TEST: FAILED' "$2" ;;
	mscclpp) grep -q 'PASSED' "$2" && ! grep -qE 'SKIPPED|FAILED' "$2" ;;
	uccl) grep -q gdr_copy_from_mapping "$2" && ! grep -q ERROR "$2" ;;
	esac
}

# facts NAME: the lines of its output that a reader wants.
facts() {
	case $1 in
	dpdk) grep -E '=======>|set from CPU' ;;
	mscclpp) grep -E '^\[ +(OK|PASSED|FAILED|SKIPPED) ' ;;
	uccl) awk '$2 == 1 || $2 == 8 || $2 == 64 || $2 == 1024 || $2 == 4096 || $2 == 65536' ;;
	*) tail -n 12 ;;
	esac
}

for pair in "$@"; do
	name=${pair%%=*} program=$(realpath "${pair#*=}")
	# shellcheck disable=SC2046 # words
	timeout 120 "$program" $(arguments "$name") >"$work/out" 2>"$work/stats"
	status=$?
	pins=$(sed -n 's/^  pins \([0-9]*\).*/\1/p' "$work/stats" | head -n 1)
	if [ $status = 0 ] && [ "${pins:-0}" -gt 0 ] && passed "$name" "$work/out"; then
		echo "ok $name: $pins pins"
	else
		echo "not ok $name: status $status, ${pins:-no} pins"
		tail -n 5 "$work/stats"
		failed=1
	fi
	facts "$name" <"$work/out" | sed 's/^/    /'
done
exit $failed
