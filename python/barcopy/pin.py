# SPDX-License-Identifier: MIT
"""A pinned range that is mapped and unmapped by its user: gdr_pin_buffer(3), gdr_map(3)."""
from __future__ import annotations

from ctypes import byref, c_int, c_void_p
from typing import TYPE_CHECKING, NamedTuple

from . import _lib
from ._lib import check, library
from ._life import Closable, OrUndo, Use
from .mapping import Mapping

if TYPE_CHECKING:
    from .context import Context


class PinInfo(NamedTuple):
    address: int  # of the pinned range: rounded down to 64 KiB
    mapped_size: int
    page_size: int
    mapped: bool
    mapping_type: str


class Pin(Closable):
    """Made by Context.pin(). Context.map() does both at once, and shares pins."""

    context: Context
    address: int
    size: int
    _what = "pin"

    def __init__(self, context, handle, where, parents):
        def release():
            check(library().gdr_unpin_buffer(context._g, handle.h))

        self.context = context
        self.address, self.size = where.address, where.nbytes
        self._where = where.without_owner()
        self._handle = handle.h
        self._begin(release, parents, where.keep)
        context._made(self)

    def map(self) -> Mapping:
        """A Mapping of the range; one at a time."""
        context, handle, info = self.context, self._handle, self.info()
        pointer = c_void_p()
        with Use(self._life), Use(context._life):
            check(library().gdr_map_v2(context._g, handle, byref(pointer), info.mapped_size, 0))
            base, size = pointer.value, info.mapped_size

            def release():
                check(library().gdr_unmap(context._g, handle, base, size))

            with OrUndo(release):
                return Mapping(context, handle, base + (self.address - info.address),
                               self._where, release, (self._life,))

    def info(self) -> PinInfo:
        """PinInfo: the pinned range, and how it is mapped."""
        raw = _lib.Info()
        with Use(self._life), Use(self.context._life):
            check(library().gdr_get_info_v2(self.context._g, self._handle, byref(raw)))
        return PinInfo(raw.va, raw.mapped_size, raw.page_size, bool(raw.mapped),
                       _lib.MAPPING_TYPES.get(raw.mapping_type, str(raw.mapping_type)))

    @property
    def revoked(self) -> bool:
        """True if the memory was freed and the mapping ended with it."""
        flag = c_int()
        with Use(self._life), Use(self.context._life):
            check(library().gdr_get_callback_flag(self.context._g, self._handle, byref(flag)))
        return bool(flag.value)
