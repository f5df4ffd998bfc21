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

export LD_LIBRARY_PATH="$sim:$out"
check build make -s --no-print-directory O="$out" examples
check alloc "$out/examples/alloc"
check ring timeout 60 "$out/examples/ring"
check python python3 - <<'PYTHON'
import ctypes, sys
sys.dont_write_bytecode = True
sys.path.insert(0, "examples")
import pin_tensor

class Mem(ctypes.Structure):
    _fields_ = [("device_ptr", ctypes.c_uint64), ("cpu_ptr", ctypes.c_void_p),
                ("size", ctypes.c_size_t), ("handle", pin_tensor.Handle)]

gdr = pin_tensor.Gdr()
gdr._lib.gdr_mem_alloc.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t,
                                   ctypes.c_uint32, ctypes.POINTER(Mem)]
mem = Mem()
gdr.check(gdr._lib.gdr_mem_alloc(gdr._g, 0, 1000, 0, ctypes.byref(mem)))
a = gdr.map(mem.device_ptr + 3, 900)
b = gdr.map(mem.device_ptr + 103, 100, pin_tensor.GDR_MAP_RANGE_READ_ONLY)
a.write(b"tensor", 100)
assert b.read(6) == b"tensor"
try:
    a.write(b"x", 900)
    sys.exit("a write outside the range was done")
except OSError as error:
    assert error.errno == 22, error
a.unmap()
b.unmap()
gdr.close()
PYTHON
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
