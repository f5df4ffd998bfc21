#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# gdrcopy_doctor: its reports of described machines (tests/doctor/machines.py); options and exit status; on the
# stand-in every backend is tried, and what hangs or crashes is survived. Usage: test_doctor.sh BUILD_DIR SIM_DIR.
# shellcheck source=tests/tools/lib.sh
. "$(dirname "$0")/lib.sh"
tool=$build/gdrcopy_doctor

# ---- described machines ----------------------------------------------------------------------------
if command -v python3 >/dev/null; then
	while IFS= read -r line; do
		case $line in
		'ok - '*) passed=$((passed + 1)) ;;
		'not ok - '*) failed=$((failed + 1)) ;;
		esac
		echo "$line"
	done < <(python3 tests/doctor/machines.py "$build" 2>&1 || echo "not ok - machines.py")
else
	skip "the described machines" "no python3"
fi

# ---- options and exit codes ------------------------------------------------------------------------
run "$tool" --help
expect "--help" 0 '^  0  ordinary GPU memory can be mapped on every GPU'
for o in json sim help version; do
	check "--help names --$o" grep -q -- "--$o" "$out"
done
run "$tool" --version
expect "--version" 0 '^gdrcopy_doctor [0-9.]+ \(libgdrapi 2\.6\)$'
refused "$tool" 2 . <<-END
	-Z
	--no-such-option
	stray
	--sim $tmp
END
run_full "$tool" --sim "$sim"
expect "a full disk, report" 2 '' 'No space'
run_full "$tool" --sim "$sim" --json
expect "a full disk, JSON" 2 '' '.'

# ---- on the stand-in -------------------------------------------------------------------------------
# What the library's rm backend does on this stand-in, which may have the nodes that it needs or not,
# another tool says: 0, it serves; 2, it cannot.
run GDRCOPY_BACKEND=rm "$build/gdrcopy_copylat" --sim "$sim" -a cuMemAlloc -s 64K -w 100 -r 100
rm_rc=$rc
status=$((rc != 0)) # the doctor's
if [ "$rm_rc" -eq 0 ]; then
	rm_says='ok +rm works: 64 KiB of cuMemAlloc memory'
	in_short='Ordinary GPU memory \(cudaMalloc\) can be mapped on 1 of 1 GPU, by rm\.$'
else
	expect "without rm: another tool's exit status" 2 '' 'rm: '
	rm_says='rm cannot map cuMemAlloc memory \((open|pin)\)'
	in_short='Ordinary GPU memory \(cudaMalloc\) can be mapped on 0 of 1 GPU\.$'
fi
run "$tool" --sim "$sim"
for text in "$rm_says" "$in_short" 'ok +host works' 'dmabuf cannot map cuMemAlloc memory \(open\)' \
	'stand-in: no GPU is used'; do
	expect "--sim: $text" $status "$text"
done
check "the trial of gdr_open() is not listed as a backend's" sh -c "! grep -qE '(gdr_open works|gdr_open cannot map)' '$out'"
check "no escape sequence" sh -c "! grep -q '\\\033' '$out'"
run GDRSIM_DEVICES=3 "$tool" --sim "$sim" --json
json "three GPUs" '
assert len(d["gpus"]) == 3
for g in d["gpus"]:
    assert g["backends"]["host"] and g["backends"]["rm"] == (sys.argv[2] == "0"), g
    assert g["cuda_malloc"] == (["rm"] if sys.argv[2] == "0" else []), g' "$rm_rc"
# the environment is that of the programs for which the doctor stands
rows "$tool" --sim "$sim" <<-END
	CUDA 13.3: dmabuf|GDRSIM_DRIVER_VERSION=13030||0|ok +dmabuf works: 64 KiB of cuMemAlloc memory
	no device: exit 1|GDRSIM_DEVICES=0||1|CUDA does not start: cuInit: CUDA_ERROR_NO_DEVICE
	GDRCOPY_BACKEND is reported|GDRCOPY_BACKEND=rm||$status|GDRCOPY_BACKEND is "rm"
	no memory: exit 2|GDRSIM_FAIL=cuMemAlloc:*=2,cuMemCreate:*=2,cuMemHostAlloc:*=2||2|where memory was short
	no context: exit 1|GDRSIM_FAIL=cuDevicePrimaryCtxRetain:*=46||1|no CUDA context can be made
	NVML fails: the rest goes on|GDRSIM_FAIL=nvmlInit:*=999||$status|the use of BAR1: nvmlInit
	the stand-in of the gdrdrv node|LD_PRELOAD=$sim/libgdrdrv_node.so||0|ordinary GPU memory \(cudaMalloc\) can be mapped, by gdrdrv
