#!/bin/sh
# SPDX-License-Identifier: MIT
# The examples build and run on the stand-ins; the Python one with memory that is not torch's where
# there is no torch.
#   examples.sh BUILD_DIR SIM_DIR
set -u
out=$1
sim=$2
cd "$(dirname "$0")/../.." || exit 1
passed=0 failed=0

check() {
	name=$1
	shift
	if "$@"; then
		passed=$((passed + 1))
	else
		echo "not ok: $name"
		failed=$((failed + 1))
	fi
}

export LD_LIBRARY_PATH="$sim:$out" LD_PRELOAD="$(realpath "$sim")/libnvidia_node.so"
check build make -s --no-print-directory O="$out" CC=gcc examples
check alloc "$out/examples/alloc"
check ring timeout 60 "$out/examples/ring"
check results timeout 60 "$out/examples/results"
for name in cache large_copies ranges share vectors; do
	check "$name" timeout 60 "$out/examples/$name"
done
check python python3 - <<'PYTHON'
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, "examples")
import pin_tensor

class Tensor:
    def __init__(self, address):
        self.__cuda_array_interface__ = {"shape": (10, 10), "typestr": "<f4", "version": 3,
                                         "data": (address, False)}

with pin_tensor.barcopy.open() as gdr, gdr.alloc(4096) as mem:
    got = pin_tensor.write_and_read(gdr, Tensor(mem.address + 64), 100)
    assert got == [4.5] + [3.5] * 99, got
    assert mem.read(4, 60) == bytes(4) and mem.read(4, 464) == bytes(4)
PYTHON
# The GPU's code of a kernel made at run time. Running it takes a GPU: NVRTC itself crashes on the stand-in's libcuda.
unset LD_LIBRARY_PATH LD_PRELOAD
nvrtc() {
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
PYTHON
}
if PYTHONPATH=examples python3 -Bc 'import queue_nvrtc; queue_nvrtc.load_nvrtc()' 2>/dev/null; then
	check nvrtc nvrtc
else
	echo "ok - nvrtc # SKIP no libnvrtc.so: Debian's main archive has no CUDA"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
