#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Calls into a kernel that is compiled when the program runs and stays on the GPU. Needs a GPU, and NVRTC of the CUDA
toolkit or of the package nvidia-cuda-nvrtc:

    python3 queue_nvrtc.py [EXPRESSION]

EXPRESSION is a CUDA C++ expression of a double x, 'x * x + 1' by default. NVRTC compiles it with
barcopy_queue.cuh. A message has six doubles; the kernel's warp replies with the expression's value for each.
The output has the value for x = 0 to 5, and the time of a call. The program uses CUDA's libraries through
ctypes, and python/'s module, installed or in this tree.
"""
import array
import ctypes
import glob
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "python"))

HEADERS = os.environ.get("BARCOPY_INCLUDE", os.path.join(HERE, "..", "include"))

SOURCE = """
#include "barcopy_queue.cuh"

extern "C" __global__ void serve(barcopy_queue_view_t view)
{
	__shared__ unsigned words[32 * 3];
	unsigned data[3], size, n, i;
	barcopy_warp_t q;

	if (!barcopy_warp_begin(&q, view))
		return;
	while ((n = barcopy_warp_take(&q, data, &size, 0)) != 0) {
		for (i = 0; i < 3; i++)
			words[q.lane * 3 + i] = data[i];
		__syncwarp();
		for (i = q.lane; i < n * 6; i += 32) { /* each message's twelve words are six doubles */
			double x = __hiloint2double(words[2 * i + 1], words[2 * i]);
			double value_ = EXPRESSION;
			words[2 * i] = __double2loint(value_);
			words[2 * i + 1] = __double2hiint(value_);
		}
		__syncwarp();
		for (i = 0; i < 3; i++)
			data[i] = words[q.lane * 3 + i];
		if (!barcopy_warp_put(&q, n, data, size, 0))
			break;
	}
	barcopy_warp_end(&q);
}
"""


def load_nvrtc():
    """Loads NVRTC of the system or, if that fails, of PyTorch's packages."""
    names = [f"libnvrtc.so.{v}" for v in ("13", "12", "11.2")] + ["libnvrtc.so"]
    places = [p for d in sys.path for p in glob.glob(os.path.join(d, "nvidia", "*", "lib", "libnvrtc.so.*"))]
    for name in names + sorted(places) + glob.glob("/usr/local/cuda*/lib*/libnvrtc.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    sys.exit("no libnvrtc.so: install CUDA's runtime compiler (the package nvidia-cuda-nvrtc)")


def compile_kernel(expression, capability):
    """Returns the kernel's machine code for a compute capability such as (9, 0)."""
    nvrtc, program, size = load_nvrtc(), ctypes.c_void_p(), ctypes.c_size_t()
    source = SOURCE.replace("EXPRESSION", expression).encode()
    options = [b"--gpu-architecture=sm_%d%d" % capability, b"--include-path=" + os.fsencode(HEADERS)]
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"serve.cu", 0, None, None):
        sys.exit("nvrtcCreateProgram failed")
    if nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)):
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        sys.exit(log.value.decode())
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, code)
    return code.raw


class Gpu:
    """The part of CUDA's driver API that this program uses: device 0's primary context, and launches."""

    def __init__(self):
        try:
            self.cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            sys.exit(f"this example needs a GPU and its driver: {error}")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.stream = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)
        self.capability = (self.attribute(75, device), self.attribute(76, device))

    def call(self, name, *arguments):
        error = getattr(self.cuda, name)(*arguments)
        if error:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(error, ctypes.byref(text))
            sys.exit(f"{name} failed: {(text.value or b'an unknown error').decode()} ({error}); this example needs a GPU")

    def attribute(self, number, device):
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
        return value.value

    def launch(self, code, name, parameter):
        module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), code)
        self.call("cuModuleGetFunction", ctypes.byref(kernel), module, name)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(parameter))
        self.call("cuLaunchKernel", kernel, 1, 1, 1, 32, 1, 1, 0, self.stream, parameters, None)


def main():
    import barcopy

    expression = sys.argv[1] if len(sys.argv) > 1 else "x * x + 1"
    gpu = Gpu()
    code = compile_kernel(expression, gpu.capability)
    with barcopy.open() as gdr, gdr.queue() as queue:
        gpu.launch(code, b"serve", queue.view)
        values = array.array("d", range(6))
        times = []
        for _ in range(1000):
            start = time.perf_counter_ns()
            queue.send(values)
            answer = queue.receive()
            times.append(time.perf_counter_ns() - start)
        queue.stop()
        gpu.call("cuStreamSynchronize", gpu.stream)  # until the kernel has ended
        for x, y in zip(values, array.array("d", answer)):
            print(f"x = {x:g}: {expression} = {y:g}")
        print(f"a call from Python took {sorted(times)[len(times) // 2] / 1000:.1f} us (median of {len(times)})")


if __name__ == "__main__":
    main()
