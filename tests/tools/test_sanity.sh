#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Tests of gdrcopy_sanity on the stand-ins: every backend and mode passes, options and exit codes
# are right, and each of several planted faults is found. Usage: test_sanity.sh BUILD_DIR SIM_DIR
# [refresh]: that writes faults.txt.
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
good 'rm: exportable memory alone' rm 4 GDRSIM_DMABUF=0 -- -a cuMemCreate
good 'rm: cached memory' rm 4 GDRSIM_COHERENT=1 --
good 'dmabuf' dmabuf 3 GDRCOPY_BACKEND=dmabuf,rm,host GDRSIM_DRIVER_VERSION=13030 --
good 'dmabuf: cuMemCreate' dmabuf 4 GDRCOPY_BACKEND=dmabuf,rm,host GDRSIM_DRIVER_VERSION=13030 -- -a cuMemCreate
good 'dmabuf: SYNC_MEMOPS is not there from the start, late copies' dmabuf 3 \
	GDRCOPY_BACKEND=dmabuf,rm,host GDRSIM_DRIVER_VERSION=13030 GDRSIM_SYNC_MEMOPS=0 GDRSIM_ASYNC_DELAY_US=200 --
good 'dmabuf: force-PCIe pins' dmabuf 3 GDRCOPY_BACKEND=dmabuf,rm,host GDRSIM_DRIVER_VERSION=13030 GDRSIM_DMABUF_PCIE=1 --
good 'host' host 14 -- -a cuMemHostAlloc
good 'second device' rm 3 GDRSIM_DEVICES=2 -- -d 1
for level in 2.0 2.3 2.4 2.5 2.6; do
	for persistent in 0 1; do
		good "gdrdrv $level, persistent $persistent" gdrdrv 1 LD_PRELOAD="$node" \
			GDRSIM_NODE_LEVEL=$level GDRSIM_NODE_PERSISTENT=$persistent \
			GDRSIM_NODE_POPULATE=0 --
	done
done
good 'gdrdrv 2.4 beside proprietary modules' gdrdrv 2 LD_PRELOAD="$node" GDRSIM_NODE_LEVEL=2.4 GDRSIM_NODE_PERSISTENT=0 \
	GDRSIM_NODE_POPULATE=0 GDRSIM_RM_OPEN=0 --
for persistent in 0 1; do
	good "gdrdrv that populates, persistent $persistent" gdrdrv 1 LD_PRELOAD="$node" \
		GDRSIM_NODE_PERSISTENT=$persistent GDRSIM_NODE_POPULATE=1 --
	good "gdrdrv: cuMemCreate, persistent $persistent" gdrdrv '[0-9]+' LD_PRELOAD="$node" \
		GDRSIM_NODE_PERSISTENT=$persistent -- -a cuMemCreate
done
good 'gdrdrv: force-PCIe pins, large handles' gdrdrv 1 LD_PRELOAD="$node" GDRSIM_NODE_POPULATE=0 \
	GDRSIM_NODE_PCIE=1 GDRSIM_NODE_HANDLE=5000000000 --

# ---- options and exit codes ----------------------------------------------------------------------
rows "$tool" <<-'END'
	-l lists||-l|0|^access_after_free +
	--help||--help|0|^Usage: gdrcopy_sanity
	--version||--version|0|^gdrcopy_sanity [0-9.]+ \(libgdrapi 2\.6\)$
	an unknown test||-t nonsense|1||nonsense: there is no such test
END
refused "$tool" 1 gdrcopy_sanity <<-'END'
	-Z
	stray
	-a malloc
	-d x
	--timeout 0
	--sim=/nonexistent
END
documented gdrcopy_sanity
rows "$tool" --sim "$sim" <<-'END'
	-t twice||-t basic -t offsets|0|^Total: 2, Passed: 2, Failed: 0, Waived: 0$
	-e is taken||-t basic -e|0|^Total: 1, Passed: 1, Failed: 0, Waived: 0$
	all waived: exit 2||-t fd_calls|2|^Total: 1, Passed: 0, Failed: 0, Waived: 1$
