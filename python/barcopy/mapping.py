# SPDX-License-Identifier: MIT
"""A range of GPU memory that is mapped: copies, words, fences, and views of it."""
from __future__ import annotations

import ctypes
import operator
import struct
import time
import weakref
from ctypes import byref, c_int, c_size_t, c_ubyte, c_uint32, c_uint64, c_void_p
from operator import index
from typing import TYPE_CHECKING

from . import _dlpack, _lib, _stream, _types
from ._lib import check, error, fitting, library, of_enum
from ._life import AtEnd, Closable, ClosedAttribute
from ._memory import Sized, Where, host_memory, product, tensor_memory, tensor_type

if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

    from numpy import ndarray

    from ._hints import Buffer, DType, Index, Numbers, Piece, Stream, Writable
    from ._stream import Default
    from .context import Context

_fast = _lib.extension and _lib.extension.copy
_word = _lib.extension.word if _lib.extension else lambda *_: -1

_OF_MAPPING = _stream.Default.OF_MAPPING
_PUT32, _PUT64, _POST32, _POST64, _GET32, _GET64 = range(len(_lib.WORDS))
_LINE = 64
_NUMBERS = frozenset((bool, int, float, complex, list, tuple))
_SUBCLASSED = int, list, tuple  # by enumerations, torch.Size; numpy's numbers of float and complex are buffers
_ORDERS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_FILL = 1 << 20  # bytes of a piece of fill()
_Target = struct.Struct("10Q")  # of fast.c


