# SPDX-License-Identifier: MIT
"""The Python module on the stand-in: copies, views and their lifetimes, errors, every call once."""
import array
import contextlib
import copy
import ctypes
import errno
import gc
import io
import os
import pickle
import re
import subprocess
import sys
import threading
import time
import types
import unittest
import weakref
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import barcopy  # noqa: E402
from balance import Balanced  # noqa: E402
from barcopy import _dlpack, _lib, _memory, _types, mapping  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
with_numpy = unittest.skipIf(numpy is None, "numpy is not installed")


class Device:
    """An array of another library, by __cuda_array_interface__."""

    def __init__(self, address, shape, typestr, strides=None, read_only=False):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "version": 3,
                                         "data": (address, read_only), "strides": strides}


class Tensor:
    """A CPU tensor of PyTorch, which implements no buffer protocol: what _memory.py asks of one."""

    def __init__(self, data, dtype, device="cpu", contiguous=True, conj=False, layout="strided"):
        self.layout = layout
        self.data, self.dtype, self.shape = data, "torch." + dtype, (len(data),)
        self.device, self.is_cpu = types.SimpleNamespace(type=device), device == "cpu"
        self.is_contiguous, self.is_conj, self.is_neg = lambda: contiguous, lambda: conj, lambda: False

    def stride(self):
        return (2,) * len(self.shape)

    def numel(self):
        return len(self.data)

    def element_size(self):
        return self.data.itemsize

    def data_ptr(self):
        return self.data.buffer_info()[0]


class GpuTensor(Tensor):
    """A tensor of a GPU: its storage may be another one later, that of detach() stays."""

    def __init__(self, storage, dtype="uint8", shape=None):
        super().__init__(storage, dtype, "cuda")
        self.shape = (storage.size,) if shape is None else shape

    def numel(self):
        return self.data.size // self.element_size()

    def element_size(self):
        return _types.itemsize(self.dtype[len("torch."):])

    def data_ptr(self):
        return self.data.address

    def detach(self):
        return GpuTensor(self.data, self.dtype[len("torch."):], self.shape)


torch = types.SimpleNamespace(strided="strided", Tensor=Tensor)


def current_context(test):
    """The driver, the GPU's context current until the test ends."""
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    test.assertEqual(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), 0)
    test.addCleanup(cuda.cuDevicePrimaryCtxRelease_v2, 0)
    test.assertEqual(cuda.cuCtxSetCurrent(context), 0)
    return cuda


@contextlib.contextmanager
def page_locked(test, size):
    """Memory of cudaHostAlloc as a numpy array of bytes."""
    cuda, host = current_context(test), ctypes.c_void_p()
    test.assertEqual(cuda.cuMemHostAlloc(ctypes.byref(host), ctypes.c_size_t(size), 0), 0)
    yield numpy.frombuffer((ctypes.c_char * size).from_address(host.value), "u1")
    test.assertEqual(cuda.cuMemFreeHost(host), 0)


class Case(Balanced):
    def setUp(self):
        super().setUp()
        self.gdr = barcopy.open()
        self.mem = self.gdr.alloc(65536, shareable=True)
        self.addCleanup(self.gdr.close)

    def raises_errno(self, number, call, *args, **named):
        with self.assertRaises(barcopy.Error) as caught:
            call(*args, **named)
        self.assertEqual(caught.exception.errno, number)
        self.assertTrue(caught.exception.strerror)
        return caught.exception


