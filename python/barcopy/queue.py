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

    close() tells the kernel to stop, drops replies that were not received, and waits up to 5 seconds for its
    end (Timeout: the queue then ends with the context). A kernel that was launched and has not begun is
    refused when it begins: to have it serve, receive a reply of it, or synchronise, before close().

    Load kernels before one is launched that stays: with lazy loading, CUDA's default, the first launch of
    another kernel waits until it ends (CUDA_MODULE_LOADING=EAGER in the environment loads all at once).
    """

    _what = "queue"

    def __init__(self, context, queue, parents):
        def release():
            check(library().barcopy_queue_stop(queue, 0))
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

    def _state(self):
        state = _lib.QueueState(ctypes.sizeof(_lib.QueueState))
        with Use(self._life):
            check(library().barcopy_queue_get_state(self._queue, byref(state)))
        return state

    @property
    def state(self):
        """
        What kernels have said: "never begun", "running" (or returned without barcopy_warp_end()), "stopped",
        which has not ended, "ended", or "dead": a wait has seen that CUDA's context has ended.
        """
        return _lib.QUEUE_PHASES[self._state().phase]

    @property
    def refused(self):
        """Whether a kernel was refused, as another one ran or had returned without barcopy_warp_end()."""
        return bool(self._state().refused)

    def send(self, message, timeout=None, ordered=False, until_end=False):
        """
        Sends a buffer's bytes. Timeout: no room after so many seconds; None waits for ever. ordered: a kernel
        that receives it ordered sees what this thread stored before, in host memory too. until_end: an Error
        with EPIPE instead of a wait once all kernels that began have ended.
        """
        host, size = host_memory(message, False, None, None)
        flags = (ordered and _lib.QUEUE_ORDERED) | (until_end and _lib.QUEUE_UNTIL_END)
        with Use(self._life):
            _lib.wait(timeout, lambda ns: library().barcopy_queue_send(self._queue, host, size, flags, ns),
                      self._life)

    def try_send(self, message, ordered=False):
        """The same without a wait: False where there is no room."""
        host, size = host_memory(message, False, None, None)
        with Use(self._life):
            err = library().barcopy_queue_try_send(self._queue, host, size, ordered and _lib.QUEUE_ORDERED)
        if err == EAGAIN:
            return False
        check(err)
        return True

    def receive(self, timeout=None, until_end=False):
        """
        The kernel's next reply. Timeout: none came for so many seconds; None waits for ever. An Error with
        EPIPE: no reply is left, and the queue was stopped and its kernel has ended, or, with until_end, all
        kernels that began have ended.
        """
        flags = until_end and _lib.QUEUE_UNTIL_END
        with Use(self._life):
            _lib.wait(timeout, lambda ns: library().barcopy_queue_receive(
                self._queue, self._received, _MESSAGE_MAX, byref(self._size), flags, ns), self._life)
            return ctypes.string_at(self._received, self._size.value)

    def stop(self, abort=False):
        """
        Tells the kernel to stop after all messages sent before. Replies are still to be received: a kernel that
        has no room for one waits, unless abort is true; that reply and messages not yet taken are then lost.
        """
        with Use(self._life):
            check(library().barcopy_queue_stop(self._queue, abort and _lib.QUEUE_ABORT))