class Mapping(Closable, Sized):
    """
    GPU memory that the CPU can load and store; the methods of Context make it.

    size, nbytes, itemsize, ndim, shape, dtype and len() are numpy's. Offsets, and the sizes that calls take, are in
    bytes; of write() and read_into() an offset is a multiple of an element's size. Words
    are unsigned, in a mapping of signed integers signed. Any thread may make any call. `address` is the device's
    address of the first byte, `pointer` the CPU's.

    CUDA does not see the CPU's accesses, so the GPU's work must have ended before: what wrote before a read, what reads
    or overwrites before a write. stream, a parameter of copies, waits for all work that is in it: "current" (PyTorch's
    of that GPU), a stream of PyTorch, CuPy or cuda.core, a handle. Not given: that of map(), else None, no wait. Other
    threads run meanwhile; a stream that captures a graph is refused (RuntimeError).
    """

    context: Context
    address: int
    pointer: int
    nbytes: int
    read_only: bool
    _what = "mapping"
    _given = None  # of the first export by DLPack

    def __init__(self, context, life, handle, pointer, where, read_only=False, stream=None):
        self.context = context
        self.address, self.pointer, self.nbytes = where.address, pointer, where.nbytes
        self.read_only = read_only or where.read_only
        self._where = where.without_owner()
        self._stream = stream
        self._ordinal = None
        self._formats = _types.formats(where.type)
        # The unit of offsets that write() and read_into() take; None: they take any.
        self._step = _types.step(where.type)
        self._rows = self.ndim > 1
        self._element = self.itemsize
        self._signed = (where.type or "").startswith("int")
        self._letters = "".join(self._formats or ()).encode()
        self._used = weakref.ref(life)  # by busy, after close()
        self._handle = life._as_parameter_ = handle
        self._target = _Target.pack(handle, pointer, self.nbytes, not self.read_only, *library().words)
        _dlpack.sweep()
        self._begin(life)

    def _as_where(self):
        """As an object to map: it is released after what is made of it."""
        where = self._where
        return Where(self.address, where.nbytes, where.type, where.shape, self._in_use(), self.read_only)

    def _text(self):
        return f" of {self._described()}, cuda:{self.device}, {self.backend}" + ", read-only" * self.read_only

    @property
    def busy(self) -> bool:
        """True while views of it, or calls in progress, keep it mapped, also after close()."""
        _dlpack.sweep()
        return self._used() is not None if self._life is None else self._users() > 0

    def _end(self):
        super()._end()
        _dlpack.sweep()

    def _at(self, offset, size):
        offset = index(offset)
        if offset < 0 or size < 0 or offset + size > self.nbytes:
            self._refuse_closed()
            raise ValueError(f"{size} bytes at {offset} are not within the {self.nbytes} bytes mapped")
        return self.pointer + offset

    def _refuse_part(self, offset):
        if index(offset) % self._step:
            raise ValueError(f"byte {offset} is within an element of {self.dtype}: offsets are in bytes, here "
                             f"multiples of {self._step}; write_bytes() and read() take any")

    def _refuse_read_only(self):
        if self.read_only:
            raise TypeError("the mapping is read-only")

    # ---- copies -----------------------------------------------------------------------------

    # Python's lines take most of the time of a small copy or a word, so these are few.
    def _done(self, function, obj, offset, into):
        """Copies by the extension; False: the caller copies by ctypes, which also explains errors."""
        size = -1
        if type(obj).__name__ == "Tensor" and isinstance(obj, tensor_type()):
            obj, size = tensor_memory(obj, self._where.type)
        return not _fast(function, self._life, self._handle, self.pointer, self.nbytes, self._letters, obj, size,
                         offset, into)

    def _use(self, call, *arguments):
        """Calls the library on the handle, and keeps the handle until the call returns: the Life is on the stack."""
        err = (self._life or self._in_use(), call(self._handle, *arguments))[1]
        if err:
            raise error(err)

    def _place(self, index):
        """The offset of an element."""
        indices = index if isinstance(index, tuple) else (index,)
        shape = self.shape
        place = 0
        try:
            if len(indices) != len(shape):
                raise TypeError
            for i, length in zip(map(operator.index, indices), shape):
                if not -length <= i < length:
                    raise IndexError(f"index {i} is out of range: the length is {length}")
                place = place * length + i % length
        except TypeError:
            raise TypeError(f"m[...] is one element, here with {self.ndim} indices: parts are m.array()[...]") from None
        return place * self._element

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Any:
        """One element as a number of Python, by read(). Parts are array()'s."""
        element = bytearray(self._element)
        self._read_into(element, self._place(index), self._stream)
        return _types.unpacked(self._where.type, element)

    def __setitem__(self, index: Index | tuple[Index, ...], value: Any) -> None:
        """Writes one element, by write()."""
        self.write(_types.packed(self._where.type, value), self._place(index))

    __iter__ = __reversed__ = None  # each element would cross the link: array() or read()
    __contains__ = None

    def _numbers(self, data, offset):
        """Numbers, and lists of them, as bytes of the mapping's elements, if it has a type."""
        if self._where.type:
            data, shape = _types.packed_all(self._where.type, data)
            if not offset:
                self._refuse_shape(shape)
        return data

    def _refuse_shape(self, shape):
        """
        Of data for the mapping's begin: rows of another length would lie askew. Flat data may be of any length, and
        other data a part of the mapping, such as its first matrix.
        """
        here, there = ([n for n in s if n != 1] for s in (self.shape, shape or ()))
        if len(here) > 1 and len(there) > 1 and here[1 - len(there):] != there[1:]:
            raise ValueError(f"data of shape {tuple(shape)} does not fit the mapping's shape {self.shape}: reshape it")

    def _wait_for(self, stream):
        self._refuse_closed()
        if self._ordinal is None:
            self._ordinal = _stream.ordinal_of(self.address)
        _stream.wait(_stream.handle_of(stream, self._ordinal), self._ordinal)

    def write(self, data: Buffer | Numbers, offset: int = 0, *, stream: Stream | Default | None = _OF_MAPPING) -> None:
        """
        Copies a buffer (bytes, numpy array, CPU tensor ...), a number or a list of numbers to byte `offset` of the
        GPU's memory. TypeError if its elements have another type than the mapping's; bytes match every type. ValueError
        if an element of the mapping is at no such offset, or if rows at offset 0 have another shape than the mapping's.
        """
        if self.read_only:
            self._refuse_read_only()
        if self._step:
            self._refuse_part(offset)
        if self._rows and not offset:
            self._refuse_shape(getattr(data, "shape", None))
        if stream is _OF_MAPPING:
            stream = self._stream
        if stream is not None:
            self._wait_for(stream)
        if _fast and self._done(library().copy_to, data, offset, False):
            return
        if type(data) in _NUMBERS or isinstance(data, _SUBCLASSED):
            data = self._numbers(data, offset)
        host, size = (data, len(data)) if type(data) is bytes else \
            host_memory(data, False, self._where.type, self._formats)
        self._use(library().gdr_copy_to_mapping, self._at(offset, size), host, size)

    def write_bytes(self, data: Buffer, offset: int = 0, *, stream: Stream | Default | None = _OF_MAPPING) -> None:
        """write() of the buffer's bytes, without comparing types."""
        self._refuse_read_only()
        self._before(stream)
        host, size = host_memory(data, False, None, None)
        self._use(library().gdr_copy_to_mapping, self._at(offset, size), host, size)

    def fill(self, value: Any, *, stream: Stream | Default | None = _OF_MAPPING) -> None:
        """Writes one element, such as 0, to all of it; a mapping without a type has bytes."""
        self._refuse_read_only()
        zeros = isinstance(value, int) and not value  # of every type, known or not
        element = b"\0" if zeros else _types.packed(self._where.type, value)
        self._before(stream)
        piece = element * (min(self.nbytes, _FILL) // len(element))
        for offset in range(0, self.nbytes, len(piece)):
            self.write_bytes(piece[:self.nbytes - offset], offset, stream=None)

    def read(self, size: int | None = None, offset: int = 0, *,
             stream: Stream | Default | None = _OF_MAPPING) -> bytes:
        """`size` bytes, by default all from `offset` on."""
        size = max(self.nbytes - index(offset), 0) if size is None else index(size)
        self._at(offset, size)
        result = bytearray(size)
        self._read_into(result, offset, stream)
        return bytes(result)

    def read_into(self, buffer: Writable, offset: int = 0, *, stream: Stream | Default | None = _OF_MAPPING) -> None:
        """Fills a writable buffer (bytearray, numpy array, CPU tensor ...), of the mapping's type or bytes."""
        if self._step:
            self._refuse_part(offset)
        if self._rows and not offset:
            self._refuse_shape(getattr(buffer, "shape", None))
        self._read_into(buffer, offset, stream)

    def _read_into(self, buffer, offset, stream):
        if stream is _OF_MAPPING:
            stream = self._stream
        if stream is not None:
            self._wait_for(stream)
        if _fast and self._done(library().copy_from, buffer, offset, True):
            return
        host, size = host_memory(buffer, True, self._where.type, self._formats)
        self._use(library().gdr_copy_from_mapping, host, self._at(offset, size), size)

    def write_pieces(self, pieces: Iterable[Piece], *, fence: bool = True,
                     stream: Stream | Default | None = _OF_MAPPING) -> None:
        """
        Copies many pieces with one fence: (offset, buffer) or (offset, buffer, True), which is ordered
        behind all before it. Types as for write(). fence=False: the caller uses fence().
        """
        self._refuse_read_only()
        self._pieces(library().barcopy_copyv_to_mapping, pieces, False, fence, stream)

    def read_pieces(self, pieces: Iterable[Piece], *, fence: bool = True,
                    stream: Stream | Default | None = _OF_MAPPING) -> None:
        """
        Fills many writable buffers: (offset, buffer) or (offset, buffer, True), as write_pieces() takes them. The
        loads of many pieces are in flight together.
        """
        self._pieces(library().barcopy_copyv_from_mapping, pieces, True, fence, stream)

    def _before(self, stream):
        """Waits for the stream that a call is given."""
        if stream is _OF_MAPPING:
            stream = self._stream
        if stream is not None:
            self._wait_for(stream)

    def _pieces(self, call, pieces, writable, fence, stream):
        pieces = list(pieces)
        segments = (_lib.Segment * len(pieces))()
        held = []
        for segment, piece in zip(segments, pieces):
            offset, buffer, ordered = piece if len(piece) == 3 else (*piece, False)
            if self._step:
                self._refuse_part(offset)
            host, segment.size = host_memory(buffer, writable, self._where.type, self._formats)
            held.append(host)
            segment.host_ptr = ctypes.cast(host, c_void_p)
            segment.map_ptr = self._at(offset, segment.size)
            segment.flags = _lib.COPY_ORDERED if ordered else 0
        self._before(stream)
        self._use(call, segments, len(pieces), 0 if fence else _lib.COPY_NO_FENCE)

    def set_copy_options(self, *, engine_read_min: int = 0, engine_write_min: int = 0) -> None:
        """From which size the copy engine copies: barcopy_set_copy_options(3). ENGINE_AUTO: where it is faster."""
        options = _lib.CopyOptions(ctypes.sizeof(_lib.CopyOptions),
                                   0, 0,
                                   fitting(c_size_t, engine_read_min, "engine_read_min"),
                                   fitting(c_size_t, engine_write_min, "engine_write_min"))
        self._use(library().barcopy_set_copy_options, byref(options))

    # ---- words and order --------------------------------------------------------------------

    def fence(self, use: int) -> None:
        """Orders this thread's accesses: Fence.BEFORE_READ, AFTER_READ, AFTER_WRITE or FULL."""
        self._use(library().barcopy_fence, fitting(c_int, of_enum(_lib.Fence, use, "use"), "use"))

    def flush(self) -> None:
        """Waits until this CPU's writes have reached GPU memory."""
        self._use(library().barcopy_flush)

    def _put(self, call, offset, size, value):
        self._refuse_read_only()
        self._use(call, self._at(offset, size), self._unsigned(size, value))

    def _unsigned(self, size, value):
        """The word of `size` bytes that a caller's integer is; ValueError if there is none."""
        value, bits = index(value), 8 * size
        if not (-1 << bits - 1 if self._signed else 0) <= value < 1 << bits:
            raise ValueError(f"value {value} is out of range")
        return value & (1 << bits) - 1

    def _as_signed(self, value, size):
        return value - (1 << 8 * size) if value >> 8 * size - 1 else value

    def put32(self, offset: int, value: int) -> None:
        """Stores one aligned word of 4 bytes, whole."""
        if _word(self._target, self._life, _PUT32, offset, value):
            self._put(library().barcopy_put32, offset, 4, value)

    def put64(self, offset: int, value: int) -> None:
        """Stores one aligned word of 8 bytes, whole."""
        if _word(self._target, self._life, _PUT64, offset, value):
            self._put(library().barcopy_put64, offset, 8, value)

    def post32(self, offset: int, value: int) -> None:
        """put32() without waiting: a flag after its data (barcopy_put32(3))."""
        if _word(self._target, self._life, _POST32, offset, value):
            self._put(library().barcopy_post32, offset, 4, value)

    def post64(self, offset: int, value: int) -> None:
        """put64() without waiting: a flag after its data (barcopy_put32(3))."""
        if _word(self._target, self._life, _POST64, offset, value):
            self._put(library().barcopy_post64, offset, 8, value)

    def post_line(self, offset: int, line: Buffer) -> None:
        """
        Writes the 64 bytes of `line` to a multiple of 64 and waits for nothing: one write where the CPU has
        MOVDIR64B, else the last 8 bytes become visible last (barcopy_put32(3)).
        """
        self._refuse_read_only()
        host, size = host_memory(line, False, None, None)
        if size != _LINE:
            raise ValueError(f"a line has {_LINE} bytes, not {size}")
        self._use(library().barcopy_post_line, self._at(offset, size), host)

    def _get(self, call, offset, value):
        self._use(call, self._at(offset, ctypes.sizeof(value)), byref(value))
        return value.value

    def get32(self, offset: int) -> int:
        """Loads one aligned word of 4 bytes, whole."""
        value = _word(self._target, self._life, _GET32, offset)
        if value < 0:
            value = self._get(library().barcopy_get32, offset, c_uint32())
        return self._as_signed(value, 4) if self._signed else value

    def get64(self, offset: int) -> int:
        """Loads one aligned word of 8 bytes, whole."""
        value = _word(self._target, self._life, _GET64, offset)
        if value < 0:
            value = self._get(library().barcopy_get64, offset, c_uint64())
        return self._as_signed(value, 8) if self._signed else value

    def _wait(self, call, offset, size, comparison, value, timeout):
        number = _lib.COMPARISONS.get(comparison)
        if number is None:
            raise ValueError(f"{comparison!r} is none of {' '.join(_lib.COMPARISONS)}")
        word = self._unsigned(size, value)
        if self._signed and comparison in _ORDERS:
            self._wait_signed(call, offset, size, _ORDERS[comparison], self._as_signed(word, size), timeout)
            return
        pointer = self._at(offset, size)
        _lib.wait(timeout, lambda ns: call(self._in_use(), pointer, number, word, ns))

    def _wait_signed(self, call, offset, size, holds, value, timeout):
        """The library orders unsigned words alone: waits for each change, and compares here."""
        end = None if timeout is None else time.monotonic() + timeout
        get = self.get32 if size == 4 else self.get64
        seen, left = get(offset), timeout
        while not holds(seen, value):
            self._wait(call, offset, size, "!=", seen, left)
            seen, left = get(offset), None if end is None else max(end - time.monotonic(), 0)

    def wait32(self, offset: int, comparison: str, value: int, timeout: float | None = None) -> None:
        """
        Polls one aligned word of 4 bytes until `word comparison value` ("==", "!=", "<", "<=", ">", ">="). Other
        threads run at the same time. Timeout after `timeout` seconds; None waits until it holds. Closed if another
        thread closes the mapping.
        """
        self._wait(library().barcopy_wait32, offset, 4, comparison, value, timeout)

    def wait64(self, offset: int, comparison: str, value: int, timeout: float | None = None) -> None:
        """wait32() for a word of 8 bytes."""
        self._wait(library().barcopy_wait64, offset, 8, comparison, value, timeout)

    # ---- views ------------------------------------------------------------------------------

    def view(self) -> memoryview:
        """
        The memory itself, as a memoryview of bytes: read-only if the mapping is. It stays mapped
        while a view, slice or array of it exists, also after close().

        Loads through a write-combined mapping take 1 us each, so read() is faster for more than a
        word; stores are ordered by fence().
        """
        memory = (c_ubyte * self.nbytes).from_address(self.pointer)
        memory.life = self._in_use()
        view = memoryview(memory).cast("B")
        return view.toreadonly() if self.read_only else view

    def array(self, dtype: DType = None, shape: int | Sequence[int] | None = None) -> ndarray[Any, Any]:
        """
        A view as a numpy array, by default with the type and shape of the mapped object, else of bytes.
        Types that numpy lacks (bfloat16, float8) need the package ml_dtypes, or a dtype, such as "int16".
        """
        import numpy

        if dtype is not None:
            dtype = _types.for_numpy(dtype)
        else:
            dtype = self._where.type and (_types.in_numpy(self._where.type) or _types.of_ml_dtypes(self._where.type))
            if dtype is None and self._where.type is not None:
                raise TypeError(f"numpy has no type {self._where.type}: give a dtype (for bfloat16's bits \"int16\"), "
                                "install ml_dtypes, or use torch.from_dlpack()")
        flat = numpy.frombuffer(self.view(), dtype=dtype or "uint8")
        if shape is None and self._where.shape is not None and \
                flat.size == product(self._where.shape):
            shape = self._where.shape
        return flat if shape is None else flat.reshape(shape)

    def __array__(self, dtype: DType = None, copy: bool | None = None) -> ndarray[Any, Any]:
        """
        numpy.asarray(mapping): array(), as numpy makes it by __buffer__ from Python 3.12 on. ValueError if it has to
        be a copy, of another dtype, and copy is False.
        """
        a = self.array()
        converted = a.astype(a.dtype if dtype is None else dtype, copy=bool(copy))
        if copy is False and converted is not a:
            raise ValueError(f"the mapping's elements are {self.dtype}: as {converted.dtype} they are a copy")
        return converted

    def __buffer__(self, flags: int) -> memoryview:
        """memoryview(mapping), from Python 3.12 on: view() with the mapping's type and shape."""
        self._refuse_closed()
        if self.read_only and flags & 1:  # PyBUF_WRITABLE
            raise BufferError("the mapping is read-only")
        letter = _types.letter(str(self.dtype))
        if letter:
            return self.view().cast(letter, self.shape)
        try:
            return memoryview(self.array())  # a type that numpy alone has
        except (ImportError, TypeError) as why:
            raise BufferError(f"a buffer has no type {self.dtype}: use view() ({why})") from None

    # ---- for other libraries ----------------------------------------------------------------

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """
        For CuPy, Numba and torch.as_tensor(): an array, by default of bytes. It must not be used after
        close(); an array by DLPack may. The consumer need not wait for a stream.
        """
        self._refuse_closed(ClosedAttribute)
        typestr = _types.typestr(self._where.type)
        if typestr is None or self.backend == "host":
            raise AttributeError(f"__cuda_array_interface__ has no type {self._where.type}" if typestr is None
                                 else "__cuda_array_interface__ is for memory of a GPU")
        return {"shape": self.shape, "typestr": typestr,
                "data": (self.address, self.read_only), "strides": None, "stream": None, "version": 3}

    def __dlpack_device__(self) -> tuple[int, int]:
        """Memory of a GPU of CUDA, or memory of cudaHostAlloc."""
        return (_dlpack.CUDA_HOST, 0) if self.backend == "host" else (_dlpack.CUDA, self.device)

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """
        For torch.from_dlpack() and other consumers: an array of the same memory, which stays mapped and
        allocated while that array exists, also after close(). After write() the consumer need not wait for a
        stream.
        """
        device = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) == _dlpack.OF_CPU and device[0] == _dlpack.CUDA_HOST:
            device = _dlpack.OF_CPU  # as torch.from_dlpack(m, device="cpu") asks: it knows no page-locked memory
        if copy or (dl_device is not None and tuple(dl_device) != device):
            raise BufferError("DLPack exports the memory itself, not a copy")
        _dlpack.sweep()
        if not self._given:
            self._given = AtEnd(_dlpack.ended())  # ends with the mapping, and ends what nobody has taken
        return _dlpack.capsule_of(self._where, self.address, device, max_version, self.read_only, self._in_use())

    # ---- attributes -------------------------------------------------------------------------

    def _attribute(self, number):
        value = c_uint64()
        check(library().barcopy_get_handle_attribute(self.context._in_use(), self._in_use(), number, byref(value)))
        return value.value

    @property
    def backend(self) -> str:
        """The name of the backend: gdrdrv, rm, dmabuf or host."""
        number = self._attribute(_lib.ATTR_BACKEND)
        return _lib.BACKENDS.get(number, str(number))

    @property
    def mapping_type(self) -> str:
        """The kind of the CPU's mapping: write-combining, caching or device."""
        number = self._attribute(_lib.ATTR_MAPPING_TYPE)
        return _lib.MAPPING_TYPES.get(number, str(number))

    @property
    def device(self) -> int:
        """CUDA's ordinal of the GPU."""
        return self._attribute(_lib.ATTR_DEVICE)

    @property
    def persistent(self) -> bool:
        """True if the mapping outlives the free of its memory."""
        return bool(self._attribute(_lib.ATTR_PERSISTENT))

    @property
    def sync_memops(self) -> bool:
        """False (VMM memory, as of expandable segments): cudaMemcpy and cudaMemset may return before they are done.
        Kernels and asynchronous copies are to be waited for in any case."""
        return bool(self._attribute(_lib.ATTR_SYNC_MEMOPS))


class Memory(Mapping):
    """GPU memory of Context.alloc(): close() frees it. The GPU must have finished with it then."""

    _what = "memory"

    def __init__(self, context, life, mem, where):
        self._mem = mem
        super().__init__(context, life, mem.handle.h, mem.cpu_ptr, where)

    def export(self) -> int:
        """A descriptor for Context.import_memory() in another process, which also needs `nbytes`. The
        caller closes it."""
        fd = ctypes.c_int()
        life = self._in_use()  # until the call returns
        check(library().barcopy_mem_export(self.context._in_use(), byref(self._mem), byref(fd)))
        del life
        return fd.value
