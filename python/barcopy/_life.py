# SPDX-License-Identifier: MIT
"""
How long something of the library lives: until it has been closed and nobody uses it any more. Users
are views, calls under way (ctypes lets other threads run meanwhile), and what was made of it. It
knows nothing of what it ends.

There is no lock, because a view may be collected, and so end its use, at any moment in any thread,
in the midst of these very functions too. Single operations on sets and lists are whole; the order
makes the rest right: a user is entered before he looks whether it is closed, and it is closed before
anybody looks whether there are users; whoever pops the only element of a list ends it.
"""
import os
import sys
import weakref


class Closed(ValueError):
    """Used after close()."""


class Life:
    """
    release: called once, to end it; it returns nothing or raises.
    parents: the Lifes of what this was made of, which it uses as long as it lives.
    keep: any object, kept as long.
    """

    def __init__(self, what, release, parents=(), keep=None):
        self.what = what
        self.closed = False
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
        """Uses it until leave(user); raises Closed."""
        self._users.add(user)
        if self.closed:
            self.leave(user)
            raise Closed(f"the {self.what} is closed")

    def leave(self, user):
        """Ends a use. An error of the end, for which nobody waits here, goes to stderr."""
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
        """Ends it now, or with its last user. Twice is once."""
        self.closed = True
        self._end_if_due()

    def _end_if_due(self):
        if not self.closed or self._users:
            return
        try:
            release = self._release.pop()
        except IndexError:
            return
        try:
            # A forked child has nothing to end: all of it is its parent's.
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
    """with Use(life): it does not end meanwhile."""

    __slots__ = ("_life", "__weakref__")

    def __init__(self, life):
        self._life = life

    def __enter__(self):
        self._life.enter(self)

    def __exit__(self, *_):
        self._life.leave(self)


class Closable:
    """What has a Life: ended by close(), by `with`, or by its last reference."""

    _what = None  # its name in an error

    def _begin(self, release, parents=(), keep=None):
        # Memory of our own is freed only after what was made of it has ended.
        if isinstance(keep, Closable):
            parents += (keep._life,)
        self._life = Life(self._what, release, parents, keep)
        weakref.finalize(self, self._life.close).atexit = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def closed(self):
        return self._life.closed

    def close(self):
        """Ends it: now, or with its last user, which may be a view, a call under way, or what
        was made of it. Twice is once."""
        self._life.close()
