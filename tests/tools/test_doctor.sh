#!/bin/sh
# SPDX-License-Identifier: MIT
# gdrcopy_doctor: the reports of the made-up machines of tests/doctor are what is stored; options and
# exit codes; on the stand-in every backend is tried and what hangs or crashes is survived; what is
# recorded plays back the same. Usage: test_doctor.sh BUILD_DIR SIM_DIR.
set -u

# shellcheck source=tests/tools/lib.sh
. "$(dirname "$0")/lib.sh"
tool=$build/gdrcopy_doctor
machines=$root/tests/doctor/machines
trap 'chmod -R u+rwx "$tmp"; rm -rf "$tmp"' EXIT

# ---- made-up machines ------------------------------------------------------------------------------
if command -v python3 >/dev/null; then
	check "the reports can be made" "$root/tests/doctor/reports.sh" "$build" "$tmp/reports"
	for stored in "$machines"/*.report "$machines"/*.report.json; do
		name=$(basename "$stored")
		diff "$stored" "$tmp/reports/$name" >"$out" 2>&1
		rc=$?
		: >"$err"
		expect "$name" 0
	done
	for made in "$tmp"/reports/*; do
		[ -e "$machines/$(basename "$made")" ] ||
			fail "$(basename "$made")" "nothing is stored: tests/doctor/reports.sh BUILD refresh"
	done
	check "every report is JSON" python3 -c '
import json, sys
for name in sys.argv[1:]:
    d = json.load(open(name))
    assert sum(d["counts"].values()) == len(d["findings"]), name
    assert all(f["found"] and f["subject"] and f["check"] for f in d["findings"]), name
    assert d["works"] == any(v for g in d["gpus"] for v in g["backends"].values()), name
' "$tmp"/reports/*.json
else
	skip "the made-up machines" "no python3"
fi

# ---- options and exit codes ------------------------------------------------------------------------
run "$tool" --help
expect "--help" 0 '^Exit status: 0 at least one backend'
for o in json p2p-capability record record-files root replay sim help version; do
	check "--help names --$o" grep -q -- "--$o" "$out"
done
run "$tool" --version
expect "--version" 0 '^gdrcopy_doctor [0-9.]+ \(libgdrapi 2\.6\)$'
while read -r bad; do
	# shellcheck disable=SC2086 # several words
	run "$tool" $bad
	if [ -s "$out" ]; then
		fail "bad: $bad" "stdout is not empty"
	else
		expect "bad: $bad" 2 '' '.'
	fi
done <<-END
	-Z
	--no-such-option
	stray
	--p2p-capability
	--p2p-capability 16
	--p2p-capability -1
	--p2p-capability x
	--root
	--root $tmp/none
	--root $root/Makefile
	--replay $machines/no-gpu.json
	--root $tmp --replay $tmp/none
	--root $tmp --replay $tmp
	--root $tmp --replay $root/Makefile
	--root $tmp --replay /dev/null
	--root $tmp --record $tmp/x
	--root $tmp --record-files $tmp/x
	--root $tmp --sim $sim
	--record $tmp/none/x
	--record /dev/full --sim $sim
	--record-files $root
	--record-files $tmp/none/x
	--sim $tmp
END
run sh -c "'$tool' --p2p-capability 0 >/dev/full"
expect "a full disk" 2 '' 'No space'
run sh -c "'$tool' --root '$tmp' >/dev/full"
expect "a full disk, report" 2 '' 'No space'
run sh -c "'$tool' --root '$tmp' --json >/dev/full"
expect "a full disk, JSON" 2 '' '.'

mkdir "$tmp/empty"
run "$tool" --root "$tmp/empty"
expect "an empty root" 1 'the PCI bus cannot be seen'

# ---- the capability: the two examples of the vendor's document --------------------------------------
run "$tool" --p2p-capability 0
expect "clique 0: bytes" 0 '^  bytes     09 00 08 50 32 50 00 00$'
expect "clique 0: register 00h" 0 '00h  50080009h'
expect "clique 0: register 04h" 0 '04h  00005032h'
expect "offset C8h" 0 'offset C8h on Kepler, Maxwell, Pascal, Volta$'
expect "offset D4h" 0 'offset D4h on Turing and later$'
run "$tool" --p2p-capability 1
expect "clique 1: register 04h" 0 '04h  00085032h'
run "$tool" --p2p-capability 15 --json
check "clique 15 as JSON" python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert d["bytes"] == [9, 0, 8, 0x50, 0x32, 0x50, 0x78, 0] and d["registers"] == ["50080009", "00785032"]
' "$out"

# ---- on the stand-in -------------------------------------------------------------------------------
# What the library's rm backend does on this stand-in, which may have the nodes that it needs or not,
# another tool says: 0, it serves; 2, it cannot.
run GDRCOPY_BACKEND=rm "$build/gdrcopy_copylat" --sim "$sim" -a cuMemAlloc -s 64K -w 100 -r 100
rm_rc=$rc
if [ "$rm_rc" -eq 0 ]; then
	rm_says='ok +rm works: 64 KiB of cuMemAlloc memory'
	in_short='1 of 1 GPU: ordinary GPU memory \(cudaMalloc\) can be mapped here by: rm$'
else
	expect "without rm: another tool's exit status" 2 '' 'rm: '
	rm_says='rm does not serve \((open|pin)\)'
	in_short='1 of 1 GPU: only memory of cudaHostAlloc is usable \(host\)$'
fi
run "$tool" --sim "$sim"
expect "--sim: rm, as the library has it" 0 "$rm_says"
expect "--sim: in short" 0 "$in_short"
expect "--sim: host" 0 'ok +host works'
expect "--sim: dmabuf" 0 'dmabuf does not serve \(open\)'
expect "--sim: it says what it runs on" 0 'stand-in: no GPU is used'
expect "no colours in a file" 0
check "no escape sequence" sh -c "! grep -q '\\\033' '$out'"
check "colours on a terminal, unless NO_COLOR" python3 -c '
import os, pty, subprocess, sys
def coloured(**env):
    ours, theirs = pty.openpty()
    subprocess.run(sys.argv[1:], stdout=theirs, env={**os.environ, "NO_COLOR": "", **env})
    os.close(theirs)
    text = b""  # shorter than what a terminal holds; it ends in EIO
    try:
        while True:
            text += os.read(ours, 4096)
    except OSError:
        os.close(ours)
    assert b"In short" in text, text
    return b"\033[" in text
assert coloured(TERM="xterm")
assert not coloured(TERM="dumb")
assert not coloured(TERM="xterm", NO_COLOR="1")
' "$tool" --root "$tmp/empty"
run GDRSIM_DRIVER_VERSION=13030 "$tool" --sim "$sim"
expect "CUDA 13.3: dmabuf" 0 'any GPU memory is served, by dmabuf'
run GDRSIM_DEVICES=3 "$tool" --sim "$sim" --json
check "three GPUs" python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert len(d["gpus"]) == 3
for g in d["gpus"]:
    assert g["backends"]["host"] and g["backends"]["rm"] == (sys.argv[2] == "0"), g
    assert g["cuda_malloc"] == (["rm"] if sys.argv[2] == "0" else []), g
' "$out" "$rm_rc"
run GDRSIM_DEVICES=0 "$tool" --sim "$sim"
expect "no device: exit 1" 1 'CUDA does not start: cuInit: CUDA_ERROR_NO_DEVICE'
run GDRCOPY_BACKEND=host "$tool" --sim "$sim"
expect "GDRCOPY_BACKEND is told" 0 'GDRCOPY_BACKEND is "host"'
expect "and does not hide the others" 0 "$rm_says"
run GDRCOPY_BACKEND=vulkan "$tool" --sim "$sim"
expect "a backend that is gone is told" 0 'warning +GDRCOPY_BACKEND is "vulkan"'
run GDRSIM_FAIL='cuMemAlloc:*=2,cuMemCreate:*=2,cuMemHostAlloc:*=2' "$tool" --sim "$sim"
expect "no memory: exit 1" 1 '1 of 1 GPU: no backend works'
run GDRSIM_FAIL='cuDevicePrimaryCtxRetain:*=46' "$tool" --sim "$sim"
expect "no context: exit 1" 1 'no CUDA context can be made'
run GDRSIM_FAIL='nvmlInit:*=999' "$tool" --sim "$sim"
expect "NVML fails: the rest goes on" 0 'the use of BAR1: nvmlInit'
run LD_PRELOAD="$sim/libgdrdrv_node.so" "$tool" --sim "$sim"
expect "the stand-in of the gdrdrv node" 0 'any GPU memory is served, by gdrdrv'

# rm on the stand-in of NVIDIA's nodes: what it serves, and the library's reason where it does not
nodes=$sim/libnvidia_node.so
if [ -e "$nodes" ]; then
	run LD_PRELOAD="$nodes" "$tool" --sim "$sim"
	expect "NVIDIA's nodes: rm" 0 'ok +rm works: 64 KiB of cuMemAlloc memory'
	expect "NVIDIA's nodes: in short" 0 'memory \(cudaMalloc\) can be mapped here by: rm$'
	run LD_PRELOAD="$nodes" GDRSIM_DMABUF=0 "$tool" --sim "$sim" --json
	check "no export of dma-bufs: exportable memory alone" python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert d["gpus"][0]["backends"]["rm"] and d["gpus"][0]["cuda_malloc"] == [] and d["works"]
assert "only exportable memory (cuMemCreate) can be mapped here by: rm" in d["verdict"], d["verdict"]
found = [f["found"] for f in d["findings"] if f["check"] == "trials"]
assert any("rm does not serve (pin): cuMemGetHandleForAddressRange" in f for f in found), found
assert any("rm works: 64 KiB of cuMemCreate memory" in f for f in found), found
' "$out"
	run LD_PRELOAD="$nodes" GDRSIM_RM_PROTECTED=1 "$tool" --sim "$sim"
	expect "maps refused: no memory" 0 'rm does not serve exportable memory either \(pin\)'
	expect "maps refused: in short" 0 '1 of 1 GPU: only memory of cudaHostAlloc is usable'
	run LD_PRELOAD="$nodes" GDRSIM_RM_DRIVER=510.108.03 "$tool" --sim "$sim"
	expect "a driver that is too old" 0 'rm does not serve \(open\): driver 510 is too old'
	run LD_PRELOAD="$nodes" GDRSIM_RM_DENIED=0 "$tool" --sim "$sim"
	expect "a node that may not be opened" 0 'rm does not serve .*/dev/nvidia0 may not be opened'
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
	int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending) { *now = 1, *pending = 0; return 0; }
	int nvmlDeviceGetVirtualizationMode(void *device, unsigned *mode) { *mode = 2; return 0; }
	int nvmlSystemGetConfComputeState(unsigned state[3]) { state[0] = 2, state[1] = 1, state[2] = 0; return 0; }
