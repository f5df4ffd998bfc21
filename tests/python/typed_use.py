# SPDX-License-Identifier: MIT
"""
Every public call as a program makes it, for mypy and Pyright in their strict modes, without numpy. It is not run. Each
`type: ignore` is at a wrong use: a checker that accepts it reports the comment as unnecessary.
"""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
import array
import ctypes
import enum
from typing import Any, Dict, List, Optional, Tuple, Union

import barcopy
from typing_extensions import assert_type


# ---- what PyTorch, cuda.core and cuda.bindings declare ---------------------------------------------

class Tensor:
    is_cpu: bool = False

    def data_ptr(self) -> int:
        return 0

    def __dlpack__(self, *, stream: Optional[Any] = -1, max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Optional[Tuple[enum.IntEnum, int]] = None, copy: Optional[bool] = None) -> Any:
        return None

    def __dlpack_device__(self) -> Tuple[enum.IntEnum, int]:
        raise NotImplementedError


class TorchStream:
    cuda_stream: int = 1


class TorchDevice:
    type: str = "cuda"
    index: int = 0


class CoreStream:
    def __cuda_stream__(self) -> Tuple[int, int]:
        return 0, 1


class CoreDevice:
    @property
    def device_id(self) -> int:
        return 0


class CUdeviceptr:
    def __int__(self) -> int:
        return 0


class Integer:
    def __index__(self) -> int:
        return 0


# ---- its use ---------------------------------------------------------------------------------------

def sized(thing: Union[barcopy.Mapping, barcopy.Pin]) -> None:
    assert_type(thing.context, barcopy.Context)
    assert_type(thing.address + thing.nbytes + thing.size + thing.itemsize + thing.ndim + len(thing), int)
    assert_type(thing.shape, Tuple[int, ...])
    name: str = thing.dtype
    print(repr(thing), thing.closed, bool(thing), name, thing.dtype == Tensor, thing.dtype != "float32")


def mapping(m: barcopy.Mapping) -> None:
    sized(m)
    assert_type(m.pointer + m.device + m.get32(0) + m.get64(8), int)
    assert_type([m.backend, m.mapping_type], List[str])
    assert_type([m.read_only, m.busy, m.persistent, m.sync_memops], List[bool])
    numbers: List[float] = [1.0, 2.0]
    m.write(b"x")
    m.write(bytearray(4))
    m.write(memoryview(b"x"))
    m.write(array.array("f", [1.0]))
    m.write((ctypes.c_ubyte * 4)())
    m.write(Tensor())
    m.write(1)
    m.write(2.5, 4)
    m.write(1j, offset=8, stream=CoreStream())
    m.write(numbers, stream=TorchStream())
    m.write([[1, 2], [3, 4]], stream=Integer())
    m.write(((1, 2), (3, 4)), stream="current")
    m.write("x")  # type: ignore
    m.write(range(3))  # type: ignore
    m.write(b"x", stream=1.5)  # type: ignore
    m.write_bytes(array.array("f", [1.0]), 1, stream=None)
    m.write_bytes(numbers)  # type: ignore
    m.fill(0)
    m.fill(1.5, stream=7)
    assert_type(m.read(), bytes)
    assert_type(m.read(4, 8, stream=7), bytes)
    m.read_into(bytearray(4))
    m.read_into(memoryview(bytearray(4)), 4, stream=None)
    m.read_into(array.array("f", [1.0]))
    m.read_into((ctypes.c_ubyte * 4)())
    m.read_into(Tensor())
    m.write_pieces([(0, b"a"), (4, bytearray(4), True)], fence=False, stream=7)
    m.write_pieces((i, b"a") for i in range(4))
    m.read_pieces([(0, bytearray(4)), (4, bytearray(4), True)], fence=False, stream=7)
    m[3] = 5
    m[Integer(), 1] = 2.5
    print(m[Integer()], m[1, 2])
    m[0:3]  # type: ignore
    m[1.5] = 0  # type: ignore
    0 in m  # type: ignore
    m.set_copy_options(engine_read_min=4096, engine_write_min=barcopy.ENGINE_AUTO)
    for use in barcopy.BEFORE_READ, barcopy.AFTER_READ, barcopy.AFTER_WRITE, barcopy.FULL, barcopy.Fence.FULL:
        m.fence(use)
    m.fence("full")  # type: ignore
    m.flush()
    m.put32(0, 1)
    m.put64(0, 1)
    m.post32(0, 1)
    m.post64(0, 1)
    m.put32(0, 1.5)  # type: ignore
    m.post_line(0, bytes(64))
    m.wait32(0, "==", 1)
    m.wait64(0, ">=", 1, timeout=0.5)
    m.wait64(0, 1, 1)  # type: ignore
    view = m.view()
    assert_type(view, memoryview)
    view[0:1] = b"y"
    assert_type(m.__dlpack_device__(), Tuple[int, int])
    interface: Dict[str, Any] = m.__cuda_array_interface__
    capsule: object = m.__dlpack__(stream=1, max_version=(1, 0), dl_device=(2, 0), copy=False)
    print(interface, capsule)