class Copies(Case):
    def test_buffers(self):
        self.mem.write(b"abcdef", 3)
        self.mem.write(bytearray(b"XY"), 4)
        self.mem.write(array.array("I", [0x41424344]), 9)
        self.mem.write(memoryview(b"0123456789")[2:4], 13)
        self.assertEqual(self.mem.read(12, 3), b"aXYdefDCBA23")
        into = bytearray(4)
        self.mem.read_into(into, 4)
        self.assertEqual(into, b"XYde")
        self.assertEqual(len(self.mem.read(offset=self.mem.size - 5)), 5)
        self.assertEqual(self.mem.read(0), b"")
        self.assertEqual(self.mem.read(offset=self.mem.size), b"")
        self.mem.write(b"")

    def test_same_memory(self):
        m = self.gdr.map(self.mem.address + 3, 900)
        self.mem.write(b"tensor", 103)
        self.assertEqual(m.read(6, 100), b"tensor")
        m.write(b"T", 100)
        self.assertEqual(self.mem.read(6, 103), b"Tensor")
        self.assertEqual((m.size, len(m), m.address), (900, 900, self.mem.address + 3))

    def test_refused(self):
        self.assertRaisesRegex(ValueError, "not within the", self.mem.write, b"x", self.mem.size)
        for offset in (-1, self.mem.size + 1):
            self.assertRaises(ValueError, self.mem.read, 1, offset)
        for size, offset, text in (-1, 0, "^-1 bytes at 0 "), (2, self.mem.size - 1, "^2 bytes at "), \
                (2**62, 0, "not within"):
            self.assertRaisesRegex(ValueError, text, self.mem.read, size, offset)
        self.assertRaisesRegex(ValueError, "not one run of bytes", self.mem.write, memoryview(b"0123456789")[::2])
        self.assertRaisesRegex(ValueError, "not one run of writable bytes", self.mem.read_into, b"bytes")
        self.assertRaises(TypeError, self.mem.write, 42)
        self.assertRaises(TypeError, self.mem.write, "text")

    def test_pieces(self):
        a, b = bytearray(3), bytearray(100)
        self.mem.write_pieces([(0, b"one"), (64, b"two", True), (200, b"")])
        self.mem.write_pieces([(128, b"3" * 100)], fence=False)
        self.mem.fence(barcopy.AFTER_WRITE)
        self.mem.read_pieces([(64, a), (128, b, True)])
        self.assertEqual((a, b), (b"two", b"3" * 100))
        self.mem.read_pieces([])
        self.assertRaises(ValueError, self.mem.write_pieces, [(0, b"NEW"), (self.mem.size, b"x")])
        for wrong in (0,), (0, b"NEW", True, 3):
            self.assertRaises(ValueError, self.mem.write_pieces, [wrong])
        self.assertEqual(self.mem.read(3), b"one")  # none of it was done
        with mock.patch.object(_lib.library(), "barcopy_copyv_to_mapping", lambda *_: a.append(1)):
            self.assertRaises(BufferError, self.mem.write_pieces, [(0, a), (8, b)])  # held meanwhile

    def test_tensors_of_the_cpu(self):
        """By address; by the extension if it exists, since ctypes is slow for small copies."""
        m = self.gdr.map(Device(self.mem.address, (64,), "<f4"))
        data, into = array.array("f", [1.5, -2, 3]), array.array("f", bytes(12))
        with mock.patch.dict(sys.modules, torch=torch):
            with mock.patch("barcopy.mapping.host_memory", wraps=_memory.host_memory) as by_ctypes:
                m.write(Tensor(data, "float32"), 16)
                self.assertEqual(m.read(12, 16), data.tobytes())
                by_ctypes.reset_mock()
                m.read_into(Tensor(into, "float32"), 16)
                m.read_into(Tensor(array.array("f"), "float32"))
                self.assertEqual(by_ctypes.call_count, 0 if mapping._fast else 2)
            self.assertEqual(into, data)
            m.write(type("Tensor", (bytearray,), {})(b"another class of that name"))
            m.write_pieces([(0, Tensor(data, "float32")), (12, Tensor(data, "float32"))])
            self.assertEqual(m.read(24), 2 * data.tobytes())
            m.write_bytes(Tensor(array.array("i", [7]), "int32"))
            self.assertEqual(m.get32(0), 7)
            m.post_line(64, Tensor(array.array("i", range(16)), "int32"))
            self.assertEqual(m.read(64, 64), array.array("i", range(16)).tobytes())
            halves = self.gdr.alloc(4, "bfloat16")  # a type that numpy lacks
            halves.write(Tensor(array.array("H", [1, 2, 3]), "bfloat16"))
            self.assertEqual(halves.read(6), array.array("H", [1, 2, 3]).tobytes())
            m.write(Tensor(data, "float32"), 256 - 12)
            for offset in (-4, 256 - 8, 260):
                self.assertRaisesRegex(ValueError, "not within the 256", m.write, Tensor(data, "float32"), offset)
            for tensor, error, words in (
                    (Tensor(array.array("i", [1]), "int32"), TypeError, "tensor holds int32, the mapping float32"),
                    (Tensor(data, "float32", contiguous=False), ValueError, "not contiguous"),
                    (Tensor(data, "float32", conj=True), ValueError, "resolve_conj"),
                    (Tensor(data, "float32", layout="sparse"), ValueError, "layout sparse"),
                    (Tensor(data, "float32", "cuda"), TypeError, "a tensor of the GPU")):
                self.assertRaisesRegex(error, words, m.write, tensor)
                self.assertRaisesRegex(error, words, m.read_into, tensor)

    def test_words(self):
        self.mem.put32(8, 0xfffffffe)
        self.mem.put64(16, 2**64 - 2)
        self.assertEqual(self.mem.get32(8), 0xfffffffe)
        self.assertEqual(self.mem.get64(16), 2**64 - 2)
        self.mem.post32(offset=8, value=0xfffffffd)
        self.mem.post64(16, 2**63)
        self.assertEqual((self.mem.get32(8), self.mem.get64(offset=16)), (0xfffffffd, 2**63))
        for value, puts in (-1, (self.mem.put32, self.mem.post64)), (2**32, (self.mem.put32, self.mem.post32)), \
                (2**64, (self.mem.put64, self.mem.post64)):
            for put in puts:
                self.assertRaisesRegex(ValueError, "out of range", put, 8, value)
        for offset in (-4, self.mem.size - 3, 2**64):
            self.assertRaisesRegex(ValueError, "not within", self.mem.get32, offset)
            self.assertRaisesRegex(ValueError, "not within", self.mem.put32, offset, 1)
        self.raises_errno(errno.EINVAL, self.mem.put32, 9, 1)
        self.raises_errno(errno.EINVAL, self.mem.get32, 2)
        self.raises_errno(errno.EINVAL, self.mem.get64, 4)
        self.mem.put32(8, 0xfffffffe)
        self.mem.put64(16, 2**64 - 2)
        self.mem.wait32(8, ">", 5)
        self.mem.wait64(16, "==", 2**64 - 2, timeout=0)
        with self.assertRaises(TimeoutError) as caught:
            self.mem.wait32(8, "<", 5, timeout=0.15)
        self.assertIsInstance(caught.exception, barcopy.Error)
        self.assertRaises(ValueError, self.mem.wait32, 8, "=", 5)
        for timeout in -1, float("-inf"), float("nan"):
            self.assertRaises(ValueError, self.mem.wait32, 8, "==", 5, timeout=timeout)
        # Another thread runs while this one waits.
        threading.Timer(0.05, self.mem.put32, (0, 7)).start()
        for timeout in float("inf"), sys.float_info.max:
            self.mem.wait32(0, "==", 7, timeout=timeout)
        for use in (barcopy.BEFORE_READ, barcopy.AFTER_READ, barcopy.AFTER_WRITE, barcopy.FULL):
            self.mem.fence(use)
        self.raises_errno(errno.EINVAL, self.mem.fence, 77)
        self.mem.flush()

    @unittest.skipIf(mapping._fast is None, "the extension is not built")
    def test_buffers_by_the_extension(self):
        typed, untyped = self.gdr.alloc((8,), dtype="float32"), self.gdr.map(self.mem.address, 32)
        with mock.patch.object(mapping, "host_memory", side_effect=AssertionError("by ctypes")):
            for m, data in (typed, array.array("f", [1, 2])), (typed, bytes(8)), (typed, bytearray(8)), \
                    (typed, bytes(range(32))), (untyped, array.array("d", [1, 2])), \
                    (self.gdr.alloc(8, "bool"), memoryview(b"\0\1").cast("?")):
                m.write(data)
                into = array.array({typed: "f", untyped: "h"}.get(m, "B"), bytes(len(bytes(data))))
                m.read_into(into)
                self.assertEqual(into.tobytes(), bytes(data))

    @unittest.skipIf(mapping._fast is None, "the extension is not built")
    def test_words_by_the_extension(self):
        one = {bits: self.gdr.map(self.mem.address, bits // 8) for bits in (32, 64)}
        with mock.patch.object(mapping, "library", side_effect=AssertionError("by ctypes")):
            for bits in 32, 64:
                for m, put, offset in (self.mem, "put", 8), (self.mem, "post", 16), (one[bits], "put", 0):
                    for word in 2**bits - 1 - offset, 0:
                        getattr(m, f"{put}{bits}")(offset, word)
                        self.assertEqual(getattr(m, f"get{bits}")(offset), word)

    @unittest.skipUnless(mapping._fast, "without the extension")
    def test_words_that_the_library_lacks(self):
        """The extension leaves them to ctypes, which says so."""
        words = mapping._Target.pack(0, self.mem.address, 64, True, *[0] * len(_lib.WORDS))
        for word in range(len(_lib.WORDS)):
            value = (7,) if word < mapping._GET32 else ()
            self.assertEqual(mapping._word(words, self.mem._life, word, 0, *value), -1)

    def test_signed_words(self):
        """In a mapping of signed integers; the library's words are unsigned."""
        m = self.gdr.alloc(8, "int64")
        m.fill(-100)
        self.assertEqual((m.get64(0), m.get32(4), m.get32(0)), (-100, -1, -100))
        for put in m.put64, m.post64:
            put(8, -2)
            self.assertEqual((m.get64(8), self.gdr.map(m.address, 64).get64(8)), (-2, 2**64 - 2))
            self.assertRaisesRegex(ValueError, "out of range", put, 8, -2**63 - 1)
        m.put32(8, -2**31)
        self.assertEqual(m.get32(8), -2**31)
        m.put64(8, 7)
        for comparison, value in ("==", 7), ("!=", -1), (">", -1), (">=", -7), ("<", 8), ("<=", 7):
            m.wait64(8, comparison, value, timeout=30)
        for comparison, value in ("<", -1), ("<=", -7), (">", 7), ("==", -7):
            self.assertRaises(barcopy.Timeout, m.wait64, 8, comparison, value, timeout=0.01)
        m.put64(16, 2**32 - 5)  # -5 with another word behind it
        m.wait32(16, "<", -4, timeout=30)
        self.assertRaises(ValueError, m.wait64, 8, "<", 0, timeout=-1)
        m.put64(8, -100)  # a negative step, as unsigned the largest
        self.assertRaises(barcopy.Timeout, m.wait64, 8, ">=", 3, timeout=0.01)

        def steps():
            for word in -3, 2, 3:
                time.sleep(0.02)
                m.put64(8, word)

        thread = threading.Thread(target=steps)
        thread.start()
        m.wait64(8, ">=", 3)
        thread.join()
        ended = threading.Event()

        def others():
            for i in range(10000):
                if ended.wait(0.002):
                    return
                m.put64(8, -i)
            m.put64(8, 3)

        m.put64(8, -1)
        thread = threading.Thread(target=others)
        thread.start()
        self.assertRaises(barcopy.Timeout, m.wait64, 8, ">=", 3, timeout=0.02)  # of all changes together
        ended.set()
        thread.join()
        m.put64(8, 3)
        m.wait32(8, ">=", 3, timeout=30)

    def test_fill(self):
        for dtype, value, word in (("float32", 1.5, 0x3fc00000), ("int32", -1, -1), ("uint8", 7, 0x07070707),
                                   ("complex64", 2j, 0), ("bfloat16", 0, 0), ("bool", True, 0x01010101),
                                   ("float16", 1, 0x3c003c00), ("float32", -0.0, -0x80000000 % 2**32)):
            m = self.gdr.alloc((4, 4), dtype)
            m.write_bytes(b"x" * m.nbytes)
            m.fill(value)
            self.assertEqual((m.get32(0), m.read()), (word, m.read(m.itemsize) * 16))
            self.assertEqual((m.shape, m.dtype), ((4, 4), dtype))
        large = self.gdr.alloc(3 << 20)
        large.fill(9)
        self.assertEqual(large.read(), b"\t" * large.size)
        self.assertEqual((self.mem.shape, self.mem.dtype), ((self.mem.size,), "uint8"))
        fixed = self.gdr.map(m.address, 4, read_only=True)
        for mapping, value, error in (large, 256, ValueError), (large, "x", ValueError), (m, "x", ValueError), \
                (self.gdr.alloc(4, "bfloat16"), "x", ValueError), (fixed, 0, TypeError):
            self.assertRaises(error, mapping.fill, value)

    def test_offsets_of_elements(self):
        """A typed mapping's elements are written whole; bytes anywhere by write_bytes() and read()."""
        m = self.gdr.alloc(4, "float32")
        m.fill(0)
        one, into = array.array("f", [1]), array.array("f", [0])
        m.write(one, 4)
        m.read_into(into, 4)
        self.assertEqual(into, one)
        for call in (lambda: m.write(one, 2), lambda: m.read_into(into, 2), lambda: m.write(b"x", 1),
                     lambda: m.write_pieces([(2, one)]), lambda: m.read_pieces([(6, into)])):
            self.assertRaisesRegex(ValueError, "within an element of float32", call)
        m.write_bytes(b"xyz", 1)
        self.assertEqual(m.read(3, 1), b"xyz")
        for call in self.gdr.alloc(4, "float16").write, self.gdr.alloc(4, "int16").read_into:
            self.assertRaisesRegex(ValueError, "within an element", call, bytearray(2), 1)

    def test_lines(self):
        line = bytes(range(64))
        self.mem.write(b"x" * 256)
        self.mem.post_line(64, line)
        self.assertEqual(self.mem.read(192), b"x" * 64 + line + b"x" * 64)
        self.mem.post_line(128, array.array("Q", range(8)))
        self.assertEqual(self.mem.get64(128 + 56), 7)
        self.raises_errno(errno.EINVAL, self.mem.post_line, 8, line)
        for wrong in (b"", line[:63], line + b"x"):
            self.assertRaisesRegex(ValueError, "64 bytes", self.mem.post_line, 0, wrong)
        self.assertRaises(ValueError, self.mem.post_line, self.mem.size, line)
        self.assertRaises(TypeError, self.mem.post_line, 0, "x" * 64)
        self.assertEqual(self.mem.read(64), b"x" * 64)

    def test_options(self):
        self.mem.set_copy_options(engine_read_min=barcopy.ENGINE_AUTO)
        self.mem.set_copy_options()


class Pages(Case):
    """A page's example in a program that goes on: memory of one request comes back in the next."""

    def test_two_requests(self):
        with open(os.path.join(ROOT, "docs", "python.md"), encoding="utf-8") as f:
            block = re.search(r"## A decoded token\n.*?```python\n(.*?)```", f.read(), re.S).group(1)
        kernel = "box.put64(0, step << 32 | token)"
        self.assertIn(kernel, block)
        block = block.replace(kernel, "later(box, step << 32 | token)").replace("42", "request")

        def later(box, word):
            threading.Timer(0.05, box.put64, (0, word)).start()

        kept = self.gdr.alloc(64)  # and with it its block, where the requests have their words
        for request in 1234, 4321:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(block, {"later": later, "request": request})
            self.assertEqual(out.getvalue(), f"{request}\n")
        kept.close()


class Number:
    """No int, but has __index__, as numpy's integers do."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


class Numbers(Case):
    """ctypes wraps integers at their size, and has its own error for other types: _lib checks."""

    def test_out_of_range(self):
        gdr, mem, cache = self.gdr, self.mem, self.gdr.cache()
        array = Device(mem.address, (2**62, 8), "<f4")
        for call, *arguments in (
                (gdr.alloc, -1), (gdr.alloc, 2**64 + 4096), (lambda: gdr.alloc(4096, device=2**32),),
                (gdr.map, mem.address, 2**64 + 4096), (gdr.map, mem.address + 2**64, 4096), (gdr.map, -1, 4096),
                (gdr.map, 2**64 - 1, 2), (gdr.map, array), (gdr.pin, mem.address, 2**64 + 4096), (gdr.bar_info, 2**32),
                (gdr.import_memory, 2**32, 2**21), (gdr.import_memory, 0, -1), (gdr.import_memory, 0, 2**64 + 2**21),
                (lambda: gdr.import_memory(0, 2**21, device=2**32),), (lambda: gdr.cache(validity=2**32),),
                (lambda: gdr.cache(max_bytes=-1),), (lambda: gdr.cache(max_regions=-1),),
                (lambda: gdr.cache(max_bytes=2**64),), (lambda: gdr.cache(engine_read_min=2**64),),
                (cache.get, mem.address, 2**64 + 4096),
                (cache.invalidate, -1), (cache.invalidate, 0, -1), (cache.invalidate, 0, 2**64), (cache.trim, -1),
                (lambda: gdr.queue(device=2**32),), (lambda: mem.set_copy_options(engine_read_min=-1),),
                (lambda: mem.set_copy_options(engine_write_min=-1),),
                (lambda: mem.set_copy_options(engine_write_min=2**64),), (mem.fence, 2**32 + 1)):
            with self.subTest(call=call.__name__, arguments=arguments), \
                    self.assertRaisesRegex(ValueError, "out of range|in no address space|too large"):
                call(*arguments)
        mem.set_copy_options(engine_read_min=barcopy.ENGINE_AUTO)
        cache.invalidate(0, 2**64 - 1)
        self.raises_errno(errno.EINVAL, gdr.import_memory, -1, 2**21)

    def test_other_integers(self):
        kinds = [Number] + ([numpy.int64, numpy.uint64] if numpy else [])
        for kind in kinds:
            mem = self.gdr.alloc(kind(4096), device=kind(0))
            mem.write(b"abcdef", kind(3))
            self.assertEqual(mem.read(kind(4), kind(4)), b"bcde")
            into = bytearray(2)
            mem.read_into(into, kind(3))
            mem.write_pieces([(kind(8), b"piece")])
            mem.read_pieces([(kind(9), into)])
            self.assertEqual(into, b"ie")
            mem.put32(kind(16), kind(7))
            mem.post64(kind(24), kind(2**40))
            self.assertEqual((mem.get32(kind(16)), mem.get64(kind(24))), (7, 2**40))
            mem.wait32(kind(16), "==", kind(7), timeout=30)
            mem.fence(kind(int(barcopy.FULL)))
            mem.set_copy_options(engine_read_min=kind(0))
            self.assertEqual(self.gdr.map(mem.address, kind(64)).size, 64)
            with self.gdr.cache(max_bytes=kind(1 << 20)) as cache:
                cache.get(mem.address, kind(64)).close()
                cache.invalidate(kind(0), kind(64))
                cache.trim(kind(0))
            self.gdr.bar_info(kind(0))
        if numpy:
            m = self.gdr.map(numpy.uint64(self.mem.address), numpy.int64(64))
            self.assertEqual((m.address, m.size), (self.mem.address, 64))
            self.assertIs(type(m.address), int)
            self.assertRaisesRegex(TypeError, "needs a size", self.gdr.map, numpy.uint64(self.mem.address))

    def test_not_integers(self):
        mem = self.mem
        for no in (1.0, "1", None, b"1"):
            for call in (lambda: self.gdr.alloc(no), lambda: self.gdr.alloc(4096, device=no),
                         lambda: self.gdr.map(mem.address, no), lambda: mem.write(b"x", no),
                         lambda: mem.read(1, no), lambda: mem.put32(0, no), lambda: mem.put32(no, 0),
                         lambda: mem.get64(no), lambda: mem.wait32(no, "==", 0),
                         lambda: mem.wait64(0, "==", no), lambda: mem.write_pieces([(no, b"x")]),
                         lambda: mem.fence(no), lambda: mem.set_copy_options(engine_read_min=no),
                         lambda: self.gdr.cache(max_bytes=no), lambda: self.gdr.bar_info(no)):
                self.assertRaises(TypeError, call)


class Queues(Case):
    """The stand-in's kernel answers each 4-byte word with the word plus 1."""

    def setUp(self):
        super().setUp()
        self.queue = self.gdr.queue(lines=16)

    def launch(self, queue, name=b"gdrcopy_queue_echo", *more):
        cuda, module, kernel, stream = current_context(self), *(ctypes.c_void_p() for _ in range(3))
        values = queue.view, *(more or (ctypes.c_uint64(2**64 - 1),))
        self.assertEqual(len(bytes(values[0])), 32 if isinstance(queue, barcopy.Port) else 40)
        params = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        for done in (cuda.cuStreamCreate(ctypes.byref(stream), 1),
                     cuda.cuModuleLoadData(ctypes.byref(module), b".version 6.4\n.entry " + name + b"()\n"),
                     cuda.cuModuleGetFunction(ctypes.byref(kernel), module, name),
                     cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, params, None)):
            self.assertEqual(done, 0)
        return lambda: self.assertEqual(cuda.cuStreamSynchronize(stream), 0)

    def test_messages(self):
        with self.queue as queue:
            ended = self.launch(queue)
            for message in (array.array("I", range(12)), array.array("I", range(4))):
                queue.send(message)
                self.assertEqual(array.array("I", queue.receive(60)).tolist(), [n + 1 for n in message])
            queue.send(b"last", ordered=True)
            queue.stop()
            self.assertEqual(queue.receive(60), b"mast")
            ended()
            self.assertRaises(barcopy.Timeout, queue.receive, 0)
            self.raises_errno(errno.ESHUTDOWN, queue.send, b"x")
            queue.stop(abort=True)
        self.assertRaises(barcopy.Closed, queue.receive)

    def test_ports(self):
        """Two threads post once and call twice each, with a limit; an answer is the call's word 5 * 65536 ^ word 3."""
        u32, u64 = ctypes.c_uint32, ctypes.c_uint64
        self.mem.put64(0, 0)
        with self.gdr.port(lines=16, manual=True, spin=1e-5, yielding=1e-5, sleep=1e-4) as port:
            self.launch(port, b"gdrcopy_port_posts", u32(0), u32(2), u32(1), u32(0), u64(self.mem.address))
            posts = []
            while len(posts) < 2:
                posts += port.receive(timeout=60)
            self.assertEqual([(post.number, post.call) for post in posts], [(1, None), (2, None)])
            self.assertEqual([len(post.message) for post in posts],
                             [16 + (array.array("I", post.message[:16])[2] + 1) % 33 for post in posts])
            port.retire(1, 2)
            self.raises_errno(errno.EINVAL, port.retire, 2)
            self.launch(port, b"gdrcopy_port_posts", u32(0), u32(2), u32(2), u32(2 | 8), u64(self.mem.address))
            for n in range(4):
                (number, message, call), = port.receive(1, timeout=60)
                words = array.array("I", message)
                self.assertEqual((len(message), words[0]), (48, call))
                port.answer({call: words[5] << 16 ^ words[3]})
                port.retire(number)
                self.raises_errno(errno.EINVAL, port.answer, {call: 0})
            self.assertRaises(barcopy.Timeout, port.receive, timeout=0)
            self.assertRaises(ValueError, port.answer, {1: -1})
            self.raises_errno(errno.EINVAL, port.receive, 0)
            threading.Timer(0.05, port.end).start()
            self.raises_errno(errno.EPIPE, port.receive)  # without the GIL: the timer's thread runs
            port.stop(abort=True)
            self.assertEqual(self.mem.get64(0), 0)
        self.assertRaises(barcopy.Closed, port.receive)
        self.raises_errno(errno.EINVAL, self.gdr.port, lines=17)
        for seconds in -1, float("inf"), float("nan"), 2**64 / 1e9:
            self.assertRaises(ValueError, self.gdr.port, sleep=seconds)

    def test_closed_in_a_wait(self):
        port, queue = self.gdr.port(spin=1e-6, sleep=1e-3), self.gdr.queue(lines=16)
        self.fill(queue)
        for thing, wait in (port, port.receive), (queue, lambda timeout: queue.send(b"x", timeout)), \
                (self.queue, self.queue.receive):
            threading.Timer(0.05, thing.close).start()
            self.assertRaises(barcopy.Closed, wait, timeout=20)

    def fill(self, queue):
        sent = 0
        with self.assertRaises(barcopy.Timeout):
            while True:
                queue.send(b"x" * 48, timeout=0)
                sent += 1
        self.assertEqual(sent, 15)

    def test_no_kernel(self):
        self.fill(self.queue)
        for call in (lambda: self.queue.send(b"x", 0.001), lambda: self.queue.receive(0)):
            self.assertRaises(barcopy.Timeout, call)
        for size in 0, 49:
            self.raises_errno(errno.EMSGSIZE, self.queue.send, bytes(size))
        self.raises_errno(errno.EINVAL, self.gdr.queue, lines=17)
        self.assertRaises(ValueError, self.queue.receive, -1)

    def test_context_ends_it(self):
        ended = self.launch(self.queue)
        self.queue.stop()
        ended()
        self.gdr.close()
        self.assertTrue(self.queue.closed)
        self.assertRaises(barcopy.Closed, self.queue.send, b"x")


class Views(Case):
    def test_is_the_memory(self):
        view = self.mem.view()
        view[10:13] = b"abc"
        self.assertEqual(self.mem.read(3, 10), b"abc")
        self.mem.put32(0, 0x01020304)
        self.assertEqual(view[0], 4)
        self.assertEqual(view.nbytes, self.mem.size)

    def test_outlives_close(self):
        m = self.gdr.map(self.mem.address, 100)
        view = m.view()
        part = view[5:]
        with m:
            m.write(b"0123456789")
        self.assertTrue(m.closed and m.busy)
        self.assertRaisesRegex(barcopy.Closed, "mapping is closed", m.read, 1)
        for call in (m.view, m.flush, lambda: m.write(b"x"), lambda: m.backend,
                     lambda: m.put32(0, 1), lambda: m.get64(0)):
            self.assertRaises(ValueError, call)
        before = barcopy.stats().unpins
        del view
        self.assertEqual(bytes(part[:5]), b"56789")
        self.assertTrue(m.busy)
        part[0:1] = b"!"
        self.assertEqual(self.mem.read(6)[5:], b"!")
        part.release()
        self.assertFalse(m.busy)
        self.assertEqual(barcopy.stats().unpins, before + 1)
        m.close()

    def test_outlives_everything(self):
        """A view outlives its mapping, memory and context, closed or deleted."""
        gdr = barcopy.open()
        mem = gdr.alloc(4096)
        before = barcopy.stats()
        view = gdr.map(mem, read_only=False).view()
        view[0] = 42
        gdr.close()
        self.assertTrue(gdr.closed and mem.closed)
        del gdr, mem
        gc.collect()
        self.assertEqual(view[0], 42)
        view[1] = 43
        self.assertEqual(barcopy.stats().unpins, before.unpins)
        del view
        gc.collect()
        self.assertEqual(barcopy.stats().unpins, before.unpins + 2)

    def test_forgotten(self):
        """An object that is not closed ends with its last reference."""
        before = barcopy.stats()
        gdr = barcopy.open()
        gdr.alloc(4096).write(b"x")
        view = gdr.alloc(4096).view()
        view[0] = 1
        self.assertEqual(barcopy.stats().pins - before.pins, 2)
        self.assertEqual(barcopy.stats().unpins - before.unpins, 1)
        del view, gdr
        gc.collect()
        self.assertEqual(barcopy.stats().unpins - before.unpins, 2)

    def test_keeps_the_storage(self):
        """Of a tensor whose object gets another storage, as by t.data = other, t.set_() or Module.half()."""
        class Storage:
            def __init__(self, address, size=64):
                self.address, self.size = address, size

            def __len__(self):
                return self.size

        cache = self.gdr.cache()
        with mock.patch.dict(sys.modules, torch=torch):
            for make in self.gdr.map, self.gdr.pin, cache.get:
                tensor = GpuTensor(Storage(self.mem.address), "float32", (4, 4))
                storage = weakref.ref(tensor.data)
                with make(tensor) as made:
                    tensor.data = Storage(self.mem.address + 4096)
                    gc.collect()
                    self.assertEqual((storage() is not None, made.address), (True, self.mem.address))
                self.assertIsNone(storage())

    def test_in_a_cycle(self):
        """The garbage collector ends what was made of an object before the object, whatever refers to what."""
        class Cycle:
            pass

        ignored, before = [], barcopy.stats()
        with mock.patch.object(sys, "unraisablehook", lambda why: ignored.append(why.exc_value)):
            for closed in False, True:
                c = Cycle()
                c.c, c.gdr = c, barcopy.open()
                c.mem = c.gdr.alloc(4096)
                c.m = c.gdr.map(c.mem)
                c.view, c.cache, c.pin = c.m.view(), c.gdr.cache(), c.gdr.pin(c.mem)
                c.region, c.mapped = c.cache.get(c.mem), c.pin.map()
                owner = Device(c.mem.address, (64,), "|u1")
                owner.of_it, owner.c = c.gdr.map(owner), c
                c.lives = [thing._life for thing in (c.gdr, c.mem, c.m, c.cache, c.region)]
                if closed:
                    c.gdr.close()
                del c, owner
                gc.collect()
        after = barcopy.stats()
        self.assertEqual((ignored, after.pins - before.pins), ([], after.unpins - before.unpins))

    def test_keeps_its_owner(self):
        """A mapping or pin keeps its array until it is closed and unused, and no longer."""
        class Owner(Device):
            pass

        for make in (self.gdr.map, self.gdr.pin):
            owner, gone = Owner(self.mem.address, (16,), "|u1"), threading.Event()
            weakref.finalize(owner, gone.set)
            made = make(owner)
            view = made.view() if make == self.gdr.map else None
            del owner
            gc.collect()
            self.assertFalse(gone.is_set())
            made.close()
            gc.collect()
            self.assertEqual(gone.is_set(), view is None)
            del view
            gc.collect()
            self.assertTrue(gone.is_set(), made)

    def test_read_only(self):
        m = self.gdr.map(self.mem.address, 100, read_only=True)
        view = m.view()
        self.assertTrue(view.readonly)
        with self.assertRaises(TypeError):
            view[0] = 1
        for call in (lambda: m.write(b"x"), lambda: m.put32(0, 1), lambda: m.put64(0, 1),
                     lambda: m.post_line(0, bytes(64)), lambda: m.write_pieces([(0, b"x")]), lambda: m.fill(0),
                     lambda: m.fill(256, stream="none is waited for")):
            self.assertRaisesRegex(TypeError, "read-only", call)
        self.mem.write(b"seen")
        self.assertEqual(bytes(view[:4]), b"seen")
        if numpy:
            self.assertFalse(m.array().flags.writeable)

    def test_of_read_only(self):
        """An array that is marked read-only is never written."""
        array = Device(self.mem.address, (16,), "|u1", read_only=True)
        with self.gdr.pin(array) as pin, self.gdr.cache() as cache:
            for m in self.gdr.map(array), pin.map(), cache.get(array):
                with m:
                    self.assertTrue(m.read_only and m.view().readonly, m)
                    for call, argument in (m.write, b"x"), (m.put32, 0), (m.post64, 0):
                        self.assertRaisesRegex(TypeError, "read-only", call, argument, 0)
                    self.assertEqual(len(m.read()), 16)

    def test_closed_under_way(self):
        """close() in one thread while others copy: they finish, or find it closed; no crash."""
        for _ in range(20):
            m = self.gdr.map(self.mem.address, 65536)
            data, started = bytearray(65536), threading.Barrier(3)
            wrong = []

            def copy(m=m, data=data, started=started, wrong=wrong):
                started.wait()
                try:
                    while True:
                        m.write(data)
                except barcopy.Closed:
                    pass
                except BaseException as why:
                    wrong.append(why)

            threads = [threading.Thread(target=copy) for _ in range(2)]
            for t in threads:
                t.start()
            started.wait()
            m.close()
            for t in threads:
                t.join()
            self.assertEqual(wrong, [])
            self.assertFalse(m.busy)

    def test_a_release_that_fails(self):
        """close() raises it, once; where no close() waits for it, it is an error in a destructor."""
        def failing_too(end):
            def fail(*arguments):
                calls.append(end(*arguments))
                return errno.EIO
            return fail

        calls, ignored, real = [], [], _lib.library()
        names = "gdr_close", "barcopy_unmap_range", "gdr_unpin_buffer", "barcopy_mem_free", "barcopy_cache_destroy", \
            "barcopy_queue_destroy", "barcopy_port_destroy"
        failing = types.SimpleNamespace(**{**vars(real), **{name: failing_too(getattr(real, name)) for name in names}})
        with mock.patch.object(_lib, "_loaded", failing), \
                mock.patch.object(sys, "unraisablehook", lambda why: ignored.append(why.exc_value)):
            other = barcopy.open()
            made = [other.map(self.mem.address, 64), other.pin(self.mem.address, 64), other.alloc(64), other.cache(),
                    other.queue(), other.port()]
            for thing in made:
                self.raises_errno(errno.EIO, thing.close)
                self.assertTrue(thing.closed)
                thing.close()
            m = other.map(self.mem.address, 64)
            view = m.view()
            m.close()
            self.assertEqual((len(calls), ignored), (len(made), []))
            del view
            self.assertEqual([why.errno for why in ignored], [errno.EIO])
            m = other.map(self.mem.address, 64)
            del m
            self.assertEqual([why.errno for why in ignored], 2 * [errno.EIO])
            queue = other.queue()
            self.raises_errno(errno.EIO, other.close)
            self.assertTrue(queue.closed and other.closed)
            self.assertEqual((calls, len(ignored)), ((len(made) + 4) * [0], 2))
            failing.gdr_close = real.gdr_close
            another = barcopy.open()
            another.queue()
            kept = another.port()
            self.raises_errno(errno.EIO, another.close)  # a child's, though the context's own end is right
            self.assertTrue(kept.closed and another.closed)

    def test_closed_under_a_wait(self):
        """close() in another thread ends a wait that has no limit."""
        for dtype in None, "int32":
            m = self.gdr.alloc(16, dtype)
            m.fill(0)
            threading.Timer(0.05, m.close).start()
            self.assertRaisesRegex(barcopy.Closed, "memory is closed", m.wait32, 0, ">", 7)
            self.assertFalse(m.busy)

    def test_closed_raises_closed(self):
        m = self.gdr.map(self.mem.address, 64)
        other = barcopy.open()
        for thing in m, other:
            thing.close()
            self.assertRaises(barcopy.Closed, thing.__enter__)
        self.assertRaises(barcopy.Closed, lambda: m.__cuda_array_interface__)
        self.assertFalse(hasattr(m, "__cuda_array_interface__"))
        self.assertRaises(barcopy.Closed, m.fill, 0)
        for call in m.get32, lambda offset: m.post_line(offset, bytes(64)), lambda offset: m.write(b"x", offset):
            self.assertRaises(barcopy.Closed, call, 64)

    def test_neither_copied_nor_pickled(self):
        for thing in self.mem, self.gdr, self.gdr.cache(), self.gdr.pin(self.mem):
            for call in copy.copy, copy.deepcopy, pickle.dumps:
                self.assertRaisesRegex(TypeError, r"neither copied nor pickled: .*export\(\)", call, thing)

    @unittest.skipUnless(hasattr(os, "fork"), "no fork here")
    def test_fork(self):
        sys.stdout.flush()
        pin = self.gdr.pin(self.mem)
        pid = os.fork()
        if not pid:
            status = 1
            with contextlib.suppress(BaseException):
                repr(pin)
                try:
                    self.mem.read(1)
                except barcopy.Error as why:
                    status = 0 if why.errno == errno.EACCES else 2
                self.mem.close()
                self.gdr.close()
            os._exit(status)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.mem.write(b"still here")


@with_numpy
class Arrays(Case):
    def test_types_and_shapes(self):
        for typestr in ("<f4", "<f8", "<i8", "|u1", "<f2", "<c16", "|b1", "<m8[ns]"):
            with self.gdr.map(Device(self.mem.address, (3, 4), typestr)) as m:
                a = m.array()
                self.assertEqual((a.dtype, a.shape), (numpy.dtype(typestr), (3, 4)))
                a[...] = 0
                a[1, 2] = 1
                host = numpy.empty((3, 4), typestr)
                m.read_into(host)
                self.assertEqual(host.reshape(-1).tolist().count(1), 1)
                self.assertEqual(host.reshape(-1).tolist().index(1), 6)
                m.write(numpy.full((3, 4), 1, typestr))
                self.assertEqual(a.reshape(-1).tolist(), [1] * 12)

    def test_other_types(self):
        m = self.gdr.map(self.mem.address, 64)
        self.assertEqual(m.array().dtype, numpy.uint8)
        self.assertEqual(m.array("float32").shape, (16,))
        self.assertEqual(m.array([("a", "<i4"), ("b", "<f4")]).dtype.names, ("a", "b"))
        self.assertEqual(m.array("float32", (4, 4)).shape, (4, 4))
        self.assertEqual(m.array("uint16", (4, -1)).shape, (4, 8))
        self.assertRaises(ValueError, m.array, "float32", (5, 5))

    def test_asarray(self):
        """The mapping's array in place, with every Python; it outlives close()."""
        for typestr in ("<i4", "<f4", "<f2", "<c8", "|b1", "<u8"):
            m = self.gdr.map(Device(self.mem.address, (2, 2), typestr))
            m.fill(0)
            a = numpy.asarray(m)
            self.assertEqual((a.dtype, a.shape), (numpy.dtype(typestr), (2, 2)))
            a[1, 0] = 1
            self.assertEqual((m.array().tolist(), numpy.mean(m)), ([[0, 0], [1, 0]], 0.25))
            self.assertEqual(numpy.asarray(m, "c16").tolist(), [[0, 0], [1, 0]])
            for dtype in None, typestr:
                self.assertTrue(numpy.shares_memory(m.__array__(dtype, copy=False), m.array()))
                self.assertFalse(numpy.shares_memory(m.__array__(dtype, copy=True), m.array()))
            self.assertRaisesRegex(ValueError, "a copy", m.__array__, "c16", copy=False)
            m.close()
            self.assertEqual((a[1, 0], m.busy), (1, True))
            del a
        self.assertEqual(numpy.asarray(self.gdr.map(self.mem.address, 8, read_only=True)).flags.writeable, False)
        self.assertEqual(numpy.asarray(self.mem).shape, (self.mem.size,))
        m = self.gdr.alloc(4, "bfloat16")
        with mock.patch.dict(sys.modules, ml_dtypes=None):  # as where it is not installed
            self.assertRaisesRegex(TypeError, "numpy has no type bfloat16", numpy.asarray, m)
            self.assertRaisesRegex(BufferError, "bfloat16: use view", m.__buffer__, 0)
        torch_type = type("Dtype", (), {"__str__": lambda self: "torch.bfloat16"})()
        with mock.patch.dict(sys.modules, ml_dtypes=types.SimpleNamespace(bfloat16=numpy.dtype("u2"))):
            for a in m.array(), m.array("bfloat16"), m.array(torch_type):
                self.assertEqual((a.dtype, a.shape), (numpy.uint16, (4,)))
            self.assertEqual(m.array("f2").dtype, numpy.float16)

    def test_buffers_are_typed(self):
        """What memoryview() and numpy ask for from Python 3.12 on."""
        for typestr, form in ("<i4", "i"), ("<f4", "f"), ("<c8", "Zf"), ("|b1", "?"), ("<u8", "L"), ("|u1", "B"):
            with self.gdr.map(Device(self.mem.address, (2, 2), typestr)) as m:
                view = m.__buffer__(0)
                self.assertEqual((view.format, view.shape), (form, (2, 2)))
                view = m.__buffer__(1)  # PyBUF_WRITABLE
                self.assertFalse(view.readonly)
                del view
        with self.gdr.map(self.mem.address, 8, read_only=True) as m:
            self.assertTrue(m.__buffer__(0).readonly)
            self.assertRaises(BufferError, m.__buffer__, 1)
        self.assertRaises(barcopy.Closed, m.__buffer__, 1)

    def test_not_contiguous(self):
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            self.gdr.map(Device(self.mem.address, (3, 4), "<f4", (4, 12)))
        self.assertRaisesRegex(ValueError, "not one run of bytes", self.mem.write, numpy.zeros((4, 4))[:, 1])
        with self.assertRaisesRegex(ValueError, "read-only"):
            fixed = numpy.zeros(4)
            fixed.flags.writeable = False
            self.mem.read_into(fixed)
        # a stride of a length of 1 means nothing, and those of a contiguous array are contiguous
        with self.gdr.map(Device(self.mem.address, (1, 4), "<f4", (99, 4))) as m:
            self.assertEqual(m.nbytes, 16)
        with self.gdr.map(Device(self.mem.address, (2, 4), "<f4", (16, 4))) as m:
            self.assertEqual(m.nbytes, 32)

    def test_outlives_close(self):
        with self.gdr.map(self.mem.address, 64) as m:
            a = m.array("float32")[3:5].reshape(2, 1)
        a[1, 0] = 2.5
        self.assertEqual(self.mem.array("float32")[4], 2.5)
        self.assertTrue(m.busy)
        del a
        self.assertFalse(m.busy)


class Objects(Case):
    def test_every_call_is_explained(self):
        for kind in (barcopy.Mapping, barcopy.Memory, barcopy.Pin, barcopy.Cache, barcopy.Context):
            for name in dir(kind):
                if name[0] != "_":
                    self.assertTrue(getattr(kind, name).__doc__, f"{kind.__name__}.{name}")

    def test_enumerations(self):
        self.assertEqual((str(barcopy.FULL), str(barcopy.NOTIFIED)), ("Fence.FULL", "Validity.NOTIFIED"))
        self.assertEqual((barcopy.FULL, barcopy.NOTIFIED), (barcopy.Fence.FULL, barcopy.Validity(1)))
        self.assertEqual(list(barcopy.Fence), [1, 2, 3, 4])
        self.assertRaisesRegex(TypeError, "NOTIFIED.* is no Fence", self.mem.fence, barcopy.NOTIFIED)
        self.assertRaisesRegex(TypeError, "is no Validity", self.gdr.cache, validity=barcopy.FULL)
        for gpu in 0, "cuda:0":
            self.assertRaisesRegex(TypeError, "alloc\\(\\) takes the GPU", barcopy.open, gpu)

    def test_what_can_be_mapped(self):
        self.assertRaisesRegex(TypeError, "needs a size", self.gdr.map, self.mem.address)
        self.assertRaises(TypeError, self.gdr.map, self.mem, 5)
        self.assertRaisesRegex(TypeError, "cannot map a str", self.gdr.map, "text")
        self.assertRaises(ValueError, self.gdr.map, self.mem.address, 0)
        self.assertRaises(ValueError, self.gdr.map, Device(self.mem.address, (0, 5), "<f4"))
        for address, size in ((-1, 10), (1 << 64, 10), (self.mem.address + (1 << 64), 10),
                              (self.mem.address, (1 << 64) + 10)):
            self.assertRaisesRegex(ValueError, "in no address space", self.gdr.map, address, size)
        self.assertRaisesRegex(barcopy.Error, "address is 0", self.gdr.map, 0, 64)
        for typestr in "x", "f4", "", "<f":
            self.assertRaisesRegex(TypeError, f"typestr '{typestr}'", self.gdr.map,
                                   Device(self.mem.address, (4,), typestr))
        for shape in (-1,), (-2, -2), (4, -1):
            self.assertRaisesRegex(ValueError, "negative", self.gdr.map, Device(self.mem.address, shape, "<f4"))
        streams = Device(self.mem.address, (4,), "<f4")
        for stream in -1, 2**64, 2**70:
            streams.__cuda_array_interface__["stream"] = stream
            self.assertRaisesRegex(ValueError, "out of range", self.gdr.map, streams)
        masked = Device(self.mem.address, (4,), "<f4")
        masked.__cuda_array_interface__["mask"] = Device(self.mem.address, (4,), "|b1")
        self.assertRaisesRegex(ValueError, "mask", self.gdr.map, masked)
        why = self.raises_errno(errno.EINVAL, self.gdr.map, 0x1000, 10)
        self.assertIn("0x1000", why.strerror)
        self.assertTrue(_memory.is_contiguous((), None, 4))

    def test_one_element(self):
        """An array without dimensions is mapped, and exported by each protocol, as one element."""
        self.mem.write(b"x" * 64)
        element = Device(self.mem.address + 16, (), "<i8")
        with self.gdr.pin(element) as pin, self.gdr.cache() as cache:
            for m in self.gdr.map(element), self.gdr.map(self.gdr.map(element)), self.gdr.map(Foreign(
                    self.gdr.map(element))), cache.get(element), pin.map(), self.gdr.alloc((), "int64"):
                with m:
                    interface, view = m.__cuda_array_interface__, m.__buffer__(0)
                    self.assertEqual((m.nbytes, m.size, m.shape, interface["shape"], view.shape), (8, 1, (), (), ()))
                    m.fill(-7)
                    self.assertEqual((m.get64(0), view[()]), (-7, -7))
                    if numpy:
                        self.assertEqual([(a.shape, a.tolist()) for a in (m.array(), numpy.asarray(m))], 2 * [((), -7)])
                    del view
        self.assertEqual(self.mem.read(64), b"x" * 16 + b"\xf9" + b"\xff" * 7 + b"x" * 40)

    def test_what_is_known(self):
        self.assertEqual(self.mem.backend, "rm")
        self.assertEqual(self.mem.device, 0)
        self.assertTrue(self.mem.persistent)
        self.assertIn(self.mem.mapping_type, _lib.MAPPING_TYPES.values())
        self.assertEqual(_lib.MAPPING_TYPES, dict(enumerate(("none", "write-combining", "caching", "device"))))
        self.assertEqual(barcopy.library_version(), (2, 6))
        self.assertEqual(self.gdr.driver_version(), (2, 6))
        bar = self.gdr.bar_info()
        self.assertEqual(bar.used + bar.free, bar.total)
        self.assertRegex(repr(self.mem), "^<Memory of [0-9]+ bytes at 0x")
        self.mem.close()
        self.assertRegex(repr(self.mem), "^<closed Memory")

    def test_loaded_by_a_signal_handler(self):
        """Its thread is loading the library at that moment."""
        versions, load = [], _lib._load

        def interrupted():
            if not versions:
                versions.append(None)
                versions.append(barcopy.library_version())
            return load()

        def call():
            versions.append(barcopy.library_version())

        with mock.patch.object(_lib, "_loaded", None), mock.patch.object(_lib, "_load", interrupted):
            thread = threading.Thread(target=call, daemon=True)
            thread.start()
            thread.join(60)
        self.assertEqual(versions[1:], 2 * [(2, 6)])

    def test_sync_memops(self):
        """Of an allocation of the program, which begins without the attribute on this stand-in."""
        cuda, device = current_context(self), ctypes.c_uint64()

        def attribute():
            value = ctypes.c_int(-1)
            self.assertEqual(cuda.cuPointerGetAttribute(ctypes.byref(value), 6, device), 0)
            return value.value

        self.assertEqual(cuda.cuMemAlloc_v2(ctypes.byref(device), ctypes.c_size_t(4096)), 0)
        with self.gdr.map(device.value, 64, sync_memops=False) as m, \
                self.gdr.cache(sync_memops=False) as cache, cache.get(device.value, 64) as region:
            self.assertEqual((m.sync_memops, region.sync_memops, attribute()), (False, False, 0))
        with self.gdr.map(device.value, 64) as m:
            self.assertEqual((m.sync_memops, attribute()), (True, 1))
        with self.gdr.cache() as cache, cache.get(device.value, 64) as region:
            self.assertTrue(region.sync_memops)
        self.assertEqual(cuda.cuMemFree_v2(device), 0)

    def test_pin(self):
        with self.gdr.pin(self.mem.address + 70000, 100) as pin:
            info = pin.info()
            self.assertEqual((info.mapped, info.address % 65536), (False, 0))
            with pin.map() as m:
                self.mem.write(b"pinned", 70000)
                self.assertEqual(m.read(6), b"pinned")
                self.assertEqual(m.size, 100)
                m.put32(96, 1)
                for offset, call in (96, m.get64), (100, lambda offset: m.put32(offset, 1)):
                    self.assertRaisesRegex(ValueError, "not within the 100", call, offset)  # the pin is longer
                self.assertTrue(pin.info().mapped)
                self.raises_errno(errno.EAGAIN, pin.map)
                view = m.view()
            self.raises_errno(errno.EAGAIN, pin.map)  # the view keeps it mapped
            del view
            with pin.map() as m:
                self.assertEqual(m.read(6), b"pinned")
            self.assertFalse(pin.revoked)
        with self.gdr.pin(self.mem.address, 4) as short, short.map() as m:
            self.assertRaisesRegex(ValueError, "not within the 4", m.get64, 0)
        self.assertRaises(barcopy.Closed, pin.info)

    def test_cache(self):
        with self.gdr.cache(max_regions=1) as cache:
            with cache.get(self.mem.address, 64) as region:
                region.write(b"cached")
                self.assertEqual(region.size, 64)
            with cache.get(self.mem) as region:
                self.assertEqual(region.read(6), b"cached")
                view = region.view()
            stats = cache.stats()
            self.assertEqual((stats.hits, stats.misses, stats.regions_in_use), (1, 1, 1))
            cache.invalidate()
            self.assertEqual(bytes(view[:6]), b"cached")
            cache.trim()
            del view
            self.assertEqual(cache.stats().regions, 0)
        self.assertRaises(barcopy.Closed, cache.get, self.mem)
        self.raises_errno(errno.EINVAL, self.gdr.cache, validity=9)

    def test_memory_outlives_its_uses(self):
        """Closed memory is freed after its last mapping, pin or region."""
        cache = self.gdr.cache()
        for make in (self.gdr.map, self.gdr.pin, cache.get):
            mem = self.gdr.alloc(4096)
            use = make(mem)
            before = self.gdr.stats().unpins
            mem.close()
            self.assertRaises(ValueError, mem.read, 1)
            self.assertEqual(self.gdr.stats().unpins, before)
            use.close()
            self.assertGreater(self.gdr.stats().unpins, before)
            self.assertRaises(ValueError, make, mem)

    @with_numpy
    def test_host_memory(self):
        """A numpy array in page-locked memory is mapped in place; another one is refused."""
        with page_locked(self, 4096) as memory:
            a = memory.view("<i4").reshape(-1, 4)
            with self.gdr.map(a) as m:
                self.assertEqual((m.backend, m.array().shape, m.array().dtype), ("host", a.shape, a.dtype))
                m.array()[5, 2] = 77
                self.assertEqual(m.get32(4 * 22), 77)
            self.assertEqual(a[5, 2], 77)
        self.raises_errno(errno.EINVAL, self.gdr.map, numpy.zeros(1000))

    def test_export(self):
        fd = self.mem.export()
        try:
            with self.gdr.import_memory(fd, self.mem.size) as other:
                self.mem.write(b"one buffer")
                self.assertEqual(other.read(10), b"one buffer")
        finally:
            os.close(fd)

    def test_stats(self):
        stats = self.gdr.stats()
        self.assertFalse(stats.counting_copies)
        self.assertEqual((stats.pins, stats.copies_to), (1, 0))
        self.assertGreaterEqual(barcopy.stats().pins, 1)
        counted = subprocess.run(
            [sys.executable, "-X", "dev", "-W", "error", "-c", """
import barcopy
with barcopy.open() as gdr, gdr.alloc(4096) as mem:
    mem.write(b"12345678")
    mem.read(100)
    mem.put32(0, 1)
    s = gdr.stats()
    print(s.counting_copies, s.copies_to, s.bytes_to, s.copies_from, s.bytes_from, s.puts)
"""], env=dict(os.environ, GDRCOPY_STATS="1"), capture_output=True, check=True)
        self.assertEqual(counted.stdout.split(), b"True 1 8 1 100 1".split())
        self.assertIn(b"  copies to the GPU: 1, bytes 8", counted.stderr)

    def test_open_fails(self):
        os.environ["GDRCOPY_BACKEND"] = "nonsense"
        try:
            why = self.raises_errno(errno.EINVAL, barcopy.open)
            self.assertIn("nonsense", why.strerror)
            with mock.patch.object(_lib.library(), "barcopy_last_error", lambda: b""):  # as of another library
                self.assertEqual(_lib.error(errno.EIO).strerror, os.strerror(errno.EIO))
        finally:
            del os.environ["GDRCOPY_BACKEND"]

    def test_where_the_library_is(self):
        """Named by the environment, next to the module, or the system's; the error says what can be done."""
        inside = os.path.join(os.path.dirname(os.path.abspath(_lib.__file__)), "libgdrapi.so.2")
        for named, ignored, exists, wanted in ((None, 0, False, "libgdrapi.so.2"), ("/x.so", 0, False, "/x.so"),
                                               ("/x.so", 0, True, "/x.so"), (None, 0, True, inside),
                                               ("/x.so", 1, False, "libgdrapi.so.2")):
            fake = types.SimpleNamespace(flags=types.SimpleNamespace(ignore_environment=ignored))
            with self.subTest(named=named, ignored=ignored, exists=exists), mock.patch.object(_lib, "sys", fake), \
                    mock.patch.dict(os.environ, {"BARCOPY_LIBRARY": named or ""}), \
                    mock.patch.object(os.path, "exists", lambda _: exists), \
                    mock.patch.object(ctypes, "CDLL", side_effect=OSError("none")) as load:
                self.assertRaisesRegex(OSError, "names it" if wanted == "/x.so" else "none .the library comes with",
                                       _lib._load)
                load.assert_called_once_with(wanted, use_errno=True)

    def test_older_library(self):
        with mock.patch.dict(_lib._PROTOTYPES, gdr_of_the_future=(ctypes.c_int,)):
            library = _lib._Library()
        self.assertRaisesRegex(NotImplementedError, "gdr_of_the_future", library.gdr_of_the_future, 1)
        with mock.patch.dict(_lib._PROTOTYPES), mock.patch.object(_lib, "WORDS", ("put32", "of_the_future")):
            _lib._PROTOTYPES["barcopy_of_the_future"] = (ctypes.c_int,)
            words = _lib._Library().words
        self.assertEqual((words[0] > 1, words[1]), (True, 0))
        if _lib.extension:  # a word whose function is 0
            self.assertEqual(_lib.extension.word(mapping._Target.pack(1, 4096, 8, 1, *6 * [0]), object(), 0, 0, 1), -1)


class Types(Case):
    """Elements are copied as elements of one type, or as bytes; never as another type's bits."""

    def setUp(self):
        super().setUp()
        self.floats = self.gdr.alloc(8, "float32")

    def test_refused(self):
        """Every call that takes an array, of each kind of host memory; nothing is copied."""
        m = self.floats
        m.write(array.array("f", range(8)))
        before = m.read()
        others = [array.array("i", range(8)), array.array("d", [1.5]), (ctypes.c_int * 2)(1, 2),
                  memoryview(array.array("h", [1, 2])), array.array("i", []),
                  memoryview(bytes(8)).cast("q")]
        with contextlib.suppress(ImportError):  # of Python's own tests
            from _testbuffer import ndarray
            others.append(ndarray([(1.0, 2)], shape=[1], format="fi"))
        if numpy:
            others += [numpy.arange(4), numpy.arange(4, dtype=">f4"), numpy.zeros(2, "complex64"),
                       numpy.zeros(2, "<m8[ns]"), numpy.zeros((2, 2)), numpy.zeros(4, "?")]
        for other in others:
            calls = [m.write, m.read_into, lambda o: m.write_pieces([(0, b"x"), (4, o)]),
                     lambda o: m.read_pieces([(4, o)])]
            for call in calls:
                with self.subTest(other=repr(other), call=call.__name__), \
                        self.assertRaisesRegex(TypeError, "holds .*, the mapping float32"):
                    call(other)
        self.assertEqual(m.read(), before)
        self.assertRaisesRegex(TypeError, "buffer holds int32, the mapping float32", m.write, others[0])

    def test_taken(self):
        m = self.floats
        m.write(array.array("f", [1, 2, 3, 4]))
        m.write((ctypes.c_float * 2)(5, 6), 4)
        m.write(b"\0\0\x80\x3f", 12)  # bytes go with every type
        m.write(bytearray(4), 16)
        m.write(memoryview(b"\0\0\0\x40"), 20)
        m.write((ctypes.c_char * 4)(), 24)
        if numpy:  # records and strings
            m.write(numpy.zeros(1, "S4"), 24)
            m.write(numpy.zeros(1, "i2,i2"), 24)
            m.write(numpy.zeros(1, "V4"), 24)
        into = array.array("f", bytes(28))
        m.read_into(into)
        self.assertEqual(list(into), [1, 5, 6, 1, 0, 2, 0])
        m.write_bytes(array.array("i", [0x40400000]))
        self.assertEqual(m.read(4), b"\0\0\x40\x40")
        self.assertRaisesRegex(ValueError, "not one run of bytes", m.write_bytes, memoryview(b"0123456789")[::2])
        self.mem.write(array.array("d", [1.5]))  # memory without a type
        self.gdr.map(self.floats.address, 32).write(array.array("d", [1.5]))
        for read_only in (array.array("f", [7]), bytes(4)):
            m.write(memoryview(read_only).toreadonly())
        with self.gdr.map(m) as same, self.gdr.pin(m) as pin, pin.map() as pinned, \
                self.gdr.cache() as cache, cache.get(m) as region:
            for other in same, pinned, region:
                self.assertRaisesRegex(TypeError, "int32.*float32", other.write, array.array("i", [1]))

    def test_names(self):
        """One name for each type, which numpy, buffers and DLPack spell differently."""
        for typestr, name in (("<f4", "float32"), ("|u1", "uint8"), ("|b1", "bool"), ("<c16", "complex128"),
                              (">f4", ">f4"), (">i1", "int8"), ("<m8[ns]", "<m8[ns]"), ("|V8", "|V8")):
            self.assertEqual(_types.of_typestr(typestr), name)
        for letter in "bhilqBHILQfd?":
            view = memoryview(array.array(letter, [0]) if letter != "?" else bytes(1)).cast("B").cast(letter)
            name = _types.of_view(view)
            self.assertEqual((_types.itemsize(name), _types.of_dlpack(*_types.dlpack(name), 1)),
                             (view.itemsize, name))
            if name != "uint8":
                self.assertIn(letter, _types.formats(name))
            self.assertEqual(_types.of_typestr(_types.typestr(name)), name)
        self.assertEqual([_types.dlpack(name)[0] for name in ("int8", "uint8", "float64", "bfloat16", "complex64", "bool")],
                         [0, 1, 2, 4, 5, 6])  # DLDataTypeCode of dlpack.h
        self.assertEqual([_types.dlpack("float8_" + name) for name in (
            "e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")],
                         [(code, 8) for code in range(7, 15)])
        self.assertIsNone(_types.of_dlpack(2, 32, 4))
        self.assertIsNone(_types.in_numpy("bfloat16"))
        self.assertIsNone(_types.in_numpy("DLPack type 9.8x1"))

    def test_bfloat16(self):
        """A type that numpy lacks."""
        m = self.gdr.alloc((2, 2), "bfloat16")
        self.assertEqual((m.nbytes, m.size), (8, 4))
        self.assertRaisesRegex(TypeError, "uint16.*bfloat16", m.write, array.array("H", [0x3f80]))
        m.write_bytes(array.array("H", [0x3f80]))
        self.assertEqual(m.read(2), b"\x80\x3f")
        with self.assertRaisesRegex(AttributeError, "has no type bfloat16"):
            m.__cuda_array_interface__
        if numpy:
            with mock.patch.dict(sys.modules, ml_dtypes=None):  # as where it is not installed
                self.assertRaisesRegex(TypeError, "bfloat16: give a dtype.*int16.*torch", m.array)
            self.assertEqual(m.array("int16").tolist(), [[0x3f80, 0], [0, 0]])

    def test_alloc(self):
        for shape, dtype, size in (((3, 4), "float32", 48), (5, "int64", 40), ([2], "complex128", 32),
                                   (Number(3), "<i2", 6) if numpy else (3, "int16", 6), ((), "bool", 1)):
            with self.gdr.alloc(shape, dtype) as m:
                self.assertEqual(m.nbytes, size)
                interface = m.__cuda_array_interface__
                self.assertEqual((interface["data"], interface["stream"]), ((m.address, False), None))
                if numpy:
                    self.assertEqual(m.array().nbytes, size)
        if numpy:
            for dtype in (numpy.float16, numpy.dtype("<f2"), "f2"):
                self.assertEqual(self.gdr.alloc((2, 2), dtype).array().dtype, numpy.float16)
        for shape in (0, (3, 0), -1, (-2, -2)):
            self.assertRaises(ValueError, self.gdr.alloc, shape, "float32")
        self.assertRaises(ValueError, self.gdr.alloc, (2**62, 8), "float32")
        for dtype in ("float33", 7, object):
            self.assertRaises(TypeError, self.gdr.alloc, 4, dtype)
        self.assertRaises(TypeError, self.gdr.alloc, 1.5, "float32")
        with mock.patch.dict(sys.modules, numpy=None):  # as where it is not installed
            for dtype, name in ("<i2", "int16"), (float, "float64"), (bool, "bool"):
                self.assertEqual(self.gdr.alloc(4, dtype).dtype, name)
            self.assertRaisesRegex(TypeError, "no element type", self.gdr.alloc, 4, "float33")


class Foreign:
    """An array of a library that has DLPack alone."""

    def __init__(self, of):
        self.of, self.streams, self.version = of, [], None

    def __dlpack_device__(self):
        return self.of.__dlpack_device__()

    def __dlpack__(self, **named):
        self.streams.append(named.pop("stream", None))
        self.version = named.get("max_version")
        return self.of.__dlpack__(**named)


class Asking(Foreign):
    """As a consumer asks for its memory on a device."""

    def __init__(self, of, device):
        super().__init__(of)
        self.device = device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_):
        return self.of.__dlpack__(dl_device=self.device)