END
check 'the summary is the last line' sh -c "tail -n 1 '$out' | grep -q '^Total: 1, '"
run "$tool" --sim "$sim" -t basic -s
expect '-s: no summary' 0 '^ok  *basic$'
check '-s: no summary: none' sh -c "! grep -q Total '$out'"

ln -s "$tool" "$tmp/sanity"
run "$tmp/sanity" --sim "$sim" -t basic
expect 'as a link of its plain name' 0 '^Total: 1, Passed: 1, '

# Scripts hold these names and options: others may be added, none may go. This is the order.
run "$tool" -l
for name in basic large tokens unaligned small_buffers offsets map_sizes two_handles pointer words vectors sync_memops \
	attributes versions unknown_memory handles open mapping_type two_types force_pcie vmm_chunks vmm_part host_cached \
	host_wc access_after_free free_one_of_two map_after_free unmap_after_free unpin_after_free close_after_free \
	access_after_unmap access_after_close fork_access fork_calls fork_then_unpin fork_then_close fork_open \
	two_processes free_in_child free_in_parent fd_calls fd_last_close threads_copy threads_pin threads_open leaks \
	kernel_pins; do
	echo "$name"
done >"$tmp/names"
check '-l has all names, in this order' eval 'cut -d " " -f 1 "$out" | grep -xFf "$tmp/names" | cmp - "$tmp/names"'
for option in -q --quick -s --no-summary -e --extended '-d 0' '--device 0' '-a cuMemAlloc' '--alloc cuMemCreate' \
	'--timeout 20' -v --verbose --json '-t words' '--test words'; do
	# shellcheck disable=SC2086 # several words
	run "$tool" --sim "$sim" -t basic $option
	expect "is taken: $option" 0
done

# ---- in one process ------------------------------------------------------------------------------
run LD_PRELOAD="$sim/libnvidia_node.so" "$tool" --sim "$sim" --quick
expect '--quick: all that needs no process of its own' 0 '^Total: 2[0-9], Passed: 2[0-9], Failed: 0, Waived: 0$'
run GDRCOPY_STATS=1 "$tool" --sim "$sim" --quick
check '--quick: one process looks at the memory, one runs the tests' [ "$(grep -c 'copies to the GPU' "$err")" = 2 ]
run LD_PRELOAD="$sim/libnvidia_node.so" "$tool" --sim "$sim" -q -a cuMemCreate --json
expect '--quick: a waiver, and the tests after it' 0 '"waived": *1'
run GDRCOPY_STATS=1 "$tool" --sim "$sim" -q -a cuMemCreate -t basic -t sync_memops -t versions
check '--quick: the tests after a waiver, in the same process' grep -q 'copies to the GPU: 1,' "$err"
rows "$tool" --sim "$sim" <<-'END'
	--quick: chosen tests, of two kinds of memory||-q -t words -t basic_cumemalloc -t basic_vmmalloc|0|^Total: 3, Passed: 3, 
	--quick: a test that needs processes||-q -t two_processes|1||needs a process of its own
	--quick without a GPU: exit 2|GDRSIM_DEVICES=0|-q|2||cannot run here: cuInit
	-a is stronger than a name||-t basic_v2_cumemalloc -t basic -a cuMemCreate|0|^memory: +cuMemCreate: 
	-a is stronger than a name: one run||-t basic_v2_cumemalloc -t basic -a cuMemCreate|0|^Total: 1, Passed: 1, 
	a name that stands for several||-t data_validation_cumemalloc|0|^Total: 3, Passed: 3, 
	no such name: a suffix without its end||-t basic_unaligned_mapping_|1||basic_unaligned_mapping_: there is no such test
	no such name: an unknown suffix||-t basic_x|1||basic_x: there is no such test
	no such name: a suffix alone||-t _cumemalloc|1||_cumemalloc: there is no such test
	no such name: two suffixes||-t basic_cumemalloc_vmmalloc|1||basic_cumemalloc_vmmalloc: there is no such test
END

