#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
PyTorch's DataLoader with forked workers that end in every way (at their loader's end, by an exception,
os._exit, SIGKILL, and ones that live on) while their parent keeps writing into a mapped tensor; with
torch's ordinary allocator, expandable segments and backend:cudaMallocAsync. After each loader the tensor
is compared with what was written; workers find their parent's mapping refused; what the parent frees is
free on the GPU while workers are still alive. Exit 77 without torch or a GPU.

    LD_LIBRARY_PATH=PREFIX/lib PYTHONPATH=python python3 tests/clients/torch_workers.py
"""
import errno
import os
import signal
import subprocess
import sys

ALLOCATORS = ["", "expandable_segments:True", "backend:cudaMallocAsync"]
WAYS = ["end", "exception", "_exit", "kill"]
WORKERS = 4
ITEMS = 64
BYTES = 64 << 20


def loaders(torch, barcopy):
    from torch.utils.data import DataLoader, Dataset

    tensor = torch.zeros(BYTES // 4, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    gdr = barcopy.open()
    m = gdr.map(tensor)

    class Items(Dataset):
        """An item is 1 where the parent's mapping was refused to the worker, as it has to be."""

        def __init__(self, way):
            self.way, self.seen = way, 0

        def __len__(self):
            return ITEMS

        def __getitem__(self, i):
            self.seen += 1
            if self.seen == ITEMS // WORKERS // 2:
                if self.way == "exception":
                    raise ValueError("a worker's")
                if self.way == "_exit":
                    os._exit(3)
                if self.way == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
            try:
                m.write(b"a worker's own")
            except barcopy.Error as why:
                return int(why.errno == errno.EACCES)
            return 0

    def load(way, keep=False):
        return DataLoader(Items(way), num_workers=WORKERS, multiprocessing_context="fork", persistent_workers=keep)

    def write(value):
        words = bytes(value.to_bytes(4, "little")) * (4096 // 4)
        for at in range(0, BYTES, BYTES // 64):
            m.write(words, at)
        return value

    value = 0
    for way in WAYS * 2:
        got, ended = 0, None
        try:
            for item in load(way):
                got += 1
                assert int(item) == 1, "a worker wrote by its parent's mapping"
                value = write(value + 1)
        except (RuntimeError, ValueError) as why:
            ended = repr(why)  # not itself: its frames keep the loader
        assert (ended is None) == (way == "end"), (way, ended)
        assert way != "end" or got == ITEMS, got
        value = write(value + 1)
        m.flush()
        block = tensor.view(64, -1)[:, :1024]
        assert bool((block == value).all()), f"{way}: not what was written"
        assert m.read(4096) == bytes(value.to_bytes(4, "little")) * 1024, way
        print(f"ok {way}: {got} items while the parent wrote {value} times 64 pieces of 4 KiB", flush=True)

    # Workers that live on hold nothing of the parent's.
    living = load("end", keep=True)
    for item in living:
        assert int(item) == 1
    m.close()
    gdr.close()
    before = torch.cuda.mem_get_info()[0]
    del tensor, block  # m is still there, closed
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    after = torch.cuda.mem_get_info()[0]
    assert after - before >= BYTES, f"{after - before} bytes came back of {BYTES}"
    print(f"ok freed: {(after - before) >> 20} MiB came back with {WORKERS} workers alive", flush=True)


def main():
    try:
        import torch
    except ImportError:
        print("no torch")
        return 77
    if not torch.cuda.is_available():
        print("torch finds no GPU")
        return 77
    if len(sys.argv) > 1:
        import barcopy
        loaders(torch, barcopy)
        return 0
    bad = 0
    for allocator in ALLOCATORS:
        print(f"torch {torch.__version__}, PYTORCH_CUDA_ALLOC_CONF={allocator!r}", flush=True)
        env = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=allocator)
        bad += subprocess.run([sys.executable, __file__, "run"], env=env, timeout=200, check=False).returncode != 0
    print(f"{len(ALLOCATORS) - bad} of {len(ALLOCATORS)} allocators")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
