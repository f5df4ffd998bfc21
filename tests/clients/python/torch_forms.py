#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
PyTorch's tensors of every type and form: what goes in comes out by copies, words, numpy, DLPack and
__cuda_array_interface__; what cannot be mapped is refused. PYTORCH_CUDA_ALLOC_CONF chooses the allocator.
"""
import gc
import os
import sys

from harness import Skip, absent, bytes_of, equal, main, name_of, need, note, outcome, python, refused, served, test

torch, numpy = need("torch", "numpy")
if not torch.cuda.is_available():
    absent("torch finds no GPU")
import barcopy  # noqa: E402

sync = torch.cuda.synchronize
REFUSALS = ValueError, TypeError, BufferError, RuntimeError, NotImplementedError, barcopy.Error


def ready(tensor):
    sync()
    return tensor


def as_tensor(mapping):
    return torch.as_tensor(mapping, device="cuda")


def raw(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy().tobytes()


served(lambda gdr: gdr.map(ready(torch.zeros(8, device="cuda"))), "this allocator's memory is not served")

# ---- types ---------------------------------------------------------------------------------------

# Those that barcopy knows go out by DLPack too, and those that numpy knows by __cuda_array_interface__.
IN_NUMPY = ("uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 float32 float64 bool complex64 "
            "complex128").split()
IN_DLPACK = IN_NUMPY + ["bfloat16"]
OTHERS = "complex32 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2".split()


def host_of(dtype, name):
    item = torch.empty((), dtype=dtype).element_size()
    if name == "bool":
        return torch.randint(0, 2, (6, 8), dtype=torch.uint8).bool()
    # No byte of an exponent that is all ones: equal bits are then equal numbers.
    return torch.randint(0, 60, (6 * 8 * item,), dtype=torch.uint8).view(dtype).reshape(6, 8)


def of_type(gdr, name):
    dtype = getattr(torch, name, None)
    if dtype is None:
        raise Skip("this torch has no such type")
    host = host_of(dtype, name)
    other = host_of(dtype, name)
    item = host.element_size()
    tensor = ready(host.cuda())
    with gdr.map(tensor) as m:
        equal((name_of(m.dtype), tuple(m.shape)), (name, (6, 8)))
        equal(m.read(), raw(host), "read")
        back = torch.empty_like(host)
        m.read_into(back)
        equal(raw(back), raw(host), "read_into a tensor")
        m.write(other)
        equal(raw(tensor), raw(other), "write of a tensor")
        m.write_pieces([(0, host[0]), (8 * item, host[1], True)])
        equal(raw(tensor[:2]), raw(host[:2]), "write_pieces")
        m.fill(0)
        equal(raw(tensor), bytes(48 * item), "fill(0)")
        if name in IN_DLPACK:
            out = torch.from_dlpack(m)
            equal((out.data_ptr(), out.dtype, tuple(out.shape)), (tensor.data_ptr(), dtype, (6, 8)), "from_dlpack")
        if name in IN_NUMPY:
            out = torch.as_tensor(m, device="cuda")
            equal((out.data_ptr(), out.dtype, tuple(out.shape)), (tensor.data_ptr(), dtype, (6, 8)), "as_tensor")
            m.write(other.numpy())
            equal((m.array().dtype, m.array().tobytes()), (other.numpy().dtype, raw(other)), "array()")
            equal(numpy.asarray(m).tobytes(), raw(other), "asarray")
            m.fill(1)
            assert bool((tensor == 1).all()), "fill(1)"
        if name in OTHERS:  # the same memory and type, or a refusal
            out = outcome(lambda: torch.from_dlpack(m))
            assert isinstance(out, REFUSALS) or (out.data_ptr(), out.dtype) == (tensor.data_ptr(), dtype), out


for name_ in IN_DLPACK + OTHERS:
    test(f"type {name_}")(lambda gdr, name=name_: of_type(gdr, name))


@test("types agree: another type's elements are refused, bytes are not")
def _(gdr):
    tensor = ready(torch.zeros(16, device="cuda"))
    with gdr.map(tensor) as m:
        for other in (torch.zeros(16, dtype=torch.float64), torch.zeros(16, dtype=torch.int32),
                      numpy.zeros(16, "i4"), torch.zeros(16, dtype=torch.bfloat16)):
            refused(TypeError, lambda other=other: m.write(other))
            refused(TypeError, lambda other=other: m.read_into(other))
        m.write(numpy.full(16, 3, "f4").tobytes())
        equal(tensor.tolist(), [3] * 16)

# ---- forms ---------------------------------------------------------------------------------------


def inference():
    with torch.inference_mode():
        return torch.ones(9, device="cuda")


class Sub(torch.Tensor):
    pass


def numbers(count, dtype=torch.float32):
    return torch.arange(count, device="cuda").to(dtype)


FORMS = {
    "0-d": lambda: torch.tensor(3.0, device="cuda"),
    "0-d, a part": lambda: numbers(4096)[9],
    "one element": lambda: numbers(4096)[5:6],
    "a slice": lambda: numbers(4096)[7:99],
    "a row": lambda: numbers(4096).view(64, 64)[3],
    "bytes at an odd address": lambda: numbers(256, torch.uint8)[1:18],
    "the last byte": lambda: numbers(256, torch.uint8)[255:],
    "halves at an odd element": lambda: numbers(100, torch.float16)[1:8],
    "requires_grad": lambda: torch.ones(5, device="cuda", requires_grad=True),
    "a Parameter": lambda: torch.nn.Parameter(torch.ones(5, device="cuda")),
    "a result with grad_fn": lambda: torch.ones(5, device="cuda", requires_grad=True) * 2,
    "dimensions of 1": lambda: numbers(12).view(1, 3, 1, 4, 1),
    "expanded, of one element": lambda: numbers(1).expand(1, 1),
    "of inference mode": inference,
    "of a subclass": lambda: torch.ones(6, device="cuda").as_subclass(Sub),
    "channels_last, permuted": lambda: torch.rand(2, 3, 4, 4, device="cuda").to(
        memory_format=torch.channels_last).permute(0, 2, 3, 1),
    "of 5 dimensions": lambda: numbers(2 * 3 * 4 * 5 * 6).view(2, 3, 4, 5, 6),
}


def of_form(gdr, make):
    tensor = ready(make())
    want = raw(tensor)
    with gdr.map(tensor) as m:
        equal(tuple(m.shape), tuple(tensor.shape), "shape")
        equal(m.read(), want, "read")
        new = bytes((b ^ 1) & 0x3f for b in want)
        m.write(new)
        equal(raw(tensor), new, "write")
        for take in torch.from_dlpack, as_tensor:
            out = take(m)
            equal((out.data_ptr(), tuple(out.shape)), (tensor.data_ptr(), tuple(tensor.shape)), take.__name__)
        equal(m.array().shape, tuple(tensor.shape), "array()")


for name_, make_ in FORMS.items():
    test(f"form: {name_}")(lambda gdr, make=make_: of_form(gdr, make))


@test("a 0-d array that goes out is 0-d, and its neighbours stay")
def _(gdr):
    whole = ready(numbers(64))
    with gdr.map(whole[8]) as m:
        for take in torch.from_dlpack, as_tensor:
            out = take(m)
            out.fill_(99)
            sync()
            equal(out.numel(), 1)
            equal(whole[:12].tolist(), [0, 1, 2, 3, 4, 5, 6, 7, 99, 9, 10, 11])


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        return torch.zeros(4, device="cuda")


def complexes():
    return torch.ones(3, device="cuda", dtype=torch.complex64)


REFUSED = {
    "every second": lambda: numbers(64)[::2],
    "expanded": lambda: numbers(1).expand(4),
    "transposed": lambda: numbers(64).view(8, 8).t(),
    "a column": lambda: numbers(64).view(8, 8)[:, 1],
    "empty": lambda: numbers(64)[:0],
    "conj()": lambda: complexes().conj(),
    "negative bit": lambda: complexes().conj().imag,
    "sparse": lambda: torch.eye(3, device="cuda").to_sparse(),
    "sparse_csr": lambda: torch.eye(3, device="cuda").to_sparse_csr(),
    "nested, jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device="cuda",
                                                         layout=torch.jagged),
    "meta": lambda: torch.zeros(4, device="meta"),
    "fake": fake,
    "of the CPU": lambda: torch.zeros(4),
}
for name_, make_ in REFUSED.items():
    @test(f"refused: {name_}")
    def _(gdr, make=make_):
        note(refused(REFUSALS, lambda: gdr.map(make()))[:160])


@test("nested of strided layout, channels_last, quantized: right, or refused")
def _(gdr):
    nested = torch.nested.nested_tensor([torch.ones(2), torch.full((3,), 2.0)], device="cuda")
    dense = torch.rand(2, 3, 4, 4, device="cuda").to(memory_format=torch.channels_last)
    quantized = outcome(lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8).cuda())
    sync()
    for tensor, want in ((nested, numpy.array([1, 1, 2, 2, 2], "f4").tobytes()),
                         (dense, raw(dense.permute(0, 2, 3, 1))), (quantized, bytes([10] * 4))):
        if isinstance(tensor, Exception):
            continue
        m = outcome(lambda tensor=tensor: gdr.map(tensor))
        assert isinstance(m, REFUSALS) or m.read() == want, m


@test("pinned memory of torch, mapped in place")
def _(gdr):
    pinned = torch.arange(1000, dtype=torch.int64).pin_memory()
    with gdr.map(pinned) as m:
        equal((m.backend, m.array()[999]), ("host", 999))
        m.put64(8 * 5, 77)
        equal(pinned[5].item(), 77)
        equal(numpy.from_dlpack(m)[5], 77)  # torch takes no DLPack of page-locked memory

# ---- the host's side -----------------------------------------------------------------------------


@test("the host's side: tensors, pinned ones, numpy; what is refused")
def _(gdr):
    tensor = ready(torch.zeros(16, device="cuda"))
    with gdr.map(tensor) as m:
        m.write(torch.full((16,), 2.0, requires_grad=True))
        m.write(torch.full((2,), 3.0), offset=8)
        equal(tensor.tolist(), [2, 2, 3, 3] + [2] * 12)
        m.write(torch.full((4,), 4.0).pin_memory())
        into = torch.zeros(16).pin_memory()
        m.read_into(into)
        equal(into.tolist(), [4] * 4 + [2] * 12)
        before = m.read()
        for data in tensor, torch.zeros(32)[::2], torch.zeros(17), torch.zeros(16).to_sparse():
            refused(REFUSALS, lambda data=data: m.write(data))
        refused(ValueError, lambda: m.write(torch.zeros(1), offset=2))
        refused(REFUSALS, lambda: m.read_into(tensor))
        equal(m.read(), before)


@test("words, views and numpy in one tensor")
def _(gdr):
    tensor = ready(torch.zeros(16, device="cuda", dtype=torch.int32))
    with gdr.map(tensor) as m:
        m.put32(0, -5)
        m.post32(4, 9)
        m.put64(8, 7 << 32 | 2)
        array = m.array()
        array[4:6] = 8
        view = m.view()
        view[60:64] = b"\1\0\0\0"
        m.fence(barcopy.AFTER_WRITE)
        equal(tensor.tolist(), [-5, 9, 2, 7, 8, 8] + [0] * 9 + [1])
        equal((m.get32(0), m.get64(8)), (-5, 7 << 32 | 2))
        del array, view


@test("a tensor of more than 2 GiB")
def _(gdr):
    size = (2 << 30) + (64 << 20)
    tensor = ready(torch.zeros(size, device="cuda", dtype=torch.uint8))
    m = outcome(lambda: gdr.map(tensor))
    if isinstance(m, barcopy.Error):
        raise Skip(f"BAR1 has no such range: {m}")
    with m:
        at = (2 << 30) + 4096 + 8
        m.write(b"hello", at)
        m.put32(at + 8, 77)
        m.array()[at + 100] = 9
        m.fence(barcopy.AFTER_WRITE)
        m.write(b"end", size - 3)
        equal(bytes(tensor[at:at + 5].tolist()) + bytes(tensor[-3:].tolist()), b"helloend")
        equal((tensor[at + 8].item(), tensor[at + 100].item(), m.read(5, at)), (77, 9, b"hello"))
        refused(ValueError, lambda: m.write(b"1234", size - 3))


@test("a GPU that is not the current one")
def _(gdr):
    if torch.cuda.device_count() < 2:
        raise Skip("one GPU")
    tensor = torch.arange(4, device="cuda:1", dtype=torch.int32)
    sync(1)
    with torch.cuda.device(0), gdr.map(tensor) as m:
        equal((m.device, m.get32(4)), (1, 1))


@test("200 tensors mapped at once")
def _(gdr):
    tensors = [torch.full((i + 1,), i, device="cuda", dtype=torch.int32) for i in range(200)]
    sync()
    mappings = [gdr.map(tensor) for tensor in tensors]
    equal([m.get32(4 * i) for i, m in enumerate(mappings)], list(range(200)))
    for m in mappings:
        m.close()


@test("capsules that nobody takes are given back")
def _(gdr):
    m = gdr.map(ready(torch.zeros(4, device="cuda")))
    for _ in range(50):
        m.__dlpack__()
    m.close()
    gc.collect()
    assert not m.busy


@test("a tensor by DLPack outlives mapping and context")
def _(gdr):
    own = barcopy.open()
    memory = own.alloc((4,), dtype="float32")
    tensor = torch.from_dlpack(memory)
    memory.fill(2)
    own.close()
    equal(tensor.sum().item(), 8)
    del memory
    gc.collect()
    equal(tensor.sum().item(), 8)
    sync()


@test("a tensor by DLPack is freed while an exception is on its way")
def _(gdr):
    done = python("""