END
for set in GDRCOPY_BACKEND=host GDRCOPY_BACKEND=nonsense GDRCOPY_BACKEND=gdrdrv GDRCOPY_USE_DMABUF_MMAP=1; do
	run LD_PRELOAD="$sim/libnvidia_node.so" $set "$tool" --sim "$sim"
	tr -s ' \n' '  ' <"$out" >"$tmp/one-line"
	mv "$tmp/one-line" "$out"
	expect "$set: what forbids all that works is a fault" 1 "fault a program started here fails .*: unset ${set%%=*}, or "
	expect "$set: does not hide what works" 1 'ok rm works'
	run LD_PRELOAD="$sim/libnvidia_node.so" $set "$build/gdrcopy_copybw" --sim "$sim" -a cuMemAlloc -s 64K
	expect "$set: a program fails" 2 '' '.'
done

# rm on the stand-in of NVIDIA's nodes: what it serves, and the library's reason where it does not
nodes=$sim/libnvidia_node.so
if [ -e "$nodes" ]; then
	rows env LD_PRELOAD="$nodes" "$tool" --sim "$sim" <<-'END'
		NVIDIA's nodes: rm|||0|ok +rm works: 64 KiB of cuMemAlloc memory
		NVIDIA's nodes: in short|||0|memory \(cudaMalloc\) can be mapped on 1 of 1 GPU, by rm\.$
		maps refused: no memory|GDRSIM_RM_PROTECTED=1||1|rm cannot map cuMemCreate memory \(pin\)
		maps refused: in short|GDRSIM_RM_PROTECTED=1||1|only cudaHostAlloc
		a driver that is too old|GDRSIM_RM_DRIVER=510.108.03||1|rm cannot map cuMemAlloc memory \(open\): driver 510 is too old
		exports past libcuda's import|GDRSIM_EXPORT_UNSEEN=1||1|means: rm reads in libcuda's ioctl
		exports past the import: the way out|GDRSIM_EXPORT_UNSEEN=1||1|to do: load the kernel module gdrdrv
		a node that may not be opened|GDRSIM_RM_DENIED=0||1|rm cannot map .*/dev/nvidia0 may not be opened
	END
	run LD_PRELOAD="$nodes" GDRSIM_DMABUF=0 "$tool" --sim "$sim" --json
	json "no export of dma-bufs: exportable memory alone" '
g = d["gpus"][0]
assert g["backends"]["rm"] and g["cuda_malloc"] == [] and g["ordinary_memory"] == "no", g
assert d["ordinary_memory"] == "no", d["ordinary_memory"]
found = [f["found"] for f in d["findings"] if f["subject"] == "backends"]
assert any("only exportable memory (cuMemCreate) can be mapped" in f for f in found), found
assert any("rm cannot map cuMemAlloc memory (pin): the trial on GPU 0 failed: cuMemGetHandleFor" in f
           for f in found), found
assert any("rm works: 64 KiB of cuMemCreate memory" in f for f in found), found'
else
	skip "rm on the stand-in of NVIDIA's nodes" "no libnvidia_node.so among the stand-ins"
fi

# a library in place of one of the driver's: make_library DIR NAME <SOURCE
make_library() {
	mkdir -p "$tmp/$1"
	${CC:-cc} -shared -fPIC "-Wl,-soname,$2" -o "$tmp/$1/$2" -x c - 2>"$err"
}
if make_library kinds libnvidia-ml.so.1 <<-'END'; then
	#include <stdlib.h>
	#include <string.h>
	static int is(int kind) { const char *set = getenv("KINDS"); return set && strchr(set, kind); }
	int nvmlInit_v2(void) { return 0; }
	int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) { *device = (void *)id; return 0; }
	int nvmlDeviceGetBAR1MemoryInfo(void *device, long long info[3]) { info[0] = 3, info[1] = 4, info[2] = 5; return is('b') ? 0 : 3; }
	int nvmlDeviceGetMemoryInfo(void *device, long long info[3]) { info[0] = 6, info[1] = 7, info[2] = 8; return is('m') ? 3 : 0; }
	const char *nvmlErrorString(int result) { return is('t') ? NULL : "Not Supported"; }
	int nvmlSystemGetConfComputeState(unsigned state[3]) { state[0] = 2, state[1] = !is('c'), state[2] = 0; return is('f') ? 3 : 0; }
