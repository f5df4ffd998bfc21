#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Tests of gdrcopy_sanity on the stand-ins: every backend and mode passes, options and exit codes
# are right, and each of several planted faults is found. Usage: test_sanity.sh BUILD_DIR SIM_DIR.
set -u

# shellcheck source=tests/tools/lib.sh
. "$(dirname "$0")/lib.sh"
hide='^ok'
tool=$build/gdrcopy_sanity
node=$sim/libgdrdrv_node.so

# good NAME BACKEND WAIVED [VAR=value...] -- [option...]: all pass, so many are waived
good() {
	name=$1
	backend=$2
	waived=$3
	shift 3
	vars=
	while [ "$1" != -- ]; do
		vars="$vars $1"
		shift
	done
	shift
	# shellcheck disable=SC2086 # several words
	run $vars "$tool" --sim "$sim" --timeout 20 "$@"
	if ! grep -q "^mapping: .*backend $backend," "$out"; then
		fail "$name" "not served by $backend"
	else
		expect "$name" 0 "^[0-9]+ passed, 0 failed, $waived waived\$"
	fi
}

# ---- every backend and mode ----------------------------------------------------------------------
# Waived everywhere: kernel_pins, which asks a kernel driver, and without a node fd_*.
good 'rm' rm 3 GDRSIM_DRIVER_VERSION=13000 --
good 'rm: cuMemCreate' rm 4 GDRSIM_DRIVER_VERSION=13000 -- -a cuMemCreate
good 'rm: SYNC_MEMOPS is not there from the start, late copies' rm 3 GDRSIM_SYNC_MEMOPS=0 \
	GDRSIM_ASYNC_DELAY_US=200 --
good 'rm: memory of many objects' rm 3 GDRSIM_RM_OBJECT_MIB=2 --
good 'rm: exportable memory alone' rm 4 GDRSIM_DMABUF=0 --
good 'rm: cached memory' rm 3 GDRSIM_COHERENT=1 --
good 'dmabuf' dmabuf 3 GDRSIM_DRIVER_VERSION=13030 --
good 'dmabuf: cuMemCreate' dmabuf 4 GDRSIM_DRIVER_VERSION=13030 -- -a cuMemCreate
good 'dmabuf: SYNC_MEMOPS is not there from the start, late copies' dmabuf 3 \
	GDRSIM_DRIVER_VERSION=13030 GDRSIM_SYNC_MEMOPS=0 GDRSIM_ASYNC_DELAY_US=200 --
good 'dmabuf: force-PCIe pins' dmabuf 3 GDRSIM_DRIVER_VERSION=13030 GDRSIM_DMABUF_PCIE=1 --
good 'host' host 12 -- -a cuMemHostAlloc
good 'second device' rm 3 GDRSIM_DEVICES=2 -- -d 1
for level in 2.0 2.3 2.4 2.5 2.6; do
	for persistent in 0 1; do
		good "gdrdrv $level, persistent $persistent" gdrdrv 1 LD_PRELOAD="$node" \
			GDRSIM_NODE_LEVEL=$level GDRSIM_NODE_PERSISTENT=$persistent \
			GDRSIM_NODE_POLL=0 --
	done
done
for persistent in 0 1; do
	good "gdrdrv with notice, persistent $persistent" gdrdrv 3 LD_PRELOAD="$node" \
		GDRSIM_NODE_PERSISTENT=$persistent GDRSIM_NODE_POLL=1 --
	good "gdrdrv: cuMemCreate, persistent $persistent" gdrdrv '[0-9]+' LD_PRELOAD="$node" \
		GDRSIM_NODE_PERSISTENT=$persistent -- -a cuMemCreate
done
good 'gdrdrv: force-PCIe pins, large handles' gdrdrv 1 LD_PRELOAD="$node" GDRSIM_NODE_POLL=0 \
	GDRSIM_NODE_PCIE=1 GDRSIM_NODE_HANDLE=5000000000 --

