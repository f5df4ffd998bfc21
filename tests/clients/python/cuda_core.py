#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
cuda.core, NVIDIA's own Python: its buffers in, by DLPack and by handle; its streams; its kernels on the library's
memory; views of that memory.
"""
import gc
import sys

from harness import BUSY, Skip, absent, equal, main, need, note, outcome, reads_that_wait, served, takes, test

numpy = need("numpy")
try:
    from cuda import core
    core.Device  # noqa: B018  0.x had it in cuda.core.experimental
except (ImportError, AttributeError):
    core = need("cuda.core.experimental")
import barcopy  # noqa: E402

REFUSALS = ValueError, TypeError, BufferError, barcopy.Error
try:
    device = core.Device(0)
    device.set_current()
except Exception as why:
    absent(f"cuda.core finds no GPU: {type(why).__name__} {why}")
stream = device.create_stream()
LATE = r"""
extern "C" __global__ void late(int *x, int value, long long ticks)
{
	long long begin = clock64();

	while (clock64() - begin < ticks)
		;
	x[threadIdx.x] = value;
}
"""


def compiled():
    arch = "sm_" + "".join(str(n) for n in device.compute_capability)
    program = core.Program(LATE, "c++", core.ProgramOptions(std="c++17", arch=arch))
    return program.compile("cubin").get_kernel("late")


kernel_ = outcome(compiled)


def late(address, value, ticks=BUSY, on=None):
    if isinstance(kernel_, Exception):
        raise Skip(f"no kernel: {type(kernel_).__name__} {str(kernel_)[:120]}")
    core.launch(on or stream, core.LaunchConfig(grid=1, block=256), kernel_, address, numpy.int32(value),
                numpy.int64(ticks))


SIZE = 1 << 20


def buffer(size=SIZE):
    made = device.allocate(size, stream=stream)
    stream.sync()
    return made


def by_address(gdr, made, size=SIZE):
    return gdr.map(int(made.handle), size)


served(lambda gdr: by_address(gdr, buffer()), "cuda.core's memory is not served")


@test("a Buffer, as it is")
def _(gdr):
    made = buffer()
    with gdr.map(made) as m:
        equal((m.address, len(m.read())), (int(made.handle), SIZE))
        m.write_bytes(b"hello", offset=4096)
        with by_address(gdr, made) as other:
            equal(other.read(5, 4096), b"hello")


@test("its handle and a size")
def _(gdr):
    made = buffer()
    with gdr.map(made.handle, SIZE) as m:
        m.write(b"there", 64)
    with by_address(gdr, made) as m:
        equal(m.read(5, 64), b"there")


@test("a Buffer that is deleted while mapped; and closed")
def _(gdr):
    made = buffer()
    m = gdr.map(made)
    address = m.address
    del made
    gc.collect()
    stream.sync()
    kept = [buffer() for _ in range(8)]
    assert all(int(other.handle) != address for other in kept), "another buffer has the mapped memory"
    m.write_bytes(b"mine")
    equal(m.read(4), b"mine")
    m.close()


@test("map() of a Buffer waits for the work of its stream that DLPack orders, or the program does")
def _(gdr):
    made = buffer()
    with gdr.map(made) as m:
        reads_that_wait(m, numpy.int32, lambda i: late(int(made.handle), i), stream.sync)


@test("stream= takes cuda.core's stream")
def _(gdr):
    if not takes(barcopy.Mapping.read, "stream"):
        raise Skip("this barcopy's read() has no stream=")
    made = buffer()
    with gdr.map(made) as m:
        for i in range(1, 21):
            late(int(made.handle), i, BUSY // 4)
            equal(m.read(4, stream=stream), numpy.int32(i).tobytes())
    late(int(made.handle), 77)
    with gdr.map(made, stream=stream) as m:
        equal(m.read(4), numpy.int32(77).tobytes())


@test("device= takes cuda.core's device")
def _(gdr):
    memory = outcome(lambda: gdr.alloc(4096, device=device))
    if isinstance(memory, TypeError):
        raise Skip("this barcopy takes a number alone")
    equal(memory.device, 0)


@test("a kernel on the library's memory, 200 times")
def _(gdr):
    with gdr.alloc((256,), dtype="int32") as memory:
        for i in range(200):
            late(memory.address, i, 1000)
            stream.sync()
            equal((memory.get32(0), memory.get32(4 * 255)), (i, i))


@test("page-locked memory")
def _(gdr):
    make = getattr(core, "PinnedMemoryResource", None) or getattr(core, "LegacyPinnedMemoryResource", None)
    resource = outcome(make) if make else Exception("no such resource")
    if isinstance(resource, Exception):
        raise Skip(str(resource)[:120])
    made = outcome(lambda: resource.allocate(4096, stream=stream))
    if isinstance(made, TypeError):
        made = resource.allocate(4096)
    m = outcome(lambda: gdr.map(made))
    if isinstance(m, Exception):
        assert isinstance(m, REFUSALS), m
        note(f"{type(m).__name__}: {m}"[:200])
        return
    with m:
        m.write_bytes(b"pinned")
        equal((m.backend, m.read(6)), ("host", b"pinned"))


@test("a StridedMemoryView of a mapping")
def _(gdr):
    try:
        from cuda.core.utils import StridedMemoryView
    except ImportError:
        try:
            from cuda.core.experimental.utils import StridedMemoryView
        except ImportError:
            raise Skip("no StridedMemoryView") from None
    with gdr.alloc((16, 4), dtype="float32") as memory:
        make = getattr(StridedMemoryView, "from_any_interface", StridedMemoryView)
        view = make(memory, stream_ptr=-1)
        equal((view.ptr, tuple(view.shape), view.is_device_accessible), (memory.address, (16, 4), True))
        del view




sys.exit(main(f"cuda.core {getattr(core, '__version__', '?')}"))
