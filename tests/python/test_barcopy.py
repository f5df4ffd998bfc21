# SPDX-License-Identifier: MIT
"""The Python module on the stand-in: copies, views and their lifetimes, errors, every call once."""
import array
import contextlib
import ctypes
import errno
import gc
import io
import os
import re
import subprocess
import sys
import threading
import unittest

import barcopy
from barcopy import _lib, _memory

try:
    import numpy
except ImportError:
    numpy = None

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
with_numpy = unittest.skipIf(numpy is None, "numpy is not installed")


class Device:
    """What other libraries' arrays look like."""

    def __init__(self, address, shape, typestr, strides=None, read_only=False):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "version": 3,
                                         "data": (address, read_only), "strides": strides}


class Case(unittest.TestCase):
    def setUp(self):
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
        self.mem.write(b"")

    def test_same_memory(self):
        m = self.gdr.map(self.mem.address + 3, 900)
        self.mem.write(b"tensor", 103)
        self.assertEqual(m.read(6, 100), b"tensor")
        m.write(b"T", 100)
        self.assertEqual(self.mem.read(6, 103), b"Tensor")
        self.assertEqual((m.size, len(m), m.address), (900, 900, self.mem.address + 3))

    def test_refused(self):
        with self.assertRaisesRegex(ValueError, "not within the"):
            self.mem.write(b"x", self.mem.size)
        for offset in (-1, self.mem.size + 1):
            with self.assertRaises(ValueError):
                self.mem.read(1, offset)
        with self.assertRaises(ValueError):
            self.mem.read(-1)
        with self.assertRaisesRegex(ValueError, "not one run of bytes"):
            self.mem.write(memoryview(b"0123456789")[::2])
        with self.assertRaisesRegex(ValueError, "not one run of writable bytes"):
            self.mem.read_into(b"bytes")
        with self.assertRaises(TypeError):
            self.mem.write(42)
        with self.assertRaises(TypeError):
            self.mem.write("text")

    def test_pieces(self):
        a, b = bytearray(3), bytearray(100)
        self.mem.write_pieces([(0, b"one"), (64, b"two", True), (200, b"")])
        self.mem.write_pieces([(128, b"3" * 100)], fence=False)
        self.mem.fence(barcopy.AFTER_WRITE)
        self.mem.read_pieces([(64, a), (128, b, True)])
        self.assertEqual((a, b), (b"two", b"3" * 100))
        self.mem.read_pieces([])
        with self.assertRaises(ValueError):
            self.mem.write_pieces([(0, b"NEW"), (self.mem.size, b"x")])
        self.assertEqual(self.mem.read(3), b"one")  # none of it was done

    def test_words(self):
        self.mem.put32(8, 0xfffffffe)
        self.mem.put64(16, 2**64 - 2)
        self.assertEqual(self.mem.get32(8), 0xfffffffe)
        self.assertEqual(self.mem.get64(16), 2**64 - 2)
        for value in (-1, 2**32):
            with self.assertRaises(ValueError):
                self.mem.put32(8, value)
        self.raises_errno(errno.EINVAL, self.mem.put32, 9, 1)
        self.mem.wait32(8, ">", 5)
        self.mem.wait64(16, "==", 2**64 - 2, timeout=0)
        with self.assertRaises(TimeoutError) as caught:
            self.mem.wait32(8, "<", 5, timeout=0.15)
        self.assertIsInstance(caught.exception, barcopy.Error)
        with self.assertRaises(ValueError):
            self.mem.wait32(8, "=", 5)
        with self.assertRaises(ValueError):
            self.mem.wait32(8, "==", 5, timeout=-1)
        # Another thread runs while this one waits.
        threading.Timer(0.05, self.mem.put32, (0, 7)).start()
        self.mem.wait32(0, "==", 7, timeout=30)
        for use in (barcopy.BEFORE_READ, barcopy.AFTER_READ, barcopy.AFTER_WRITE, barcopy.FULL):
            self.mem.fence(use)
        self.raises_errno(errno.EINVAL, self.mem.fence, 77)
        self.mem.flush()

    def test_options(self):
        self.mem.set_copy_options(engine_read_min=barcopy.ENGINE_AUTO)
        self.mem.set_copy_options()


