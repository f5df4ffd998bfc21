#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Numba's device arrays: types and records, forms, memory of each kind, streams, which their interface names; kernels
that wait for words, and views of the library's memory.
"""
import gc
import sys

from harness import Skip, absent, equal, main, name_of, need, note, outcome, reads_that_wait, refused, served, test

numpy = need("numpy")
for gone_, name_ in ("row_stack", "vstack"), ("in1d", "isin"), ("trapz", "trapezoid"):
    if not hasattr(numpy, gone_):  # Numba asks for names that a newer numpy has dropped
        setattr(numpy, gone_, getattr(numpy, name_))
cuda = need("numba.cuda")
if not outcome(cuda.is_available) is True:
    absent("numba finds no GPU")
import barcopy  # noqa: E402

REFUSALS = ValueError, TypeError, BufferError, barcopy.Error


@cuda.jit
def late(x, value, turns):
    for _ in range(turns):
        cuda.nanosleep(500000)
    i = cuda.grid(1)
    if i < x.size:
        x[i] = value


@cuda.jit
def answers(words):
    """Waits for word 0, and answers it in word 16."""
    while cuda.atomic.add(words, 0, 0) != 7:
        pass
    cuda.threadfence_system()
    words[16] = words[1] + 1


def ready(array):
    cuda.synchronize()
    return array


def with_kernels(run):
    """Numba compiles against numpy's names; a numpy that is newer than it lacks some."""
    try:
        return run()
    except (AttributeError, NotImplementedError, ImportError) as why:
        raise Skip(f"this Numba compiles nothing here: {why}") from None


served(lambda gdr: gdr.map(ready(cuda.to_device(numpy.zeros(8)))), "Numba's memory is not served")

TYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()


def of_type(gdr, name):
    host = (numpy.arange(48) % 2 if name == "bool" else numpy.arange(48) % 100).astype(name).reshape(6, 8)
    array = ready(cuda.to_device(host))
    with gdr.map(array) as m:
        equal((name_of(m.dtype), tuple(m.shape)), (name, (6, 8)))
        equal(m.read(), host.tobytes())
        other = numpy.ascontiguousarray(host[::-1])
        m.write(other)
        equal(array.copy_to_host().tobytes(), other.tobytes())
        out = cuda.as_cuda_array(m)
        equal((out.device_ctypes_pointer.value, out.dtype, out.shape), (m.address, host.dtype, (6, 8)))


for name_ in TYPES:
    test(f"type {name_}")(lambda gdr, name=name_: of_type(gdr, name))


@test("records, and times")
def _(gdr):
    for dtype in numpy.dtype([("x", "<f4"), ("n", "<i4")]), numpy.dtype("<M8[ns]"):
        host = numpy.frombuffer(bytes(range(8 * dtype.itemsize)), dtype)
        array = ready(cuda.to_device(host))
        with gdr.map(array) as m:
            equal(m.read(), host.tobytes(), dtype)
            m.write_bytes(host[::-1].tobytes())
            equal(array.copy_to_host().tobytes(), host[::-1].tobytes(), dtype)


FORMS = {"a slice": lambda a: a[2:5], "a row": lambda a: a[3], "a part of a row": lambda a: a[3, 1:5],
         "dimensions of 1": lambda a: a[:1].reshape(1, 8, 1), "one element": lambda a: a[5:6, 2:3]}
for name_, part_ in FORMS.items():
    @test(f"form: {name_}")
    def _(gdr, part=part_):
        whole = ready(cuda.to_device(numpy.arange(128, dtype="f4").reshape(16, 8)))
        array = part(whole)
        want = array.copy_to_host()
        with gdr.map(array) as m:
            equal((tuple(m.shape), m.read()), (want.shape, want.tobytes()))
            m.write(numpy.ascontiguousarray(want + 1))
            equal(array.copy_to_host().tolist(), (want + 1).tolist())


# Not a.T: of two dimensions Numba makes a new array in order (DeviceNDArray.transpose()).
for name_, part_ in {"every second": lambda a: a[::2], "a column": lambda a: a[:, 1],
                     "Fortran's order": lambda a: cuda.to_device(numpy.asfortranarray(a.copy_to_host()))}.items():
    @test(f"refused: {name_}")
    def _(gdr, part=part_):
        array = with_kernels(lambda: part(ready(cuda.to_device(numpy.arange(128, dtype="f4").reshape(16, 8)))))
        note(refused(REFUSALS, lambda: gdr.map(array))[:160])


@test("pinned, mapped and managed memory")
def _(gdr):
    for make in cuda.pinned_array, cuda.mapped_array, cuda.managed_array:
        array = outcome(lambda make=make: make(1000, dtype="i4"))
        if isinstance(array, Exception):
            note(f"{make.__name__}: {array}")
            continue
        array[:] = numpy.arange(1000, dtype="i4")
        cuda.synchronize()
        m = outcome(lambda array=array: gdr.map(array))
        if isinstance(m, Exception):
            assert isinstance(m, REFUSALS), m
            note(f"{make.__name__}: {type(m).__name__}: {m}"[:200])
            continue
        with m:
            equal(m.get32(400), 100, make.__name__)
            m.put32(400, 5)
            equal(int(array[100]), 5, make.__name__)


@test("map() and cache.get() wait for the stream that an array names")
def _(gdr):
    stream = cuda.stream()
    array = cuda.device_array(1024, dtype="f4", stream=stream)
    with_kernels(lambda: late[4, 256, stream](array, 0, 0))
    stream.synchronize()
    with gdr.cache() as cache:
        for i in range(1, 21):
            late[4, 256, stream](array, i, 8)
            with (gdr.map(array) if i & 1 else cache.get(array)) as m:
                equal(m.read(4, 4 * 1023), numpy.float32(i).tobytes())


@test("an array without a stream: the program waits")
def _(gdr):
    array = ready(cuda.device_array(1024, dtype="f4"))
    with_kernels(lambda: late[4, 256](array, 0, 0))
    with gdr.map(array) as m:
        reads_that_wait(m, numpy.float32, lambda i: late[4, 256](array, i, 8), cuda.synchronize)


@test("a kernel of Numba waits for a word of the CPU, and answers")
def _(gdr):
    with gdr.alloc((32,), dtype="int32") as memory:
        for turn in range(20):
            memory.fill(0)
            words = cuda.as_cuda_array(memory)
            with_kernels(lambda words=words: answers[1, 1](words))
            memory.put32(4, turn)
            memory.post32(0, 7)
            memory.wait32(64, "==", turn + 1, timeout=10)
            cuda.synchronize()
            del words


@test("del: the memory stays until close()")
def _(gdr):
    size = 5 << 20
    array = ready(cuda.to_device(numpy.full(size, 3, "u1")))
    m = gdr.map(array)
    address = m.address
    del array
    gc.collect()
    cuda.current_context().deallocations.clear()
    kept = [cuda.device_array(size, dtype="u1") for _ in range(8)]
    assert all(a.device_ctypes_pointer.value != address for a in kept)
    equal(m.read(2, size - 2), b"\3\3")
    m.close()


@test("no 0-d, no empty array goes wrong")
def _(gdr):
    for host in numpy.array(3, "f4"), numpy.zeros(0, "f4"):
        array = outcome(lambda host=host: ready(cuda.to_device(host)))
        if isinstance(array, Exception):
            raise Skip(str(array)[:100])
        m = outcome(lambda array=array: gdr.map(array))
        assert isinstance(m, REFUSALS) or (tuple(m.shape), m.read()) == (host.shape, host.tobytes()), m


import numba  # noqa: E402

sys.exit(main(f"numba {numba.__version__}"))
