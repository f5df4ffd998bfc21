# SPDX-License-Identifier: MIT
"""Statistics, as barcopy_get_stats(3) returns them."""
from __future__ import annotations

import ctypes
from typing import NamedTuple

from . import _lib
from ._lib import check, library


class Stats(NamedTuple):
    counting_copies: bool  # GDRCOPY_STATS was set at the first open
    pins: int
    unpins: int
    maps: int
    unmaps: int
    revoked: int
    engine_copies: int
    engine_fallbacks: int
    cache_hits: int
    cache_misses: int
    cache_evictions: int
    copies_to: int
    bytes_to: int
    copies_from: int
    bytes_from: int
    puts: int
    gets: int
    waits: int


def of_raw(g):
    raw = _lib.RawStats(struct_size=ctypes.sizeof(_lib.RawStats))
    check(library().barcopy_get_stats(g, ctypes.byref(raw)))
    numbers = {name: getattr(raw, name) for name in Stats._fields[1:]}
    return Stats(bool(raw.flags & _lib.STATS_COPIES), **numbers)


def stats() -> Stats:
    """Stats of the process."""
    return of_raw(None)
