# SPDX-License-Identifier: MIT
"""A context of the library, which makes all other objects."""
from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from itertools import repeat
from operator import attrgetter, index, truth
from typing import TYPE_CHECKING, NamedTuple

from . import _lib, _types
from ._lib import check, fitting, library, of_enum
from ._life import Closable, Life, once
from ._memory import Where, device_memory, product
from ._stream import handle_of, ordinal_of, wait
from .cache import CHECK_TAG, Cache
from .mapping import Mapping, Memory
from .pin import Pin
from .port import Port
from .queue import Queue
from .stats import Stats, of_raw

if TYPE_CHECKING:
    from typing import Sequence

    from ._hints import Device, DType, Gpu, Stream


_GRAIN = 1 << 21  # of memory that can be exported: an array's bytes are fewer
_is_handle, _is_memory = attrgetter("h"), attrgetter("handle.h")


def _nanoseconds(seconds):
    ns = seconds * 1e9
    if not 0 <= ns < 2**64:
        raise ValueError(f"a time of {seconds} seconds")
    return int(ns)


class BarInfo(NamedTuple):
    total: int
    used: int
    free: int


class Context(Closable):
    """See open()."""

    _what = "context"

    def __init__(self, flags: int) -> None:
        ctypes.set_errno(0)
        opened = []
        with Life(map(library().gdr_close, once(opened))) as life:
            opened.extend(map(library().barcopy_open, (flags,)))  # no instruction between the call and the list
            if not opened[0]:
                raise _lib.error(ctypes.get_errno())
            self._g = life._as_parameter_ = opened[0]
            self._made = set()  # weak references
            self._begin(life)

    def _text(self):
        return f" of {sum(not made.closed for made in self._living())} objects"

    def _living(self):
        return [made for made in (reference() for reference in list(self._made)) if made is not None]

    def close(self) -> None:
        """Closes it and all objects made from it: now, or at the end of their last use."""
        first = None
        # Queues first: their kernels, if any runs, end when told to.
        for child in sorted(self._living(), key=lambda child: not isinstance(child, Queue)):
            try:
                child.close()
            except Exception as why:  # the rest is closed all the same
                first = first or why
        super().close()
        if first:
            raise first

    def map(self, obj: Device, size: int | None = None, *, read_only: bool = False, sync_memops: bool = True,
            stream: Stream | None = None) -> Mapping:
        """
        A Mapping of a tensor, of an object with __dlpack__ or __cuda_array_interface__, of `size`
        bytes at a device address, or of an array in memory of cudaHostAlloc. It keeps the memory
        allocated. Waits for the work of DLPack's producer, and for the stream that an interface names.

        The elements must be one run of bytes (ValueError), and of a read-only array the mapping is
        read-only too. Pages are pinned once, however many mappings of the context lie in them.

        stream: waits for it, and makes it the mapping's (Mapping).

        sync_memops=False leaves CUDA's attribute of the allocation as it is: barcopy_map_range(3).
        """
        where = device_memory(obj, size)
        if stream is not None:
            ordinal = ordinal_of(where.address)
            wait(handle_of(stream, ordinal), ordinal)
        pointer, handle = c_void_p(), _lib.Handle()
        flags = (_lib.MAP_RANGE_READ_ONLY if read_only else 0) | (0 if sync_memops else _lib.MAP_RANGE_NO_SYNC_MEMOPS)
        with Life(map(library().barcopy_unmap_range, repeat(self._g), once((handle,), _is_handle)),
                  (self._in_use(),), where.keep) as life:
            check(library().barcopy_map_range(self._in_use(), where.address, where.nbytes, flags, byref(pointer),
                                              byref(handle)))
            return Mapping(self, life, handle.h, pointer.value, where, read_only, stream)

    def pin(self, obj: Device, size: int | None = None) -> Pin:
        """A Pin of what map() takes; its own map() maps it."""
        where = device_memory(obj, size)
        handle = _lib.Handle()
        with Life(map(library().gdr_unpin_buffer, repeat(self._g), once((handle,), _is_handle)),
                  (self._in_use(),), where.keep) as life:
            check(library().gdr_pin_buffer_v2(self._in_use(), where.address, where.nbytes, 0, byref(handle)))
            return Pin(self, life, handle, where)

    def _memory(self, call, device, arguments, nbytes=None, type_=None, shape=None):
        mem = _lib.Mem()
        with Life(map(library().barcopy_mem_free, repeat(self._g), once((mem,), _is_memory)),
                  (self._in_use(),)) as life:
            check(call(self._in_use(), device, *arguments, byref(mem)))
            return Memory(self, life, mem, Where(mem.device_ptr, nbytes or mem.size, type_, shape))

    def alloc(self, shape: int | Sequence[int], dtype: DType = None, *, device: Gpu = 0, cached: bool = False,
              shareable: bool = False) -> Memory:
        """
        Memory on a GPU, mapped and ready: of at least `shape` bytes, or with a dtype ("float32", or one
        of numpy's or PyTorch's) an array of that shape, which may be one number. device: an ordinal, "cuda:1", a
        torch.device or a Device of cuda.core. The memory is not
        cleared: it may hold older words. shareable: so that export() works.
        """
        type_ = None
        if dtype is None and hasattr(shape, "__iter__"):
            raise TypeError(f"alloc({shape}) is an array only with a dtype: alloc({shape}, \"float32\")")
        if dtype is not None:
            type_ = _types.of_request(dtype)
            shape = tuple(index(n) for n in shape) if hasattr(shape, "__iter__") else (index(shape),)
            if not all(n > 0 for n in shape):
                raise ValueError(f"an array of shape {shape} has no bytes to map")
        size = fitting(c_size_t, shape if type_ is None else product(shape) * _types.itemsize(type_), "size")
        device = _lib.ordinal(device)
        flags = (_lib.MEM_CACHED if cached else 0) | (_lib.MEM_SHAREABLE if shareable else 0)
        return self._memory(library().barcopy_mem_alloc, device, (size, flags),
                            *(() if type_ is None else (size, type_, shape)))

    def import_memory(self, fd: int, size: int, *, device: Gpu = 0) -> Memory:
        """Memory that another process exported; size: its `nbytes`. The descriptor stays the caller's."""
        fd = fitting(c_int, fd, "fd")
        size = fitting(c_size_t, size, "size")
        whole = fitting(c_size_t, size + -size % _GRAIN, "size")
        device = _lib.ordinal(device)
        return self._memory(library().barcopy_mem_import, device, (fd, whole, 0), size)

    def cache(self, *, validity: int = CHECK_TAG, max_bytes: int = 0, max_regions: int = 0, engine_read_min: int = 0,
              engine_write_min: int = 0, sync_memops: bool = True) -> Cache:
        """A registration Cache; see barcopy_cache_create(3)."""
        options = _lib.CacheOptions(ctypes.sizeof(_lib.CacheOptions),
                                    fitting(c_uint32, of_enum(_lib.Validity, validity, "validity"), "validity"),
                                    0 if sync_memops else _lib.CACHE_NO_SYNC_MEMOPS,
                                    fitting(c_uint64, max_bytes, "max_bytes"),
                                    fitting(c_uint64, max_regions, "max_regions"),
                                    fitting(c_size_t, engine_read_min, "engine_read_min"),
                                    fitting(c_size_t, engine_write_min, "engine_write_min"))
        cache = c_void_p()
        with Life(map(library().barcopy_cache_destroy, once((cache,), truth)), (self._in_use(),)) as life:
            check(library().barcopy_cache_create(self._in_use(), byref(options), byref(cache)))
            return Cache(self, life, cache.value)

    def queue(self, *, device: Gpu = 0, lines: int = 0) -> Queue:
        """
        A Queue to kernels of a GPU. lines: of each ring, a power of two, 16 to 65536; 0: 256.
        """
        device = _lib.ordinal(device)
        options = _lib.QueueOptions(ctypes.sizeof(_lib.QueueOptions), fitting(c_uint32, lines, "lines"))
        queue = c_void_p()
        with Life(map(library().barcopy_queue_destroy, once((queue,), truth)), (self._in_use(),)) as life:
            check(library().barcopy_queue_create(self._in_use(), device, byref(options), byref(queue)))
            return Queue(self, life, queue.value, device)

    def port(self, *, device: Gpu = 0, lines: int = 0, manual: bool = False, spin: float = 0.0, yielding: float = 0.0,
             sleep: float = 0.0) -> Port:
        """
        A Port for kernels of a GPU. lines: of its ring, a power of two, 16 to 65536; 0: 1024. manual: Port.retire()
        retires posts. A receive that finds nothing for `spin` seconds (0: it polls without end) yields the CPU
        between polls, and `yielding` seconds later sleeps `sleep` seconds (0: it does not).
        """
        device = _lib.ordinal(device)
        options = _lib.PortOptions(ctypes.sizeof(_lib.PortOptions), fitting(c_uint32, lines, "lines"),
                                   _lib.PORT_MANUAL if manual else 0,
                                   *map(_nanoseconds, (spin, yielding, sleep)))
        port = c_void_p()
        with Life(map(library().barcopy_port_destroy, once((port,), truth)), (self._in_use(),)) as life:
            check(library().barcopy_port_create(self._in_use(), device, byref(options), byref(port)))
            return Port(self, life, port.value, device)

    def bar_info(self, device: Gpu = 0) -> BarInfo:
        """Size and use of a GPU's BAR1."""
        device = _lib.ordinal(device)
        raw = _lib.BarInfo(struct_size=ctypes.sizeof(_lib.BarInfo))
        self._in_use()
        check(library().barcopy_get_bar_info(device, byref(raw)))
        return BarInfo(raw.total, raw.used, raw.free)

    def driver_version(self) -> tuple[int, int]:
        """The version of the driver below: (2, 6)."""
        major, minor = c_int(), c_int()
        check(library().gdr_driver_get_version(self._in_use(), byref(major), byref(minor)))
        return major.value, minor.value

    def stats(self) -> Stats:
        """Stats of this context."""
        return of_raw(self._in_use())


def open(any_memory: bool = True) -> Context:  # noqa: A001
    """
    A Context. any_memory: also where only some memory can be mapped (memory of cudaHostAlloc; with the
    proprietary kernel modules exportable VMM memory, as of PyTorch's expandable segments).
    """
    if not isinstance(any_memory, bool):
        raise TypeError(f"any_memory is True or False, not {any_memory!r}: alloc() takes the GPU, map() finds it")
    return Context(_lib.OPEN_ANY if any_memory else 0)