END
	run LD_PRELOAD="$tmp/kinds/libnvidia-ml.so.1" "$tool" --sim "$sim"
	expect "confidential computing, according to NVML" $status 'note +confidential computing is on'
	run "$tool" --sim "$sim"
	check "and not without it" sh -c "! grep -q confidential '$out'"
else
	skip "confidential computing, according to NVML" "no compiler"
fi
if make_library dies libcuda.so.1 <<-'END' && make_library ends libcuda.so.1 <<-'END2'; then
	#include <signal.h>
	__attribute__((constructor)) static void die(void) { raise(SIGSEGV); }
END
	#include <stdio.h>
	#include <unistd.h>
	__attribute__((constructor)) static void end(void) { puts("nobody"); fflush(stdout); _exit(5); }
END2
	run LD_LIBRARY_PATH="$tmp/dies" "$tool"
	expect "a libcuda that crashes" 1 'signal 11'
	run LD_LIBRARY_PATH="$tmp/ends" "$tool"
	expect "a libcuda that ends the process" 1 'exit status 5'
	check "and what it prints is not shown" sh -c "! grep -q 'nobody' '$out'"
else
	skip "a libcuda that crashes" "no compiler"
fi

if ${CC:-cc} -shared -fPIC -D_GNU_SOURCE= -I"$root/include" -o "$tmp/faulty.so" "$here/faulty.c" -ldl 2>"$err"; then
	rows timeout 30 env LD_PRELOAD="$tmp/faulty.so" "$tool" --sim "$sim" <<-END
		each child ends at once|FAULT=exit BYTE=0||1|asking libcuda for its GPUs failed: ended with exit status 9$
		... by a signal|FAULT=kill BYTE=0||1|asking libcuda for its GPUs failed: ended by signal 9 \(Killed\)$
		NVML's child|FAULT=exit BYTE=1||1|the use of BAR1: asking it: ended with exit status 9$
		a GPU's child|FAULT=exit BYTE=2||1|no CUDA context can be made: ended with exit status 9$
		... by a signal|FAULT=kill BYTE=2||1|no CUDA context can be made: ended by signal 9 \(Killed\)$
		memory has run out, for the list of findings|FAULT=memory BYTE=$((64 * 48))||2||^gdrcopy_doctor: out of memory$
		a trial's child, after a trial|FAULT=crash GDRSIM_DRIVER_VERSION=13030||1|rm cannot map cuMemAlloc memory \(copy\): the trial was ended by signal 11
		... and the next one is tried|FAULT=crash GDRSIM_DRIVER_VERSION=13030||1|host cannot map cuMemHostAlloc memory \(copy\): the trial was ended by signal 11
	END
	run timeout 30 env FAULT=exit BYTE=3 LD_PRELOAD="$tmp/faulty.so" "$tool" --sim "$sim"
	expect "the nodes' child ends at once: the rest goes on" $status "$in_short"
else
	skip "a child that ends at once" "no compiler"
fi

# ---- what the probes find, as stored in tests/doctor/probes.txt ------------------------------------
golden=tests/doctor/probes.txt
# Nodes that open, one that does not (no terminal), a file and a directory in the place of one, two that are missing.
# Without root all owners are one; what root would find is put in.
map='' owners='s/^//'
[ "$(id -u)" -eq 0 ] || { map=-r && owners='s/  [ug]id [0-9]+//g;s,^(.*/gdrdrv .*  mode 0640),\1  uid 1  gid 2,'; }
nodes() {
	# shellcheck disable=SC2086,SC2016 # none or one word; expanded inside
	unshare $map -m setsid -w sh -ec '
		mkdir -p "$1/dev" && mount -t tmpfs none "$1/dev" && cd "$1/dev"
		for node in nvidiactl=null nvidia0=zero nvidia2=tty nvidia31=null; do
			touch "${node%=*}" && mount --bind "/dev/${node#*=}" "${node%=*}"
		done
		umask 027 && touch gdrdrv nvidia32 && mkdir nvidia7
		[ "$3" ] || chown 1:2 gdrdrv
		mount --rbind "$1/dev" /dev
		export LD_PRELOAD="$4" LD_LIBRARY_PATH= FAULT=node
		exec "$2/tests/test_doctor" probes' sh "$tmp" "$build" "$map" "$1" 2>"$err" </dev/null |
		sed -n -E "$owners;/^node/p"
}
# shellcheck disable=SC2086
if unshare $map -m true 2>/dev/null; then
	{ echo '[nodes]' && nodes "" && echo '[... one whose open ends the process]' && nodes "$tmp/faulty.so"; } >"$tmp/probes"
