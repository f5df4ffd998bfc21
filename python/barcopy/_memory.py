# SPDX-License-Identifier: MIT
"""
Where the bytes of an object lie: device memory of tensors and of other libraries' arrays
(__cuda_array_interface__, DLPack), and host memory of buffers.
"""
import ctypes
import functools
import numbers
import re
import sys
from ctypes import byref, c_char, c_int, c_ssize_t, c_void_p
from math import prod as product
from operator import index
from typing import Tuple

from . import _types
from ._lib import integer
from ._life import AtEnd
from ._stream import wait_for_stream


def tensor_type():
    """torch.Tensor, where torch has been imported."""
    torch = sys.modules.get("torch")
    return getattr(torch, "Tensor", ())


@functools.lru_cache(maxsize=None)
def _dtype_name(dtype):
    """Of torch.float32: "float32"."""
    return str(dtype)[len("torch."):]


def is_contiguous(shape, strides, itemsize):
    """Whether these elements are one run of bytes, in C's order. strides: in bytes; None: they are."""
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
    address and nbytes; type (a name of _types, or None for plain bytes) and shape; keep: the owner;
    read_only: the object declares it.
    """

    __slots__ = ("address", "keep", "nbytes", "read_only", "shape", "type")

    def __init__(self, address, nbytes, type=None, shape=None, keep=None, read_only=False):
        self.address, self.nbytes, self.type, self.shape = index(address), index(nbytes), type, shape
        self.keep, self.read_only = keep, read_only
        if shape is not None and min(shape, default=0) < 0:
            raise ValueError(f"shape {shape} has a negative length")
        if self.nbytes <= 0:
            raise ValueError("there are no bytes to map")
        if not 0 <= self.address <= 2**64 - self.nbytes:
            raise ValueError(f"{self.nbytes} bytes at {self.address} are in no address space")

    def without_owner(self):
        """The same without the owner, which the Life keeps and drops."""
        return Where(self.address, self.nbytes, self.type, self.shape, None, self.read_only)


def refuse_strides(what, shape, strides, step):
    """strides: in the unit of `step`, which is that of neighbours."""
    text = f"{what} is not contiguous: "
    order = tuple(sorted(range(len(shape)), key=lambda i: (shape[i] != 1, -strides[i])))
    if is_contiguous([shape[i] for i in order], [strides[i] for i in order], step):
        raise ValueError(text + "its elements are one run of bytes in another order. Map its permute"
                         f"{order} or transpose{order}, which is the memory in its own order")
    raise ValueError(text + "its elements are not one run of bytes. Map a contiguous copy, or the whole that it is a "
                     "part of")


class Sized:
    """What numpy says of an array, of an object with a Where."""

    nbytes: int

    @property
    def shape(self) -> Tuple[int, ...]:
        """Of the array; without one, (nbytes,)."""
        return (self.nbytes,) if self._where.shape is None else self._where.shape

    @property
    def dtype(self) -> _types.DType:
        """The name of the elements' type, as numpy and PyTorch have it ("float32"), which equals their types too;
        "uint8" of plain bytes."""
        return _types.DType(self._where.type or _types.BYTES)

    def _described(self):
        what = f"{self.dtype} {self.shape}" if self._where.type else f"{self.nbytes} bytes"
        return f"{what} at 0x{self._where.address:x}"

    @property
    def size(self) -> int:
        """The number of elements; `nbytes` is that of bytes."""
        return product(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.nbytes // self.size

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no len()")
        return self.shape[0]

    def __bool__(self) -> bool:
        return True


# ---- device memory ---------------------------------------------------------------------------

_CUDA = "__cuda_array_interface__"


def _check_tensor(tensor):
    """Raises unless its memory is its elements, in their order."""
    if tensor.layout != sys.modules["torch"].strided:
        raise ValueError(f"a tensor of layout {tensor.layout} is not one run of bytes")
    if not tensor.is_contiguous():
        refuse_strides("the tensor", tensor.shape, tensor.stride(), 1)
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError("the tensor's memory holds other numbers than it shows: use resolve_conj() "
                         "and resolve_neg()")


def _of_tensor(tensor):
    # A tensor's storage can be replaced (t.data = other, t.set_(), Module.half()); that of a detached one stays.
    tensor = tensor.detach()
    _check_tensor(tensor)
    address, nbytes = tensor.data_ptr(), tensor.numel() * tensor.element_size()
    if nbytes and not address:
        raise ValueError(f"a tensor on {tensor.device} that has no memory: of the device meta, a FakeTensor, or one "
                         "whose storage was resized to 0")
    return Where(address, nbytes, _dtype_name(tensor.dtype), tuple(tensor.shape), tensor)


def _of_interface(obj, interface, what):
    shape, typestr = tuple(interface["shape"]), interface["typestr"]
    match = re.match(r"[<>=|]([a-zA-Z])(\d+)", typestr)
    if not match:
        raise TypeError(f"{what} has the typestr {typestr!r}, which is none of numpy's")
    if interface.get("mask") is not None:
        raise ValueError(f"{what} has a mask: which of its elements are valid cannot be kept")
    itemsize = int(match.group(2)) * (4 if match.group(1) == "U" else 1)  # characters
    if not is_contiguous(shape, interface.get("strides"), itemsize):
        refuse_strides(what, shape, interface["strides"], itemsize)
    address, read_only = interface["data"]
    name = _types.of_typestr(typestr)
    if name[1:2] == "V" and _types.of_array(obj) in _types.KNOWN:  # numpy's types of ml_dtypes, such as bfloat16
        name = _types.of_array(obj)
    where = Where(address, product(shape) * itemsize, name, shape, obj, bool(read_only))
    if interface.get("stream") is not None:
        wait_for_stream(interface["stream"], where.address)
    return where


def _is_of_host(obj):
    """Whether numpy's interface alone says where it is: DLPack of numpy says the CPU, also of page-locked memory."""
    return hasattr(obj, "__array_interface__") and getattr(obj, _CUDA, None) is None


