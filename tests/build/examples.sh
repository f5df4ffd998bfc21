#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The examples build and run on the stand-ins; the Python one on memory of the library, not of
# torch.
# shellcheck source=tests/common/build.bash
. "$(dirname "$0")/../common/build.bash"
sim=$(realpath "${2:?directory of the stand-ins}")

make -s --no-print-directory O="$out" CC=gcc examples
ok "they build"
export LD_LIBRARY_PATH="$sim:$out" LD_PRELOAD="$sim/libnvidia_node.so"
for name in alloc cache large_copies ranges results share vectors; do
	timeout 60 "$out/examples/$name"
	ok "$name"
done
for name in cache ranges; do
	GDRSIM_INTEGRATED=1 timeout 60 "$out/examples/$name"
	ok "$name, with an integrated GPU"
done
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
    got = pin_tensor.write_and_read(gdr, Tensor(mem.address + 64), 100)
    assert got == [4.5] + [3.5] * 99, got
    assert mem.read(4, 60) == bytes(4) and mem.read(4, 464) == bytes(4)
PYTHON
ok "pin_tensor.py"
# A kernel compiled at run time. Running it takes a GPU: NVRTC crashes on the stand-in's libcuda.
unset LD_LIBRARY_PATH LD_PRELOAD
if ! PYTHONPATH=examples python3 -Bc 'import queue_nvrtc; queue_nvrtc.load_nvrtc()' 2>/dev/null; then
	skip "queue_nvrtc.py" "no libnvrtc.so: Debian's main archive has no CUDA"
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
PYTHON
ok "queue_nvrtc.py"
finish
