#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
A kernel that is already running takes parameters from the CPU and answers, in a PyTorch tensor. Needs PyTorch with
CUDA, CuPy, which compiles and launches the kernel, and a GPU of compute capability 7.0 or newer:

    python3 running_kernel.py

See in the output: all sums were right. Run on an H200 (driver 580.159.04, 2026-11-29). The program uses the module of
python/, installed or in this source tree.

Order. The CPU writes the parameters, then the step's number as the flag: write() ends with a fence, and the kernel
loads the flag with acquire semantics. The kernel loads all parameters, then stores its answer, which tells the CPU that
it may write the next ones. No call here waits for the stream in which the kernel runs, until the kernel was told to
end; and the tensor lives longer than the kernel, which no reference counts.
"""
import os
import struct
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import barcopy  # noqa: E402

# Bytes of the tensor; each side writes lines of 64 bytes of its own. The answer is one word of 8 bytes: the sum, and
# above it the step. KERNEL has the same numbers.
PARAMETERS, FLAG, SUM, STEP, SIZE = 0, 64, 128, 132, 192
COUNT = 16
STOP = 0xffffffff  # also what a GPU answers that has left the bus: no step has this number
STEPS = 1000
LIMIT = 5.0  # seconds

KERNEL = r"""
extern "C" __global__ void serve(unsigned char *box)
{
	const volatile float *parameter = (const volatile float *)box;
	unsigned step, last = 0;

	for (;;) {
		do
			asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(step) : "l"(box + 64) : "memory");
		while (step == last);
		if (step == 0xffffffff)
			return;
		float sum = 0;
		for (int i = 0; i < 16; i++)
			sum += parameter[i];
		__threadfence_system();
		*(volatile unsigned long long *)(box + 128) = (unsigned long long)step << 32 | __float_as_uint(sum);
		last = step;
	}
}
"""


def ask(box, step, parameters):
    """The kernel's answer to these parameters."""
    box.write(struct.pack(f"{COUNT}f", *parameters), PARAMETERS)
    box.post32(FLAG, step)
    box.wait32(STEP, "==", step, timeout=LIMIT)
    return struct.unpack("f", struct.pack("I", box.get32(SUM)))[0]


def end(box, stream):
    """Waits for the kernel's end. One that hangs is left to the driver, which ends it with the process."""
    box.put32(FLAG, STOP)
    limit = time.monotonic() + LIMIT
    while not stream.done:
        if time.monotonic() > limit:
            print("the kernel does not end", file=sys.stderr, flush=True)
            os._exit(1)  # any call that frees memory could wait for it for ever


def main():
    # Else the first launch of another kernel, such as one of torch's, waits until this one has ended. Read when CUDA
    # starts in the process; later it has no effect.
    os.environ["CUDA_MODULE_LOADING"] = "EAGER"
    try:
        import cupy
        import torch
    except ImportError:
        sys.exit("this example needs PyTorch with CUDA, and CuPy: pip install torch cupy-cuda13x (cupy-cuda12x, "
                 "where torch.version.cuda begins with 12)")
    if not torch.cuda.is_available():
        sys.exit("this example needs a GPU that PyTorch can use: torch.cuda.is_available() is False")
    kernel = cupy.RawKernel(KERNEL, "serve")
    tensor = torch.zeros(SIZE, dtype=torch.uint8, device="cuda")
    torch.cuda.current_stream().synchronize()  # torch.zeros() only queues its fill
    # In the default stream all of torch's work waits behind the kernel; so does, in one of the 32 that
    # torch.cuda.Stream() gives in turn, the work of who gets it next.
    stream = cupy.cuda.Stream(non_blocking=True)
    right = 0
    with barcopy.open() as gdr, gdr.map(tensor) as box:
        try:
            with stream:
                kernel((1,), (1,), (cupy.uint64(tensor.data_ptr()),))
            for step in range(1, STEPS + 1):
                parameters = [float(step + i) for i in range(COUNT)]
                right += ask(box, step, parameters) == sum(parameters)
        finally:
            end(box, stream)
    print(right, "of", STEPS, "sums were right")
    sys.exit(right != STEPS)


if __name__ == "__main__":
    main()