def _of_dlpack(obj):
    """
    DLPack before __cuda_array_interface__: its producer waits for the computation of the array, and its capsule keeps
    the memory where the object may give it away (JAX: delete(), donated arguments). The interface serves where DLPack
    cannot say what the array is; an error of the computation is the caller's.
    """
    from ._dlpack import Unsaid, memory_of

    try:
        where = memory_of(obj)
    except (BufferError, Unsaid):
        interface = getattr(obj, _CUDA, None)
        if interface is None:
            raise
        return _of_interface(obj, interface, f"this {type(obj).__name__}")
    try:
        interface = getattr(obj, _CUDA, None)
    except Exception:  # as of types that it lacks; the memory is known
        interface = None
    if interface is not None:  # DLPack before version 1 cannot say read-only
        where.read_only = where.read_only or bool(interface["data"][1])
        if where.type not in _types.KNOWN:
            where.type = _types.of_typestr(interface["typestr"])
    return where


def device_memory(obj, size=None):
    """
    The Where of an object to map: a tensor, an object with __dlpack__ or
    __cuda_array_interface__, an address with a size, or host memory of cudaHostAlloc as a tensor or numpy array.
    Waits for the work of DLPack's producer, and for the stream that an interface names.
    """
    if size is not None:
        if isinstance(obj, tensor_type()) or hasattr(obj, "__dlpack__") and not _is_of_host(obj) or hasattr(obj, _CUDA):
            raise TypeError("a size is for an address only")
        return Where(integer(obj, "an address"), size)
    if isinstance(obj, numbers.Integral):
        raise TypeError("an address needs a size")
    if isinstance(obj, tensor_type()):
        return _of_tensor(obj)
    if hasattr(type(obj), "_as_where"):  # our own
        return obj._as_where()
    if hasattr(obj, "__dlpack__") and not _is_of_host(obj):
        return _of_dlpack(obj)
    for name in _CUDA, "__array_interface__":
        interface = getattr(obj, name, None)
        if interface is not None:
            return _of_interface(obj, interface, f"this {type(obj).__name__}")
    if hasattr(obj, "__index__") or hasattr(obj, "__int__") and not isinstance(obj, float):
        raise TypeError("an address needs a size")
    raise TypeError(f"cannot map a {type(obj).__name__}: not a tensor, not an array, not an address")


# ---- the host's side of a copy ----------------------------------------------------------------

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


class _Held(AtEnd):
    """A buffer that from_buffer() refuses (read-only, empty, of a type without a format), held while it lives."""

    __slots__ = ("_as_parameter_", "size")

    def __init__(self, obj, writable):
        view = _PyBuffer()
        super().__init__(map(_release, (view,)))  # does nothing with one that is not filled in
        try:
            _get(obj, byref(view), 1 if writable else 0)
        except (BufferError, ValueError) as why:
            raise ValueError(f"this {type(obj).__name__} is not one run of "
                             f"{'writable ' if writable else ''}bytes: {why}") from None
        self._as_parameter_ = c_void_p(view.buf)  # what ctypes passes
        self.size = view.len


def _match(host, device, what):
    if not _types.is_bytes(host) and not _types.is_bytes(device) and host != device:
        raise TypeError(f"the {what} holds {host}, the mapping {device}: convert it, or copy bytes as they are "
                        f"by write_bytes() or memoryview({what}).cast(\"B\")")


def tensor_memory(tensor, type_):
    """(address, bytes) of a contiguous CPU tensor whose elements are of that type. The caller holds the tensor."""
    name = _dtype_name(tensor.dtype)
    if name != type_:
        _match(name, type_, "tensor")
    if not tensor.is_cpu:
        raise TypeError("the host's side of a copy is a tensor of the GPU")
    _check_tensor(tensor)
    return tensor.data_ptr(), tensor.numel() * tensor.element_size()


def host_memory(obj, writable, type_, formats):
    """
    (what ctypes passes as its address, bytes) of contiguous host memory. The caller holds the object; the
    first of the two holds what was made of it. type_, formats: of the mapping's elements, and
    _types.formats() of them; TypeError for others.
    """
    if isinstance(obj, tensor_type()):
        address, size = tensor_memory(obj, type_)
        return c_void_p(address), size
    try:
        view = memoryview(obj)
    except TypeError:
        if isinstance(obj, (list, tuple, int, float, complex)):
            raise TypeError(f"a {type(obj).__name__} has no bytes: write() takes numbers where the mapping has a type, "
                            "as of alloc(shape, dtype)") from None
        raise
    except ValueError:
        if not hasattr(getattr(obj, "dtype", None), "name"):
            raise
        view = None  # elements of numpy's that the buffer protocol has no format for
    if view is None:
        _match(_types.of_array(obj), type_, "array")
    elif formats is not None and view.format not in formats:
        _match(_types.of_view(view), type_, "array" if hasattr(obj, "dtype") else "buffer")
    if view is not None and not view.readonly and view.nbytes and view.c_contiguous:
        return byref(c_char.from_buffer(view)), view.nbytes
    held = _Held(obj, writable)
    return held, held.size
