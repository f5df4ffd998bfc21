# SPDX-License-Identifier: MIT
"""A pinned range that is mapped and unmapped by its user: gdr_pin_buffer(3), gdr_map(3)."""
from __future__ import annotations

from ctypes import byref, c_int, c_uint64, c_void_p
from itertools import repeat
from operator import truth
from typing import TYPE_CHECKING, NamedTuple

from . import _lib
from ._lib import check, library
from ._life import Closable, Life, once
from ._memory import Sized
from .mapping import Mapping

if TYPE_CHECKING:
    from .context import Context


class PinInfo(NamedTuple):
    address: int  # of the pinned range: rounded down to 64 KiB
    mapped_size: int
    page_size: int
    mapped: bool
    mapping_type: str


class Pin(Closable, Sized):
    """Made by Context.pin(). Context.map() does both at once, and shares pins."""

    context: Context
    address: int
    nbytes: int
    _what = "pin"

    def __init__(self, context, life, handle, where):
        self.context = context
        self.address, self.nbytes = where.address, where.nbytes
        self._where = where.without_owner()
        self._handle = life._as_parameter_ = handle.h
        self._begin(life)

    def _text(self):
        number = c_uint64()
        check(library().barcopy_get_handle_attribute(self.context._in_use(), self._in_use(), _lib.ATTR_DEVICE,
                                                     byref(number)))
        return f" of {self._described()}, cuda:{number.value}" + ", read-only" * self._where.read_only

    def map(self) -> Mapping:
        """A Mapping of the range; one at a time."""
        context, handle, info = self.context, self._handle, self.info()
        pointer = c_void_p()
        with Life(map(library().gdr_unmap, repeat(context._g), repeat(handle), once((pointer,), truth),
                      repeat(info.mapped_size)), (self._in_use(),)) as life:
            check(library().gdr_map_v2(context._in_use(), handle, byref(pointer), info.mapped_size, 0))
            return Mapping(context, life, handle, pointer.value + (self.address - info.address), self._where)

    def info(self) -> PinInfo:
        """PinInfo: the pinned range, and how it is mapped."""
        raw = _lib.Info()
        check(library().gdr_get_info_v2(self.context._in_use(), self._in_use(), byref(raw)))
        return PinInfo(raw.va, raw.mapped_size, raw.page_size, bool(raw.mapped),
                       _lib.MAPPING_TYPES.get(raw.mapping_type, str(raw.mapping_type)))

    @property
    def revoked(self) -> bool:
        """True if the memory was freed and the mapping ended with it."""
        flag = c_int()
        check(library().gdr_get_callback_flag(self.context._in_use(), self._in_use(), byref(flag)))
        return bool(flag.value)
