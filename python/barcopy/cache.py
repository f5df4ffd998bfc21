# SPDX-License-Identifier: MIT
"""The registration cache: mappings that are found again."""
from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_uint64
from typing import TYPE_CHECKING, NamedTuple

from . import _lib
from ._lib import check, fitting, library
from ._life import Closable, OrUndo, Use
from ._memory import device_memory
from .mapping import Mapping

if TYPE_CHECKING:
    from ._hints import Device
    from .context import Context

CHECK_TAG = _lib.Validity.CHECK_TAG


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

    def __init__(self, context, cache, parents):
        def release():
            check(library().barcopy_cache_destroy(cache))

        self.context = context
        self._cache = cache
        self._begin(release, parents)
        context._made(self)

    def get(self, obj: Device, size: int | None = None) -> Region:
        """The Region of a tensor, an array, or an address and a size. It keeps the tensor."""
        where = device_memory(obj, size)
        raw = _lib.CacheRegion()
        cache = self._cache
        with Use(self._life):
            check(library().barcopy_cache_get(cache, where.address, where.nbytes, byref(raw)))

            def release():
                check(library().barcopy_cache_put(cache, byref(raw)))

            with OrUndo(release):
                return Region(self.context, raw.handle.h, raw.cpu_ptr, where, release,
                              (self._life,))

    def invalidate(self, address: int = 0, size: int = _lib.ENGINE_AUTO) -> None:
        """Ends every region that touches these addresses, by default all."""
        address = fitting(c_uint64, address, "address")
        size = fitting(c_size_t, size, "size")
        with Use(self._life):
            check(library().barcopy_cache_invalidate(self._cache, address, size))

    def trim(self, max_idle_bytes: int = 0) -> None:
        """Unpins idle regions: all whose memory was freed, and others until the rest takes at most so many bytes."""
        max_idle_bytes = fitting(c_uint64, max_idle_bytes, "max_idle_bytes")
        with Use(self._life):
            check(library().barcopy_cache_trim(self._cache, max_idle_bytes))

    def stats(self) -> CacheStats:
        """CacheStats: hits, misses, what is pinned."""
        raw = _lib.CacheStats(struct_size=ctypes.sizeof(_lib.CacheStats))
        with Use(self._life):
            check(library().barcopy_cache_get_stats(self._cache, byref(raw)))
        return CacheStats(*(getattr(raw, name) for name in CacheStats._fields))
