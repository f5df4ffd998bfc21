#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
CuPy's arrays: types, forms, memory of each kind; lifetimes under its pool; streams, which its interface names; graphs;
views of the library's memory.
"""
import gc
import sys

from harness import Skip, BUSY, absent, equal, main, name_of, need, note, outcome, refused, served, test

cupy, numpy = need("cupy", "numpy")
try:
    if not cupy.cuda.runtime.getDeviceCount():
        absent("cupy finds no GPU")
except Exception as why:
    absent(f"cupy finds no GPU: {why}")
import barcopy  # noqa: E402

REFUSALS = ValueError, TypeError, BufferError, barcopy.Error
LATE = r"""
extern "C" __global__ void late(float *x, float value, long long ticks)
{
	long long begin = clock64();

	while (clock64() - begin < ticks)
		;
	x[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
"""


def sync():
    cupy.cuda.runtime.deviceSynchronize()


def ready(array):
    sync()
    return array


late_ = []


def late(array, value, ticks=BUSY, stream=None):
    """Fills the array on the current stream, after a while."""
    if not late_:
        late_.append(cupy.RawKernel(LATE, "late"))
    late_[0]((array.size // 256,), (256,), (array, numpy.float32(value), numpy.int64(ticks)))


served(lambda gdr: gdr.map(ready(cupy.zeros(8))), "CuPy's memory is not served")


def raw(array):
    return cupy.asnumpy(array).tobytes()


TYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()


def of_type(gdr, name):
    host = (numpy.arange(48) % 2 if name == "bool" else numpy.arange(48) % 100).astype(name).reshape(6, 8)
    array = ready(cupy.asarray(host))
    with gdr.map(array) as m:
        equal((name_of(m.dtype), tuple(m.shape)), (name, (6, 8)))
        equal(m.read(), host.tobytes())
        other = numpy.ascontiguousarray(host[::-1])
        m.write(other)
        equal(raw(array), other.tobytes())
        equal((m.array().dtype, m.array().tobytes()), (host.dtype, other.tobytes()))
        for how in cupy.asarray, cupy.from_dlpack:
            out = how(m)
            equal((out.data.ptr, out.dtype, out.shape), (array.data.ptr, array.dtype, (6, 8)), how.__name__)


for name_ in TYPES:
    test(f"type {name_}")(lambda gdr, name=name_: of_type(gdr, name))


@test("records, times: types that DLPack lacks")
def _(gdr):
    """By __cuda_array_interface__, where an array's own DLPack refuses it."""
    for dtype in numpy.dtype([("x", "<f4"), ("n", "<i4")]), numpy.dtype("<M8[ns]"), numpy.dtype("<m8[us]"), numpy.dtype("V3"):
        host = numpy.frombuffer(bytes(range(8 * dtype.itemsize)), dtype)
        array = outcome(lambda host=host: cupy.asarray(host))
        if isinstance(array, Exception):  # CuPy's own limit: its memory as that type
            class Typed:
                memory = cupy.asarray(numpy.frombuffer(host.tobytes(), "u1"))
                __cuda_array_interface__ = dict(memory.__cuda_array_interface__, shape=(8,), typestr=dtype.str,
                                                strides=None, descr=dtype.descr)
            array = Typed()
        sync()
        m = outcome(lambda array=array: gdr.map(array))
        assert not isinstance(m, Exception), f"{dtype}: {m!r}"
        with m:
            equal(m.read(), host.tobytes(), dtype)
            m.write_bytes(host[::-1].tobytes())
            equal(m.read(), host[::-1].tobytes(), dtype)


FORMS = {
    "0-d": lambda a: a[9, 3], "0-d, its own": lambda a: cupy.array(3, "f4"), "a slice": lambda a: a[2:5],
    "a row": lambda a: a[3], "a part of a row": lambda a: a[3, 1:5], "dimensions of 1": lambda a: a[:1, :4].reshape(1, 4, 1),
    "one element": lambda a: a[5:6, 2:3], "bytes at an odd address": lambda a: a.view("u1").reshape(-1)[1:18],
    "a view of another type": lambda a: a.view("i4"), "Fortran's order, of one dimension": lambda a: cupy.asfortranarray(a[3]),
}
for name_, part_ in FORMS.items():
    @test(f"form: {name_}")
    def _(gdr, part=part_):
        array = ready(part(cupy.arange(128, dtype="f4").reshape(16, 8)))
        want = raw(array)
        with gdr.map(array) as m:
            equal((tuple(m.shape), m.address, m.read()), (array.shape, array.data.ptr, want))
            new = bytes((b ^ 1) & 0x3f for b in want)
            m.write(new)
            equal(raw(array), new)
            for how in cupy.asarray, cupy.from_dlpack:
                out = how(m)
                equal((out.data.ptr, out.shape), (array.data.ptr, array.shape), how.__name__)


for name_, part_ in {"every second": lambda a: a[::2], "transposed": lambda a: a.T, "a column": lambda a: a[:, 1],
                     "Fortran's order": lambda a: cupy.asfortranarray(a), "backwards": lambda a: a[::-1],
                     "broadcast": lambda a: cupy.broadcast_to(a[0], (4, 8)), "empty": lambda a: a[:0]}.items():
    @test(f"refused: {name_}")
    def _(gdr, part=part_):
        array = ready(part(cupy.arange(128, dtype="f4").reshape(16, 8)))
        note(refused(REFUSALS, lambda: gdr.map(array))[:160])

# ---- memory of each kind ---------------------------------------------------------------------------


@test("page-locked memory of cupyx")
def _(gdr):
    import cupyx
    array = cupyx.zeros_pinned((1000,), "i4")
    with gdr.map(array) as m:
        equal(m.backend, "host")
        m.put32(40, 7)
        equal(array[10], 7)


KINDS = {
    "managed": lambda: cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc,
    "asynchronous pool": lambda: cupy.cuda.MemoryAsyncPool().malloc,
    "no pool": lambda: None,
}
for name_, kind_ in KINDS.items():
    @test(f"memory: {name_}")
    def _(gdr, kind=kind_):
        """Served and right, or refused."""
        allocator = outcome(kind)
        if isinstance(allocator, Exception):
            raise Skip(f"not here: {allocator}")
        with cupy.cuda.using_allocator(allocator):
            array = ready(cupy.arange(1 << 18, dtype="i4"))
            m = outcome(lambda: gdr.map(array))
            if isinstance(m, Exception):
                assert isinstance(m, REFUSALS), m
                note(f"{type(m).__name__}: {m}"[:200])
                return
            with m:
                equal((m.get32(4000), m.read(4, 4 * ((1 << 18) - 1))), (1000, numpy.int32((1 << 18) - 1).tobytes()))
                m.put32(0, 5)
                m.flush()
                equal(int(array[0]), 5)

# ---- lifetimes -------------------------------------------------------------------------------------


def takes_address(address, size, tries=16):
    kept = []
    for _ in range(tries):
        kept.append(cupy.zeros(size, "u1"))
        if kept[-1].data.ptr == address:
            return kept[-1]
    return None


@test("del and free_all_blocks(): the memory stays until close()")
def _(gdr):
    size = 5 << 20
    for make in lambda a: gdr.map(a), lambda a: gdr.pin(a).map(), lambda a: gdr.cache().get(a):
        array = ready(cupy.full(size, 3, "u1"))
        m = make(array)
        address = m.address
        del array
        gc.collect()
        cupy.get_default_memory_pool().free_all_blocks()
        assert takes_address(address, size) is None
        equal(m.read(2, size - 2), b"\3\3")
        m.close()
        gc.collect()


@test("resize of the owner and out= of another array: the mapping's memory stays its own")
def _(gdr):
    size = 5 << 20
    array = ready(cupy.ones(size, "u1"))
    with gdr.map(array) as m:
        array += 1
        sync()
        equal(m.read(2), b"\2\2")
        array = array * 2  # noqa: PLW2901  another array
        sync()
        equal(m.read(2), b"\2\2")
        assert takes_address(m.address, size) is None


@test("out: an array by DLPack outlives the mapping, and gives it back")
def _(gdr):
    memory = gdr.alloc((256,), dtype="float32")
    array = cupy.from_dlpack(memory)
    memory.fill(2)
    memory.close()
    gc.collect()
    equal(float(array.sum()), 512)
    assert memory.busy
    del array
    gc.collect()
    assert not memory.busy


@test("out: cupy.asarray(), whose kernels see writes, and whose results are read")
def _(gdr):
    with gdr.alloc((256,), dtype="float32") as memory:
        array = cupy.asarray(memory)
        for i in range(200):
            memory.fill(i)
            equal(float(array.sum()), 256 * i)
            late(array, i + 1, 1000)
            cupy.cuda.get_current_stream().synchronize()
            equal(memory.array()[255], i + 1)
        del array

# ---- streams ---------------------------------------------------------------------------------------


def late_reads(gdr, make, stream):
    """How many of 20 reads miss what a kernel of that stream writes; the kernel runs when make() is called."""
    array = ready(cupy.zeros(1024, "f4"))
    missed = 0
    for i in range(1, 21):
        with stream:
            late(array, i, BUSY // 4)
            with make(gdr, array) as m:
                missed += m.read(4, 4 * 1023) != numpy.float32(i).tobytes()
    sync()
    return missed


MAKERS = {"map": lambda gdr, a: gdr.map(a), "cache": lambda gdr, a: gdr.cache().get(a)}
for name_, stream_ in {"the default stream": lambda: cupy.cuda.Stream.null, "a stream": cupy.cuda.Stream,
                       "one that waits for none": lambda: cupy.cuda.Stream(non_blocking=True)}.items():
    for how_, make_ in MAKERS.items():
        @test(f"{how_} waits for {name_} that is current")
        def _(gdr, make=make_, stream=stream_):
            equal(late_reads(gdr, make, stream()), 0)


@test("cupy.from_dlpack(mapping) and cupy.asarray(mapping) on a stream see a write before")
def _(gdr):
    stream = cupy.cuda.Stream(non_blocking=True)
    with gdr.alloc((256,), dtype="float32") as memory, stream:
        for i in range(200):
            memory.fill(i)
            array = (cupy.from_dlpack, cupy.asarray)[i & 1](memory)
            equal(float(array.sum()), 256 * i)
            del array


@test("a graph with a mapped input and a mapped result")
def _(gdr):
    stream = cupy.cuda.Stream(non_blocking=True)
    x, y = ready(cupy.zeros(256, "f4")), ready(cupy.zeros(256, "f4"))
    with stream:
        cupy.multiply(x, 2, out=y)
        stream.synchronize()
        why = outcome(stream.begin_capture)
        if isinstance(why, Exception):
            raise Skip(f"no capture: {why}")
        cupy.multiply(x, 2, out=y)
        graph = stream.end_capture()
    with gdr.map(x) as m, gdr.map(y) as result:
        for i in range(300):
            m.write(numpy.full(256, i, "f4"))
            graph.launch(stream)
            stream.synchronize()
            equal(result.array()[255], 2 * i)


@test("inside a capture: map() of an array of the capturing stream")
def _(gdr):
    stream = cupy.cuda.Stream(non_blocking=True)
    x = ready(cupy.zeros(256, "f4"))
    y = cupy.zeros(256, "f4")
    cupy.multiply(x, 2, out=y)
    sync()
    with stream:
        if isinstance(outcome(stream.begin_capture), Exception):
            raise Skip("no capture")
        m = outcome(lambda: gdr.map(x))
        graph = outcome(stream.end_capture)
    note(f"the call: {m!r}; the capture: {graph!r}"[:300])
    outcome(sync)
    equal(float((x + 1).sum()), 256)


sys.exit(main(f"cupy {cupy.__version__}"))
