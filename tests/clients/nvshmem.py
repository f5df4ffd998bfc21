#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
NVSHMEM, as PyTorch brings it, between two GPUs: puts of 4 bytes to 16 MiB into the other one's memory, looked
at there. NVSHMEM's transports to other machines (ibrc, ibgda, ucx, libfabric) load libgdrapi.so.2, ask its
versions and open it before they look for a device; without one they end there, and nothing is pinned.
libgdrapi.so.2 must be in LD_LIBRARY_PATH. Exit 1 where a value is wrong or the library was not opened; 77
without torch, NVSHMEM or a second GPU.

    LD_LIBRARY_PATH=PREFIX/lib python3 tests/clients/nvshmem.py
"""
import os
import re
import subprocess
import sys

COUNTS = [1, 256, 1 << 16, 1 << 22]  # of 4 bytes


def rank_main(rank):
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symm

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2, device_id=torch.device("cuda", rank))
    symm.set_backend("NVSHMEM")
    group = dist.group.WORLD.group_name
    symm.enable_symm_mem_for_group(group)
    wrong = 0
    for lap, count in enumerate(COUNTS, 1):
        x = symm.empty(count, dtype=torch.int32, device=f"cuda:{rank}").fill_(-1)
        symm.rendezvous(x, group=group)
        want = torch.arange(count, dtype=torch.int32, device=f"cuda:{rank}") + lap
        torch.cuda.synchronize()
        dist.barrier()
        if rank == 0:
            x.copy_(want)
            torch.ops.symm_mem.nvshmem_put(x, 1)
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        wrong += not torch.equal(x, want)
    print(f"rank {rank}: {wrong} of {len(COUNTS)} sizes wrong", flush=True)
    dist.destroy_process_group()
    return wrong != 0


def main():
    try:
        import torch
        import torch.distributed._symmetric_memory as symm
        there = symm.is_nvshmem_available()
    except ImportError:
        there = False
    if not there or torch.cuda.device_count() < 2:
        print("needs torch with NVSHMEM and two GPUs")
        return 77
    env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29517"),
               NVSHMEM_DEBUG="INFO", GDRCOPY_STATS="1")
    ranks = [subprocess.Popen([sys.executable, __file__, str(r)], env=env, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT) for r in (0, 1)]
    failed = False
    for r, process in enumerate(ranks):
        try:
            out = process.communicate(timeout=120)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            out = process.communicate()[0] + "\nended: it hung\n"
        version = re.search(r"GDR driver version: \(\d+, \d+\)", out)
        opened = "GDRCOPY STATS: process" in out
        for line in re.findall(r"^rank \d: .*$", out, re.M):
            print(line)
        print(f"rank {r}: exit status {process.returncode}, NVSHMEM says "
              f"\"{version.group() if version else 'nothing of GDRCopy'}\", the library was {'' if opened else 'not '}opened")
        if process.returncode or not version or not opened:
            print(out[-2000:])
            failed = True
    return failed


if __name__ == "__main__":
    sys.exit(rank_main(int(sys.argv[1])) if len(sys.argv) > 1 else main())
