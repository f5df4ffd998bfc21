#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
The Python module on a GPU, with PyTorch: numbers that one writes and the other reads, both ways; types
and shapes; what is refused. Exit 77 without torch or a GPU.

    LD_LIBRARY_PATH=build PYTHONPATH=python python3 tests/gpu/torch_views.py

Tensors come from expandable segments by default. One line per test, a closing line
`N passed, N failed, N skipped`.
"""
import os
import sys

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
try:
    import numpy
    import torch
except ImportError as why:
    print(f"needs torch and numpy: {why}")
    sys.exit(77)
if not torch.cuda.is_available():
    print("torch finds no GPU")
    sys.exit(77)

import barcopy  # noqa: E402

DTYPES = ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool",
          "complex64", "complex128"]


def numbers(dtype, count):
    """Numbers that every type holds without rounding."""
    return (torch.arange(count) % 2 if dtype == "bool" else torch.arange(count) % 100).to(
        getattr(torch, dtype))


def refused(error, text, call, *args, **options):
    """The call raises that error, with that text in it."""
    try:
        call(*args, **options)
    except error as why:
        assert text in str(why), why
    else:
        raise AssertionError(f"{call} did not raise {error.__name__}")


def synchronised(tensor):
    """Expandable segments refuse SYNC_MEMOPS: wait for what torch has started."""
    torch.cuda.synchronize()
    return tensor


def every_dtype(gdr):
    for dtype in DTYPES:
        want = numbers(dtype, 12 * 1001).reshape(3, 4, 1001)
        tensor = synchronised(want.cuda())
        with gdr.map(tensor) as m:
            view = m.array()
            assert view.shape == (3, 4, 1001) and view.dtype == want.numpy().dtype, dtype
            got = numpy.empty_like(want.numpy())
            m.read_into(got)
            assert (got == want.numpy()).all(), f"{dtype}: read"
            assert (view[1, 2, 990:] == want.numpy()[1, 2, 990:]).all(), f"{dtype}: view"
            # back: reversed, by a copy and, for the last row, by stores through the view
            back = numpy.ascontiguousarray(got.reshape(-1)[::-1]).reshape(got.shape)
            m.write(back)
            view[2, 3, :] = got[2, 3, :]
            m.fence(barcopy.AFTER_WRITE)
            m.flush()
            back[2, 3, :] = got[2, 3, :]
            assert (tensor.cpu().numpy() == back).all(), f"{dtype}: written"


def bfloat16(gdr):
    tensor = synchronised(torch.arange(64, device="cuda").to(torch.bfloat16))
    with gdr.map(tensor) as m:
        refused(TypeError, "", m.array)
        bits = m.array("uint16")
        assert bits.shape == (64,)
        assert bits[1] == 0x3f80 and bits[2] == 0x4000
        bits[3] = 0x4000
        m.flush()
    assert tensor[3].item() == 2.0


def other_types(gdr):
    """Other element types are refused; a bfloat16 tensor of the CPU goes into one of the GPU."""
    tensor = synchronised(torch.zeros(4, device="cuda"))
    half = synchronised(torch.zeros(4, dtype=torch.bfloat16, device="cuda"))
    with gdr.map(tensor) as m, gdr.map(half) as h:
        for other in torch.arange(4), numpy.arange(4), torch.ones(4, dtype=torch.float64), numpy.ones(2):
            for call in m.write, m.read_into, h.write:
                refused(TypeError, "float", call, other)
        m.write(torch.full((4,), 2.5))
        h.write(torch.full((4,), 3, dtype=torch.bfloat16))
        m.flush()
    assert tensor.tolist() == [2.5] * 4 and half.tolist() == [3.0] * 4


def dlpack(gdr):
    """A tensor keeps the library's memory alive; a tensor that offers DLPack alone is mapped."""
    mem = gdr.alloc((4, 5), "float32")
    tensor = torch.from_dlpack(mem)
    assert tensor.shape == (4, 5) and tensor.dtype == torch.float32 and tensor.data_ptr() == mem.address
    mem.array()[...] = numpy.arange(20, dtype="float32").reshape(4, 5)
    mem.fence(barcopy.AFTER_WRITE)
    assert (tensor * 2).sum().item() == 380
    tensor += 1
    synchronised(tensor)
    assert mem.array()[3, 4] == 20
    view = mem.array()
    mem.close()
    assert mem.busy and tensor.sum().item() == 210
    del tensor
    del view
    assert not mem.busy

    class Only:
        def __init__(self, of):
            self.__dlpack_device__ = of.__dlpack_device__
            self.__dlpack__ = of.__dlpack__

    source = torch.arange(1000, dtype=torch.int16, device="cuda")  # map() waits for the stream
    with gdr.map(Only(source)) as m:
        assert m.array()[999] == 999 and m.array().dtype == numpy.int16
    as_interface = torch.as_tensor(gdr.map(source), device="cuda")
    assert as_interface.data_ptr() == source.data_ptr()


