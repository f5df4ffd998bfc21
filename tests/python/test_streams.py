# SPDX-License-Identifier: MIT
"""The parameter stream: which call waits for what, in which form a stream is given, and what is refused."""
import ctypes
import os
import struct
import sys
import threading
import types
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import barcopy  # noqa: E402
from balance import Balanced  # noqa: E402
from barcopy import _stream, mapping  # noqa: E402
from producers import Cuda, Torch, late  # noqa: E402


class Foreign:
    """An array by the interface, without a stream."""

    def __init__(self, address):
        self.__cuda_array_interface__ = dict(shape=(64,), typestr="|u1", data=(address, False), version=3)


class ByDlpack:
    def __init__(self, device):
        self.__dlpack_device__ = lambda: device

    def __dlpack__(self, **_):
        raise AssertionError("asked, which would end the capture")


class Streams(Balanced):
    def setUp(self):
        super().setUp()
        self.cuda = Cuda()
        self.torch = Torch(self.cuda)
        self.gdr = barcopy.open()
        self.addCleanup(self.gdr.close)
        self.mem = self.gdr.alloc(4096)
        self.stream = self.cuda.stream()
        self.turn = 0

    def pending(self, stream=None):
        """Work in a stream that writes 64 bytes of a new value a little later; returns that value."""
        self.turn += 1
        with late(60):
            self.cuda.fill(self.mem.address, self.turn, 64, self.stream if stream is None else stream)
        return self.turn

    def test_forms(self):
        """Of the stream of each library; 0 is the legacy default stream to all of them."""
        handle = self.stream
        forms = [handle, types.SimpleNamespace(__cuda_stream__=lambda: (0, handle)),
                 types.SimpleNamespace(__cuda_stream__=(0, handle)), types.SimpleNamespace(cuda_stream=handle),
                 types.SimpleNamespace(ptr=handle)]
        for form in forms:
            value = self.pending()
            self.assertEqual(self.mem.read(1, stream=form), bytes([value]))
        for form in 0, 1, types.SimpleNamespace(cuda_stream=0), types.SimpleNamespace(ptr=0):
            value = self.pending(1)
            self.assertEqual(self.mem.read(1, stream=form), bytes([value]))
        self.mem.read(1, stream=2)

    def test_current(self):
        """PyTorch's current stream, each time anew."""
        self.assertRaisesRegex(ValueError, "torch is not imported", self.mem.read, stream="current")
        with mock.patch.dict(sys.modules, torch=self.torch), self.gdr.map(self.mem, stream="current") as m:
            for _ in range(2):
                value = self.pending(self.torch.stream)
                self.assertEqual(m.read(1), bytes([value]))
                self.torch.stream = self.cuda.stream()
            # What PyTorch's builds with CUDA have: the handle alone, of an ordinal.
            self.torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=[self.torch.stream].__getitem__)
            value = self.pending(self.torch.stream)
            self.torch.stream = None
            self.assertEqual(m.read(1), bytes([value]))
            self.torch._C._cuda_getCurrentRawStream = [0].__getitem__
            value = self.pending(1)
            self.assertEqual(m.read(1), bytes([value]))
        self.assertRaisesRegex(ValueError, "no stream 'other'", self.mem.read, stream="other")

    def test_each_call(self):
        """Each copy waits for a stream that it is given, or that map() was given, and for none else."""
        buffer = bytearray(64)
        calls = {"write": lambda m, **s: m.write(b"x", 64, **s),
                 "write_bytes": lambda m, **s: m.write_bytes(b"x", 64, **s),
                 "fill": lambda m, **s: m.part.fill(0, **s),
                 "read": lambda m, **s: m.read(1, **s), "read_into": lambda m, **s: m.read_into(buffer, **s),
                 "write_pieces": lambda m, **s: m.write_pieces([(64, b"x")], **s),
                 "read_pieces": lambda m, **s: m.read_pieces([(64, bytearray(1))], **s)}
        address, size = self.mem.address, 256
        for name, call in calls.items():
            with self.subTest(name):
                for default, given, waits in ((None, {}, False), (None, {"stream": self.stream}, True),
                                              (self.stream, {}, True), (self.stream, {"stream": None}, False),
                                              (None, {"stream": None}, False)):
                    with self.gdr.map(address, size, stream=default) as m:
                        m.part = self.gdr.map(address + 64, 64, stream=default)
                        before = self.mem.read(1)
                        value = self.pending()
                        call(m, **given)
                        self.assertEqual(self.mem.read(1), bytes([value]) if waits else before)
                    self.cuda.synchronize(self.stream)
        value = self.pending()
        with self.gdr.map(Foreign(address), stream=self.stream) as m:  # map() itself
            self.assertEqual(m.read(1, stream=None), bytes([value]))

    def test_words_and_views_do_not_wait(self):
        with self.gdr.map(self.mem.address, 256, stream=self.stream) as m:
            before = m.get32(0)
            self.pending()
            m.put32(128, 1)
            self.assertEqual((m.get32(0), m.view()[0]), (before, before & 0xff))
            self.cuda.synchronize(self.stream)
            self.assertNotEqual(m.get32(0), before)

    def test_other_threads_run(self):
        came = threading.Event()
        with late(300):
            self.cuda.fill(self.mem.address, 9, 64, self.stream)
        thread = threading.Thread(target=came.set)
        reader = threading.Thread(target=lambda: self.mem.read(1, stream=self.stream))
        reader.start()
        thread.start()
        self.assertTrue(came.wait(60))
        reader.join()
        thread.join()

    def test_context_of_the_caller(self):
        """It stays, whether it is the GPU's primary one, another, or none."""
        other, primary, current = (ctypes.c_void_p() for _ in range(3))
        self.cuda.call("cuCtxGetCurrent", ctypes.byref(primary))
        contexts = [None, primary.value]
        if not self.cuda.lib.cuCtxCreate_v2(ctypes.byref(other), 0, 0):
            self.addCleanup(self.cuda.lib.cuCtxDestroy_v2, other)
            self.cuda.call("cuCtxPopCurrent_v2", None)
            contexts.append(other.value)
        self.addCleanup(self.cuda.call, "cuCtxSetCurrent", primary)
        for context in contexts:
            self.cuda.call("cuCtxSetCurrent", ctypes.c_void_p(primary.value))
            values = self.pending(), self.pending(1)
            self.cuda.call("cuCtxSetCurrent", ctypes.c_void_p(context))
            self.mem.read(1, stream=self.stream)
            self.assertEqual(self.mem.read(1, stream=1), bytes([values[1]]))
            self.cuda.call("cuCtxGetCurrent", ctypes.byref(current))
            self.assertEqual(current.value, context)

    def test_primary_context_is_current(self):
        """As in a program of PyTorch: it is neither retained nor made current again; without it, it is."""
        self.mem.read(1, stream=self.stream)
        driver, names = _stream._driver(), []

        class Recorder:
            def __getattr__(self, name):
                names.append(name)
                return getattr(driver, name)

        with mock.patch.object(_stream, "_driver", Recorder), mock.patch.object(_stream, "_fast", lambda *_: -1):
            value = self.pending()
            self.assertEqual(self.mem.read(1, stream=self.stream), bytes([value]))
            self.assertEqual(names, ["addresses", "cuCtxGetCurrent", "cuStreamIsCapturing", "cuStreamSynchronize"])
            names.clear()
            self.mem.read(1, stream=2)  # of such a question a child dies that is forked later
            self.assertEqual(names, ["addresses", "cuCtxGetCurrent", "cuStreamSynchronize"])
            current = ctypes.c_void_p()
            self.cuda.call("cuCtxPopCurrent_v2", ctypes.byref(current))
            self.addCleanup(self.cuda.call, "cuCtxPushCurrent_v2", current)
            self.mem.read(1, stream=self.stream)
            self.assertIn("cuDevicePrimaryCtxRetain", names)
            self.assertLess(names.index("cuCtxPopCurrent_v2"), names.index("cuDevicePrimaryCtxRelease_v2"))
            for name in "cuCtxGetCurrent", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuStreamSynchronize":
                with self.subTest(name), mock.patch.object(driver, name, lambda *_: 3):
                    try:
                        self.mem.read(1, stream=self.stream)
                    except RuntimeError as why:
                        self.assertIn(name.split("_")[0] + " fails with CUDA's error 3", str(why))
                        left = ctypes.c_void_p(1)
                        self.cuda.call("cuCtxGetCurrent", ctypes.byref(left))
                        self.assertIsNone(left.value)
                    else:
                        self.fail("no error")
        if mapping._fast:  # all of it is the extension's
            self.cuda.call("cuCtxPushCurrent_v2", current)
            with mock.patch.object(driver, "cuCtxGetCurrent", None):
                value = self.pending()
                self.assertEqual(self.mem.read(1, stream=self.stream), bytes([value]))
                current, _, synchronize = struct.unpack("3Q", driver.addresses)
                with mock.patch.object(driver, "addresses", struct.pack("3Q", current, 0, synchronize)):
                    self.mem.read(1, stream=2)
            self.cuda.call("cuCtxPopCurrent_v2", None)

    def test_capture(self):
        """A stream that captures a graph is refused in words, and goes on capturing."""
        graph = ctypes.c_void_p()
        for blocking in False, True:
            stream = self.cuda.stream(not blocking)
            self.cuda.call("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), 2)
            for asked in (stream, 1, 0) if blocking else (stream,):
                self.assertRaisesRegex(RuntimeError, f"stream {asked or 1:#x} is part of the capture of a CUDA graph",
                                       self.mem.read, stream=asked)
                self.assertRaisesRegex(RuntimeError, "stream=None", self.gdr.map, self.mem, stream=asked)
                if asked == 1:  # a producer of DLPack makes it wait for its own
                    self.assertRaisesRegex(RuntimeError, "capture of a CUDA graph", self.gdr.map, ByDlpack((2, 0)))
                    self.assertRaisesRegex(AssertionError, "asked", self.gdr.map, ByDlpack((3, 0)))  # of the host
            self.mem.read(1)
            for code in 900, 901, 906:
                with mock.patch.object(_stream._driver(), "cuStreamIsCapturing", lambda *_, code=code: code):
                    self.assertRaisesRegex(RuntimeError, "capture of a CUDA graph", _stream.refuse_capture, 5)
            self.cuda.call("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
            self.assertTrue(graph.value)

    def test_refused(self):
        before = barcopy.stats()
        for wrong, error in ((-1, ValueError), (2**64, ValueError), (1.0, TypeError), (True, TypeError),
                             (b"1", TypeError), ([], TypeError), (0xdead0, RuntimeError),
                             (types.SimpleNamespace(__cuda_stream__=lambda: (1, self.stream)), TypeError)):
            self.assertRaises(error, self.mem.read, 1, stream=wrong)
            self.assertRaises(error, self.gdr.map, self.mem, stream=wrong)
        self.assertEqual(barcopy.stats(), before)
        self.assertRaises(TypeError, self.gdr.map, self.mem, None, True)
        self.mem.close()
        self.assertRaises(barcopy.Closed, self.mem.read, 1, stream=self.stream)


if __name__ == "__main__":
    unittest.main()
