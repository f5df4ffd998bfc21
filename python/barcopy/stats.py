# SPDX-License-Identifier: MIT
"""Statistics, as barcopy_get_stats(3) returns them."""
import ctypes
from typing import NamedTuple, Tuple

from . import _lib
from ._lib import check, library


class Way(NamedTuple):
    """Copies in one direction, by size: up to 4, 16, 64 ... bytes, by factors of 4, and larger."""

    copies: Tuple[int, ...]
    bytes: Tuple[int, ...]


class Stats(NamedTuple):
    counting_copies: bool
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
    uncounted: int
    puts: int
    gets: int
    waits: int
    to: Way
    from_: Way


def count_copies(on=True):
    """Whether copies and words are counted from now on, in the whole process. At first they are if
    GDRCOPY_STATS is set."""
    check(library().barcopy_set_stats(_lib.STATS_COPIES if on else 0))


def of_raw(g, handle):
    raw = _lib.RawStats(struct_size=ctypes.sizeof(_lib.RawStats))
    check(library().barcopy_get_stats(g, handle, ctypes.byref(raw)))
    numbers = {name: getattr(raw, name) for name in Stats._fields[1:-2]}
    return Stats(bool(raw.flags & _lib.STATS_COPIES), **numbers,
                 to=Way(tuple(raw.to.copies), tuple(raw.to.bytes)),
                 from_=Way(tuple(raw.from_.copies), tuple(raw.from_.bytes)))


def stats():
    """Stats of the process."""
    return of_raw(None, _lib.Handle(0))