# ---- GDRCopy's names -----------------------------------------------------------------------------
run "$tool" --sim "$sim" -t basic_v2_cumemalloc -t basic_vmmalloc
expect 'names with a kind of memory: cuMemAlloc' 0 '^ok  *basic \(cuMemAlloc\)$'
expect 'names with a kind of memory: cuMemCreate' 0 '^ok  *basic \(cuMemCreate\)$'
expect 'names with a kind of memory: two runs' 0 '^Total: 2, Passed: 2, '
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
	grep -Eq "^$name(:| )" "$out" || echo "$name"
done >"$tmp/missing"
check "-l has all of GDRCopy's names" [ ! -s "$tmp/missing" ]

# ---- what is printed -----------------------------------------------------------------------------
rows "$tool" --sim "$sim" <<-'END'
	-v shows what was found out||-t mapping_type -v|0|the default mapping is Write Combining
	--json||-t basic -t fd_calls --json|0|"waived": *1
END
json '--json is a document' 'for got, want in (d, sys.argv[2]), (d["gpu"], sys.argv[3]), (d["tests"][0], sys.argv[4]):
	assert " ".join(got) == want, got' \
	'tool version library_version simulated gpu alloc place note backend mapping persistent tests passed failed waived' \
	'device name pci libcuda' 'name alloc result reason seconds notes'
check '--json ends its last line' [ -z "$(tail -c 1 "$out")" ]
json '--json: the seconds are those of the test' 'assert all(0 < t["seconds"] < 300 for t in d["tests"])'
run GDRSIM_DEVICES=0 "$tool" --sim "$sim" --json
expect '--json without a GPU: exit 2' 2 '' 'cannot run here: cuInit'
json_error '--json without a GPU: a document' 2 CUDA_ERROR_NO_DEVICE
run GDRCOPY_BACKEND=host "$tool" --sim "$sim" --json
json_error '--json, no GPU memory is reached: a document' 2 'no GPU memory can be reached'
run "$tool" --sim "$sim" --json -t nonsense
json_error '--json, no such test: a document' 1 'nonsense: there is no such test'
for args in "-t basic" "-t basic --json" -l --help; do
	# shellcheck disable=SC2086 # several words
	run_full "$tool" --sim "$sim" $args
	expect "a full disk: $args" 1 '' 'gdrcopy_sanity: .*(No space|JSON|written)'
done
rows "$tool" --sim "$sim" <<-'END'
	no such device: exit 2||-d 7|2||cannot run here: there is no device 7
	a leading 0 is decimal, too||-d 010|2||cannot run here: there is no device 10;
	no device at all: exit 2|GDRSIM_DEVICES=0||2||cannot run here: cuInit
	no backend: exit 2|GDRCOPY_BACKEND=gdrdrv||2||cannot run here: no backend can map any memory here: .*; unset GDRCOPY_BACKEND
	an integrated GPU: its host memory|GDRSIM_RM=absent GDRSIM_INTEGRATED=1|-t basic|0|^memory: +cuMemHostAlloc: memory that CPU and GPU share$
	host memory on request, and says so||-t basic -a cuMemHostAlloc|0|^memory: +cuMemHostAlloc: host memory$
	a kind that cannot be pinned: exit 2|GDRSIM_RM=absent|-a cuMemAlloc|2||cannot run here: .*cuMemAlloc
	gdr_open() fails: exit 2|GDRSIM_RM_OPEN=0 GDRSIM_DMABUF=0||2||cannot run here: gdr_open\(\) fails, .*gdrcopy_doctor reports what to do
	gdr_open() fails, --quick: exit 2|GDRSIM_RM_OPEN=0 GDRSIM_DMABUF=0|--quick|2||cannot run here: gdr_open\(\) fails
	gdr_open() fails, -a|GDRSIM_RM_OPEN=0 GDRSIM_DMABUF=0|-t basic -a cuMemCreate|0|^memory: +cuMemCreate: GPU memory$
	gdr_open() fails, an integrated GPU|GDRSIM_RM_OPEN=0 GDRSIM_DMABUF=0 GDRSIM_INTEGRATED=1|-t basic|0|^memory: +cuMemHostAlloc: memory that CPU and GPU share$
	gdr_open() succeeds, and memory of cuMemAlloc cannot be pinned: exit 2|GDRSIM_RM_PROTECTED=1||2||cannot run here: no GPU memory can be reached: cuMemAlloc memory: pin: 
	no GPU memory is reached: exit 2|GDRCOPY_BACKEND=host||2||cannot run here: no GPU memory can be reached