class Old(Foreign):
    def __dlpack__(self, stream=None):
        return super().__dlpack__()


class Both(Foreign):
    """DLPack and the CUDA array interface, as CuPy's and JAX's arrays have them."""

    def __init__(self, of, read_only=False, typestr=None, error=None, device=None):
        super().__init__(of)
        self.error, self.device = error, device
        self.__cuda_array_interface__ = dict(of.__cuda_array_interface__)
        self.__cuda_array_interface__["data"] = of.address, read_only
        if typestr:
            self.__cuda_array_interface__["typestr"] = typestr

    def __dlpack_device__(self):
        return self.device or super().__dlpack_device__()

    def __dlpack__(self, **named):
        if self.error:
            raise self.error
        return super().__dlpack__(**named)


class Exchange(Case):
    """With other libraries: DLPack both ways, streams, the buffer protocol."""

    def setUp(self):
        super().setUp()
        self.m = self.gdr.alloc((3, 4), "int32")
        self.m.write(array.array("i", range(12)))

    def test_dlpack_of_a_gpu(self):
        for kind in Foreign, Old:
            foreign = kind(self.m)
            with self.gdr.map(foreign) as m:
                self.assertEqual((m.address, m.nbytes, m.read()), (self.m.address, 48, self.m.read()))
                self.assertRaisesRegex(TypeError, "float32.*int32", m.write, array.array("f", [1]))
                if numpy:
                    self.assertEqual((m.array().shape, m.array().dtype), ((3, 4), numpy.int32))
                self.assertTrue(self.m.busy)
            self.assertFalse(self.m.busy)
        foreign = Foreign(self.m)
        self.gdr.map(foreign)
        self.assertEqual((foreign.streams, foreign.version), ([1], (1, 0)))  # the legacy stream, which map() waits for
        managed = Both(self.m, device=(13, 0))
        self.assertEqual((self.gdr.map(managed).address, managed.streams), (self.m.address, [1]))
        self.assertEqual(self.m.__dlpack_device__(), (2, 0))

    def test_dlpack_before_the_interface(self):
        """Of an object that has both: the interface alone neither waits nor keeps the memory (JAX)."""
        both = Both(self.m)
        with self.gdr.map(both) as m:
            self.assertEqual((both.streams, m.address, m.shape, m.read_only), ([1], self.m.address, (3, 4), False))
            both.of = None
            self.assertTrue(self.m.busy)  # by the capsule, whatever the object keeps
        self.assertFalse(self.m.busy)
        fixed = self.gdr.map(self.m, read_only=True)
        with self.gdr.pin(Both(self.m, read_only=True)) as pin, self.gdr.cache() as cache:
            for m in self.gdr.map(Both(self.m, read_only=True)), self.gdr.map(Both(fixed)), pin.map(), \
                    cache.get(Both(self.m, read_only=True)):
                with m:
                    self.assertTrue(m.read_only)

    def test_back_to_the_interface(self):
        """Where DLPack lacks the type or the device; an error of the computation stays one."""
        for named, dtype in ({"error": BufferError("dtype is not supported"), "typestr": "|V4"}, "|V4"), \
                ({"device": (10, 0)}, "int32"), ({"error": BufferError("no")}, "int32"):
            both = Both(self.m, **named)
            with self.gdr.map(both) as m:
                self.assertEqual((both.streams, m.dtype, m.shape, m.address), ([], dtype, (3, 4), self.m.address))
        for error in RuntimeError("the computation failed"), ValueError("deleted"), KeyboardInterrupt():
            self.assertRaises(type(error), self.gdr.map, Both(self.m, error=error))
        alone = Both(self.m, error=BufferError("no"))
        del alone.__cuda_array_interface__
        self.assertRaises(BufferError, self.gdr.map, alone)

        class Unfinished(Foreign):  # JAX of bfloat16
            @property
            def __cuda_array_interface__(self):
                raise RuntimeError("not of this type")

        self.assertEqual(self.gdr.map(Unfinished(self.m)).shape, (3, 4))

    def test_dlpack_keeps_the_memory(self):
        capsule = self.m.__dlpack__()
        before = barcopy.stats().unpins
        self.m.close()
        self.assertEqual(barcopy.stats().unpins, before)
        del capsule  # unused
        self.assertFalse(self.m.busy)
        self.assertEqual(barcopy.stats().unpins, before + 1)
        self.assertRaises(barcopy.Closed, self.m.__dlpack__)
        other = self.gdr.alloc(64, "int8")
        m = self.gdr.map(Foreign(other))
        other.close()
        before = barcopy.stats().unpins
        m.write(b"still there")
        view = m.view()
        m.close()
        del m
        gc.collect()
        self.assertEqual((barcopy.stats().unpins, bytes(view[:5])), (before, b"still"))
        del view
        gc.collect()
        if not mapping._fast:
            self.assertFalse(self.m.busy)  # the next call looks for what came back
        self.assertEqual(barcopy.stats().unpins, before + 2)

    @with_numpy
    def test_dlpack_outlives_the_module(self):
        """An array that is freed while the interpreter ends, after the module's globals."""
        late = """
import atexit, builtins, sys, test_barcopy, threading, unittest
import barcopy, numpy
gdr = barcopy.open()
gdr.bar_info()  # initialises CUDA
held = test_barcopy.page_locked(unittest.TestCase(), 4096)
mapping = gdr.map(held.__enter__())
a = numpy.from_dlpack(mapping)
"""
        keepers = {"sys": "sys.keep = a", "numpy": "numpy.keep = a", "builtins": "builtins.keep = a",
                   "cycle": "class C: pass\nc = C(); c.c, c.a = c, a",
                   "atexit": "atexit.register(lambda a=a: a[0])",
                   "thread": "threading.Thread(target=lambda a=a: threading.Event().wait(), daemon=True).start()"}
        path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), os.path.dirname(os.path.abspath(__file__))])
        for name, keep in keepers.items():
            with self.subTest(name):
                done = subprocess.run([sys.executable, "-c", late + keep + "\ndel a"], capture_output=True,
                                      env=dict(os.environ, PYTHONPATH=path))
                self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_dlpack_read_only(self):
        m = self.gdr.map(self.m, read_only=True)
        self.assertTrue(self.gdr.map(Foreign(m)).read_only)
        self.assertRaisesRegex(BufferError, "read-only", m.__dlpack__)
        for mapped, flags in (m, 1), (self.m, 0):
            capsule, end = mapped.__dlpack__(max_version=(1, 0)), mapped._given
            mapped.__dlpack__(max_version=(1, 0))
            self.assertIs(mapped._given, end)  # the end of an earlier one would look at each export again
            form = next(reversed(list(_dlpack._given.values())))[1]
            self.assertEqual((form.major, form.minor, form.flags), (1, 0, flags))
            del capsule, form
            _dlpack.sweep()
        for form, offsets in (_dlpack._Managed, (0, 48, 56)), (_dlpack._Versioned, (0, 4, 8, 16, 24, 32)), \
                (_dlpack._Tensor, (0, 8, 12, 16, 20, 21, 22, 24, 32, 40)):  # of dlpack.h
            self.assertEqual(tuple(getattr(form, name).offset for name, _ in form._fields_), offsets)
        self.assertEqual([" ".join(name for name, _ in form._fields_) for form in (
            _dlpack._Managed, _dlpack._Versioned, _dlpack._Tensor)], [
                "tensor context deleter", "major minor context deleter flags tensor",
                "data device_type device_id ndim code bits lanes shape strides byte_offset"])

    def test_dlpack_refused(self):
        class Elsewhere(Foreign):
            def __dlpack_device__(self):
                return 10, 0  # ROCm

        class Used(Foreign):
            def __dlpack__(self, **named):
                capsule = super().__dlpack__(**named)
                self.held = self.owner.map(Capsule(capsule))
                return capsule

        class Capsule(Foreign):
            def __dlpack_device__(self):
                return 2, 0

            def __dlpack__(self, **named):
                return self.of

        self.assertRaisesRegex(TypeError, "no GPU of CUDA", self.gdr.map, Elsewhere(self.m))
        used = Used(self.m)
        used.owner = self.gdr
        self.assertRaisesRegex(TypeError, "a used one", self.gdr.map, used)
        for change, text in ({"ndim": -1}, "-1 dimensions"), ({"ndim": 65}, "65 dimensions"), \
                ({"data": 0}, "address of"), \
                ({"data": 0, "length": 0}, "no bytes"), ({"bits": 12}, "of 12 bits"), ({"major": 2}, "DLPack 2"), \
                ({"length": -3}, "negative"), ({"length": 0}, "no bytes"), ({"bits": 0}, "elements of 0 bits"), \
                ({"lanes": 2, "bits": 16}, None), ({"strides": None}, None):
            class Changed(Foreign):
                def __dlpack__(self, change=change, **_):
                    capsule = self.of.__dlpack__(max_version=(1, 0))
                    form = next(reversed(list(_dlpack._given.values())))[1]
                    tensor, form.major = form.tensor, change.get("major", 1)
                    for name, value in change.items():
                        if name == "length":
                            tensor.shape[0] = value
                        else:
                            setattr(tensor, name, value)
                    if not change.get("data", 1):
                        tensor.byte_offset = 0
                    return capsule

            before = len(_dlpack._given)
            if not text:
                with self.gdr.map(Changed(self.m)) as m:
                    self.assertEqual((m.shape, m.itemsize), ((3, 4), 4))
                continue
            refusal = TypeError if "bits" in change else BufferError if "major" in change else ValueError
            self.assertRaisesRegex(refusal, text, self.gdr.map, Changed(self.m))
            _dlpack.sweep()
            self.assertEqual(len(_dlpack._given), before)  # refused, and given back
        most = self.gdr.map(self.gdr.alloc((1,) * 64, "uint8"))
        self.assertEqual(self.gdr.map(Foreign(most)).shape, most.shape)
        m = self.gdr.map(self.mem.address, 64)
        m.__dlpack__()  # nobody takes the capsule: it ends with the mapping, without another call
        self.assertEqual(len(_dlpack._given), before + 1)
        other = self.gdr.map(self.mem.address, 64)
        for call in lambda: self.mem.busy, other.close, lambda: self.gdr.map(self.mem.address, 64):  # and with others
            m.__dlpack__()
            call()
            self.assertEqual(len(_dlpack._given), before)
        m.__dlpack__()
        m.__dlpack__()
        self.assertEqual(len(_dlpack._given), before + 1)
        del m
        self.assertEqual(len(_dlpack._given), before)
        for named in {"copy": True}, {"dl_device": (1, 0)}:
            self.assertRaises(BufferError, self.m.__dlpack__, **named)
        self.assertRaises(BufferError, self.gdr.map(Device(self.m.address, (3,), "<m8[ns]")).__dlpack__)

    @with_numpy
    def test_dlpack_of_host_memory(self):
        """numpy takes page-locked memory in place; its refusal of a GPU's leaves nothing behind."""
        with page_locked(self, 4096) as a, self.gdr.map(a.view("<f4")) as m:
            self.assertEqual(m.__dlpack_device__(), (3, 0))
            b = numpy.from_dlpack(m)
            m.array()[5] = 2.5
            self.assertEqual((b.dtype, b[5]), (numpy.float32, 2.5))
            with self.gdr.map(Foreign(a.view("<f4"))) as again:
                self.assertRaises(BufferError, m.__dlpack__, dl_device=(2, 0))
                self.assertIn("dltensor", str(m.__dlpack__(dl_device=(3, 0))))
                self.assertEqual(numpy.from_dlpack(Asking(m, (1, 0)))[5], 2.5)  # as PyTorch asks
                self.assertEqual(again.address, m.address)
            self.assertRaisesRegex(ValueError, "not contiguous", self.gdr.map, Foreign(a[::2]))
            self.raises_errno(errno.EINVAL, self.gdr.map, Foreign(numpy.zeros(1000)))
            self.assertTrue(m.busy)
            del b
            self.assertFalse(m.busy)
            with self.assertRaises(AttributeError):
                m.__cuda_array_interface__
        self.assertRaises((RuntimeError, BufferError), numpy.from_dlpack, self.m)
        self.assertFalse(self.m.busy)

    def test_interface(self):
        interface = self.gdr.map(self.m, read_only=True).__cuda_array_interface__
        self.assertEqual((interface["shape"], interface["typestr"], interface["data"]),
                         ((3, 4), "<i4", (self.m.address, True)))
        self.assertEqual([interface[name] for name in ("strides", "stream", "version")], [None, None, 3])
        self.assertEqual(self.mem.__cuda_array_interface__["shape"], (self.mem.size,))
        self.m.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            self.m.__cuda_array_interface__

    def test_waits_for_the_stream(self):
        """map() waits for the stream that an array names."""
        delayed = """
import array, ctypes, barcopy
from test_barcopy import Device, Foreign
cuda, stream, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
with barcopy.open() as gdr, gdr.alloc(4096) as mem:
    assert not cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    assert not cuda.cuCtxSetCurrent(context)
    assert not cuda.cuStreamCreate(ctypes.byref(stream), 1)
    cuda.cuCtxSetCurrent(None)
    def fill(value, stream):
        cuda.cuCtxSetCurrent(context)
        assert not cuda.cuMemsetD8Async(ctypes.c_uint64(mem.address), ctypes.c_ubyte(value),
                                        ctypes.c_size_t(64), stream)
        cuda.cuCtxSetCurrent(None)
    for value in range(1, 40):
        fill(value, stream)
        if mem.read(1)[0] != value:
            break  # it is late, which a busy machine may hide a few times
    else:
        raise SystemExit("the work of a stream is never late")
    array = Device(mem.address, (64,), "|u1")
    for late, named in ((stream, stream.value), (ctypes.c_void_p(1), 1)):
        fill(named & 0xff or 7, late)
        array.__cuda_array_interface__["stream"] = named
        assert gdr.map(array).read(1)[0] == (named & 0xff or 7), named
    fill(9, ctypes.c_void_p(1))
    assert gdr.map(Foreign(mem)).read(1) == b"\\x09"
    current = ctypes.c_void_p(1)
    cuda.cuCtxGetCurrent(ctypes.byref(current))
    assert not current.value  # the caller's context is left as it was found
    for wrong, error in ((0, ValueError), (0xdead0, RuntimeError)):
        array.__cuda_array_interface__["stream"] = wrong
        try:
            gdr.map(array)
            raise SystemExit(f"stream {wrong}: no error")
        except error:
            pass
"""
        env = dict(os.environ, GDRSIM_ASYNC_DELAY_US="100000",
                   PYTHONPATH=os.pathsep.join([os.environ.get("PYTHONPATH", ""), os.path.dirname(__file__)]))
        done = subprocess.run([sys.executable, "-c", delayed], env=env, capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    @unittest.skipIf(sys.version_info < (3, 12), "the buffer protocol is Python's own affair before 3.12")
    def test_buffer(self):
        with memoryview(self.m) as view:
            self.assertEqual((view.format, view.shape), ("i", (3, 4)))
            view[0, 1] = -7
            self.assertEqual(self.m.get32(4), -7)
            self.m.close()
            self.assertTrue(self.m.busy)
        self.assertFalse(self.m.busy)
        other = self.gdr.alloc(4, "float8_e5m2")
        other.close()
        for closed in self.m, other:
            self.assertRaises(barcopy.Closed, self.mem.write, closed)
        self.assertTrue(memoryview(self.gdr.map(self.mem, read_only=True)).readonly)

    def test_star(self):
        names = {}
        exec("from barcopy import *", names)
        self.assertNotIn("open", names)
        self.assertIn("Mapping", names)


class Words(unittest.TestCase):
    """Facts that are written in two places agree."""

    def test_prototypes(self):
        header = ""
        for name in "gdrapi.h", "barcopy.h", "barcopy_queue.h":
            with open(os.path.join(ROOT, "include", name), encoding="utf-8") as f:
                header += re.sub(r"/\*.*?\*/", " ", f.read(), flags=re.S)
        for name, (_, *argtypes) in _lib._PROTOTYPES.items():
            found = re.search(rf"\b{name}\(([^)]*)\);", header)
            self.assertIsNotNone(found, name)
            args = [a for a in found.group(1).split(",") if a.strip() != "void"]
            self.assertEqual(len(args), len(argtypes), name)


if __name__ == "__main__":
    unittest.main()
