#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
NCCL, as PyTorch brings it, between two GPUs over sockets with NCCL_GDRCOPY_ENABLE=1 and with 0,
interleaved: sums of 1 to 2**24 elements of two types, and times. libgdrapi.so must be in
LD_LIBRARY_PATH. Exit 1 where a sum is wrong or the library was not used; 77 without torch or a second
GPU.

    LD_LIBRARY_PATH=PREFIX/lib python3 tests/clients/nccl.py [RUNS]
"""
import os
import subprocess
import sys
import time

SIZES = [1, 256, 4096, 1 << 16, 1 << 20, 1 << 24]


def rank_main(rank):
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2)
    for dtype in (torch.float32, torch.int32):
        for count in SIZES:
            x = (torch.arange(count, device="cuda") % 1000 + rank).to(dtype)
            dist.all_reduce(x)
            want = (torch.arange(count, device="cuda") % 1000 * 2 + 1).to(dtype)
            assert torch.equal(x, want), (dtype, count)
    times = []
    for count in (256, 1 << 24):
        x = torch.ones(count, device="cuda")
        for _ in range(3):
            dist.all_reduce(x)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(20):
            dist.all_reduce(x)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / 20 * 1e6)
    if rank == 0:
        print("TIMES", *("%.1f" % t for t in times))
    dist.destroy_process_group()


def run(enable):
    env = dict(os.environ, NCCL_GDRCOPY_ENABLE=str(enable), NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1",
               NCCL_NET="Socket", NCCL_SOCKET_IFNAME="lo", MASTER_ADDR="127.0.0.1",
               MASTER_PORT=str(29500 + os.getpid() % 1000 + enable), GDRCOPY_STATS="1")
    ranks = [subprocess.Popen([sys.executable, __file__, "--rank", str(r)], env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) for r in (0, 1)]
    out = [p.communicate(timeout=120) for p in ranks]
    if any(p.returncode for p in ranks):
        sys.exit("a rank failed:\n%s\n%s" % (out[0][1][-1500:], out[1][1][-1500:]))
    pins = [line.split()[1].rstrip(",") for _, err in out for line in err.splitlines()
            if line.startswith("  pins ")]
    return [float(t) for t in out[0][0].split("TIMES")[1].split()], pins


def main():
    try:
        import torch
    except ImportError:
        print("no torch")
        return 77
    if torch.cuda.device_count() < 2:
        print("%d GPUs" % torch.cuda.device_count())
        return 77
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print("NCCL %s, torch %s, two GPUs, sockets; us a sum of 1 KiB and of 64 MiB" %
          (".".join(map(str, torch.cuda.nccl.version())), torch.__version__))
    for _ in range(runs):
        (small, large), pins = run(1)
        print("with gdrcopy %10.1f %10.1f  pins %s" % (small, large, pins))
        if len(pins) != 2 or any(int(n) < 1 for n in pins):
            print("libgdrapi was not used")
            return 1
        (small, large), pins = run(0)
        print("without      %10.1f %10.1f" % (small, large))
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "--rank":
        rank_main(int(sys.argv[2]))
    else:
        sys.exit(main())
