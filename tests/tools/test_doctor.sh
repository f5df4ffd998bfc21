#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# gdrcopy_doctor: the reports of the described machines of tests/doctor are what is stored, and what
# becomes of them when one thing is changed; options and exit status; on the stand-in every backend is
# tried, and what hangs or crashes is survived. Usage: test_doctor.sh BUILD_DIR SIM_DIR.
# shellcheck source=tests/tools/lib.sh
. "$(dirname "$0")/lib.sh"
tool=$build/gdrcopy_doctor
machines=$root/tests/doctor/machines

# ---- made-up machines ------------------------------------------------------------------------------
if command -v python3 >/dev/null; then
	check "the reports can be made" "$root/tests/doctor/reports.sh" "$build" "$tmp/reports"
	for stored in "$machines"/*.report; do
		name=$(basename "$stored")
		run diff "$stored" "$tmp/reports/$name"
		expect "$name" 0
	done
	for made in "$tmp"/reports/*.report; do
		[ -e "$machines/$(basename "$made")" ] ||
			fail "$(basename "$made")" "nothing is stored: tests/doctor/reports.sh BUILD refresh"
	done
	check "every JSON report is one, and says what the text says" python3 -c '
import json, re, sys
for name in sys.argv[1:]:
    d = json.load(open(name))
    words = open(name.removesuffix(".json")).read()
    status = int(words.split()[-1])
    assert list(d) == ("tool version probed simulated date kernel machine container virtual_machine "
                       "ordinary_memory verdict next gpus findings").split(), (name, list(d))
    assert d["tool"] == "gdrcopy_doctor" and d["probed"] is True and d["simulated"] is False, name
    assert d["ordinary_memory"] == ("yes", "no", "unknown")[status], name
    for g in d["gpus"]:
        assert [k for k in g if k != "bar1"] == \
            "id name ordinary_memory backends cuda_malloc place".split(), (name, list(g))
        assert list(g["place"]) == "numa cpus iommu adapter path".split(), (name, g)
        served = [b for b in g["cuda_malloc"] if g["backends"][b]]
        assert served == g["cuda_malloc"] and (g["ordinary_memory"] == "yes" or not served), (name, g)
    for f in d["findings"]:
        assert list(f) == "subject severity gpu found means todo".split(), (name, list(f))
        assert f["found"] and f["subject"], (name, f)
        assert f["gpu"] is None or f["gpu"] in [g["id"] for g in d["gpus"]], (name, f)
    words = " ".join(words.split())
    for f in d["findings"]:
        for text in f["found"], f["means"], f["todo"]:
            assert not text or " ".join(text.split()) in words, (name, text)
    counts = [sum(f["severity"] == s for f in d["findings"])
              for s in ("ok", "note", "unknown", "warning", "fault")]
    assert counts == [int(n) for n in re.findall("([0-9]+) (?:ok|note|unknown|warning|fault)", words)[-5:]], name
    if "container-compute" in name:
        assert d["gpus"][1]["ordinary_memory"] == "unknown", d["gpus"]
    if "h200x2" in name:
        assert d["container"] and d["virtual_machine"] and d["kernel"] == "6.18.44", d
        assert [g["bar1"] for g in d["gpus"]] == \
            2 * [{"total": 274877906944, "used": 1703936, "free": 274876203008}], d["gpus"]
        assert d["gpus"][1]["place"] == {"numa": None, "cpus": None, "iommu": "none",
                                         "adapter": "0000:00:03.0", "path": "root complex"}, d["gpus"]
        assert d["gpus"][0]["backends"] == {"gdrdrv": False, "dmabuf": False, "rm": True, "host": True}
' "$tmp"/reports/*.json

	# vary NAME MACHINE SED-OF-PROBES SED-OF-TREE RC PATTERN: a described machine with one thing changed
	vary() {
		rm -rf "$tmp/vary"
		mkdir "$tmp/vary"
		sed -E "$3" "$machines/$2.probes" >"$tmp/vary/probes"
		sed -E "$4" "$machines/$2.tree" >"$tmp/vary/files.tree"
		cmp -s "$machines/$2.probes" "$tmp/vary/probes" && cmp -s "$machines/$2.tree" \
			"$tmp/vary/files.tree" && fail "$1" "the variation changes nothing"
		python3 "$root/tests/doctor/expand.py" "$tmp/vary" "$tmp/vary/files.tree"
		run "$build/tests/test_doctor_machines" "$tmp/vary/files" "$tmp/vary/probes"
		tr -s ' \n' '  ' <"$out" >"$tmp/vary/one-line"
		mv "$tmp/vary/one-line" "$out"
		expect "$1" "$5" "$6"
	}
	no_gdrdrv='s/(backend gdrdrv .*)step done/\1step open  error 19/'
	no_rm='s/(backend rm .*)step done/\1step pin  error 95/'
	old_major='s/^\| 236 gdrdrv/| 511 gdrdrv/'
	vary "the module's number in /proc/devices, the node of another that opens: stale" bare-metal \
		"$no_gdrdrv" "$old_major" 0 'fault /dev/gdrdrv \(236:0, .*\) opens means: the node is stale: the driver.s major number is 511'
	vary "a stale node: what to do" bare-metal "$no_gdrdrv" "$old_major" 0 \
		'rm -f /dev/gdrdrv; modprobe -r gdrdrv; modprobe gdrdrv, which has the kernel make the node'
	vary "a stale node of NVIDIA's module" bare-metal "$no_gdrdrv" "$old_major;/gdrdrv.pins/d" 0 \
		'rm -f /dev/gdrdrv; mknod -m 666 /dev/gdrdrv c 511 0'
	vary "a stale node in a container" bare-metal "$no_gdrdrv" "$old_major;1s/^/text \\/.dockerenv x\n/" 0 \
		'the node is stale.* to do: restart the container'
	vary "the node in order, as the kernel or a script makes it" bare-metal "$no_gdrdrv" '' 0 \
		"ok barcopy's gdrdrv is loaded, version 2.6 ok /dev/gdrdrv \(236:0, mode 0666, owner 0:0\) opens"
	vary "NVIDIA's module, whose node a script makes" bare-metal "$no_gdrdrv" '/gdrdrv.pins/d' 0 \
		"NVIDIA's gdrdrv is loaded.*/dev/gdrdrv \(236:0, .*opens"
	vary "NVIDIA's module without its node" bare-metal "$no_gdrdrv;/path .dev.gdrdrv/d" '/gdrdrv.pins/d' 0 \
		'/dev/gdrdrv is missing, though the module is loaded.*mknod -m 666 /dev/gdrdrv c 236 0'
	vary "a module that is not in /proc/devices" bare-metal "$no_gdrdrv" '/236 gdrdrv/d' 0 \
		'not listed in /proc/devices.*modprobe -r gdrdrv; modprobe gdrdrv'
	vary "a node without its module" bare-metal "$no_gdrdrv" '/gdrdrv/d' 0 \
		'/dev/gdrdrv exists, but the module is not loaded'
	vary "NVIDIA's init script beside NVIDIA's module is as it should be" bare-metal "$no_gdrdrv" \
		'/gdrdrv.pins/d;1s/^/text \/etc\/init.d\/gdrdrv x\n/' 0 '11 ok, 2 notes, 0 unknown, 0 warnings, 0 faults'
	vary "a node that this user may not open" bare-metal "$no_gdrdrv;s/(path .dev.gdrdrv.*)/\1  error 13/" '' 0 \
		'cannot be opened: Permission denied means: this user .* may not use it'
	vary "nothing serves ordinary memory: exit 1" bare-metal "$no_gdrdrv;$no_rm;/path .dev.gdrdrv/d" '/gdrdrv/d' 1 \
		'fault the CPU cannot reach GPU memory; only cudaHostAlloc memory is served to do: load the kernel module gdrdrv .* mapped on 0 of 1 GPU\.'
	vary "memory was short: exit 2" bare-metal "$no_gdrdrv;$no_rm;s/error 95/error 12/" '' 2 \
		'unknown whether ordinary GPU memory can be mapped'
	vary "Secure Boot, without the module" bare-metal "$no_gdrdrv;/path .dev.gdrdrv/d" \
		'/gdrdrv/d;1s/^/text \/sys\/kernel\/security\/lockdown none [integrity]\n/' 0 'mokutil --import'
	vary "the proprietary modules" bare-metal "$no_gdrdrv;$no_rm;s/  dmabuf yes//" \
		's/Open Kernel Module for x86_64/x86_64 Kernel Module/' 1 'to do: install the open kernel modules'
	vary "a driver that is too old for rm" bare-metal "$no_gdrdrv;$no_rm" 's/580.159.04/510.108.03/' 1 \
		'older than 515.*install a newer GPU driver'
	vary "MIG, in a container" bare-metal "$no_gdrdrv;/path .dev.gdrdrv/d;$no_rm;s/80GB HBM3/& MIG 1g.10gb/" \
		'/gdrdrv/d;1s/^/text \/.dockerenv x\n/' 1 'use the GPU without MIG, or load the kernel module gdrdrv \(on the host\)'
	vary "WSL" bare-metal "$no_gdrdrv;$no_rm;s/^release.*/release 5.15-microsoft-standard-WSL2/" '' 1 \
		'use Linux itself instead of WSL'
	vary "a GeForce" bare-metal "$no_gdrdrv;$no_rm;/path .dev.gdrdrv/d;s/  dmabuf yes//;s/NVIDIA H100 80GB HBM3/NVIDIA GeForce RTX 3090/" '/gdrdrv/d' 1 \
		'has not been tried on a GeForce.*whose pins the GPU driver may refuse as well'
	# What to do, where gdrdrv's pin was refused: not gdrdrv again
	pin_refused='s/(backend gdrdrv .*)step done.*/\1step pin  error 22  text no backend can pin 0x7f + 0x10: gdrdrv: PIN_BUFFER: Invalid argument; host: not memory of cudaHostAlloc/'
	geforce='s/  dmabuf yes//;s/NVIDIA H100 80GB HBM3/NVIDIA GeForce RTX 3090/'
	proprietary='s/Open Kernel Module for x86_64/x86_64 Kernel Module/'
	copy='What to do next: 1. copy through CUDA: the GPU driver refused gdrdrv.s pin, and rm does not serve'
	vary "a GeForce that refused gdrdrv" bare-metal "$pin_refused;$no_rm;$geforce" '' 1 "$copy"
	vary "a GeForce with proprietary modules that refused gdrdrv" bare-metal "$pin_refused;$no_rm;$geforce" "$proprietary" 1 "$copy"
	check "the reason is gdrdrv's own part" grep -q 'pin): PIN_BUFFER: Invalid argument means: the module is loaded' "$out"
	vary "a GeForce with proprietary modules, without gdrdrv" bare-metal "$no_gdrdrv;$no_rm;$geforce;/path .dev.gdrdrv/d" \
		"$proprietary;/gdrdrv/d" 1 'What to do next: 1. try the kernel module gdrdrv, whose pins the GPU driver may refuse as well; else'
	vary "proprietary modules that refused gdrdrv" bare-metal "$pin_refused;$no_rm;s/  dmabuf yes//" "$proprietary" 1 \
		'What to do next: 1. install the open kernel modules \(Turing and later GPUs\) [0-9]'
	vary "MIG that refused gdrdrv" bare-metal "$pin_refused;$no_rm;s/80GB HBM3/& MIG 1g.10gb/" '' 1 \
		'What to do next: 1. use the GPU without MIG [0-9]'
	vary "no known obstacle, gdrdrv refused" bare-metal "$pin_refused;$no_rm" '' 1 "$copy"
	vary "gdrdrv loaded, its node closed to this user" bare-metal \
		"$no_gdrdrv;$no_rm;s/(path .dev.gdrdrv.*)/\1  error 13/" '' 1 \
		'What to do next: 1. have gdrdrv work: see "Kernel module gdrdrv" 2. join the group'
	map_refused='s/(backend rm .*)step done.*/\1step pin  error 95  text rm: the trial on GPU 0 failed: RM_MAP_MEMORY: NV_ERR_NOT_SUPPORTED (0x56)/'
	vary "maps are refused, NVML is silent" bare-metal "$pin_refused;$map_refused" '' 1 \
		'as with confidential computing .*What to do next: 1. see whether "nvidia-smi conf-compute -f"'
	vary "the same without gdrdrv" bare-metal "$no_gdrdrv;$map_refused;/path .dev.gdrdrv/d" '/gdrdrv/d' 1 \
		'What to do next: 1. see whether "nvidia-smi conf-compute -f"'
	vary "a BAR1 without Resizable BAR" bare-metal 's/bar1_total [0-9]+/bar1_total 268435456/' '' 0 \
		'BAR1: 256.0 MiB.*only a part of it can be pinned at a time; this is the size of GPUs without Resizable BAR'
	vary "a GPU of the container that is not this process's" container-compute '1s/^/env.cuda_visible 0\n/' '' 0 \
		'CUDA_VISIBLE_DEVICES is "0": unset it'
	vary "no GPU in a container on a virtual machine" no-gpu '1s/^/env.container docker\nhypervisor KVM\n/' '' 1 \
		'1. if the host has a GPU, start the container with it.*2 notes, 0 unknown'
	check "and no word of passing one through" sh -c "! grep -q 'passed through' '$out'"
	vary "another integrated GPU, or a Jetson whose device tree a container hides" jetson '' \
		'/device-tree|nv_tegra/d' 0 'Ordinary GPU memory \(cudaHostAlloc\) can be mapped on 1 of 1 GPU, by host\.'
	vary "rm on arm64 with a driver before 590" bare-metal \
		's/machine x86_64/machine aarch64/;s/(backend rm .*)Write Combining/\1Device/' '' 0 \
		'rm does not combine writes .* to do: install driver 590 or newer: older ones map BAR1 as Device memory on arm64'
	vary "gdrdrv where writes are not combined" bare-metal 's/(backend gdrdrv .*)Write Combining/\1Device/' '' 0 \
		'gdrdrv does not combine writes .* to do: look for gdrdrv in the kernel log, and for nopat'
	vary "a Jetson whose GPU this user may not use" jetson \
		's/^gpu /node  path \/dev\/nvmap  exists yes  error 13\n&/' '' 0 'usermod -aG video'
	confidential='1s/^/confidential yes\n/' mig='s/80GB HBM3/& MIG 1g.10gb/' closed='s/(path .dev.nvidia0.*)/\1  error 13/'
	vary "confidential computing, before MIG" bare-metal "$no_gdrdrv;$no_rm;$confidential;$mig" '' 1 \
		'to do: copy through CUDA, or turn confidential computing off'
	vary "a closed node, before confidential computing" bare-metal "$no_gdrdrv;$no_rm;$confidential;$closed" '' 1 \
		'rm does not serve .* means: it needs /dev/nvidiactl and the GPU.s own node'
	vary "a missing node" bare-metal "$no_gdrdrv;$no_rm;/path .dev.nvidiactl/d" '' 1 'make the nodes open for this user'
	vary "a trial that did not reach its end" bare-metal "$no_gdrdrv;s/(backend rm .*)step done.*/\1step copy/" '' 1 \
		'only cudaHostAlloc memory is served'
	while read -r version words; do
		vary "driver $version" bare-metal '' "s/580.159.04/$version/" 0 "$words"
	done <<-'END'
		595.43.99 11 ok, 1 note,
		595.9.4 11 ok, 1 note,
		595.44.02 a debugger that reads .* crashes the kernel .*11 ok, 2 notes,
		595.45 a debugger that reads .* crashes the kernel .*11 ok, 2 notes,
		595.45.04 a debugger that reads .* crashes the kernel .*11 ok, 2 notes,
		595.45.05 the driver is newer than 595.45.04, .*a debugger that .*11 ok, 3 notes,
		595.71.04 a debugger that reads .* crashes the kernel .*11 ok, 3 notes,
		595.71.05 the driver is newer than 595.45.04, .*11 ok, 2 notes,
		595.100.01 the driver is newer than 595.45.04, .*11 ok, 2 notes,
		600.10 the driver is newer than 595.45.04, .*from 580 on; no later source was read.* what differs ok .*11 ok, 2 notes,
		610.43 the driver is newer than 595.45.04, .*drivers from 610 on also map dma-bufs of discrete GPUs.*11 ok, 2 notes,
	END
else
	skip "the made-up machines" "no python3"
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
	rm_says='rm does not serve cuMemAlloc memory \((open|pin)\)'
	in_short='Ordinary GPU memory \(cudaMalloc\) can be mapped on 0 of 1 GPU\.$'
fi
run "$tool" --sim "$sim"
for text in "$rm_says" "$in_short" 'ok +host works' 'dmabuf does not serve cuMemAlloc memory \(open\)' \
	'stand-in: no GPU is used'; do
	expect "--sim: $text" $status "$text"
done
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
	the stand-in of the gdrdrv node|LD_PRELOAD=$sim/libgdrdrv_node.so||0|ordinary GPU memory \(cudaMalloc\) is served, by gdrdrv
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
		maps refused: no memory|GDRSIM_RM_PROTECTED=1||1|rm does not serve cuMemCreate memory \(pin\)
		maps refused: in short|GDRSIM_RM_PROTECTED=1||1|only cudaHostAlloc
		a driver that is too old|GDRSIM_RM_DRIVER=510.108.03||1|rm does not serve cuMemAlloc memory \(open\): driver 510 is too old
		exports past libcuda's import|GDRSIM_EXPORT_UNSEEN=1||1|means: rm reads in libcuda's ioctl
		exports past the import: the way out|GDRSIM_EXPORT_UNSEEN=1||1|to do: load the kernel module gdrdrv
		a node that may not be opened|GDRSIM_RM_DENIED=0||1|rm does not serve .*/dev/nvidia0 may not be opened
	END
	run LD_PRELOAD="$nodes" GDRSIM_DMABUF=0 "$tool" --sim "$sim" --json
	json "no export of dma-bufs: exportable memory alone" '
g = d["gpus"][0]
assert g["backends"]["rm"] and g["cuda_malloc"] == [] and g["ordinary_memory"] == "no", g
assert d["ordinary_memory"] == "no", d["ordinary_memory"]
found = [f["found"] for f in d["findings"] if f["subject"] == "backends"]
assert any("only exportable memory (cuMemCreate) is served" in f for f in found), found
assert any("rm does not serve cuMemAlloc memory (pin): the trial on GPU 0 failed: cuMemGetHandleFor" in f
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
	int nvmlInit_v2(void) { return 0; }
	int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) { *device = (void *)id; return 0; }
	int nvmlDeviceGetBAR1MemoryInfo(void *device, void *info) { return 3; }
	const char *nvmlErrorString(int result) { return "Not Supported"; }
	int nvmlSystemGetConfComputeState(unsigned state[3]) { state[0] = 2, state[1] = 1, state[2] = 0; return 0; }
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

documented gdrcopy_doctor

finish
