# SPDX-License-Identifier: MIT
"""
Where the bytes of an object lie: device memory of tensors and of whatever has
__cuda_array_interface__ (CuPy, Numba), and host memory of buffers. It knows nothing of the library.
"""
import ctypes
import numbers
import re
import sys
from ctypes import c_int, c_ssize_t, c_void_p
from operator import index

# The types that torch and numpy call by one name.
_NUMPY_TYPES = {"bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64",
                "float16", "float32", "float64", "complex64", "complex128"}


def _tensor_type():
    """torch.Tensor, if somebody has imported torch."""
    torch = sys.modules.get("torch")
    return getattr(torch, "Tensor", ())


def is_contiguous(shape, strides, itemsize):
    """Are these elements one run of bytes, in C's order? strides in bytes; None: yes."""
    if strides is None:
        return True
    step = itemsize
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != step:
            return False
        step *= length
    return True


class Where:
    """
    address and nbytes; dtype (a string that numpy knows, or None) and shape; keep: the owner;
    read_only: it says so itself.
    """

    __slots__ = ("address", "dtype", "keep", "nbytes", "read_only", "shape")

    def __init__(self, address, nbytes, dtype=None, shape=None, keep=None, read_only=False):
        self.address, self.nbytes, self.dtype, self.shape = index(address), index(nbytes), dtype, shape
        self.keep, self.read_only = keep, read_only
        if self.nbytes <= 0:
            raise ValueError("there are no bytes to map")
        if not 0 <= self.address <= 2**64 - self.nbytes:
            raise ValueError(f"{self.nbytes} bytes at {self.address} are in no address space")

    def without_owner(self):
        """The same, for an object whose Life keeps the owner: longer than that nobody may keep it."""
        return Where(self.address, self.nbytes, self.dtype, self.shape, None, self.read_only)


def _refuse_strides(what):
    raise ValueError(f"{what} is not contiguous: its elements are not one run of bytes. "
                     "Map a contiguous copy, or the whole that it is a part of")


def _check_tensor(tensor):
    """Its memory must be its elements, in their order."""
    if tensor.layout != sys.modules["torch"].strided:
        raise ValueError(f"a tensor of layout {tensor.layout} is not one run of bytes")
    if not tensor.is_contiguous():
        _refuse_strides("the tensor")
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError("the tensor's memory holds other numbers than it shows: use resolve_conj() "
                         "and resolve_neg()")


def _of_tensor(tensor):
    _check_tensor(tensor)
    name = str(tensor.dtype)[len("torch."):]
    return Where(tensor.data_ptr(), tensor.numel() * tensor.element_size(),
                 name if name in _NUMPY_TYPES else None,
                 tuple(tensor.shape), tensor)


def _of_interface(obj, interface, what):
    shape, typestr = tuple(interface["shape"]), interface["typestr"]
    itemsize = int(re.match(r".[a-zA-Z](\d+)", typestr).group(1))
    if not is_contiguous(shape, interface.get("strides"), itemsize):
        _refuse_strides(what)
    count = 1
    for length in shape:
        count *= length
    address, read_only = interface["data"]
    return Where(address, count * itemsize, typestr, shape, obj, bool(read_only))


def device_memory(obj, size=None):
    """
    The Where of what is to be mapped: a tensor, an object with __cuda_array_interface__, an address
    with a size, or host memory of cudaHostAlloc as a tensor or numpy array.
    """
    if isinstance(obj, numbers.Integral):
        if size is None:
            raise TypeError("an address needs a size")
        return Where(obj, size)
    if size is not None:
        raise TypeError("a size is for an address only")
    if isinstance(obj, _tensor_type()):
        return _of_tensor(obj)
    for name in ("__cuda_array_interface__", "__array_interface__"):
        interface = getattr(obj, name, None)
        if interface is not None:
            return _of_interface(obj, interface, f"this {type(obj).__name__}")
    raise TypeError(f"cannot map a {type(obj).__name__}: not a tensor, not an array, not an address")


class _PyBuffer(ctypes.Structure):
    _fields_ = [("buf", c_void_p), ("obj", ctypes.py_object), ("len", c_ssize_t),
                ("itemsize", c_ssize_t), ("readonly", c_int), ("ndim", c_int),
                ("format", ctypes.c_char_p), ("shape", c_void_p), ("strides", c_void_p),
                ("suboffsets", c_void_p), ("internal", c_void_p)]


_get = ctypes.pythonapi.PyObject_GetBuffer
_get.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), c_int]
_release = ctypes.pythonapi.PyBuffer_Release
_release.argtypes = [ctypes.POINTER(_PyBuffer)]
_release.restype = None


class HostBuffer:
    """with HostBuffer(obj, writable) as (address, bytes): contiguous host memory, held meanwhile."""

    def __init__(self, obj, writable=False):
        self._obj, self._writable = obj, writable

    def __enter__(self):
        obj = self._obj
        self._view = None
        if isinstance(obj, _tensor_type()):
            if obj.device.type != "cpu":
                raise TypeError("the host's side of a copy is a tensor of the GPU")
            _check_tensor(obj)
            return obj.data_ptr(), obj.numel() * obj.element_size()
        view = _PyBuffer()
        try:
            _get(obj, ctypes.byref(view), 1 if self._writable else 0)
        except (BufferError, ValueError) as why:
            raise ValueError(f"this {type(obj).__name__} is not one run of "
                             f"{'writable ' if self._writable else ''}bytes: {why}") from None
        self._view = view
        return view.buf or 0, view.len

    def __exit__(self, *_):
        if self._view is not None:
            _release(ctypes.byref(self._view))