def context(gdr: barcopy.Context) -> None:
    with gdr.map(Tensor(), read_only=True, sync_memops=False, stream="current") as m:
        assert_type(m, barcopy.Mapping)
        mapping(m)
    gdr.map(m, None, True)  # type: ignore
    gdr.map("x", 64)  # type: ignore
    gdr.map(0x10000, 64).close()
    gdr.map(CUdeviceptr(), 64).close()
    gdr.pin(Integer(), 64).close()
    with gdr.alloc((4, 4), "float32", device=TorchDevice(), cached=True, shareable=True) as mem:
        assert_type(mem, barcopy.Memory)
        assert_type(mem.export(), int)
        assert_type(gdr.import_memory(3, mem.nbytes, device="cuda:0"), barcopy.Memory)
        mapping(mem)
    gdr.alloc(4096, device=0)
    gdr.alloc([4, 4], float, device="cuda:1")
    gdr.alloc(4, "int8", device=CoreDevice())
    gdr.alloc(4, "bfloat16", device=Integer())
    gdr.alloc(64, device=1.5)  # type: ignore
    with gdr.pin(mem) as pin, pin.map() as again:
        sized(pin)
        mapping(again)
        info = pin.info()
        assert_type(info.address + info.mapped_size + info.page_size, int)
        assert_type([info.mapped, pin.revoked], List[bool])
        assert_type(info.mapping_type, str)
    bar, all_stats = gdr.bar_info(CoreDevice()), [gdr.stats(), barcopy.stats()]
    assert_type(bar.total + bar.used + bar.free, int)
    assert_type(all_stats, List[barcopy.Stats])
    assert_type([gdr.driver_version(), barcopy.library_version()], List[Tuple[int, int]])
    assert_type(all_stats[0].pins + all_stats[1].waits, int)
    assert_type(barcopy.__version__, str)
    gdr.close()


def cache(gdr: barcopy.Context, mem: barcopy.Memory) -> None:
    for validity in barcopy.CHECK_TAG, barcopy.NOTIFIED, barcopy.Validity.NOTIFIED:
        with gdr.cache(validity=validity, max_bytes=1 << 20, max_regions=4, engine_read_min=0, engine_write_min=0,
                       sync_memops=False) as made:
            assert_type(made, barcopy.Cache)
            with made.get(mem) as region:
                assert_type(region, barcopy.Region)
                mapping(region)
            made.get(CUdeviceptr(), 64)
            made.invalidate()
            made.invalidate(0x10000, 64)
            made.trim()
            made.trim(1 << 20)
            stats = made.stats()
            assert_type(stats.hits + stats.misses + stats.regions_in_use + stats.bytes_pinned, int)
    gdr.cache(0)  # type: ignore


def rings(gdr: barcopy.Context) -> None:
    with gdr.queue(device="cuda:0", lines=16) as queue:
        assert_type(queue, barcopy.Queue)
        queue.send(b"x")
        queue.send(array.array("I", [1]), timeout=0.0, ordered=True)
        queue.send("x")  # type: ignore
        assert_type(queue.receive(), bytes)
        assert_type(queue.receive(timeout=0.5), bytes)
        queue.stop(abort=True)
        print(bytes(queue.view), queue.context)
    with gdr.port(device=0, lines=16, manual=True, spin=1e-3, yielding=0.1, sleep=1e-3) as port:
        assert_type(port, barcopy.Port)
        for post in port.receive(8, timeout=None):
            assert_type(post, barcopy.Post)
            assert_type(post.number, int)
            assert_type(post.message, bytes)
            port.retire(post.number, 1)
            if post.call is not None:
                port.answer({post.call: 5})
        port.answer([1])  # type: ignore
        port.stop(abort=True)
        port.end()
        print(bytes(port.view), port.context)
    gdr.queue(0)  # type: ignore
    gdr.port(0)  # type: ignore


def main() -> None:
    try:
        with barcopy.open(any_memory=False) as gdr, gdr.alloc(4096) as mem:
            context(gdr)
            cache(gdr, mem)
            rings(gdr)
    except barcopy.Timeout as why:
        assert_type(why, barcopy.Timeout)
    except barcopy.Error as why:
        print(why.errno, why.strerror)
    except barcopy.Closed as why:
        print(why)
    barcopy.open(0)  # type: ignore
