#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Processes with PyTorch: forked and spawned children, tensors that torch.multiprocessing shares, memory that the library
exports, and each way of a process to end with mappings and views open: no message, the expected status, and the
parent's memory untouched.
"""
import errno
import os
import signal
import sys

from harness import Skip, absent, equal, main, need, note, outcome, python, test

torch, numpy = need("torch", "numpy")
if not torch.cuda.is_available():
    absent("torch finds no GPU")
import barcopy  # noqa: E402

sync = torch.cuda.synchronize

# ---- fork ----------------------------------------------------------------------------------------


def in_a_child(body):
    """The exit status of a forked child that runs the body."""
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        status = 99
        try:
            status = body()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@test("a forked child: every use of its parent's objects is refused, closing them is not")
def _(gdr):
    tensor = torch.zeros(1024, dtype=torch.int32, device="cuda")
    sync()
    cache = gdr.cache()
    m, region, memory, pin = gdr.map(tensor), cache.get(tensor), gdr.alloc((4,), dtype="int32"), gdr.pin(tensor)
    uses = [lambda: m.read(4), lambda: m.write(b"1234"), lambda: m.get32(0), lambda: m.put32(0, 1),
            lambda: region.read(4), lambda: memory.read(4), lambda: gdr.alloc(4096), lambda: pin.map(),
            lambda: gdr.map(m.address, 64), lambda: cache.get(m.address, 64), lambda: m.wait32(0, "==", 9, timeout=1)]

    def child():
        for i, use in enumerate(uses):
            result = outcome(use)
            if not isinstance(result, barcopy.Error) or result.errno != errno.EACCES:
                print(f"#   use {i}: {result!r}", flush=True)
                return 10 + i
        for thing in region, m, memory, pin, cache, gdr:
            if isinstance(outcome(thing.close), Exception):
                return 50
        return 0

    equal(in_a_child(child), 0)
    m.put32(0, 77)
    sync()
    equal((tensor[0].item(), region.get32(0), memory.fill(3), memory.get32(4)), (77, 77, None, 3))


@test("a forked child's end, of any kind, leaves the parent's mapping as it is")
def _(gdr):
    tensor = torch.zeros(1024, dtype=torch.int32, device="cuda")
    sync()
    with gdr.map(tensor) as m:
        def killed():
            os.kill(os.getpid(), signal.SIGKILL)
            return 0

        def raises():
            raise KeyError

        for i, (body, status) in enumerate(((lambda: 0, 0), (killed, -9), (raises, 99)), 1):
            equal(in_a_child(body), status)
            m.put32(0, i)
            sync()
            equal(tensor[0].item(), i)

# ---- exits ---------------------------------------------------------------------------------------

BEGIN = """
import barcopy, os, signal, sys, threading, time
gdr = barcopy.open(); m = gdr.alloc(4096); m.fill(1); view = m.view(); cache = gdr.cache(); region = cache.get(m)
queue, port = gdr.queue(), gdr.port()
"""
TORCH = """
import torch
t = torch.from_dlpack(gdr.alloc((4,), dtype="float32")); u = torch.zeros(1 << 20, device="cuda")
torch.cuda.synchronize(); tm = gdr.map(u); a = tm.array()
"""
ENDS = {
    "falls off its end": ("", 0), "sys.exit": ("sys.exit(3)", 3), "os._exit": ("os._exit(4)", 4),
    "an exception": ("raise KeyError", 1),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)", -15),
    "SIGINT": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(10)", -2),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL); time.sleep(10)", -9),
    "a daemon's wait": ("threading.Thread(target=m.wait32, args=(0, '==', 5), daemon=True).start(); time.sleep(.2)", 0),
    "a daemon's copies": ("""
def copies():
    while True: m.read(64)
threading.Thread(target=copies, daemon=True).start(); time.sleep(.2)""", 0),
    "objects in a cycle": ("class C: pass\nc = C(); c.c = c; c.m = m; c.v = view; del m, view", 0),
    "atexit": ("import atexit; atexit.register(lambda: (m.read(4), m.close(), gdr.close()))", 0),
    "globals of another module": ("os.kept = (m, view, region); del m, view, region", 0),
}


def ends(source, status):
    done = python(source)
    equal(done.returncode, status, "status")
    text = done.stderr.strip()
    if "KeyError" in source or "SIGINT" in source:
        text = "" if text.rsplit("\n", 1)[-1] in ("KeyError", "KeyboardInterrupt") else text
    equal(text, "", "stderr")


for name_, (lines_, status_) in ENDS.items():
    @test(f"a process with everything open ends: {name_}")
    def _(gdr, lines=lines_, status=status_):
        ends(BEGIN + lines, status)


@test("the same with tensors: it falls off its end, sys.exit, SIGINT")
def _(gdr):
    for name in "falls off its end", "sys.exit", "SIGINT":
        lines, status = ENDS[name]
        ends(BEGIN + TORCH + lines, status)

# ---- spawn, IPC ----------------------------------------------------------------------------------


def child_of_spawn(fd_of, size, tensor, out):
    """Opens for itself; tries the shared tensor, and the memory that its parent exported."""
    result = {}
    with barcopy.open() as gdr:
        with gdr.import_memory(os.dup(fd_of), size) as memory:
            result["exported"] = memory.read(6)
            memory.write(b"child!", 64)
        own = torch.arange(16, dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        with gdr.map(own) as m:
            result["own"] = m.get32(4 * 5)
        m = outcome(lambda: gdr.map(tensor))
        if isinstance(m, Exception):
            result["shared"] = f"{type(m).__name__}: {m}"
        else:
            with m:
                result["shared"] = m.get32(4)
                m.put32(8, 99)
    out.put(result)


@test("a spawned child: a tensor shared by torch.multiprocessing, exported memory, memory of its own")
def _(gdr):
    import torch.multiprocessing as mp
    from multiprocessing import reduction

    context = mp.get_context("spawn")
    tensor = torch.arange(1024, dtype=torch.int32, device="cuda")
    sync()
    memory = gdr.alloc(1 << 20, shareable=True)
    memory.write(b"parent")
    fd = memory.export()
    out = context.Queue()
    try:
        process = context.Process(target=child_of_spawn_dup, args=(reduction.DupFd(fd), bytes_in(memory), tensor, out))
        process.start()
    except Exception as why:
        raise Skip(f"torch shares no tensor here: {type(why).__name__} {why}")
    result = out.get(timeout=90)
    process.join(30)
    os.close(fd)
    equal((process.exitcode, result["exported"], result["own"]), (0, b"parent", 5))
    equal(memory.read(6, 64), b"child!")
    sync()
    if isinstance(result["shared"], str):
        note(f"the shared tensor: {result['shared']}"[:300])
        assert result["shared"].startswith("Error: "), result["shared"]
        assert any(word in result["shared"].lower() for word in ("ipc", "shared", "other process", "another process")), \
            "the refusal does not say why"
    else:
        equal((result["shared"], tensor[2].item()), (1, 99))


def bytes_in(memory):
    return len(memory.view())


def child_of_spawn_dup(dup, size, tensor, out):
    child_of_spawn(dup.detach(), size, tensor, out)


if __name__ == "__main__":  # a spawned child imports this file
    sys.exit(main(f"torch {torch.__version__}"))