def a_part_of_a_tensor(gdr):
    whole = synchronised(torch.zeros(1000, 16, device="cuda"))
    with gdr.map(whole[100:103]) as m:
        assert m.nbytes == 3 * 16 * 4
        m.write(numpy.full((3, 16), 2.5, "float32"))
    assert whole.sum().item() == 120 and (whole[100:103] == 2.5).all().item()


def not_contiguous(gdr):
    t = torch.zeros(8, 8, device="cuda")
    for part in (t.t(), t[:, 1], t[::2], t[:, :4], torch.zeros(1, device="cuda").expand(5)):
        refused(ValueError, "not contiguous", gdr.map, part)
    for same in (t.t().contiguous(), t[3], t[2:5], t[:1, :]):
        gdr.map(same).close()
    refused(ValueError, "", gdr.map, torch.ones(4, dtype=torch.complex64, device="cuda").conj())  # lazily
    refused(ValueError, "", gdr.map, torch.eye(4, device="cuda").to_sparse())


def tensors_of_the_cpu(gdr):
    """As the host's side of copies; pinned ones also as memory to map."""
    tensor = synchronised(torch.arange(256, dtype=torch.int32, device="cuda"))
    host = torch.zeros(256, dtype=torch.int32)
    with gdr.map(tensor) as m:
        m.read_into(host)
        assert (host == torch.arange(256)).all()
        m.write(host * 2)
        m.flush()
        refused(TypeError, "", m.write, tensor)  # the host's side must be on the CPU
    assert (tensor.cpu() == torch.arange(256) * 2).all()
    pinned = torch.arange(1000, dtype=torch.int64, pin_memory=True)
    with gdr.map(pinned) as m:
        assert m.backend == "host" and m.array()[999] == 999


def read_only(gdr):
    tensor = synchronised(torch.full((100,), 7.0, device="cuda"))
    with gdr.map(tensor, read_only=True) as m:
        view = m.array()
        assert view[50] == 7 and not view.flags.writeable
        refused(TypeError, "", m.write, b"1234")


def keeps_the_tensor(gdr):
    """A view outlives mapping, context and tensor; torch does not reuse the memory meanwhile."""
    tensor = synchronised(torch.full((1 << 20,), 5, dtype=torch.int32, device="cuda"))
    address = tensor.data_ptr()
    with barcopy.open() as own, own.map(tensor) as m:
        view = m.array()
    del tensor, m
    others = [torch.zeros(1 << 20, dtype=torch.int32, device="cuda") for _ in range(8)]
    torch.cuda.synchronize()
    assert all(other.data_ptr() != address for other in others)
    assert view[0] == 5 and view[-1] == 5
    del view


def expandable_segments(gdr):
    """Tensors at both ends of a segment that grew, and one across its chunks."""
    small = [torch.full((1 << 18,), i, dtype=torch.int32, device="cuda") for i in range(16)]
    large = torch.arange(24 << 20, dtype=torch.int32, device="cuda")  # 96 MiB
    torch.cuda.synchronize()
    for i, tensor in enumerate(small):
        with gdr.map(tensor) as m:
            assert m.get32(0) == i and m.get32(4 * (1 << 18) - 4) == i
    with gdr.map(large) as m:
        for at in range(0, 24 << 20, 524288):
            assert m.get32(4 * at) == at, at
        m.put32(4 * 5000000, 42)
        m.flush()
        print(f"       {m.backend}, persistent {m.persistent}, SYNC_MEMOPS {m.sync_memops}")
    assert large[5000000].item() == 42 and large[5000001].item() == 5000001


def cache(gdr):
    with gdr.cache() as c:
        t = synchronised(torch.arange(100, dtype=torch.int64, device="cuda"))
        for _ in range(10):
            with c.get(t) as region:
                assert region.get64(8 * 99) == 99
        assert c.stats().hits == 9
        # torch frees the memory and allocates anew: the address can be the same, the memory is not
        del t
        torch.cuda.empty_cache()
        t = synchronised(torch.full((100,), 3, dtype=torch.int64, device="cuda"))
        with c.get(t) as region:
            assert region.get64(0) == 3


def kernels_and_words(gdr):
    """Waits for a kernel's result by polling, without a call into CUDA."""
    flag = synchronised(torch.zeros(16, dtype=torch.int32, device="cuda"))
    a = torch.randn(2048, 2048, device="cuda")
    with gdr.map(flag) as m:
        torch.cuda.synchronize()
        for turn in range(1, 6):
            for _ in range(4):
                a = torch.tanh(a @ a)
            flag.fill_(turn)
            m.wait32(0, ">=", turn, timeout=30)
            m.wait32(4 * 15, "==", turn, timeout=30)


def main():
    passed = failed = 0
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, Python {sys.version.split()[0]}")
    for test in (every_dtype, bfloat16, other_types, dlpack, a_part_of_a_tensor, not_contiguous, tensors_of_the_cpu,
                 read_only, keeps_the_tensor, expandable_segments, cache, kernels_and_words):
        try:
            with barcopy.open() as gdr:
                test(gdr)
            print(f"ok - {test.__name__}")
            passed += 1
        except Exception as why:
            print(f"not ok - {test.__name__}: {type(why).__name__}: {why}")
            failed += 1
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