END
check 'no GPU memory is reached: no result' sh -c "! grep -Eq 'Failed: 0|^ok' '$out'"

# ---- it can fail ---------------------------------------------------------------------------------
# planted FAULT TEST [VAR=value...]: exit 1, by that test, and the run goes on to its end
planted() {
	fault=$1
	test=$2
	shift 2
	run "$@" "$tool" --sim "$sim" -t "$test" -t versions --timeout 2
	sed -nE "s/^FAILED/$fault: &/;s/0x[0-9a-f]{9,}/ADDRESS/g;s/\.c:[0-9]+/.c/;s/ [0-9]+ mappings/ N mappings/;/FAILED/p" \
		"$out" >>"$tmp/faults"
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
		hang:pointer write:two_types wc:mapping_type mapped:mapping_type write:force_pcie read:free_in_parent \
		write:free_in_child; do
		planted "${pair%:*}" "${pair#*:}" FAULT="${pair%:*}" LD_PRELOAD="$tmp/faulty.so"
	done
	planted 'leak' leaks FAULT=leak LD_PRELOAD="$tmp/faulty.so $node"
	planted 'munmap' leaks FAULT=munmap BYTE=131072 LD_PRELOAD="$tmp/faulty.so $node"
	planted 'leak' access_after_close FAULT=leak LD_PRELOAD="$tmp/faulty.so"
	planted 'dontfork' fork_access FAULT=dontfork LD_PRELOAD="$tmp/faulty.so"
	stored 'the reasons are those of faults.txt' "$here/faults.txt" "$tmp/faults" "${3-}"
	run FAULT=open LD_PRELOAD="$tmp/faulty.so" "$tool" --sim "$sim" -t close_after_free
	expect 'a waiver has the whole reason' 2 \
		'^waived  close_after_free: barcopy_open\(BARCOPY_OPEN_ANY\): .*; gdrcopy_doctor reports'
	for pair in write:basic read:unaligned crash:words hang:pointer; do
		limit=20 goes='^ok  *versions$'
		if [ "${pair%:*}" = hang ]; then # until the time of all tests is over
			limit=1 goes='^waived  versions: not run: the tests before it took all the time$'
		fi
		run FAULT="${pair%:*}" LD_PRELOAD="$tmp/faulty.so" "$tool" --sim "$sim" -q --timeout "$limit"
		expect "planted: ${pair%:*}, --quick: found" 1 "^FAILED  *${pair#*:}: "
		expect "planted: ${pair%:*}, --quick: goes on" 1 "$goes"
		expect "planted: ${pair%:*}, --quick: and counts" 1 '^Total: 2[0-9], '
	done
	# A child that ends before its first test is a failure, and the run ends.
	rows timeout 30 env LD_PRELOAD="$tmp/faulty.so" "$tool" --sim "$sim" <<-END
		the first child ends at once|FAULT=exit BYTE=0|-t basic|1||^gdrcopy_sanity: .*ended with exit status 9$
		each test's child ends at once|FAULT=exit BYTE=1|-t basic -t words|1|^FAILED  words: ended with exit status 9$
		... and each is counted|FAULT=exit BYTE=1|-t basic -t words|1|^Total: 2, Passed: 0, Failed: 2, 
		... by a signal|FAULT=kill BYTE=1|-t basic -t words|1|^FAILED  words: ended by signal 9 \(Killed\)$
		... after one test|FAULT=exit BYTE=2|-t basic -t words|1|^Total: 2, Passed: 1, Failed: 1, 
		... --quick|FAULT=exit BYTE=1|-q -t basic -t words -t offsets|1|^Total: 3, Passed: 0, Failed: 3, 
		... --quick, by a signal|FAULT=kill BYTE=1|-q -t basic -t words -t offsets|1|^Total: 3, Passed: 0, Failed: 3, 
	END
	# As a container's first process the tool leads group 1, which a test's process must leave.
	first='unshare -rfp --mount-proc setsid'
	$first true 2>"$err" || first=
	rows "$tool" --sim "$sim" <<-END
		a process that dies when its test is over|FAULT=close BYTE=1 LD_PRELOAD=$tmp/faulty.so|-t basic|1|^FAILED  basic: ended by signal 9 \(Killed\), at exit$
		a hang says so|FAULT=hang LD_PRELOAD=$tmp/faulty.so|-t pointer --timeout 1|1|not finished after 1 s$
		one that is deaf, too|FAULT=deaf LD_PRELOAD=$tmp/faulty.so $first|-t pointer --timeout 1|1|not finished after 1 s$
		a call that fails says how|FAULT=error LD_PRELOAD=$tmp/faulty.so|-t basic|1|: 22 \(Invalid argument\) instead of 0: 
		memory has run out|FAULT=memory BYTE=131072 LD_PRELOAD=$tmp/faulty.so|-t basic|1|^FAILED  basic: out of memory: 131072 x 1 bytes$
		... for what the processes share|FAULT=memory BYTE=8 LD_PRELOAD=$tmp/faulty.so|-t basic|1||: out of memory: 8 bytes$
		the driver's pins are as before|FAULT=pins BYTE=0 LD_PRELOAD=$tmp/faulty.so|-t kernel_pins|0|^ok +kernel_pins$
		a pin that the driver keeps|FAULT=pins BYTE=1 LD_PRELOAD=$tmp/faulty.so|-t kernel_pins|1|: 1 pin in the driver, 0 before the first test: leaked, unless
		integrated: EPERM: the next kind|GDRSIM_INTEGRATED=1 FAULT=pin ERROR=1 LD_PRELOAD=$tmp/faulty.so||2||cuMemAlloc memory: .* cuMemHostAlloc memory: 
		integrated: EACCES|GDRSIM_INTEGRATED=1 FAULT=pin ERROR=13 LD_PRELOAD=$tmp/faulty.so||2||cuMemAlloc memory: .* cuMemHostAlloc memory: 
		integrated: ENODEV|GDRSIM_INTEGRATED=1 FAULT=pin ERROR=19 LD_PRELOAD=$tmp/faulty.so||2||cuMemAlloc memory: .* cuMemHostAlloc memory: 
		integrated: ENOTSUP|GDRSIM_INTEGRATED=1 FAULT=pin ERROR=95 LD_PRELOAD=$tmp/faulty.so||2||cuMemAlloc memory: .* cuMemHostAlloc memory: 
		integrated: EIO: no other kind|GDRSIM_INTEGRATED=1 FAULT=pin LD_PRELOAD=$tmp/faulty.so||2||reached: cuMemAlloc memory: pin: [^;]*; gdrcopy_doctor
		a pin that fails, too|FAULT=pin BYTE=65536 LD_PRELOAD=$tmp/faulty.so|-t force_pcie|1|: rc: 5 \(Input/output error\) instead of 0: 
		... with tokens|FAULT=pin BYTE=65536 LD_PRELOAD=$tmp/faulty.so|-t tokens|1|: pin_with\(&mem, 0, 0\): 5 \(Input/output error\)
		a call that should fail, too|FAULT=child LD_PRELOAD=$tmp/faulty.so|-t fork_calls|1|: succeeded instead of 13 \(Permission denied\)
		a crash says so|FAULT=crash LD_PRELOAD=$tmp/faulty.so|-t words|1|ended by signal 11 \(Segmentation fault\)
		the node's descriptor is not sent|FAULT=send LD_PRELOAD=$tmp/faulty.so:$node|-t fd_calls|1|: sendmsg: Operation not permitted$
		... not received|FAULT=receive LD_PRELOAD=$tmp/faulty.so:$node|-t fd_calls|1|: recvmsg: Operation not permitted$
		... not in the message|FAULT=control LD_PRELOAD=$tmp/faulty.so:$node|-t fd_calls|1|: no descriptor came through the socket$
	END
else
	skip 'planted faults' 'no C compiler for the preloaded library'
fi
finish
