# SPDX-License-Identifier: MIT
"""
Lifetimes: an object of the library ends when it has been closed and has no users left. Users are views,
calls in progress (ctypes lets other threads run meanwhile), and objects made from it.

There is no lock, because a view may be collected, and so leave, at any moment in any thread, also inside
these functions. Single operations on sets and lists are atomic, and their order does the rest: a user is
entered before `closed` is read, and `closed` is set before the users are counted; the thread that pops the
only element of a list releases the object.
"""
import os
import sys
import weakref
from typing import TypeVar

_Self = TypeVar("_Self", bound="Closable")


class Closed(ValueError):
    """Used after close()."""


class Life:
    """
    release: called once, at the end; returns nothing or raises.
    parents: the Lifes of the objects that this one was made from; it uses them as long as it lives.
    keep: any object, referenced as long.
    """

    def __init__(self, what, release, parents=(), keep=None):
        self.what = what
        self.closed = False
        self.open = [True]  # empty once closed: _fast looks at it
        self._users = set()
        self._release = [release]
        self._parents = ()
        self._keep = keep
        self._pid = os.getpid()
        try:
            for parent in parents:
                parent.enter(self)
                self._parents += (parent,)
        except Closed:
            self._leave_parents()
            raise

    def enter(self, user):
        """Adds a user until leave(user). Raises Closed."""
        self._users.add(user)
        try:
            self.refuse_closed()
        except Closed:
            self.leave(user)
            raise

    def refuse_closed(self):
        if self.closed:
            raise Closed(f"the {self.what} is closed")

    def leave(self, user):
        """Removes a user. If that releases the object, an error goes to stderr: no caller waits for it."""
        self._users.discard(user)
        if not self.closed:
            return
        try:
            self._end_if_due()
        except Exception:  # as for an error in a destructor
            sys.excepthook(*sys.exc_info())

    @property
    def busy(self):
        return bool(self._users)

    def close(self):
        """Releases it now, or with its last user. A second call does nothing."""
        self.closed = True
        self.open.clear()
        self._end_if_due()

    def _end_if_due(self):
        if not self.closed or self._users:
            return
        try:
            release = self._release.pop()
        except IndexError:
            return
        try:
            # A forked child releases nothing: the objects are its parent's.
            if os.getpid() == self._pid:
                release()
        finally:
            self._keep = None
            self._leave_parents()

    def _leave_parents(self):
        parents, self._parents = self._parents, ()
        for parent in parents:
            parent.leave(self)


class Use:
    """`with Use(life)`: the object is not released meanwhile."""

    __slots__ = ("_life", "__weakref__")

    def __init__(self, life):
        self._life = life

    def __enter__(self):
        self._life.enter(self)

    def __exit__(self, *_):
        self._life.leave(self)


class OrUndo:
    """`with OrUndo(function)`: calls it if an exception leaves the block."""

    __slots__ = ("_undo",)

    def __init__(self, undo):
        self._undo = undo

    def __enter__(self):
        pass

    def __exit__(self, kind, *_):
        if kind:
            self._undo()


class Closable:
    """An object with a Life: released by close(), by `with`, or by its last reference."""

    _what = None  # its name in an error

    def _begin(self, release, parents=(), keep=None):
        # Our own memory is freed only after the objects made from it.
        if isinstance(keep, Closable):
            parents += (keep._life,)
        self._life = Life(self._what, release, parents, keep)
        weakref.finalize(self, self._life.close).atexit = False

    def __enter__(self: _Self) -> _Self:
        self._life.refuse_closed()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol):
        raise TypeError(f"a {self._what} can be neither copied nor pickled: another process maps memory of "
                        "alloc(shareable=True) by export() and import_memory()")

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._life.closed

    def close(self) -> None:
        """Releases it now, or with its last user: a view, a call in progress, or an object made from
        it. A second call does nothing."""
        self._life.close()
