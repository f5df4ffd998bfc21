#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
What PyTorch does to a tensor while it is mapped: deletion, swaps of its storage, optimizers, pools, empty_cache();
exceptions, interrupts and signals inside calls. A write must never reach memory that is another tensor's by then.
"""
import gc
import os
import random
import signal
import sys
import threading
import time

from harness import Skip, absent, driver, equal, main, need, note, outcome, refused, served, test

torch, numpy = need("torch", "numpy")
if not torch.cuda.is_available():
    absent("torch finds no GPU")
import barcopy  # noqa: E402

sync = torch.cuda.synchronize
N = 5 << 20
served(lambda gdr: gdr.map(torch.zeros(8, device="cuda")), "this allocator's memory is not served")


def takes_address(address, count, tries=64, **options):
    """The tensor that the allocator puts at that address, if it does."""
    kept = []
    for _ in range(tries):
        kept.append(torch.zeros(count, device="cuda", **options))
        if kept[-1].data_ptr() == address:
            sync()
            return kept[-1]
    sync()
    return None


def writes_nowhere_else(mapping, count, **options):
    """
    Writes by the mapping; no other tensor may have got its memory, and no write may reach one that has. Where the
    library says that the memory has gone, it may refuse.
    """
    gc.collect()
    other = takes_address(mapping.address, count, **options)
    if other is None:
        mapping.write(numpy.full(4, 666, "f4").tobytes())
        mapping.close()
        return
    error = outcome(lambda: mapping.write(numpy.full(4, 666, "f4").tobytes()))
    sync()
    got = other.view(-1)[:4].tolist()
    outcome(mapping.close)
    assert got == [0] * 4, f"another tensor now holds {got}"
    assert isinstance(error, Exception), "the write went nowhere, and said nothing"


@test("del of the tensor: its memory is not given to another, until close()")
def _(gdr):
    tensor = torch.ones(N, device="cuda")
    sync()
    m = gdr.map(tensor)
    address = m.address
    del tensor
    gc.collect()
    assert takes_address(address, N) is None
    equal(m.read(4), numpy.float32(1).tobytes())
    m.close()
    del m
    gc.collect()
    assert takes_address(address, N, tries=80) is not None  # 64 blocks of the first search are free, too


SWAPS = {
    "t.data = other": lambda t: setattr(t, "data", torch.zeros(3, device="cuda")),
    "t.set_(other)": lambda t: t.set_(torch.zeros(3, device="cuda")),
    "swap_tensors": lambda t: torch.utils.swap_tensors(t, torch.zeros(3, device="cuda")),
}
MAKERS = {"map": lambda gdr, t: gdr.map(t), "cache": lambda gdr, t: gdr.cache().get(t),
          "pin": lambda gdr, t: gdr.pin(t).map()}
for name_, swap_ in SWAPS.items():
    for how_, make_ in MAKERS.items():
        @test(f"{how_}: {name_}")
        def _(gdr, swap=swap_, make=make_):
            torch.cuda.empty_cache()
            tensor = torch.ones(N, device="cuda")
            sync()
            m = make(gdr, tensor)
            swap(tensor)
            writes_nowhere_else(m, N)


@test("resize_(larger), and untyped_storage().resize_(0) as FSDP does: refused, or the page warns")
def _(gdr):
    """They give the storage other memory, which no reference to it can prevent."""
    for change in lambda t: t.untyped_storage().resize_(0), lambda t: t.resize_(2 * N):
        torch.cuda.empty_cache()
        tensor = torch.ones(N, device="cuda")
        sync()
        m = gdr.map(tensor)
        change(tensor)
        try:
            writes_nowhere_else(m, N)
        except AssertionError as why:
            note(f"known: {why}")


for name_, change_ in (("half()", lambda mod: mod.half()), ("cpu()", lambda mod: mod.cpu()),
                       ("to(bfloat16)", lambda mod: mod.to(torch.bfloat16)),
                       ("to_empty()", lambda mod: mod.to_empty(device="cuda"))):
    @test(f"module.{name_} with a mapped parameter")
    def _(gdr, change=change_):
        torch.cuda.empty_cache()
        module = torch.nn.Linear(2048, 2048, bias=False, device="cuda")
        sync()
        m = gdr.map(module.weight)
        change(module)
        writes_nowhere_else(m, 2048 * 2048)


@test("load_state_dict(assign=True): the old memory is kept")
def _(gdr):
    module = torch.nn.Linear(2048, 2048, bias=False, device="cuda")
    sync()
    m = gdr.map(module.weight)
    module.load_state_dict({"weight": torch.zeros(2048, 2048, device="cuda")}, assign=True)
    writes_nowhere_else(m, 2048 * 2048)


@test("load_state_dict() in place is seen")
def _(gdr):
    module = torch.nn.Linear(64, 64, bias=False, device="cuda")
    sync()
    with gdr.map(module.weight) as m:
        module.load_state_dict({"weight": torch.full((64, 64), 5.0)})
        sync()
        equal(m.array()[3, 3], 5)


@test("optimizers that step in place are seen")
def _(gdr):
    for make in (lambda p: torch.optim.SGD(p, 1.0), lambda p: torch.optim.Adam(p, 1e-2, fused=True),
                 lambda p: torch.optim.Adam(p, 1e-2, foreach=True)):
        parameter = torch.nn.Parameter(torch.ones(64, device="cuda"))
        optimizer = make([parameter])
        sync()
        with gdr.map(parameter) as m:
            for _ in range(3):
                parameter.grad = torch.ones_like(parameter)
                optimizer.step()
            sync()
            assert numpy.allclose(m.array(), parameter.detach().cpu().numpy())


@test("autograd: write() into a saved tensor")
def _(gdr):
    """Either torch notices, or the gradient is the wrong one, of which the page has to warn."""
    x = torch.ones(4, device="cuda", requires_grad=True)
    w = torch.full((4,), 2.0, device="cuda")
    y = (x * w).sum()
    sync()
    with gdr.map(w) as m:
        m.write(numpy.full(4, 9, "f4"))
    why = outcome(y.backward)
    if isinstance(why, RuntimeError):
        note(f"noticed: {str(why)[:100]}")
    else:
        equal(x.grad.tolist(), [9] * 4)
        note("not noticed: the gradient is that of the new numbers")


@test("empty_cache() and the tensor's end: the mapping's memory stays")
def _(gdr):
    tensor = torch.full((N,), 3.0, device="cuda")
    sync()
    m = gdr.map(tensor)
    before = torch.cuda.memory_allocated()
    del tensor
    torch.cuda.empty_cache()
    equal(torch.cuda.memory_allocated(), before)
    equal(m.read(4, 4 * N - 4), numpy.float32(3).tobytes())
    m.write(numpy.float32(4).tobytes(), 0)
    equal(m.read(4), numpy.float32(4).tobytes())
    m.close()
    del m
    gc.collect()
    equal(torch.cuda.memory_allocated(), before - 4 * N)


@test("a cache: memory that is freed and allocated again is mapped anew")
def _(gdr):
    with gdr.cache() as cache:
        for value in range(1, 6):
            tensor = torch.full((N,), float(value), device="cuda")
            sync()
            with cache.get(tensor) as region:
                equal(region.read(4, 400), numpy.float32(value).tobytes())
            del tensor
            torch.cuda.empty_cache()


@test("a private pool of the allocator")
def _(gdr):
    make = getattr(torch.cuda, "MemPool", None)
    if make is None or not hasattr(torch.cuda, "use_mem_pool"):
        raise Skip("this torch has no MemPool")
    pool = make()
    with torch.cuda.use_mem_pool(pool):
        tensor = torch.full((N,), 6.0, device="cuda")
    sync()
    m = gdr.map(tensor)
    address = m.address
    del tensor, pool
    gc.collect()
    torch.cuda.empty_cache()
    assert takes_address(address, N, 8) is None
    equal(m.read(4, 4000), numpy.float32(6).tobytes())
    m.close()


@test("an array of a mapping outlives the mapping, the tensor and the context")
def _(gdr):
    tensor = torch.full((N,), 8.0, device="cuda")
    sync()
    own = barcopy.open()
    m = own.map(tensor)
    address, array = m.address, m.array()
    own.close()
    del tensor, m, own
    gc.collect()
    assert takes_address(address, N, 8) is None
    equal((array[0], array[-1]), (8, 8))
    del array
    gc.collect()
    assert takes_address(address, N) is not None


@test("memory freed by the driver under a mapping by address")
def _(gdr):
    """The owner is the program: nothing keeps it. Another allocation is not written, or the mapping refuses."""
    import ctypes
    first, second = ctypes.c_uint64(), ctypes.c_uint64()
    size = 64 << 20
    driver("cuMemAlloc_v2", ctypes.byref(first), ctypes.c_size_t(size))
    driver("cuMemsetD8_v2", first, ctypes.c_ubyte(0), ctypes.c_size_t(size))
    sync()
    m = gdr.map(first.value, size)
    persistent = m.persistent
    driver("cuMemFree_v2", first)
    driver("cuMemAlloc_v2", ctypes.byref(second), ctypes.c_size_t(size))
    driver("cuMemsetD8_v2", second, ctypes.c_ubyte(0), ctypes.c_size_t(size))
    sync()
    result = outcome(lambda: m.write(b"\xff" * 64))
    word = (ctypes.c_ubyte * 64)()
    driver("cuMemcpyDtoH_v2", word, second, ctypes.c_size_t(64))
    outcome(m.close)
    driver("cuMemFree_v2", second)
    note(f"persistent {persistent}, the write: {result!r}")
    equal(bytes(word), bytes(64), "another allocation")

# ---- exceptions, interrupts, signals ---------------------------------------------------------------


@test("an exception in `with`; a second close(); calls after close()")
def _(gdr):
    tensor = torch.zeros(4, device="cuda")
    sync()
    try:
        with gdr.map(tensor) as m:
            raise KeyError
    except KeyError:
        pass
    assert m.closed and not m.busy
    m.close()
    for call in (lambda: m.get32(0), lambda: m.write(b"1234"), lambda: m.read(4), lambda: m.view(),
                 lambda: m.array(), lambda: torch.from_dlpack(m), lambda: torch.as_tensor(m, device="cuda")):
        refused(Exception, call)
    refused(barcopy.Closed, lambda: m.get32(0))


class Armed:
    """
    A signal raises KeyboardInterrupt where the loop said arm() before, once: an interrupt that Python drops, in a
    destructor, is followed by another one, and none comes behind the loop.
    """

    def __init__(self, number):
        self.number, self.on = number, False

    def __enter__(self):
        self.old = signal.signal(self.number, self.handle)
        return self

    def __exit__(self, *_):
        self.on = False
        signal.signal(self.number, self.old)

    def handle(self, *_):
        if self.on:
            self.on = False
            raise KeyboardInterrupt

    def until(self, call):
        """call() again and again, until an interrupt leaves it."""
        try:
            while True:
                self.on = True
                call()
        except KeyboardInterrupt:
            pass


def balanced(gdr, before, pins=True):
    gc.collect()
    after = gdr.stats()
    equal(after.maps - before.maps, after.unmaps - before.unmaps, "maps and unmaps")
    if pins:
        equal(after.pins - before.pins, after.unpins - before.unpins, "pins and unpins")


BUFFER = bytearray(64)
USES = {
    "read_into": lambda m: m.read_into(BUFFER), "write": lambda m: m.write(BUFFER),
    "words": lambda m: (m.put32(0, 1), m.get64(8)), "wait32": lambda m: m.wait32(0, "==", m.get32(0)),
    "view": lambda m: m.view()[0], "pieces": lambda m: m.read_pieces([(0, BUFFER)]),
}
for name_, use_ in USES.items():
    @test(f"a signal's exception in {name_}: nothing stays mapped")
    def _(gdr, use=use_):
        tensor = torch.zeros(1 << 16, dtype=torch.uint8, device="cuda")
        sync()
        before = gdr.stats()
        stuck = 0
        with Armed(signal.SIGALRM) as armed:
            for _ in range(100):
                m = gdr.map(tensor)
                signal.setitimer(signal.ITIMER_REAL, random.uniform(50e-6, 300e-6), 1e-3)
                armed.until(lambda m=m, use=use: use(m))
                signal.setitimer(signal.ITIMER_REAL, 0)
                m.close()
                stuck += m.busy
        del m
        equal(stuck, 0, "mappings that are busy after close()")
        balanced(gdr, before)


for how_, make_ in MAKERS.items():
    @test(f"Ctrl-C while {how_} and close() are under way: nothing stays, nothing ends twice")
    def _(gdr, make=make_):
        stop = threading.Event()

        def sends():
            while not stop.wait(random.uniform(100e-6, 2e-3)):
                os.kill(os.getpid(), signal.SIGINT)

        tensor = torch.zeros(1 << 16, dtype=torch.uint8, device="cuda")
        sync()
        before = gdr.stats()
        made, stuck = [], 0

        def turn():
            made.append(make(gdr, tensor))
            made[-1].close()
            del made[:-1]

        with Armed(signal.SIGINT) as armed:
            thread = threading.Thread(target=sends)
            thread.start()
            try:
                for _ in range(100):
                    armed.until(turn)
                    while made:
                        m = made.pop()
                        m.close()
                        stuck += m.busy
                        del m
            finally:
                stop.set()
                thread.join()
        equal(stuck, 0, "mappings that are busy after close()")
        balanced(gdr, before, make is not MAKERS["cache"])  # a cache keeps what is idle


@test("two threads that map and close one tensor while a third one copies")
def _(gdr):
    tensor = torch.zeros(1 << 16, dtype=torch.int32, device="cuda")
    sync()
    wrong = []
    stop = threading.Event()

    def maps():
        try:
            while not stop.is_set():
                with gdr.map(tensor) as m:
                    m.put32(0, 7)
                    equal(m.get32(0), 7)
        except BaseException as why:
            wrong.append(why)

    with gdr.map(tensor) as m:
        threads = [threading.Thread(target=maps) for _ in range(2)]
        for thread in threads:
            thread.start()
        into = bytearray(1 << 16)
        end = time.monotonic() + 1
        while time.monotonic() < end:
            m.read_into(into)
        stop.set()
        for thread in threads:
            thread.join()
    equal(wrong, [])


sys.exit(main(f"torch {torch.__version__}, allocator {os.environ.get('PYTORCH_CUDA_ALLOC_CONF', 'default')}"))
