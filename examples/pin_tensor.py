#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Maps a PyTorch tensor, writes it from the CPU without cudaMemcpy, and shows that torch sees the numbers. Needs PyTorch
with CUDA, and a GPU:

    python3 pin_tensor.py

Every CUDA tensor works, however torch allocates it. The program uses the module of python/, installed or in
this source tree.
"""
import array
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import barcopy  # noqa: E402


def write_and_read(gdr, tensor, count, stream="current"):
    """Writes a tensor of float32 by a copy and by a store; returns what it reads back."""
    with gdr.map(tensor, stream=stream) as mapped:
        mapped.write(array.array("f", [3.5] * count))
        mapped.view().cast("f")[0] = 4.5
        mapped.fence(barcopy.AFTER_WRITE)
        return array.array("f", mapped.read()).tolist()


def main():
    try:
        import torch
    except ImportError:
        sys.exit("this example needs PyTorch with CUDA: pip install torch")
    if not torch.cuda.is_available():
        sys.exit("this example needs a GPU that PyTorch can use: torch.cuda.is_available() is False")
    tensor = torch.zeros(1000, dtype=torch.float32, device="cuda")
    # torch.zeros() only queues its fill. GPU work must end before the CPU writes what it reads or writes, and before
    # the CPU reads what it writes: stream="current" waits for torch's current stream.
    with barcopy.open() as gdr:
        assert write_and_read(gdr, tensor, 1000) == [4.5] + [3.5] * 999
        assert tensor.sum().item() == 3501.0
        tensor.fill_(7)
        with gdr.map(tensor, read_only=True, stream="current") as mapped:
            assert array.array("f", mapped.read(12)).tolist() == [7.0, 7.0, 7.0]
    print("torch and the CPU see the same", tensor.numel(), "numbers")


if __name__ == "__main__":
    main()