else
	skip "device nodes" "no mount namespace here"
	sed '/^\[one GPU/,$d' "$golden" >"$tmp/probes"
fi

# On the stand-in, with both stand-ins of nodes: all lines of the first row, the other lines of the rest; without what
# the machine decides. NAME|VARIABLES|COMMAND before the program.
both=$sim/libnvidia_node.so:$sim/libgdrdrv_node.so
: >"$tmp/first"
probed() {
	while IFS='|' read -r name vars command; do
		# shellcheck disable=SC2086 # several words
		run LD_LIBRARY_PATH="$sim" GDRSIM_DIR="$sim" LD_PRELOAD="$both" \
			GDRSIM_DRIVER_VERSION=13030 GDRSIM_DEVICES=1 $vars $command "$build/tests/test_doctor" probes
		echo "[$name]"
		[ "$rc" -eq 0 ] || sed "s/^/exit status $rc: /" "$err"
		sed -E -e '/^node/d;s/  date .*  cpus [^ ]*//;s/  node [0-9]+$//;s/0x[0-9a-f]{9,}/ADDRESS/g' \
			-e "s,$sim,SIM,;s,$tmp,TMP," "$out" >"$tmp/now"
		diff "$tmp/first" "$tmp/now" | sed -n 's/^> //p'
		[ -s "$tmp/first" ] || cp "$tmp/now" "$tmp/first"
	done >>"$tmp/probes"
}
if [ -e "$tmp/faulty.so" ] && [ -e "$tmp/kinds/libnvidia-ml.so.1" ]; then
	mkdir "$tmp/broken" && touch "$tmp/broken/libcuda.so.1" "$tmp/broken/libnvidia-ml.so.1"
	for name in Init_v2 DeviceGetHandleByPciBusId_v2 DeviceGetBAR1MemoryInfo ErrorString DeviceGetMemoryInfo; do
		sed "s/nvml$name/NVML$name/" "$tmp/kinds/libnvidia-ml.so.1" >"$tmp/no-$name.so" # of the same length
	done
	probed <<-END
		one GPU
		three GPUs|GDRSIM_DEVICES=3
		no GPU|GDRSIM_DEVICES=0
		variables|GDRCOPY_BACKEND=gdrdrv GDRCOPY_USE_DMABUF_MMAP=1 NVIDIA_VISIBLE_DEVICES=all CUDA_VISIBLE_DEVICES=1 container=podman KUBERNETES_SERVICE_HOST=10.0.0.1
		an integrated GPU|GDRSIM_INTEGRATED=1
		no dma-bufs|GDRSIM_DMABUF=0
		rm maps nothing|GDRSIM_RM_PROTECTED=1
		another GPU|GDRSIM_GPU_NAME=NVIDIA_H200 GDRSIM_PCI_DOMAIN=43981 GDRSIM_BAR1_MIB=512
		no gdrdrv|LD_PRELOAD=$sim/libnvidia_node.so
		no nodes|GDRSIM_RM=absent GDRSIM_NODE=absent
		nodes that may not be opened|GDRSIM_RM=denied GDRSIM_NODE=denied
		GDRCOPY_BACKEND=host|GDRCOPY_BACKEND=host
		libraries that do not load|LD_LIBRARY_PATH=$tmp/broken LD_PRELOAD=
		NVML that does not load|LD_LIBRARY_PATH=$tmp/no-nvml:$tmp/broken LD_PRELOAD=$sim/libcuda.so.1:$both
		NVML that does not start|GDRSIM_FAIL=nvmlInit:*=9
		NVML without the GPU|GDRSIM_FAIL=nvmlDeviceGetHandleByPciBusId:*=6
		NVML without the first GPU|GDRSIM_DEVICES=2 GDRSIM_FAIL=nvmlDeviceGetHandleByPciBusId:1=6
		NVML without BAR1|GDRSIM_FAIL=nvmlDeviceGetBAR1MemoryInfo:*=3
		NVML's answers|KINDS=b LD_PRELOAD=$tmp/kinds/libnvidia-ml.so.1:$both
		NVML without GPU memory|KINDS=bm LD_PRELOAD=$tmp/kinds/libnvidia-ml.so.1:$both
		NVML without texts|KINDS=t LD_PRELOAD=$tmp/kinds/libnvidia-ml.so.1:$both
		NVML without confidential computing|KINDS=bc LD_PRELOAD=$tmp/kinds/libnvidia-ml.so.1:$both
		NVML that fails to say so|KINDS=bf LD_PRELOAD=$tmp/kinds/libnvidia-ml.so.1:$both
		NVML lacks nvmlInit_v2|KINDS=b LD_PRELOAD=$tmp/no-Init_v2.so:$both
		NVML lacks nvmlDeviceGetHandleByPciBusId_v2|KINDS=b LD_PRELOAD=$tmp/no-DeviceGetHandleByPciBusId_v2.so:$both
		NVML lacks nvmlDeviceGetBAR1MemoryInfo|KINDS=b LD_PRELOAD=$tmp/no-DeviceGetBAR1MemoryInfo.so:$both
		NVML lacks nvmlErrorString|KINDS=b LD_PRELOAD=$tmp/no-ErrorString.so:$both
		NVML lacks nvmlDeviceGetMemoryInfo|KINDS=b LD_PRELOAD=$tmp/no-DeviceGetMemoryInfo.so:$both
		no memory|GDRSIM_FAIL=cuMemAlloc:*=2,cuMemHostAlloc:*=1
		no right to memory|GDRSIM_FAIL=cuMemAlloc:*=800,cuMemHostAlloc:*=801
		wrong bytes of the CPU|FAULT=write BYTE=65535 LD_PRELOAD=$tmp/faulty.so:$both
		a wrong byte behind those of the trials|FAULT=write BYTE=65536 LD_PRELOAD=$tmp/faulty.so:$both
		wrong bytes of CUDA|FAULT=read BYTE=65535 LD_PRELOAD=$tmp/faulty.so:$both
		a write that is lost|FAULT=unwritten LD_PRELOAD=$tmp/faulty.so:$both
		a read that is lost|FAULT=unread LD_PRELOAD=$tmp/faulty.so:$both
		no map|FAULT=map LD_PRELOAD=$tmp/faulty.so:$both
		no copy|FAULT=error LD_PRELOAD=$tmp/faulty.so:$both
		trials that crash|FAULT=crash LD_PRELOAD=$tmp/faulty.so:$both
		children that end|FAULT=exit BYTE=0 LD_PRELOAD=$tmp/faulty.so:$both
		few descriptors||prlimit -n10:4096
		too few descriptors||prlimit -n40:40
		descriptors enough||prlimit -n64:64
	END
	sed '/define CUDA_DL_OPTIONAL/,$d;s/_v2)/)/' tools/common/cuda.h | sed -n 's/^\tX([A-Za-z]*, \(.*\)).*/\1/p' |
		sed 's/.*/& fails|GDRSIM_FAIL=&:*=46/' | probed
	stored "what the probes find is as in probes.txt" "$golden" "$tmp/probes" "${3-}"
else
	skip "what the probes find" "no compiler"
fi

# the machine itself, for another user where that can be
before=$(date -u +%FT%TZ)
user=$(id -u) virtual='' as=''
! unshare --map-user=7 true 2>/dev/null || user=7 as='unshare --map-user=7'
[ "$user" != 0 ] || user=
! grep -qw hypervisor /proc/cpuinfo || virtual='  hypervisor (KVMKVMKVM|[^K].*)'
# shellcheck disable=SC2086 # none or two words
run LD_LIBRARY_PATH="$sim" GDRSIM_DIR="$sim" GDRSIM_DEVICES=0 $as "$build/tests/test_doctor" probes
expect "the machine itself" 0 "^probes .*  date [-0-9]+T[:0-9]+Z  machine $(uname -m)  release $(uname -r)\
${user:+  euid $user}$virtual  cpus $(sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status)  library"
found=$(sed -n 's/.*  date \([^ ]*\).*/\1/p' "$out")
check "the date" sh -c "printf '%s\n' '$before' '$found' '$(date -u +%FT%TZ)' | sort -c"

documented gdrcopy_doctor

finish
