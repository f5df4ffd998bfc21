# SPDX-License-Identifier: MIT
"""
DLPack, by which array libraries share memory without a copy: import and export, versions 0 and 1 of its
structs.
"""
import ctypes
import sys
from ctypes import (CFUNCTYPE, POINTER, PYFUNCTYPE, Structure, addressof, c_char_p, c_int, c_int32, c_int64, c_uint8,
                    c_uint16, c_uint32, c_uint64, c_void_p, cast, py_object)
from itertools import chain, compress, repeat, tee
from operator import attrgetter, itemgetter, le, not_, or_

from . import _types
from ._lib import extension
from ._life import AtEnd, consume
from ._memory import Where, is_contiguous, product, refuse_strides
from ._stream import LEGACY, refuse_capture, wait_for_stream

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
OF_CPU = CPU, 0
_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
_MOST_DIMENSIONS = 64  # as of memoryview, numpy and PyTorch
_DELETER = CFUNCTYPE(None, c_void_p)
_OLD, _NEW = b"dltensor", b"dltensor_versioned"  # a capsule keeps the pointer alone
_USED = {_OLD: b"used_dltensor", _NEW: b"used_dltensor_versioned"}


class _Tensor(Structure):
    """DLTensor"""
    _fields_ = [("data", c_uint64), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


class _Managed(Structure):
    """DLManagedTensor"""
    _fields_ = [("tensor", _Tensor), ("context", c_void_p), ("deleter", c_void_p)]


class _Versioned(Structure):
    """DLManagedTensorVersioned"""
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", c_void_p),
                ("flags", c_uint64), ("tensor", _Tensor)]


_STRUCTS = {_OLD: _Managed, _NEW: _Versioned}


def _api(name, result, *arguments):
    return PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _api("PyCapsule_New", py_object, c_void_p, c_char_p, c_void_p)
_is_valid = _api("PyCapsule_IsValid", c_int, py_object, c_char_p)
_pointer = _api("PyCapsule_GetPointer", c_void_p, py_object, c_char_p)
_rename = _api("PyCapsule_SetName", c_int, py_object, c_char_p)


# ---- import ------------------------------------------------------------------------------------

class _Taken(AtEnd):
    """
    Owns the memory of a capsule, and returns it to its producer at its end. The capsule's name says whether it was
    taken.
    """

    __slots__ = ("managed", "read_only")

    def __init__(self, capsule):
        name = next((n for n in _STRUCTS if _is_valid(capsule, n)), None)
        if name is None:
            raise TypeError("__dlpack__() returned no capsule of DLPack, or a used one")
        pointer = _pointer(capsule, name)
        self.managed = cast(pointer, POINTER(_STRUCTS[name])).contents
        if name == _NEW and self.managed.major > 1:
            raise BufferError(f"DLPack {self.managed.major} has another form")
        self.read_only = name == _NEW and bool(self.managed.flags & _READ_ONLY)
        if self.managed.deleter:
            super().__init__(map(_DELETER(self.managed.deleter),
                                 compress((pointer,), map(_is_valid, (capsule,), (_USED[name],)))))
        _rename(capsule, _USED[name])


class Unsaid(TypeError):
    """DLPack has no word for the array's device or type."""


def _capsule(obj, **stream):
    try:
        return obj.__dlpack__(max_version=(1, 0), **stream)
    except TypeError:  # from before versions
        return obj.__dlpack__(**stream)


def memory_of(obj):
    """The Where of an object with __dlpack__ and __dlpack_device__. Waits for the producer's work."""
    device = obj.__dlpack_device__()[0]
    if device not in (CPU, CUDA, CUDA_HOST, CUDA_MANAGED):
        raise Unsaid(f"cannot map a {type(obj).__name__}: DLPack's device {device} is no GPU of CUDA")
    on_gpu = device in (CUDA, CUDA_MANAGED)
    if on_gpu:
        refuse_capture(LEGACY)  # before the producer makes that stream wait
    taken = _Taken(_capsule(obj, **({"stream": LEGACY} if on_gpu else {})))
    tensor = taken.managed.tensor
    if not 0 <= tensor.ndim <= _MOST_DIMENSIONS:
        raise ValueError(f"DLPack of this {type(obj).__name__} has {tensor.ndim} dimensions")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if not tensor.data and 0 not in shape:
        raise ValueError(f"this {type(obj).__name__} has no memory: the address of its DLPack is 0")
    itemsize = tensor.bits * tensor.lanes // 8
    strides = tensor.strides and tuple(tensor.strides[i] for i in range(tensor.ndim))
    if strides and not is_contiguous(shape, strides, 1):
        refuse_strides(f"this {type(obj).__name__}", shape, strides, 1)
    if not itemsize or tensor.bits % 8:
        raise Unsaid(f"elements of {tensor.bits} bits cannot be mapped")
    name = _types.of_dlpack(tensor.code, tensor.bits, tensor.lanes) or \
        f"DLPack type {tensor.code}.{tensor.bits}x{tensor.lanes}"
    where = Where(tensor.data + tensor.byte_offset, product(shape) * itemsize, name, shape, taken,
                  taken.read_only)
    if on_gpu:
        wait_for_stream(LEGACY, where.address)
    return where