import torch, barcopy
def taken(memory):
    for i, _ in enumerate((torch.from_dlpack(memory), torch.from_dlpack(memory))):
        assert not i
with barcopy.open() as gdr, gdr.alloc((4,), dtype="float32") as memory:
    for _ in range(20):
        try:
            taken(memory)
        except AssertionError:
            pass
""")
    equal((done.returncode, done.stderr), (0, ""))


@test("memory of the library in an operation of torch, and back")
def _(gdr):
    for dtype in "float32", "int64", "bfloat16":
        with gdr.alloc((4, 8), dtype=dtype) as memory:
            tensor = torch.from_dlpack(memory)
            memory.write(torch.arange(32).to(getattr(torch, dtype)).reshape(4, 8))
            twice = (tensor * 2).cpu()
            equal(twice.reshape(-1).tolist(), [2 * i for i in range(32)])
            tensor += 1
            sync()
            host = torch.empty(4, 8, dtype=getattr(torch, dtype))
            memory.read_into(host)
            equal(host.reshape(-1).tolist(), [i + 1 for i in range(32)])
            del tensor


@test("an odd size of bytes read into host memory ends where it ends")
def _(gdr):
    tensor = ready(numbers(256, torch.uint8))
    with gdr.map(tensor) as m:
        for size in 1, 3, 7, 63, 65, 255:
            into = bytearray(b"\xee" * (size + 8))
            m.read_into(memoryview(into)[4:4 + size])
            equal(bytes(into), b"\xee" * 4 + bytes(range(size)) + b"\xee" * 4)
        equal(bytes_of(m), 256)


sys.exit(main(f"torch {torch.__version__}, allocator {os.environ.get('PYTORCH_CUDA_ALLOC_CONF', 'default')}, "
              f"{torch.cuda.get_device_name()}"))