class Number:
    """Not an int, but one where one is asked for: as numpy's integers are."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


class Numbers(Case):
    """ctypes takes integers modulo their size, and refuses what is no int with an error of its own."""

    def test_too_large(self):
        mem, cache = self.mem, self.gdr.cache()
        for call in (lambda: self.gdr.alloc(2**64 + 4096),
                     lambda: self.gdr.alloc(-1),
                     lambda: self.gdr.alloc(4096, device=2**32),
                     lambda: self.gdr.map(mem.address, 2**64 + 4096),
                     lambda: self.gdr.map(mem.address + 2**64, 4096),
                     lambda: self.gdr.map(-1, 4096),
                     lambda: self.gdr.map(2**64 - 1, 2),
                     lambda: self.gdr.map(Device(mem.address, (2**62, 8), "<f4")),
                     lambda: self.gdr.pin(mem.address, 2**64 + 4096),
                     lambda: self.gdr.bar_info(2**32),
                     lambda: self.gdr.import_memory(2**32, 4096),
                     lambda: self.gdr.import_memory(0, 2**64 + 2**21),
                     lambda: self.gdr.cache(max_bytes=-1),
                     lambda: self.gdr.cache(max_regions=2**64),
                     lambda: self.gdr.cache(validity=2**32),
                     lambda: cache.get(mem.address, 2**64 + 4096),
                     lambda: cache.invalidate(-1, 4096),
                     lambda: cache.invalidate(0, 2**64),
                     lambda: cache.trim(-1),
                     lambda: mem.set_copy_options(engine_read_min=-1),
                     lambda: mem.set_copy_options(engine_write_min=2**64),
                     lambda: mem.fence(2**32 + 1)):
            with self.assertRaises(ValueError):
                call()
        mem.set_copy_options(engine_read_min=barcopy.ENGINE_AUTO)
        cache.invalidate(0, 2**64 - 1)

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
            mem.fence(kind(barcopy.FULL))
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
            with self.assertRaisesRegex(TypeError, "needs a size"):
                self.gdr.map(numpy.uint64(self.mem.address))

    def test_not_integers(self):
        mem = self.mem
        for no in (1.0, "1", None, b"1"):
            for call in (lambda: self.gdr.alloc(no), lambda: self.gdr.alloc(4096, no),
                         lambda: self.gdr.map(mem.address, no), lambda: mem.write(b"x", no),
                         lambda: mem.read(1, no), lambda: mem.put32(0, no), lambda: mem.put32(no, 0),
                         lambda: mem.get64(no), lambda: mem.wait32(no, "==", 0),
                         lambda: mem.wait64(0, "==", no), lambda: mem.write_pieces([(no, b"x")]),
                         lambda: mem.fence(no), lambda: mem.set_copy_options(engine_read_min=no),
                         lambda: self.gdr.cache(max_bytes=no), lambda: self.gdr.bar_info(no)):
                with self.assertRaises(TypeError):
                    call()


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
        with self.assertRaisesRegex(barcopy.Closed, "mapping is closed"):
            m.read(1)
        for call in (m.view, m.flush, lambda: m.write(b"x"), lambda: m.backend,
                     lambda: m.put32(0, 1)):
            with self.assertRaises(ValueError):
                call()
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
        """Of a range of memory of a context: all four are closed or gone, but the view is there."""
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
        """What nobody closes is closed when nobody has it."""
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

    def test_keeps_its_owner(self):
        class Tensor(Device):
            pass

        tensor = Tensor(self.mem.address, (16,), "|u1")
        gone = threading.Event()
        import weakref
        weakref.finalize(tensor, gone.set)
        m = self.gdr.map(tensor)
        del tensor
        view = m.view()
        m.close()
        del m
        gc.collect()
        self.assertFalse(gone.is_set())
        del view
        gc.collect()
        self.assertTrue(gone.is_set())

    def test_closed_keeps_no_owner(self):
        """What is closed, and has no user left, keeps no tensor, though itself it is still there."""
        import weakref

        class Tensor(Device):
            pass

        for make in (self.gdr.map, self.gdr.pin):
            tensor = Tensor(self.mem.address, (16,), "|u1")
            gone = threading.Event()
            weakref.finalize(tensor, gone.set)
            made = make(tensor)
            del tensor
            gc.collect()
            self.assertFalse(gone.is_set())
            made.close()
            gc.collect()
            self.assertTrue(gone.is_set(), made)

    def test_read_only(self):
        m = self.gdr.map(self.mem.address, 100, read_only=True)
        view = m.view()
        self.assertTrue(view.readonly)
        with self.assertRaises(TypeError):
            view[0] = 1
        for call in (lambda: m.write(b"x"), lambda: m.put32(0, 1), lambda: m.put64(0, 1),
                     lambda: m.write_pieces([(0, b"x")])):
            with self.assertRaisesRegex(TypeError, "read-only"):
                call()
        self.mem.write(b"seen")
        self.assertEqual(bytes(view[:4]), b"seen")
        if numpy:
            self.assertFalse(m.array().flags.writeable)

    def test_of_read_only(self):
        """An array that says of itself that it is read-only is not written to."""
        array = Device(self.mem.address, (16,), "|u1", read_only=True)
        with self.gdr.pin(array) as pin, self.gdr.cache() as cache:
            for m in self.gdr.map(array), pin.map(), cache.get(array):
                with m:
                    self.assertTrue(m.read_only and m.view().readonly, m)
                    with self.assertRaisesRegex(TypeError, "read-only"):
                        m.write(b"x")
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

    @unittest.skipUnless(hasattr(os, "fork"), "no fork here")
    def test_fork(self):
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            status = 1
            with contextlib.suppress(BaseException):
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
        self.assertEqual(m.array("float32", (4, 4)).shape, (4, 4))
        self.assertEqual(m.array("uint16", (4, -1)).shape, (4, 8))
        with self.assertRaises(ValueError):
            m.array("float32", (5, 5))

    def test_not_contiguous(self):
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            self.gdr.map(Device(self.mem.address, (3, 4), "<f4", (4, 12)))
        with self.assertRaisesRegex(ValueError, "not one run of bytes"):
            self.mem.write(numpy.zeros((4, 4))[:, 1])
        with self.assertRaisesRegex(ValueError, "read-only"):
            fixed = numpy.zeros(4)
            fixed.flags.writeable = False
            self.mem.read_into(fixed)
        # a stride of a length of 1 means nothing, and those of a contiguous array are contiguous
        with self.gdr.map(Device(self.mem.address, (1, 4), "<f4", (99, 4))) as m:
            self.assertEqual(m.size, 16)
        with self.gdr.map(Device(self.mem.address, (2, 4), "<f4", (16, 4))) as m:
            self.assertEqual(m.size, 32)

    def test_outlives_close(self):
        with self.gdr.map(self.mem.address, 64) as m:
            a = m.array("float32")[3:5].reshape(2, 1)
        a[1, 0] = 2.5
        self.assertEqual(self.mem.array("float32")[4], 2.5)
        self.assertTrue(m.busy)
        del a
        self.assertFalse(m.busy)


class Objects(Case):
    def test_what_can_be_mapped(self):
        with self.assertRaisesRegex(TypeError, "needs a size"):
            self.gdr.map(self.mem.address)
        with self.assertRaises(TypeError):
            self.gdr.map(self.mem, 5)
        with self.assertRaisesRegex(TypeError, "cannot map a str"):
            self.gdr.map("text")
        with self.assertRaises(ValueError):
            self.gdr.map(self.mem.address, 0)
        with self.assertRaises(ValueError):
            self.gdr.map(Device(self.mem.address, (0, 5), "<f4"))
        for address, size in ((-1, 10), (1 << 64, 10), (self.mem.address + (1 << 64), 10),
                              (self.mem.address, (1 << 64) + 10)):
            with self.assertRaisesRegex(ValueError, "in no address space"):
                self.gdr.map(address, size)
        why = self.raises_errno(errno.EINVAL, self.gdr.map, 0x1000, 10)
        self.assertIn("0x1000", why.strerror)
        self.assertTrue(_memory.is_contiguous((), None, 4))

    def test_numbers_that_do_not_fit(self):
        """ctypes cuts them off, and calls with another number."""
        gdr, mem = self.gdr, self.mem
        with gdr.cache() as cache:
            for call, *arguments in (
                    (gdr.alloc, -1), (gdr.alloc, (1 << 64) + 4096), (gdr.alloc, 4096, 1 << 32),
                    (gdr.import_memory, 1 << 32, 1 << 21), (gdr.import_memory, 0, -1),
                    (gdr.import_memory, 0, 1 << 21, 1 << 32), (gdr.bar_info, 1 << 32),
                    (gdr.cache, 1 << 32), (gdr.cache, 0, -1), (gdr.cache, 0, 0, -1),
                    (gdr.cache, 0, 0, 0, 1 << 64), (cache.trim, -1), (cache.invalidate, -1),
                    (cache.invalidate, 0, -1), (mem.set_copy_options, -1),
                    (mem.set_copy_options, 0, -1), (mem.set_copy_options, 0, 1 << 64),
                    (mem.fence, (1 << 32) + 1)):
                with self.subTest(call=call.__name__, arguments=arguments), \
                        self.assertRaisesRegex(ValueError, "is out of range"):
                    call(*arguments)
            with self.assertRaises(TypeError):
                gdr.alloc("4096")
        self.raises_errno(errno.EINVAL, gdr.import_memory, -1, 1 << 21)

    def test_what_is_known(self):
        self.assertEqual(self.mem.backend, "rm")
        self.assertEqual(self.mem.device, 0)
        self.assertTrue(self.mem.persistent)
        self.assertIn(self.mem.mapping_type, _lib.MAPPING_TYPES.values())
        self.assertIn(self.mem.sync_memops, (False, True))
        self.assertEqual(barcopy.library_version(), (2, 6))
        self.assertEqual(self.gdr.driver_version(), (2, 6))
        bar = self.gdr.bar_info()
        self.assertEqual(bar.used + bar.free, bar.total)
        self.assertRegex(repr(self.mem), "^<Memory of [0-9]+ bytes at 0x")
        self.mem.close()
        self.assertRegex(repr(self.mem), "^<closed Memory")

    def test_pin(self):
        with self.gdr.pin(self.mem.address + 70000, 100) as pin:
            info = pin.info()
            self.assertEqual((info.mapped, info.address % 65536), (False, 0))
            with pin.map() as m:
                self.mem.write(b"pinned", 70000)
                self.assertEqual(m.read(6), b"pinned")
                self.assertEqual(m.size, 100)
                self.assertTrue(pin.info().mapped)
                self.raises_errno(errno.EAGAIN, pin.map)
                view = m.view()
            self.raises_errno(errno.EAGAIN, pin.map)  # the view keeps it mapped
            del view
            with pin.map() as m:
                self.assertEqual(m.read(6), b"pinned")
            self.assertFalse(pin.revoked)
        with self.assertRaises(barcopy.Closed):
            pin.info()

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
        with self.assertRaises(barcopy.Closed):
            cache.get(self.mem)
        self.raises_errno(errno.EINVAL, self.gdr.cache, validity=9)

    def test_memory_outlives_its_uses(self):
        """Memory that is closed is freed after the last of what was made of it."""
        cache = self.gdr.cache()
        for make in (self.gdr.map, self.gdr.pin, cache.get):
            mem = self.gdr.alloc(4096)
            use = make(mem)
            before = self.gdr.stats().unpins
            mem.close()
            with self.assertRaises(ValueError):
                mem.read(1)
            self.assertEqual(self.gdr.stats().unpins, before)
            use.close()
            self.assertGreater(self.gdr.stats().unpins, before)
            with self.assertRaises(ValueError):
                make(mem)

    @with_numpy
    def test_host_memory(self):
        """A numpy array in memory of cudaHostAlloc is mapped as it is; another one is refused."""
        cuda, context, host = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
        self.assertEqual(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), 0)
        self.assertEqual(cuda.cuCtxSetCurrent(context), 0)
        self.assertEqual(cuda.cuMemHostAlloc(ctypes.byref(host), ctypes.c_size_t(4096), 0), 0)
        a = numpy.frombuffer((ctypes.c_char * 4096).from_address(host.value), "<i4").reshape(-1, 4)
        with self.gdr.map(a) as m:
            self.assertEqual((m.backend, m.array().shape, m.array().dtype), ("host", a.shape, a.dtype))
            m.array()[5, 2] = 77
            self.assertEqual(m.get32(4 * 22), 77)
        self.assertEqual(a[5, 2], 77)
        self.raises_errno(errno.EINVAL, self.gdr.map, numpy.zeros(1000))
        self.assertEqual(cuda.cuMemFreeHost(host), 0)
        self.assertEqual(cuda.cuDevicePrimaryCtxRelease_v2(0), 0)

    def test_export(self):
        fd = self.mem.export()
        try:
            with self.gdr.import_memory(fd, self.mem.size) as other:
                self.mem.write(b"one buffer")
                self.assertEqual(other.read(10), b"one buffer")
        finally:
            os.close(fd)

    def test_no_events(self):
        self.raises_errno(errno.ENOTSUP, self.gdr.event_fd)
        self.assertIsNone(self.gdr.next_revoked())

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
        finally:
            del os.environ["GDRCOPY_BACKEND"]

    def test_older_library(self):
        with self.assertRaisesRegex(NotImplementedError, "gdr_of_the_future"):
            _lib._Missing("gdr_of_the_future")(1)


class Words(unittest.TestCase):
    """What stands twice must be the same."""

    def test_prototypes(self):
        header = ""
        for name in "gdrapi.h", "barcopy.h":
            with open(os.path.join(ROOT, "include", name), encoding="utf-8") as f:
                header += re.sub(r"/\*.*?\*/", " ", f.read(), flags=re.S)
        for name, (_, *argtypes) in _lib._PROTOTYPES.items():
            found = re.search(rf"\b{name}\(([^)]*)\);", header)
            self.assertIsNotNone(found, name)
            args = [a for a in found.group(1).split(",") if a.strip() != "void"]
            self.assertEqual(len(args), len(argtypes), name)

    def test_versions(self):
        with open(os.path.join(ROOT, "Makefile"), encoding="utf-8") as f:
            version = re.search(r"^VERSION := (.*)$", f.read(), re.M).group(1)
        with open(os.path.join(ROOT, "python", "pyproject.toml"), encoding="utf-8") as f:
            self.assertIn(f'\nversion = "{version}"\n', f.read())
        self.assertEqual(barcopy.__version__, version)

    def test_readme(self):
        with open(os.path.join(ROOT, "python", "README.md"), encoding="utf-8") as f:
            readme = f.read()
        example = re.search(r"```python\n(.*?)```\n\nprints `(.*?)`", readme, re.S)
        self.assertEqual(len(example.group(1).splitlines()), 5)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(example.group(1), {})  # the very text
        self.assertEqual(out.getvalue(), example.group(2) + "\n")


if __name__ == "__main__":
    unittest.main()
