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
		expect "$name" 0 "^Total: [0-9]+, Passed: [0-9]+, Failed: 0, Waived: $waived\$"
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
good 'rm: cached memory' rm 4 GDRSIM_COHERENT=1 --
good 'dmabuf' dmabuf 3 GDRSIM_DRIVER_VERSION=13030 --
good 'dmabuf: cuMemCreate' dmabuf 4 GDRSIM_DRIVER_VERSION=13030 -- -a cuMemCreate
good 'dmabuf: SYNC_MEMOPS is not there from the start, late copies' dmabuf 3 \
	GDRSIM_DRIVER_VERSION=13030 GDRSIM_SYNC_MEMOPS=0 GDRSIM_ASYNC_DELAY_US=200 --
good 'dmabuf: force-PCIe pins' dmabuf 3 GDRSIM_DRIVER_VERSION=13030 GDRSIM_DMABUF_PCIE=1 --
good 'host' host 15 -- -a cuMemHostAlloc
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
documented gdrcopy_sanity
run "$tool" --version
expect '--version' 0 '^gdrcopy_sanity [0-9.]+ \(libgdrapi 2\.6\)$'
run "$tool" --sim "$sim" -t basic -t offsets
expect '-t twice' 0 '^Total: 2, Passed: 2, Failed: 0, Waived: 0$'
run "$tool" --sim "$sim" -t fd_calls
expect 'all waived: exit 2' 2 '^Total: 1, Passed: 0, Failed: 0, Waived: 1$'
check 'the summary is the last line' sh -c "tail -n 1 '$out' | grep -q '^Total: 1, '"
run "$tool" --sim "$sim" -t basic -s
expect '-s: no summary' 0 '^ok  *basic$'
check '-s: no summary: none' sh -c "! grep -q Total '$out'"
run "$tool" --sim "$sim" -t basic -e
expect '-e is taken' 0 '^Total: 1, Passed: 1, Failed: 0, Waived: 0$'

ln -s "$tool" "$tmp/sanity"
run "$tmp/sanity" --sim "$sim" -t basic
expect 'as a link of its plain name' 0 '^Total: 1, Passed: 1, '

# ---- in one process ------------------------------------------------------------------------------
run LD_PRELOAD="$sim/libnvidia_node.so" "$tool" --sim "$sim" --quick
expect '--quick: all that needs no process of its own' 0 '^Total: 2[0-9], Passed: 2[0-9], Failed: 0, Waived: 0$'
run GDRCOPY_STATS=1 "$tool" --sim "$sim" --quick
check '--quick: one process looks at the memory, one runs the tests' [ "$(grep -c 'copies to the GPU' "$err")" = 2 ]
run LD_PRELOAD="$sim/libnvidia_node.so" "$tool" --sim "$sim" -q -a cuMemCreate --json
expect '--quick: a waiver, and the tests after it' 0 '"waived": *1'
run "$tool" --sim "$sim" -q -t words -t basic_cumemalloc -t basic_vmmalloc
expect '--quick: chosen tests, of two kinds of memory' 0 '^Total: 3, Passed: 3, '
run "$tool" --sim "$sim" -q -t two_processes
expect '--quick: a test that needs processes' 1 '' 'needs a process of its own'
run GDRSIM_DEVICES=0 "$tool" --sim "$sim" -q
expect '--quick without a GPU: exit 2' 2 '' 'cannot run here: cuInit'

# ---- GDRCopy's names -----------------------------------------------------------------------------
run "$tool" --sim "$sim" -t basic_v2_cumemalloc -t basic_vmmalloc
expect 'names with a kind of memory: cuMemAlloc' 0 '^ok  *basic \(cuMemAlloc\)$'
expect 'names with a kind of memory: cuMemCreate' 0 '^ok  *basic \(cuMemCreate\)$'
expect 'names with a kind of memory: two runs' 0 '^Total: 2, Passed: 2, '
run "$tool" --sim "$sim" -t basic_v2_cumemalloc -t basic -a cuMemCreate
expect '-a is stronger than a name' 0 '^memory: +cuMemCreate: '
expect '-a is stronger than a name: one run' 0 '^Total: 1, Passed: 1, '
run "$tool" --sim "$sim" -t data_validation_cumemalloc
expect 'a name that stands for several' 0 '^Total: 3, Passed: 3, '
for name in basic_unaligned_mapping_ basic_x _cumemalloc basic_cumemalloc_vmmalloc; do
	run "$tool" --sim "$sim" -t "$name"
	expect "no such name: $name" 1 '' "$name: there is no such test"
