# SPDX-License-Identifier: MIT
"""Messages between the CPU and a kernel that is running."""
from __future__ import annotations

import ctypes
from ctypes import Structure, byref, c_char, c_size_t
from typing import TYPE_CHECKING

from . import _lib
from ._lib import check, library
from ._life import Closable
from ._memory import host_memory

if TYPE_CHECKING:
    from ._hints import Buffer
    from .context import Context

_LINE = 48


class Queue(Closable):
    """
    Made by Context.queue(). Messages of 1 to 48 bytes to a kernel's warp, which uses barcopy_queue.cuh, and its
    replies. At any time at most one thread sends or stops, and one receives; they may be two.

    close() ends the queue at once: no kernel that has its view may run or be pending, as for freed memory. stop()
    it, and synchronise its stream, before.

    Load kernels before one is launched that stays: with lazy loading, CUDA's default, the first launch of
    another kernel waits until it ends (CUDA_MODULE_LOADING=EAGER in the environment loads all at once).
    """

    context: Context
    _what = "queue"

    def __init__(self, context, life, queue, device):
        self.context = context
        self._device = device
        life._as_parameter_ = queue
        self._received, self._size = (c_char * _LINE)(), c_size_t()
        self._begin(life)

    def _text(self):
        return f" to cuda:{self._device}"

    @property
    def view(self) -> Structure:
        """
        The kernel's parameter, by value: a ctypes.Structure of 40 bytes. Its launcher takes bytes(view) or the
        address. One warp at a time: two at once corrupt the queue.
        """
        view = _lib.QueueView()
        check(library().barcopy_queue_get_view(self._in_use(), byref(view)))
        return view

    def send(self, message: Buffer, timeout: float | None = None, *, ordered: bool = False) -> None:
        """
        Sends a buffer's bytes. Timeout: no space after so many seconds, 0 does not wait, None waits for ever. ordered:
        a kernel that takes it ordered sees what this thread stored before, in host memory too.
        """
        host, size = host_memory(message, False, None, None)
        flags = _lib.QUEUE_ORDERED if ordered else 0
        _lib.wait(timeout, lambda ns: library().barcopy_queue_send(self._in_use(), host, size, flags, ns))

    def receive(self, timeout: float | None = None) -> bytes:
        """
        The kernel's next reply. Timeout: none came for so many seconds, 0 does not wait, None waits for ever. None is
        left if there is none once the kernel's stream was synchronised.
        """
        _lib.wait(timeout, lambda ns: library().barcopy_queue_receive(
            self._in_use(), self._received, _LINE, byref(self._size), ns))
        return ctypes.string_at(self._received, self._size.value)

    def stop(self, *, abort: bool = False) -> None:
        """
        Tells the kernel to stop after all messages sent before. Replies are still to be received: a kernel that
        has no space for one waits, unless abort is true; that reply and messages not yet taken are then lost.
        """
        check(library().barcopy_queue_stop(self._in_use(), _lib.QUEUE_ABORT if abort else 0))