# ---- options and exit codes ----------------------------------------------------------------------
run "$tool" -l
expect '-l lists' 0 '^access_after_free +'
run "$tool" --help
expect '--help' 0 '^Usage: gdrcopy_sanity'
run "$tool" --version
expect '--version' 0 '^gdrcopy_sanity [0-9.]+ \(libgdrapi 2\.6\)$'
run "$tool" --sim "$sim" -t basic -t offsets
expect '-t twice' 0 '^2 passed, 0 failed, 0 waived$'
run "$tool" --sim "$sim" -t fd_calls
expect 'all waived: exit 2' 2 '^0 passed, 0 failed, 1 waived$'
run "$tool" --sim "$sim" -t mapping_type -v
expect '-v tells what was found out' 0 'the default mapping is Write Combining'
run "$tool" --sim "$sim" -t basic -t fd_calls --json
expect '--json' 0 '"waived": *1'
if command -v python3 >/dev/null; then
	if python3 -m json.tool "$out" >/dev/null 2>>"$err"; then
		pass '--json is a document'
	else
		fail '--json is a document' 'it cannot be parsed'
	fi
else
	skip '--json is a document' 'no python3'
fi
run "$tool" -t nonsense
expect 'an unknown test' 1 '' 'nonsense: there is no such test'
for bad in -Z stray '-a malloc' '-d x' '--timeout 0' --sim=/nonexistent; do
	# shellcheck disable=SC2086 # several words
	run "$tool" $bad
	expect "bad: $bad" 1 '' 'gdrcopy_sanity'
done
run "$tool" --sim "$sim" -d 7
expect 'no such device: exit 2' 2 '' 'cannot run here: there is no device 7'
run GDRSIM_DEVICES=0 "$tool" --sim "$sim"
expect 'no device at all: exit 2' 2 '' 'cannot run here: cuInit'
run GDRCOPY_BACKEND=gdrdrv "$tool" --sim "$sim"
expect 'no backend: exit 2' 2 '' 'cannot run here: barcopy_open'
run GDRCOPY_BACKEND=host "$tool" --sim "$sim"
expect 'no GPU memory is reached: exit 2' 2 '' 'cannot run here: no GPU memory can be reached'
check 'no GPU memory is reached: no result' sh -c "! grep -Eq 'ed: 0|passed|^ok' '$out'"
run GDRSIM_RM=absent GDRSIM_INTEGRATED=1 "$tool" --sim "$sim" -t basic
expect 'an integrated GPU: its host memory' 0 '^memory: +cuMemHostAlloc: memory that CPU and GPU share$'
run "$tool" --sim "$sim" -t basic -a cuMemHostAlloc
expect 'host memory on request, and says so' 0 '^memory: +cuMemHostAlloc: host memory$'
run GDRSIM_RM=absent "$tool" --sim "$sim" -a cuMemAlloc
expect 'a kind that cannot be pinned: exit 2' 2 '' 'cannot run here: .*cuMemAlloc'

# ---- it can fail ---------------------------------------------------------------------------------
# planted FAULT TEST [VAR=value...]: exit 1, by that test, and the run goes on to its end
planted() {
	fault=$1
	test=$2
	shift 2
	run "$@" "$tool" --sim "$sim" -t "$test" -t versions --timeout 2
	if grep -q '^ok  *versions' "$out"; then
		expect "planted: $fault: $test fails" 1 "^FAILED  *$test: "
	else
		fail "planted: $fault: $test fails" 'the next test was not run, or did not pass'
	fi
}

if ${CC:-cc} -shared -fPIC -D_GNU_SOURCE= -I"$root/include" -o "$tmp/faulty.so" "$here/faulty.c" \
	-ldl 2>"$err"; then
	for pair in write:basic write:offsets read:basic read:unaligned info:unaligned \
		unmap:access_after_unmap flag:access_after_free child:fork_calls crash:words \
		hang:pointer; do
		planted "${pair%:*}" "${pair#*:}" FAULT="${pair%:*}" LD_PRELOAD="$tmp/faulty.so"
	done
	planted 'leak' leaks FAULT=leak LD_PRELOAD="$tmp/faulty.so $node"
	planted 'leak' access_after_close FAULT=leak LD_PRELOAD="$tmp/faulty.so"
	planted 'dontfork' fork_access FAULT=dontfork LD_PRELOAD="$tmp/faulty.so"
	run FAULT=hang LD_PRELOAD="$tmp/faulty.so" "$tool" --sim "$sim" -t pointer --timeout 1
	expect 'a hang says so' 1 'not finished after 1 s'
	run FAULT=crash LD_PRELOAD="$tmp/faulty.so" "$tool" --sim "$sim" -t words
	expect 'a crash says so' 1 'ended by a signal: Segmentation fault'
else
	skip 'planted faults' 'no C compiler for the preloaded library'
fi

finish
