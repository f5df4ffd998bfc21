# SPDX-License-Identifier: MIT
"""The registration cache: mappings that are found again."""
from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_uint64
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from . import _lib
from ._lib import check, fitting, library
from ._life import Closable, Life, once
from ._memory import device_memory
from .mapping import Mapping

if TYPE_CHECKING:
    from ._hints import Device
    from .context import Context

CHECK_TAG = _lib.Validity.CHECK_TAG
_is_made = attrgetter("handle.h")


class CacheStats(NamedTuple):
    hits: int
    misses: int
    evictions: int
    invalidations: int
    regions: int
    regions_in_use: int
    bytes_pinned: int
    max_bytes: int


class Region(Mapping):
    """A use of a cached mapping: close() gives it back."""

    _what = "region"


class Cache(Closable):
    """Made by Context.cache(). close() unpins everything."""

    context: Context
    _what = "cache"

    def __init__(self, context, life, cache):
        self.context = context
        self._cache = life._as_parameter_ = cache
        self._begin(life)

    def _text(self):
        stats = self.stats()
        return f" of {stats.regions} regions, {stats.bytes_pinned} bytes pinned"

    def get(self, obj: Device, size: int | None = None) -> Region:
        """The Region of a tensor, an array, or an address and a size. It keeps the tensor."""
        where = device_memory(obj, size)
        raw = _lib.CacheRegion()
        with Life(map(library().barcopy_cache_put, repeat(self._cache), once((raw,), _is_made)),
                  (self._in_use(),), where.keep) as life:
            check(library().barcopy_cache_get(self._in_use(), where.address, where.nbytes, byref(raw)))
            return Region(self.context, life, raw.handle.h, raw.cpu_ptr, where)

    def invalidate(self, address: int = 0, size: int = _lib.ENGINE_AUTO) -> None:
        """Ends every region that touches these addresses, by default all."""
        address = fitting(c_uint64, address, "address")
        size = fitting(c_size_t, size, "size")
        check(library().barcopy_cache_invalidate(self._in_use(), address, size))

    def trim(self, max_idle_bytes: int = 0) -> None:
        """Unpins idle regions: all whose memory was freed, and others until the rest takes at most so many bytes."""
        max_idle_bytes = fitting(c_uint64, max_idle_bytes, "max_idle_bytes")
        check(library().barcopy_cache_trim(self._in_use(), max_idle_bytes))

    def stats(self) -> CacheStats:
        """CacheStats: hits, misses, what is pinned."""
        raw = _lib.CacheStats(struct_size=ctypes.sizeof(_lib.CacheStats))
        check(library().barcopy_cache_get_stats(self._in_use(), byref(raw)))
        return CacheStats(*(getattr(raw, name) for name in CacheStats._fields))