done
# Every name of tests/sanity.cpp of GDRCopy 2.6: each with a test behind it.
names=
for stem in basic basic_v2 basic_v2_forcepci invalidation_access_after_gdr_close \
	invalidation_access_after_free invalidation_two_mappings invalidation_fork_access_after_free \
	invalidation_fork_after_gdr_map invalidation_fork_child_gdr_map_parent \
	invalidation_fork_map_and_free invalidation_unix_sock_shared_fd_gdr_pin_buffer \
	invalidation_unix_sock_shared_fd_gdr_map basic_child_thread_pins_buffer; do
	names="$names -t ${stem}_cumemalloc -t ${stem}_vmmalloc"
done
for name in basic_with_tokens basic_unaligned_mapping basic_small_buffers_mapping attributes_sanity \
	data_validation_cumemalloc data_validation_v2_cumemalloc data_validation_vmmalloc \
	data_validation_v2_forcepci_cumemalloc data_validation_mix_mappings_cumemalloc \
	invalidation_fork_child_gdr_pin_parent_with_tokens leakage_pin_pages_fork_cumemalloc; do
	names="$names -t $name"
done
# shellcheck disable=SC2086 # several words
run "$tool" --sim "$sim" $names
expect "all of GDRCopy's names" 0 '^Total: [0-9]+, Passed: [0-9]+, Failed: 0, '
run "$tool" -l
for name in $names; do
	[ "$name" = -t ] && continue
	name=${name%_cumemalloc}
	name=${name%_vmmalloc}
	grep -Eq "^$name(:| )" "$out" || fail "-l has $name"
done
pass "-l has all of GDRCopy's names"

# ---- what is printed -----------------------------------------------------------------------------
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
	# is_error STATUS TEXT: stdout is the document of a run without a result
	is_error() {
		python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert d["tool"] == "gdrcopy_sanity" and d["exit_status"] == int(sys.argv[2]), d
assert sys.argv[3] in d["error"], d
' "$out" "$@"
	}
	run GDRSIM_DEVICES=0 "$tool" --sim "$sim" --json
	expect '--json without a GPU: exit 2' 2 '' 'cannot run here: cuInit'
	check '--json without a GPU: a document' is_error 2 CUDA_ERROR_NO_DEVICE
	run GDRCOPY_BACKEND=host "$tool" --sim "$sim" --json
	check '--json, no GPU memory is reached: a document' is_error 2 'no GPU memory can be reached'
	run "$tool" --sim "$sim" --json -t nonsense
	check '--json, no such test: a document' is_error 1 'nonsense: there is no such test'
else
	skip '--json is a document' 'no python3'
fi
for args in "-t basic" "-t basic --json" -l --help; do
	# shellcheck disable=SC2086 # several words
	env "$tool" --sim "$sim" $args >/dev/full 2>"$err"
	rc=$?
	: >"$out"
	expect "a full disk: $args" 1 '' 'gdrcopy_sanity: .*(No space|JSON|written)'
done
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
check 'no GPU memory is reached: no result' sh -c "! grep -Eq 'Failed: 0|^ok' '$out'"
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
		unmap:access_after_unmap unmap:unmap_after_free flag:access_after_free child:fork_calls crash:words \
		hang:pointer write:two_types write:force_pcie read:free_in_parent \
		write:free_in_child; do
		planted "${pair%:*}" "${pair#*:}" FAULT="${pair%:*}" LD_PRELOAD="$tmp/faulty.so"
	done
	planted 'leak' leaks FAULT=leak LD_PRELOAD="$tmp/faulty.so $node"
	planted 'leak' access_after_close FAULT=leak LD_PRELOAD="$tmp/faulty.so"
	planted 'dontfork' fork_access FAULT=dontfork LD_PRELOAD="$tmp/faulty.so"
	run FAULT=open LD_PRELOAD="$tmp/faulty.so" "$tool" --sim "$sim" -t close_after_free
	expect 'a waiver has the whole reason' 2 \
		'^waived  close_after_free: barcopy_open\(BARCOPY_OPEN_ANY\): .*; load gdrdrv'
	for pair in write:basic read:unaligned crash:words hang:pointer; do
		run FAULT="${pair%:*}" LD_PRELOAD="$tmp/faulty.so" "$tool" --sim "$sim" -q --timeout 1
		expect "planted: ${pair%:*}, --quick: found" 1 "^FAILED  *${pair#*:}: "
		expect "planted: ${pair%:*}, --quick: goes on" 1 '^ok  *versions$'
		expect "planted: ${pair%:*}, --quick: and counts" 1 '^Total: 2[0-9], '
	done
	run FAULT=hang LD_PRELOAD="$tmp/faulty.so" "$tool" --sim "$sim" -t pointer --timeout 1
	expect 'a hang says so' 1 'not finished after 1 s'
	run FAULT=crash LD_PRELOAD="$tmp/faulty.so" "$tool" --sim "$sim" -t words
	expect 'a crash says so' 1 'ended by signal 11 \(Segmentation fault\)'
else
	skip 'planted faults' 'no C compiler for the preloaded library'
fi

finish
