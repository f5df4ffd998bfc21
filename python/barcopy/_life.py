# SPDX-License-Identifier: MIT
"""
Lifetimes: what the library holds (a mapping, a pin, a context) ends with the last reference to its Life. References
are the object that has close(), until it is closed; views; objects made from it; and, as an argument, each call that
the library is in.

Python runs signal handlers between instructions, so Ctrl-C raises KeyboardInterrupt there, and drops one that arises in
a destructor or callback written in Python. Therefore no function of Python counts users or ends anything: references
are counted by the interpreter, a Life exists before the library is asked for what it ends, and what it does at its end
is built of functions written in C (map, filter, ctypes). Nothing is left or ended twice wherever an interrupt comes.

The end is an object of its own, which a weak reference to the Life keeps in `_living`; its callback is the set's own
discard(). So it is never part of a cycle, whose parts the garbage collector would end in any order; and it comes before
a cycle's parts are freed. The Life itself, and what it keeps, may be in a cycle.
"""
import atexit
import functools
import os
import sys
import weakref
from collections import deque
from itertools import compress
from threading import get_ident
from typing import TypeVar

from . import _lib

_Self = TypeVar("_Self", bound="Closable")
consume = deque(maxlen=0).extend
_living = set()  # of _Living
_ours = [True]  # empty once the interpreter ends, which releases nothing more, or in a forked child: its parent's
_closers = {}  # thread: a weak reference to the errors of what ends in it, for the close() that it is in


@atexit.register
def _at_exit():
    _ours.clear()


def _after_fork():
    global _ours
    _ours.clear()
    _ours = [True]


os.register_at_fork(after_in_child=_after_fork)


class Closed(ValueError):
    """Used after close()."""


class ClosedAttribute(Closed, AttributeError):
    """As a property raises it: hasattr() is False then."""


def once(things, is_made=None):
    """An iterator over `things` at the end of a Life: those that is_made(), once, while they are this process's."""
    return filter(is_made, compress(things, _ours))


class _Errors(list):
    """Of one close(): gone with it, also if Ctrl-C comes before it has taken them out of _closers."""

    __slots__ = ("__weakref__",)


def _nobody():
    """In the place of a dead reference."""


def _failed(number):
    """An end that failed. The close() that this thread is in raises it, else it is an error in a destructor."""
    why = _lib.error(number)
    errors = _closers.get(get_ident(), _nobody)()
    if errors is None:
        raise why
    errors.append(why)


class AtEnd:
    """Consumes an iterator when its last reference is gone, or by __del__(), once."""

    # __del__ of a class is looked up in the class, where a slot gives that of the instance: a partial, written in C.
    __slots__ = ("__del__", "__weakref__")

    def __init__(self, iterator):
        self.__del__ = functools.partial(consume, iterator)


class _End(AtEnd):
    __slots__ = ("parents",)


class _Living(weakref.ref):
    __slots__ = ("end",)
    __hash__ = object.__hash__  # of one that has not been in the set, too


class Life:
    """
    end: an iterator, such as map(library's function, once(...)), which is consumed at the end; it gives errnos.
    parents: Lifes that end later. keep: any object, referenced as long. The object that holds it sets
    _as_parameter_, by which it is an argument of ctypes: the handle or pointer.
    """

    __slots__ = ("__weakref__", "_as_parameter_", "_end", "_keep")

    def __init__(self, end, parents=(), keep=None):
        if isinstance(keep, Life):
            parents = (*parents, keep)
        self._keep = keep, parents
        self._end = _End(map(_failed, filter(None, end)))
        self._end.parents = [parent._end for parent in parents]
        living = _Living(self, _living.discard)
        living.end = self._end
        _living.add(living)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:  # now, though the traceback may refer to it for long
            self._end.__del__()


class Closable:
    """An object with a Life: released by close(), by `with`, or by its last reference."""

    _what = None  # its name in an error
    _life = None  # None: closed

    def _begin(self, life):
        context = getattr(self, "context", None)
        if context:
            made = context._made
            made.add(weakref.ref(self, made.discard))
        self._life = life

    def _in_use(self):
        """The Life as an argument of a call, which keeps it. Raises Closed."""
        life = self._life
        if life is None:
            self._refuse_closed()
        return life

    def _refuse_closed(self, kind=Closed):
        if self._life is None:
            raise kind(f"the {self._what} is closed")

    def __enter__(self: _Self) -> _Self:
        self._refuse_closed()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            text = self._text() if self._life else ""
        except (Closed, _lib.Error):  # in another thread; a forked child's
            text = ""
        return f"<{'' if self._life else 'closed '}{type(self).__name__}{text}>"

    def _text(self):
        return ""

    def __reduce_ex__(self, protocol):
        raise TypeError(f"a {self._what} can be neither copied nor pickled: another process maps memory of "
                        "alloc(shareable=True) by export() and import_memory()")

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._life is None

    def close(self) -> None:
        """
        Releases it now, or with its last user: a view, a call in progress, or an object made from it. Raises the
        error of a release that failed; it is closed all the same, and a second call does nothing.
        """
        thread, errors = get_ident(), _Errors()
        outer = _closers.get(thread)
        _closers[thread] = weakref.ref(errors)
        try:
            self._end()
        finally:
            if outer is None:
                del _closers[thread]
            else:
                _closers[thread] = outer
        if errors:
            raise errors[0]

    def _end(self):
        self._life = None

    def _users(self):
        return sys.getrefcount(self._life) - _unused


class _Unused(Closable):
    def __init__(self):
        self._life = object()


# References to a Life that has no user: the attribute, and what this version of Python has on its stack.
_unused = 0
_unused = _Unused()._users()