END
	run LD_PRELOAD="$tmp/kinds/libnvidia-ml.so.1" "$tool" --sim "$sim" --record "$tmp/kinds.json"
	expect "NVML tells of MIG, vGPU, confidential computing" 0
	run "$tool" --sim "$sim" --record "$tmp/plain.json"
	expect "NVML tells nothing of them" 0
	check "and that is recorded" python3 -c '
import json, sys
for name, yes in zip(sys.argv[1:], (True, False)):
    d = json.load(open(name))
    assert d["confidential"] == yes and d["gpu"][0]["mig"] == yes and d["gpu"][0]["vgpu"] == yes, name
' "$tmp/kinds.json" "$tmp/plain.json"
else
	skip "NVML tells of MIG, vGPU, confidential computing" "no compiler"
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
	check "its last words are kept" grep -q 'nobody' "$out"
	check "and not printed as ours" sh -c "! grep -qx 'nobody' '$out'"
else
	skip "a libcuda that crashes" "no compiler"
fi

# ---- recorded, played back ---------------------------------------------------------------------------
run "$tool" --sim "$sim" --record "$tmp/p.json" --record-files "$tmp/files"
expect "--record" 0
cp "$out" "$tmp/first"
run "$tool" --root "$tmp/files" --replay "$tmp/p.json"
expect "played back: exit status" 0
check "played back: the same report" cmp "$tmp/first" "$out"
run "$tool" --sim "$sim" --record-files "$tmp/files"
expect "--record-files: not over another" 2 '' 'not empty'

# ---- strict reading ----------------------------------------------------------------------------------
while IFS='|' read -r why text; do
	printf '%s' "$text" >"$tmp/bad.json"
	run "$tool" --root "$tmp/empty" --replay "$tmp/bad.json"
	expect "refused: $text" 2 '' "$why"
done <<-'END'
	line 1: .*no such entry|{"format": 1, "nonsense": 1}
	of the type|{"format": "1"}
	of the type|{"format": 1, "gpu": 3}
	"format" is 2|{"format": 2}
	"format" is 0|{}
	an object must come here|[1]
	too long|{"format": 1, "machine": "0123456789abcdef0"}
	too many|{"format": 1, "library": [{},{},{}]}
	must be an object|{"format": 1, "gpu": [1]}
	out of range|{"format": 1, "euid": 5000000000}
	twice|{"format": 1, "format": 1}
	text behind the end|{"format": 1} x
	without an end|{"format": 1, "machine": "x
END
finish
