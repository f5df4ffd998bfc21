#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
PyTorch's streams and CUDA graphs: a write waits for the kernels that read, a read for those that wrote; replays with
mapped inputs and results; calls inside a capture; torch.compile with a mapped tensor.
"""
import os
import sys
import time

from harness import BUSY, Skip, absent, equal, main, need, note, outcome, refused, served, takes, test

torch, numpy = need("torch", "numpy")
if not torch.cuda.is_available():
    absent("torch finds no GPU")
import barcopy  # noqa: E402

sync = torch.cuda.synchronize
SIZE = 1024
HOST = [numpy.full(SIZE, i, "f4") for i in range(300)]
served(lambda gdr: gdr.map(torch.zeros(8, device="cuda")), "this allocator's memory is not served")


def pair():
    x = torch.zeros(SIZE, device="cuda")
    y = torch.zeros_like(x)
    sync()
    return x, y


def here():
    return torch.cuda.current_stream()


def steps(gdr, wait, stream=None):
    """How many of 29 kernels read the numbers of the step after theirs."""
    x, y = pair()
    wrong = 0
    with gdr.map(x) as m:
        for i in range(1, 30):
            m.write(HOST[i])
            with torch.cuda.stream(stream or here()):
                torch.cuda._sleep(BUSY // 10)
                torch.mul(x, 1, out=y)
            wait(m, HOST[i + 1])
            sync()
            wrong += y[0].item() != i
    return wrong


@test("a write without a wait loses against a kernel that still reads: so this test can fail")
def _(gdr):
    wrong = steps(gdr, lambda m, data: m.write(data))
    note(f"{wrong} of 29 kernels read the next step's numbers")
    assert wrong


@test("a write after stream.synchronize(), after event.synchronize()")
def _(gdr):
    def by_event(m, data):
        event = torch.cuda.Event()
        event.record()
        event.synchronize()
        m.write(data)

    def by_stream(m, data):
        here().synchronize()
        m.write(data)

    equal((steps(gdr, by_stream), steps(gdr, by_event)), (0, 0))


def with_stream(gdr):
    if not takes(barcopy.Mapping.write, "stream"):
        raise Skip("this barcopy's write() has no stream=")
    return torch.cuda.Stream()


@test("write(stream=): every form of one")
def _(gdr):
    side = with_stream(gdr)
    forms = {"a torch stream": side, "its handle": side.cuda_stream}
    for name, stream in forms.items():
        equal(steps(gdr, lambda m, data, stream=stream: m.write(data, stream=stream), side), 0, name)

    def current(m, data):
        with torch.cuda.stream(side):
            m.write(data, stream="current")

    equal(steps(gdr, current, side), 0, '"current"')
    equal(steps(gdr, lambda m, data: m.write(data, stream="current")), 0, '"current", the default one')


@test("map(stream=) waits, and is the mapping's default; None does not wait")
def _(gdr):
    side = with_stream(gdr)
    x, _ = pair()
    with torch.cuda.stream(side):
        torch.cuda._sleep(BUSY)
        x.fill_(5)
    with gdr.map(x, stream=side) as m:
        equal(m.read(4), HOST[5][:1].tobytes())
        for i in range(6, 30):
            with torch.cuda.stream(side):
                torch.cuda._sleep(BUSY // 10)
                x.fill_(i)
            equal(m.read(4), HOST[i][:1].tobytes())
        with torch.cuda.stream(side):
            torch.cuda._sleep(10 * BUSY)
        start = time.perf_counter()
        m.read(4, stream=None)
        fast = time.perf_counter() - start
        sync()
        assert fast < time.perf_counter() - start, "stream=None waited"


@test("the other calls wait by stream= too")
def _(gdr):
    side = with_stream(gdr)
    x, _ = pair()
    into = numpy.zeros(SIZE, "f4")
    with gdr.map(x) as m:
        for i, read in enumerate((lambda: m.read(stream=side), lambda: m.read_into(into, stream=side) or into.tobytes(),
                                  lambda: m.read_pieces([(0, into)], stream=side) or into.tobytes()), 1):
            with torch.cuda.stream(side):
                torch.cuda._sleep(BUSY)
                x.fill_(i)
            equal(read(), HOST[i].tobytes())
        for write in (lambda: m.fill(7, stream=side), lambda: m.write_pieces([(0, HOST[7])], stream=side)):
            with torch.cuda.stream(side):
                torch.cuda._sleep(BUSY)
                x.fill_(3)
            write()
            sync()
            equal(x[0].item(), 7)


@test("a stream that captures is refused in words")
def _(gdr):
    with_stream(gdr)
    x, _ = pair()
    with gdr.map(x) as m:
        graph = torch.cuda.CUDAGraph()
        texts = []
        why = outcome(lambda: capture_of(graph, lambda: texts.append(outcome(lambda: m.write(HOST[1], stream="current")))))
        assert isinstance(texts[0], Exception), texts
        note(f"{texts[0]!r}"[:200] + f"; the capture: {why!r}")
        sync()


def capture_of(graph, body):
    with torch.cuda.graph(graph):
        body()


@test("a kernel that is launched after a write sees it, 2,000 times, on two streams")
def _(gdr):
    x, _ = pair()
    side = torch.cuda.Stream()
    with gdr.map(x) as m:
        for i in range(2000):
            value = float(i)
            if i % 5:
                m.write(numpy.full(SIZE, value, "f4"))
            else:
                m.fill(value)
            with torch.cuda.stream(side if i & 1 else torch.cuda.default_stream()):
                total = x.sum()
                got = total.item()  # waits on the stream that computes it
            equal(got, value * SIZE, i)


@test("a word, or a store with its fence, and then a launch, 1,000 times")
def _(gdr):
    x, _ = pair()
    with gdr.map(x) as m:
        array = m.array()
        for i in range(1000):
            if i & 1:
                m.put32(0, int(numpy.float32(i).view("u4")))
            else:
                array[0] = i
                m.fence(barcopy.AFTER_WRITE)
            equal(x[0].item(), i)
        del array


@test("wait32() sees a kernel's word while the stream goes on")
def _(gdr):
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")
    sync()
    with gdr.map(flag) as m:
        torch.cuda._sleep(BUSY)
        flag.fill_(7)
        torch.cuda._sleep(10 * BUSY)
        start = time.perf_counter()
        m.wait32(0, "==", 7, timeout=5)
        word = time.perf_counter() - start
        sync()
        whole = time.perf_counter() - start
    note(f"the word after {word * 1e3:.1f} ms, the stream after {whole * 1e3:.1f} ms")
    assert word < whole

# ---- graphs --------------------------------------------------------------------------------------


def captured(body):
    """A graph of the body, which ran before, as libraries load at a first use."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            body()
    sync()
    graph = torch.cuda.CUDAGraph()
    result = []
    capture_of(graph, lambda: result.append(body()))
    return graph, result[0]


