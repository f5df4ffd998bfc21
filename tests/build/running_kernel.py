# SPDX-License-Identifier: MIT
"""
examples/running_kernel.py on the stand-in: a thread plays the kernel, modules of this file PyTorch and CuPy.

    running_kernel.py [mute | hangs | interrupted]   the kernel answers, does not answer, does not end, or Ctrl-C comes
                                                     behind the launch
"""
import ctypes
import os
import struct
import sys
import threading
import types

sys.path.insert(0, "examples")
import running_kernel as example  # noqa: E402

KIND = sys.argv[1] if len(sys.argv) > 1 else "answers"
ADDRESS = 512  # in the memory
cuda, context, gdr = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), example.barcopy.open()
memory, threads, current = gdr.alloc(4096), [], []


def must(name, *args):
    if code := getattr(cuda, name)(*args):
        sys.exit(f"{name} fails with {code}")


def kernel(box):
    step = 0
    while KIND != "hangs" or not step:
        box.wait32(example.FLAG, "!=", step)
        step = box.get32(example.FLAG)
        if step == example.STOP:
            return
        if KIND == "answers":
            total = sum(struct.unpack(f"{example.COUNT}f", box.read(4 * example.COUNT, example.PARAMETERS)))
            box.put64(example.SUM, step << 32 | struct.unpack("I", struct.pack("f", total))[0])
    threading.Event().wait()


def raw_kernel(source, name):
    assert f"void {name}(" in source and os.environ["CUDA_MODULE_LOADING"] == "EAGER"

    def launch(grid, block, arguments):
        assert grid == block == (1,) and current == [True]
        threads.append(threading.Thread(target=kernel, args=(gdr.map(arguments[0], example.SIZE),), daemon=True))
        threads[0].start()
        if KIND == "interrupted":
            raise KeyboardInterrupt
    return launch


def zeros(size, dtype, device):
    assert dtype == "uint8" and device == "cuda"
    must("cuMemsetD8Async", ctypes.c_uint64(memory.address + ADDRESS), ctypes.c_ubyte(0), ctypes.c_size_t(size), None)
    return types.SimpleNamespace(data_ptr=lambda: memory.address + ADDRESS, __cuda_array_interface__={
        "shape": (size,), "typestr": "|u1", "version": 3, "data": (memory.address + ADDRESS, False)})


class Stream:
    done = property(lambda self: not threads[0].is_alive())

    def __init__(self, non_blocking):
        self.non_blocking = non_blocking

    def __enter__(self):
        current.append(self.non_blocking)

    def __exit__(self, *_):
        current.pop()


must("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
must("cuCtxSetCurrent", context)
memory.fill(0xff)
torch, cupy = sys.modules["torch"], sys.modules["cupy"] = types.ModuleType("torch"), types.ModuleType("cupy")
torch.zeros, torch.uint8, cupy.RawKernel, cupy.uint64 = zeros, "uint8", raw_kernel, int
cupy.cuda = types.SimpleNamespace(Stream=Stream)
torch.cuda = types.SimpleNamespace(
    is_available=lambda: True,
    current_stream=lambda: types.SimpleNamespace(synchronize=lambda: must("cuCtxSynchronize")))
example.LIMIT = 10 if KIND == "answers" else 0.2
try:
    example.main()
except (example.barcopy.Timeout, KeyboardInterrupt) as why:
    print(type(why).__name__ + "; the kernel has ended:", not threads[0].is_alive())
