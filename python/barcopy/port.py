# SPDX-License-Identifier: MIT
"""Posts and calls from kernels to the CPU."""
from __future__ import annotations

import ctypes
from ctypes import Structure, byref, c_uint32, c_uint64
from typing import TYPE_CHECKING, NamedTuple, Optional

from . import _lib
from ._lib import check, fitting, library
from ._life import Closable

if TYPE_CHECKING:
    from .context import Context


class Post(NamedTuple):
    """What Port.receive() gives."""

    number: int
    message: bytes
    call: Optional[int]  # for Port.answer(): the first 4 bytes of a call's message are not the caller's


class Port(Closable):
    """
    Made by Context.port(). Posts and calls from any threads of any kernels of a GPU, which use barcopy_queue.cuh.
    One thread receives at a time; the other methods are for any thread.

    close() ends the port at once: no kernel that has its view may run or be pending, as for freed memory.
    """

    context: Context
    _what = "port"

    def __init__(self, context, life, port, device):
        self.context = context
        self._device = device
        life._as_parameter_ = port
        self._messages, self._count = (_lib.PortMessage * 32)(), c_uint32()
        self._begin(life)

    def _text(self):
        return f" of cuda:{self._device}"

    @property
    def view(self) -> Structure:
        """The parameter of kernels, by value: a ctypes.Structure of 32 bytes; the same to all of them."""
        view = _lib.PortView()
        check(library().barcopy_port_get_view(self._in_use(), byref(view)))
        return view

    def receive(self, most: int = 32, timeout: float | None = None) -> list[Post]:
        """
        A list of 1 to `most` posts, at most 32, in the order of their numbers. Timeout: none came for so many
        seconds; None waits until it comes. An Error with EPIPE: end() was called and no post is left; Closed: by
        another thread. Other threads may run. Unless the port is manual, this retires what the last call gave.
        """
        most = min(fitting(c_uint32, most, "most"), len(self._messages))
        _lib.wait(timeout, lambda ns: library().barcopy_port_receive(
            self._in_use(), self._messages, most, byref(self._count), ns))
        return [Post(m.post, ctypes.string_at(m.data, m.size), m.call or None)
                for m in self._messages[:self._count.value]]

    def retire(self, post: int, count: int = 1) -> None:
        """
        Of a manual port: retires the posts `post` to post + count - 1, which were received; in any order. A range
        that includes a number that receive() left out, which was no post, is refused.
        """
        post, count = fitting(c_uint64, post, "post"), fitting(c_uint32, count, "count")
        check(library().barcopy_port_retire(self._in_use(), post, count))

    def answer(self, answers: dict[int, int]) -> None:
        """Answers calls: {call: 56 bits}, all by one push. Each call once."""
        calls = (c_uint32 * len(answers))(*(fitting(c_uint32, call, "a call") for call in answers))
        values = (c_uint64 * len(answers))(*(fitting(c_uint64, value, "an answer") for value in answers.values()))
        check(library().barcopy_port_answer(self._in_use(), calls, values, len(answers)))

    def stop(self, *, abort: bool = False) -> None:
        """
        Kernels post nothing more: receive until they have ended. With abort they do not wait for the CPU
        either, and posts that had no space are lost, and those after them.
        """
        check(library().barcopy_port_stop(self._in_use(), _lib.PORT_ABORT if abort else 0))

    def end(self) -> None:
        """No kernel posts any more: receive() gives what is left, then EPIPE."""
        check(library().barcopy_port_end(self._in_use()))