# ---- export ------------------------------------------------------------------------------------

# Each export has an entry in _given, which holds its struct and the Life, so the memory stays mapped. The entry leaves
# when the consumer calls the struct's deleter, or when no consumer has taken the capsule and nobody refers to it.
#
# The deleter is called from any thread, with an exception set, and while the interpreter ends: no function of Python
# survives that, nor does a callback of ctypes. The extension's deleter takes the entry out itself. Without the
# extension the deleter is the C library's sigemptyset(), which clears the struct's first word; the next sweep() finds
# that. A subinterpreter has this deleter with the extension, too: before 3.12 PyGILState_Ensure(), which the
# extension's deleter calls, waits there for the lock that its thread holds.
_given = {}  # by address: (address, struct, shape, Life, capsule, first word)
ctypes.pythonapi.Py_IncRef(py_object(_given))  # never freed
_CLEARED = 128  # bytes: sizeof(sigset_t)
_is_main = _api("PyInterpreterState_Get" if sys.version_info >= (3, 9) else "_PyInterpreterState_Get", c_void_p)() == \
    _api("PyInterpreterState_Main", c_void_p)()
_deleters = {name: extension.deleter(name == _NEW) if extension and _is_main else
             cast(ctypes.CDLL(None).sigemptyset, c_void_p).value for name in _STRUCTS}

_address_in, _capsule_in, _first_in = itemgetter(0), itemgetter(4), itemgetter(5)


def _entries():
    """
    An iterator over the entries, as they are when the first is asked for: others leave _given meanwhile. No object is
    made between two of them: before Python 3.12 the garbage collector could run there, and end an array.
    """
    return chain.from_iterable(map(list, (_given.values(),)))


def ended():
    """
    An iterator, whose consumption takes out of _given each entry that has ended. It may be consumed much later: a
    destructor does that, so it is built of functions written in C (see _life.py).
    """
    # 1. Given back: the first word has been cleared.
    entries, of = tee(_entries())
    given_back = compress(entries, map(not_, map(attrgetter("value"), map(_first_in, of))))
    # 2. Not taken: nothing but the entry refers to the capsule, which still has one of the two names of new ones.
    entries, of = tee(_entries())
    unused = compress(entries, map(le, map(sys.getrefcount, map(_capsule_in, of)), repeat(_UNUSED)))
    entries, of_old, of_new = tee(unused, 3)
    untaken = compress(entries, map(or_, map(_is_valid, map(_capsule_in, of_old), repeat(_OLD)),
                                    map(_is_valid, map(_capsule_in, of_new), repeat(_NEW))))
    # 3. Each of them leaves. Another thread may have taken it out before.
    return map(_given.pop, map(_address_in, chain(given_back, untaken)), repeat(None))


# What getrefcount() gives in ended() for a capsule that its entry alone refers to: this differs between Pythons.
_UNUSED, = map(sys.getrefcount, map(itemgetter(0), [(object(),)]))


def sweep():
    if _given:
        consume(ended())


def capsule_of(where, address, device, max_version, read_only, life):
    """The capsule of this memory at that address, on (type, id). It holds the Life until its end, or the consumer's."""
    code = _types.dlpack(where.type)
    if code is None:
        raise BufferError(f"DLPack has no type {where.type}")
    name = _NEW if max_version is not None and max_version[0] >= 1 else _OLD
    if read_only and name == _OLD:
        raise BufferError("the mapping is read-only, which DLPack before version 1 cannot say")
    shape = where.shape if where.shape is not None else (where.nbytes,)
    both = *shape, *(product(shape[i + 1:]) for i in range(len(shape)))  # and the strides
    array = (c_int64 * len(both))(*both)
    memory = bytearray(_CLEARED)
    managed = _STRUCTS[name].from_buffer(memory)
    managed.tensor = _Tensor(address, *device, len(shape), *code, 1, cast(array, POINTER(c_int64)),
                             cast(addressof(array) + 8 * len(shape), POINTER(c_int64)), 0)
    managed.deleter, managed.context = _deleters[name], id(_given)
    if name == _NEW:
        managed.major, managed.minor, managed.flags = 1, 0, _READ_ONLY if read_only else 0
    capsule = _new(addressof(managed), name, None)
    _given[addressof(managed)] = (addressof(managed), managed, array, life, capsule, c_uint64.from_buffer(memory))
    return capsule
