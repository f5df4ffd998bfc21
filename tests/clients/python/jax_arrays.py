#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
JAX's arrays: types; computations that are under way, which map() waits for; arrays that are deleted or donated while
mapped; errors of computations; the library's memory as a JAX array.
"""
import gc
import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", ".10")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from harness import Skip, absent, equal, main, name_of, need, note, outcome, refused, served, test  # noqa: E402

numpy = need("numpy")
jax = need("jax")
jax.config.update("jax_enable_x64", True)
try:
    gpus = jax.devices("gpu")
except RuntimeError as why:
    absent(f"jax finds no GPU: {why}")
import barcopy  # noqa: E402
import jax.numpy as jnp  # noqa: E402

REFUSALS = ValueError, TypeError, BufferError, RuntimeError, barcopy.Error


def ready(array):
    return jax.block_until_ready(array)


served(lambda gdr: gdr.map(ready(jnp.zeros(8))), "JAX's memory is not served")

A = ready(jnp.ones((2000, 2000), "float32"))


@jax.jit
def product(a, value):
    """Takes some milliseconds on a GPU."""
    return jax.lax.fori_loop(0, 60, lambda i, x: x @ a / 2000, a)[0, :1024] * 0 + value


def slow(value):
    """An array whose computation is under way."""
    return product(A, value)


ready(slow(0.0))

TYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()


def of_type(gdr, name):
    host = (numpy.arange(48) % 2 if name == "bool" else numpy.arange(48) % 100).astype(name).reshape(6, 8)
    array = ready(jnp.asarray(host))
    with gdr.map(array) as m:
        equal((name_of(m.dtype), tuple(m.shape)), (name, (6, 8)))
        equal(m.read(), host.tobytes())
        equal(m.array().tolist(), host.tolist())
        assert m.read_only, "JAX's arrays never change"
        refused(TypeError, lambda: m.write(host))
        refused(TypeError, lambda: m.put32(0, 1))


for name_ in TYPES:
    test(f"type {name_}")(lambda gdr, name=name_: of_type(gdr, name))


@test("types that numpy lacks: their bytes, or a refusal")
def _(gdr):
    for name in "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "int4", "uint4":
        dtype = getattr(jnp, name, None)
        array = outcome(lambda dtype=dtype: ready(jnp.arange(8, dtype="float32").astype(dtype)))
        if dtype is None or isinstance(array, Exception):
            continue
        m = outcome(lambda array=array: gdr.map(array))
        if isinstance(m, Exception):
            assert isinstance(m, REFUSALS) and name != "bfloat16", m
            note(f"{name}: {type(m).__name__}: {m}"[:160])
            continue
        with m:
            note(f"{name} is {m.dtype}")
            equal(m.read(), numpy.asarray(array).tobytes(), name)


FORMS = {"0-d": lambda: jnp.float32(3) + 0, "a row": lambda: jnp.arange(64.0).reshape(8, 8)[3],
         "transposed": lambda: jnp.arange(64.0).reshape(8, 8).T, "dimensions of 1": lambda: jnp.arange(4.0).reshape(1, 4, 1),
         "a result of jit": lambda: jax.jit(lambda x: x * 2 + 1)(jnp.arange(32.0)),
         "of vmap": lambda: jax.vmap(lambda x: x * 2)(jnp.arange(32.0).reshape(4, 8))}
for name_, make_ in FORMS.items():
    @test(f"form: {name_}")
    def _(gdr, make=make_):
        array = ready(make())
        m = outcome(lambda: gdr.map(array))
        if isinstance(m, ValueError) and "contiguous" in str(m):  # another layout than C's
            note(str(m)[:160])
            return
        with m:
            equal(tuple(m.shape), array.shape)
            equal(m.read(), numpy.asarray(array).tobytes())


@test("refused: empty, a tracer, an abstract shape")
def _(gdr):
    refused(REFUSALS, lambda: gdr.map(jnp.zeros(0)))
    refused(REFUSALS, lambda: gdr.map(jax.ShapeDtypeStruct((4,), jnp.float32)))
    refused(Exception, lambda: jax.jit(lambda x: gdr.map(x) and x)(jnp.zeros(4)))


@test("an array on several devices is refused")
def _(gdr):
    if len(gpus) < 2:
        raise Skip("one GPU")
    mesh = jax.sharding.Mesh(numpy.array(gpus[:2]), "x")
    array = jax.device_put(jnp.arange(64.0), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x")))
    refused(REFUSALS + (AttributeError,), lambda: gdr.map(array))
    with gdr.map(array.addressable_shards[1].data) as m:
        equal(m.array()[0], 32)

# ---- asynchronous ----------------------------------------------------------------------------------


MAKERS = {"map": lambda gdr, a: gdr.map(a), "pin": lambda gdr, a: gdr.pin(a).map(), "cache": lambda gdr, a: gdr.cache().get(a)}
for how_, make_ in MAKERS.items():
    @test(f"{how_} waits for a computation that is under way")
    def _(gdr, make=make_):
        wrong = 0
        for i in range(1, 21):
            array = slow(float(i))
            with make(gdr, array) as m:
                wrong += m.read() != numpy.full(1024, i, "float32").tobytes()
        equal(wrong, 0, "of 20 wrong")


def takes_address(address, size, tries=20):
    kept = []
    for _ in range(tries):
        kept.append(ready(jnp.zeros(size, "uint8")))
        if kept[-1].unsafe_buffer_pointer() == address:
            return kept[-1]
    return None


for how_, make_ in MAKERS.items():
    @test(f"{how_}: delete() while mapped: the memory is no other array's")
    def _(gdr, make=make_):
        size = 1 << 20
        array = ready(jnp.full(size, 7, "uint8"))
        address = array.unsafe_buffer_pointer()
        m = make(gdr, array)
        equal(m.address, address)
        array.delete()
        assert takes_address(address, size) is None, "another array has the mapped memory"
        equal(m.read(8), b"\7" * 8)
        m.close()
        del m
        gc.collect()


@test("del while mapped, and after close() the memory comes back")
def _(gdr):
    size = 3 << 20
    array = ready(jnp.full(size, 7, "uint8"))
    address = array.unsafe_buffer_pointer()
    m = gdr.map(array)
    del array
    gc.collect()
    assert takes_address(address, size) is None
    equal(m.read(2, size - 2), b"\7\7")
    m.close()
    del m
    gc.collect()
    if takes_address(address, size) is None:
        note("no later array got that address")


@test("donation while mapped: the mapped numbers stay")
def _(gdr):
    donate = jax.jit(lambda x: x + 1, donate_argnums=0)
    ready(donate(jnp.zeros(1 << 20, "uint8")))
    for _ in range(5):
        array = ready(jnp.full(1 << 20, 7, "uint8"))
        m = gdr.map(array)
        result = outcome(lambda array=array: ready(donate(array)))
        equal(m.read(8), b"\7" * 8)
        assert isinstance(result, Exception) or result.unsafe_buffer_pointer() != m.address
        m.close()


@test("a deleted array is refused")
def _(gdr):
    array = ready(jnp.zeros(16))
    array.delete()
    note(refused(Exception, lambda: gdr.map(array))[:160])


@test("the error of a computation is raised by map(), or by the array itself")
def _(gdr):
    def fails(x):
        raise RuntimeError("a callback's own error")

    @jax.jit
    def callback(x):
        return jax.pure_callback(fails, jax.ShapeDtypeStruct((1024,), jnp.float32), x)

    array = outcome(lambda: callback(jnp.zeros(4)))
    if isinstance(array, Exception):
        raise Skip("jit raised it at once")
    m = outcome(lambda: gdr.map(array))
    error = outcome(lambda: ready(array))
    note(f"map(): {type(m).__name__} {str(m)[:100]!r}")
    assert isinstance(m, Exception), "a mapping of a computation that failed"
    assert isinstance(error, Exception)

# ---- out -------------------------------------------------------------------------------------------


@test("the library's memory as a JAX array, which keeps it")
def _(gdr):
    for name in "float32", "int64", "bfloat16":
        memory = gdr.alloc((1024,), dtype=name)
        memory.write_bytes(numpy.asarray(jnp.arange(1024).astype(name)).tobytes())
        array = jnp.from_dlpack(memory)
        equal((array.unsafe_buffer_pointer(), name_of(array.dtype)), (memory.address, name))
        equal((array[:100] * 2).astype("float32").sum().item(), 9900)
        memory.close()
        gc.collect()
        equal(float(array[7]), 7)
        assert memory.busy
        del array
        gc.collect()
        for _ in range(3):
            ready(jnp.zeros(4))
        if memory.busy:
            note("JAX keeps the array for now")


@test("200 writes, each seen by a new array of the memory")
def _(gdr):
    with gdr.alloc((1024,), dtype="float32") as memory:
        for i in range(200):
            memory.fill(i)
            array = jnp.from_dlpack(memory)
            equal(float(ready(array.sum())), 1024 * i)
            del array


sys.exit(main(f"jax {jax.__version__}, allocator {os.environ.get('XLA_PYTHON_CLIENT_ALLOCATOR', 'default')}"))