@test("a graph with a mapped input and a mapped result, 1,000 replays")
def _(gdr):
    x, _ = pair()
    graph, out = captured(lambda: x * 2 + 1)
    into = numpy.zeros(SIZE, "f4")
    with gdr.map(x) as m, gdr.map(out) as result:
        for i in range(1000):
            m.write(HOST[i % 300])
            graph.replay()
            here().synchronize()
            result.read_into(into)
            assert (into == HOST[i % 300] * 2 + 1).all(), i


@test("a graph of a memset and a copy")
def _(gdr):
    x, y = pair()

    def body():
        y.zero_()
        y.copy_(x)

    graph, _ = captured(body)
    into = numpy.zeros(SIZE, "f4")
    with gdr.map(x) as m, gdr.map(y) as result:
        for i in range(300):
            m.write(HOST[i])
            graph.replay()
            here().synchronize()
            result.read_into(into)
            assert (into == HOST[i]).all(), i


@test("a tensor of a graph's private pool")
def _(gdr):
    graph, out = captured(lambda: torch.full((16,), 3.0, device="cuda") * 2)
    graph.replay()
    sync()
    with gdr.map(out) as m:
        equal(m.array()[5], 6)


class Interface:
    def __init__(self, tensor, **more):
        self.__cuda_array_interface__ = dict(shape=tuple(tensor.shape), typestr="<f4", version=3,
                                             data=(tensor.data_ptr(), False), **more)


CALLS = {
    "write": lambda gdr, m, x: m.write(HOST[1]), "read": lambda gdr, m, x: m.read(4),
    "map": lambda gdr, m, x: gdr.map(x).close(), "alloc": lambda gdr, m, x: gdr.alloc(4096).close(),
    "open": lambda gdr, m, x: barcopy.open().close(), "cache": lambda gdr, m, x: gdr.cache().get(x).close(),
    "map of an interface that names the legacy stream": lambda gdr, m, x: gdr.map(Interface(x, stream=1)),
}
for name_, call_ in CALLS.items():
    @test(f"inside a capture: {name_}")
    def _(gdr, call=call_):
        """The call works or is refused; a capture that survives replays what it recorded."""
        x, z = pair()
        other = torch.zeros(8 << 20, device="cuda")
        sync()
        graph = torch.cuda.CUDAGraph()
        done, result = [], []

        def body():
            result.append(z + 1)
            done.append(outcome(lambda: call(gdr, m, other)))

        with gdr.map(x) as m:
            why = outcome(lambda: capture_of(graph, body))
            note(f"the call: {done[0] if done else 'not reached'!r}; the capture: {why!r}"[:300])
            if isinstance(why, Exception):
                outcome(sync)
                return
            z.fill_(4)
            graph.replay()
            sync()
            equal(result[0][0].item(), 5)

# ---- torch.compile -------------------------------------------------------------------------------


@test("torch.compile: a mapped input, and a write in the compiled function")
def _(gdr):
    x, z = pair()
    data = HOST[9]
    m, other = gdr.map(x), gdr.map(z)

    def plain(t):
        return t * 2 + 1

    def writes(t):
        y = t + 1
        other.write(data)
        return y * 2

    try:
        compiled = torch.compile(plain)
        for i in range(20):
            m.write(HOST[i])
            y = compiled(x)
            sync()
            equal(y[5].item(), 2 * i + 1)
    except AssertionError:
        raise
    except Exception as why:
        raise Skip(f"torch.compile does not work here: {type(why).__name__} {str(why)[:120]}")
    compiled = torch.compile(writes)
    for i in range(5):
        m.write(HOST[i])
        other.fill(0)
        y = compiled(x)
        sync()
        equal((y[5].item(), z[5].item()), (2 * i + 2, 9))
    refused(Exception, lambda: torch.compile(lambda t: other.write(t), fullgraph=True)(x))
    m.close()
    other.close()


sys.exit(main(f"torch {torch.__version__}, allocator {os.environ.get('PYTORCH_CUDA_ALLOC_CONF', 'default')}"))
