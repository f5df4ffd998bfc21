# SPDX-License-Identifier: MIT
"""Messages between the CPU and a kernel that is running."""
import ctypes
from ctypes import byref, c_char, c_size_t
from errno import EAGAIN

from . import _lib
from ._lib import check, library
from ._life import Closable, Use
from ._memory import host_memory

_MESSAGE_MAX = 480
_END_NS = 5_000_000_000


class Queue(Closable):
    """
    Made by Context.queue(). Messages of 1 to 480 bytes to a kernel, which uses barcopy_queue.cuh, and its
    replies. At any time at most one thread sends or stops, and one receives; they may be two.

    close() tells the kernel to stop and waits up to 5 seconds for its end (Timeout: the queue then ends with
    the context). It does not know of a kernel that was launched and has not begun: receive a reply of it, or
    synchronise, before close().
    """

    _what = "queue"

    def __init__(self, context, queue, parents):
        def release():
            check(library().barcopy_queue_stop(queue))
            check(library().barcopy_queue_destroy(queue, _END_NS))

        self.context = context
        self._queue = queue
        self._received, self._size = (c_char * _MESSAGE_MAX)(), c_size_t()
        self._begin(release, parents)
        context._made(self)

    @property
    def view(self):
        """
        The kernel's parameter, by value: a ctypes.Structure of 40 bytes. Its launcher takes bytes(view) or the
        address. One kernel at a time.
        """
        view = _lib.QueueView()
        with Use(self._life):
            check(library().barcopy_queue_get_view(self._queue, byref(view)))
        return view

    def send(self, message, timeout=None):
        """Sends a buffer's bytes. Timeout: no room after so many seconds; None waits for ever."""
        host, size = host_memory(message, False, None, None)
        with Use(self._life):
            _lib.wait(timeout, lambda ns: library().barcopy_queue_send(self._queue, host, size, ns))

    def try_send(self, message):
        """The same without a wait: False where there is no room."""
        host, size = host_memory(message, False, None, None)
        with Use(self._life):
            err = library().barcopy_queue_try_send(self._queue, host, size)
        if err == EAGAIN:
            return False
        check(err)
        return True

    def receive(self, timeout=None):
        """The kernel's next reply. Timeout: none came for so many seconds; None waits for ever."""
        with Use(self._life):
            _lib.wait(timeout, lambda ns: library().barcopy_queue_receive(
                self._queue, self._received, _MESSAGE_MAX, byref(self._size), ns))
            return ctypes.string_at(self._received, self._size.value)

    def stop(self):
        """Tells the kernel to stop after all messages sent before. Replies may still be received."""
        with Use(self._life):
            check(library().barcopy_queue_stop(self._queue))
