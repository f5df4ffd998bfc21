#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The examples build and run on the stand-ins, and print what their heads promise; the Python one on memory
# of the library, not of torch.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"
sim=$(realpath "${2:?directory of the stand-ins}")

make -s --no-print-directory O="$out" CC=gcc WERROR=-Werror examples
ok "they build"
for file in examples/*.[ch] examples/*.cpp examples/*.cu examples/*.py; do
	grep -q "^| .*\[${file#examples/}\](${file#examples/})" examples/README.md || echo "# not in examples/README.md: $file"
done >"$tmp/missing"
cat "$tmp/missing"
[ ! -s "$tmp/missing" ]
ok "the README has a line for each"
export LD_LIBRARY_PATH="$sim:$out" LD_PRELOAD="$sim/libnvidia_node.so"
# shows NAME PATTERN [VARIABLE=VALUE...]: the example succeeds, and its output has the lines that its head promises
shows() {
	env "${@:3}" timeout 60 "$out/examples/$1" >"$tmp/out" 2>&1 && tr '\n' ' ' <"$tmp/out" | grep -qE "$2" ||
		{ sed 's/^/# /' "$tmp/out" && false; }
	ok "$1${3:+ $3}"
}
us='[0-9]+\.[0-9]+ us'
timed="8 bytes to the GPU in $us, back in $us"
shows alloc 'hold "hello, GPU"'
shows pin "begins 5000 bytes behind .*\"hello, GPU\" went through the mapping .*cuMemcpy: $timed.* mapping: $timed"
# gdr_open() is for memory of cuMemAlloc, which the CPU cannot map there.
shows pin "^no mapping: .+ \"hello, GPU\" went through cuMemcpy cuMemcpy: $timed" GDRSIM_INTEGRATED=1
! grep -q '^mapping:' "$tmp/out"
ok "pin: without a mapping no time of one"
# gdr_open() succeeds there, and the first pin fails.
shows pin "^no mapping: .*trial on GPU 0 failed.* \"hello, GPU\" went through cuMemcpy cuMemcpy: $timed [^:]*\$" GDRSIM_RM_PROTECTED=1
shows ranges '8 ranges of 100000 bytes share 1 pin the read-only range .* took 1 more, and reads "buffer3"'
shows ranges 'and reads "buffer3"' GDRSIM_INTEGRATED=1
shows words '1000 of 1000 answers were right'
shows waits '^EQ, state == 1: it is 1 now NE, state != 1, at once: timed out NE, .* 2 now GT, done > 0: .* GE, done >= 10: .* LT, left < 4: it is [0-3] now LE, left <= 0: it is 0 now'
shows vectors 'one call read all 16 and found 8 set'
shows large_copies "  256 +$us +$us by the mapping .* 4194304 +$us +$us by the copy engine"
shows large_copies '[0-9]+ copies of [0-9]+ bytes to the GPU' GDRCOPY_STATS=1
hits="median of the others $us 1000 messages: 999 hits, 1 misses, .* after the free: 999 hits, 1 misses, 0 KiB pinned after a message to a new buffer: 999 hits, 2 misses"
shows cache "$hits"
shows cache "$hits" GDRSIM_INTEGRATED=1
shows share 'the child reads "from the parent" the parent reads "from the child"'
shows results '1000 requests were answered right'
raii=()
for name in raii raii-nvcc; do
	if [ -x "$out/examples/$name" ]; then
		raii+=("examples/$name.c")
		shows "$name" "^100 of 100 sums were right as it should, gdr_copy_to_mapping: .* is not inside the handle's range" \
			GDRSIM_ASYNC_DELAY_US=2000
	else
		skip "$name" "no $([ "$name" = raii ] && echo "g++" || echo "nvcc: Debian's main archive has no CUDA")"
	fi
done
if [ -x "$out/examples/raii" ]; then
	# Its kernel waits for a second request, which never comes.
	sed -E "s/(requests =|EQ,) 1/\1 2/; s/5'000'000'000/200'000'000/" examples/raii.cpp >"$tmp/hangs.cpp"
	# hangs CURESULT HOW [SED]: the kernel's memory is not freed, and the example names that result of the query
	hangs() {
		sed -E "${3:-}" "$tmp/hangs.cpp" >"$tmp/hang.cpp"
		env -u LD_PRELOAD g++ -std=c++17 -DcuMemAlloc=cuMemAlloc_v2 -DcuMemFree=cuMemFree_v2 \
			-DcuStreamDestroy=cuStreamDestroy_v2 -Iexamples -Iinclude -Isrc/abi \
			"$tmp/hang.cpp" "$out/libgdrapi.so.2" "$sim/libcuda.so.1" -o "$tmp/hangs"
		timeout 60 "$tmp/hangs" >"$tmp/log" 2>&1
		[ $? = 1 ] && grep -qx "a kernel may still run (cuStreamQuery: $1); before it: timed out: .* 1, waited for == 2" \
			"$tmp/log" || { sed 's/^/# /' "$tmp/log" && false; }
		ok "raii: a kernel that hangs ends with its process, $2"
	}
	hangs 600 "at the limit"
	hangs 201 "in a thread without a context" 's/const double end =/cuCtxSetCurrent(nullptr);\n&/'
fi
for file in examples/*.c "${raii[@]}"; do
	name=${file#examples/} name=${name%.c}
	GDRSIM_DEVICES=0 timeout 60 "$out/examples/$name" >"$tmp/out" 2>&1
	[ $? = 1 ] && grep -q 'cuInit.*: .*CUDA_ERROR_NO_DEVICE' "$tmp/out" || { echo "# $name" && sed 's/^/# /' "$tmp/out"; }
done >"$tmp/silent"
cat "$tmp/silent"
[ ! -s "$tmp/silent" ]
ok "without a GPU each names the call and the cause"
python3 - <<'PYTHON'
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, "examples")
import pin_tensor

class Tensor:
    def __init__(self, address):
        self.__cuda_array_interface__ = {"shape": (10, 10), "typestr": "<f4", "version": 3,
                                         "data": (address, False)}

with pin_tensor.barcopy.open() as gdr, gdr.alloc(4096) as mem:
    got = pin_tensor.write_and_read(gdr, Tensor(mem.address + 64), 100, None)
    assert got == [4.5] + [3.5] * 99, got
    assert mem.read(4, 60) == bytes(4) and mem.read(4, 464) == bytes(4)
PYTHON
ok "pin_tensor.py"
[ "$(timeout 60 python3 -B tests/build/running_kernel.py)" = '1000 of 1000 sums were right' ]
ok "running_kernel.py, with a thread as the kernel"
[ "$(timeout 60 python3 -B tests/build/running_kernel.py mute)" = 'Timeout; the kernel has ended: True' ]
ok "... whose kernel does not answer"
[ "$(timeout 60 python3 -B tests/build/running_kernel.py interrupted)" = 'KeyboardInterrupt; the kernel has ended: True' ]
ok "... that is interrupted behind the launch"
timeout 60 python3 -B tests/build/running_kernel.py hangs >"$tmp/log" 2>&1
[ $? = 1 ] && [ "$(cat "$tmp/log")" = 'the kernel does not end' ]
ok "... whose kernel does not end"
# What they need is in their messages.
export PYTHONPATH=$PWD/python
mkdir "$tmp/torch" && echo 'raise ImportError' >"$tmp/torch/torch.py"
! PYTHONPATH=$tmp/torch:$PYTHONPATH python3 -B examples/pin_tensor.py 2>"$tmp/err" && [ "$(cat "$tmp/err")" = \
	'this example needs PyTorch with CUDA: pip install torch' ]
ok "pin_tensor.py without torch"
! PYTHONPATH=$tmp/torch:$PYTHONPATH python3 -B examples/running_kernel.py 2>"$tmp/err" &&
	grep -q '^this example needs PyTorch with CUDA, and CuPy' "$tmp/err"
ok "running_kernel.py without torch"
! GDRSIM_DEVICES=0 python3 -B examples/queue_nvrtc.py 2>"$tmp/err" && grep -q '^cuInit failed: .*needs a GPU$' "$tmp/err"
ok "queue_nvrtc.py without a GPU"
unset PYTHONPATH
# A kernel compiled at run time. Running it takes a GPU: NVRTC crashes on the stand-in's libcuda.
unset LD_LIBRARY_PATH LD_PRELOAD
if ! PYTHONPATH=examples python3 -Bc 'import queue_nvrtc; queue_nvrtc.load_nvrtc()' 2>/dev/null; then
	skip "queue_nvrtc.py and running_kernel.py compile" "no libnvrtc.so: Debian's main archive has no CUDA"
	finish
fi
python3 -B - <<'PYTHON'
import sys
sys.path.insert(0, "examples")
import queue_nvrtc

for capability in ((7, 5), (9, 0)):
    code = queue_nvrtc.compile_kernel("sqrt(x) + 1", capability)
    assert code.startswith(b"\x7fELF") and b"serve" in code
try:
    queue_nvrtc.compile_kernel("y", (9, 0))
except SystemExit as error:
    assert 'identifier "y" is undefined' in str(error), error
else:
    sys.exit("a wrong expression was compiled")
queue_nvrtc.SOURCE = __import__("running_kernel").KERNEL
assert b"serve" in queue_nvrtc.compile_kernel("", (9, 0))
PYTHON
ok "queue_nvrtc.py and running_kernel.py compile"
# Those in CUDA C++ compile; running them takes a GPU.
nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc) || nvcc=
for file in examples/*.cu; do
	if [ ! "$nvcc" ]; then
		skip "${file#examples/}" "no nvcc: Debian's main archive has no CUDA"
		continue
	fi
	"$nvcc" -arch=sm_75 -Iinclude -Werror all-warnings "$file" -L"$out" -lgdrapi -o "$tmp/a.out"
	ok "${file#examples/} compiles"
done
finish
