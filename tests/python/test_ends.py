# SPDX-License-Identifier: MIT
"""
Ends: a parent that is closed before its child, for each pair; host buffers, which no call keeps; forked children,
which release nothing.
"""
import array
import ctypes
import errno
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import barcopy  # noqa: E402
from balance import Balanced  # noqa: E402
from barcopy import _lib  # noqa: E402
from test_parameters import Recorder  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None


class Interface:
    def __init__(self, address, count=64):
        self.__cuda_array_interface__ = dict(shape=(count,), typestr="|u1", version=3, data=(address, False))


class Foreign:
    """By DLPack alone."""

    def __init__(self, of):
        self.__dlpack__, self.__dlpack_device__ = of.__dlpack__, of.__dlpack_device__


class Pairs(Balanced):
    """(parent, child) pairs: the child works on, and its end is the parent's."""

    def setUp(self):
        super().setUp()
        self.gdr = barcopy.open()
        self.addCleanup(self.gdr.close)

    def unpins(self):
        gc.collect()
        return barcopy.stats().unpins

    def uses(self, parent, child, use, more=(), ends=1):
        """Closes the parent, uses the child, ends it: nothing is released before, and all of it then."""
        before = self.unpins()
        parent.close()
        self.assertTrue(parent.closed)
        self.assertEqual(self.unpins(), before, "released under its child")
        use(child[0])
        for call in more:
            self.assertRaises(barcopy.Closed, call)
        if hasattr(child[0], "close"):
            child[0].close()
        child.clear()
        getattr(parent, "busy", None)  # gives back a capsule that nobody took
        self.assertEqual(self.unpins(), before + ends)

    def writes(self, m):
        m.put32(0, 7)
        self.assertEqual(m.get32(0), 7)

    def test_memory(self):
        """And what is made of it. A pin or a mapping of its own is another end, at once."""
        for make, use, ends in (
                (self.gdr.map, self.writes, 2), (self.gdr.pin, lambda pin: self.writes(pin.map()), 2),
                (lambda mem: self.gdr.map(Foreign(mem)), self.writes, 2),
                (lambda mem: mem.view(), lambda view: self.assertEqual(len(view), 4096), 1),
                (lambda mem: mem.__dlpack__(max_version=(1, 0)), lambda capsule: None, 1),
                (lambda mem: memoryview(mem.view())[5:9], lambda view: view.tolist(), 1)):
            mem = self.gdr.alloc((4096,), dtype="uint8")
            child = [make(mem)]
            self.uses(mem, child, use, [lambda mem=mem: mem.read(1), mem.view, lambda mem=mem: self.gdr.map(mem),
                                        lambda mem=mem: self.gdr.pin(mem), mem.__dlpack__], ends)

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_arrays(self):
        for make in lambda m: m.array(), numpy.asarray, lambda m: m.array("int32")[2:3], lambda m: m.array().T:
            mem = self.gdr.alloc((16,), dtype="float32")
            self.uses(mem, [make(mem)], lambda a: a.tolist(), [mem.array])

    def test_mapping(self):
        mem = self.gdr.alloc(4096)
        for make in lambda m: m.view(), lambda m: m.view()[5:], lambda m: m.__dlpack__():
            m = self.gdr.map(mem.address, 64)
            self.uses(m, [make(m)], lambda child: None, [m.view, lambda m=m: m.get32(0), m.__dlpack__])

    def test_pin(self):
        mem = self.gdr.alloc(4096)
        pin = self.gdr.pin(mem.address, 64)
        child = [pin.map()]
        self.uses(pin, child, self.writes, [pin.map, pin.info, lambda: pin.revoked])

    def test_cache(self):
        mem = self.gdr.alloc(1 << 20)
        cache = self.gdr.cache()
        child = [cache.get(mem.address, 65536)]
        self.uses(cache, child, self.writes, [lambda: cache.get(mem.address, 64), cache.trim, cache.stats,
                                              cache.invalidate])

    def test_cache_and_a_region_of_memory(self):
        """The region has two parents; the memory ends behind the cache."""
        for first in "cache", "memory":
            mem, cache = self.gdr.alloc(1 << 20), self.gdr.cache()
            region = cache.get(mem)
            before = self.unpins()
            parents = [cache, mem] if first == "cache" else [mem, cache]
            for parent in parents:
                parent.close()
            self.writes(region)
            self.assertEqual(self.unpins(), before)
            region.close()
            self.assertEqual(self.unpins(), before + 2)

    def test_context(self):
        """Ends what was made of it; what is in use ends later."""
        own = barcopy.open()
        mem = own.alloc(4096)
        made = [own.map(mem), own.pin(mem), own.cache(), own.queue(), own.port(), mem]
        made.append(made[2].get(mem))
        made.append(made[1].map())
        view = mem.view()
        own.close()
        self.assertTrue(all(thing.closed for thing in made))
        for call in (lambda: own.alloc(64), lambda: own.map(mem.address, 64), own.queue, own.port, own.cache,
                     own.stats, own.driver_version, own.bar_info, lambda: own.pin(mem.address, 64)):
            self.assertRaises(barcopy.Closed, call)
        view[0] = 1
        self.assertTrue(mem.busy)
        del view
        self.assertFalse(mem.busy)

    def test_owner(self):
        """An array of another library ends behind the last user of its mapping."""
        mem = self.gdr.alloc(4096)
        cache = self.gdr.cache()
        for make in self.gdr.map, lambda owner: self.gdr.pin(owner).map(), cache.get:
            gone = []
            owner = Interface(mem.address)
            owner.end = End(gone)
            m = make(owner)
            view = m.view()
            del owner
            for step in m.close, None:
                gc.collect()
                self.assertEqual(gone, [])
                if step:
                    step()
            del view, m
            gc.collect()
            self.assertEqual(gone, [1])


class End:
    def __init__(self, gone):
        self.gone = gone

    def __del__(self):
        self.gone.append(1)


class Buffers(Balanced):
    """Host memory is given back when a call has ended, by an error too."""

    def setUp(self):
        super().setUp()
        self.gdr = barcopy.open()
        self.addCleanup(self.gdr.close)
        self.mem = self.gdr.alloc((64,), dtype="uint8")

    @staticmethod
    def kinds(writable):
        yield bytearray(range(64))
        yield array.array("B", range(64))
        yield (ctypes.c_ubyte * 64)()
        yield memoryview(bytearray(64))
        yield bytearray()
        if numpy:
            yield numpy.zeros(64, "u1")
        if not writable:
            yield bytes(range(64))
            yield memoryview(bytes(range(64)))
            yield memoryview(bytearray(64)).toreadonly()
            yield b"".join([b"x"] * 64)

    def test_calls(self):
        mem, queue, port = self.mem, self.gdr.queue(), self.gdr.port()
        self.addCleanup(queue.close)
        calls = [(False, mem.write), (False, mem.write_bytes), (True, mem.read_into),
                 (False, lambda b: mem.write_pieces([(0, b), (0, b, True)])),
                 (True, lambda b: mem.read_pieces([(0, b), (0, b)])), (False, lambda b: mem.post_line(0, b)),
                 (False, lambda b: queue.send(b, timeout=0)), (False, lambda b: mem.write(b, 60)),
                 (True, lambda b: mem.read_into(b, 60)), (False, lambda b: mem.write_pieces([(0, b), (60, b)])),
                 (False, lambda b: mem.write(b, -1)), (False, lambda b: mem.put32(0, b)),
                 (False, lambda b: self.gdr.map(b)), (False, lambda b: mem.fill(b)),
                 (False, lambda b: port.answer({b if isinstance(b, bytes) else 1: b}))]
        for place, (writable, call) in enumerate(calls):
            for buffer in self.kinds(writable):
                with self.subTest(call=place, kind=type(buffer).__name__):
                    before = sys.getrefcount(buffer)
                    for _ in range(3):
                        try:
                            call(buffer)
                        except (ValueError, TypeError, barcopy.Error):
                            pass
                    self.assertEqual(sys.getrefcount(buffer), before)
                    if isinstance(buffer, (bytearray, array.array)):  # refused while somebody holds it
                        buffer.append(1)
                    if isinstance(buffer, memoryview):
                        buffer.release()
        del mem, calls, call, buffer

    def test_what_is_mapped(self):
        """An object that map(), pin() and get() refuse, or whose mapping has ended."""
        cache = self.gdr.cache()
        for make in self.gdr.map, self.gdr.pin, cache.get:
            for owner in Interface(self.mem.address), Interface(0x1000), Interface(self.mem.address, 0), \
                    Foreign(self.mem):
                before = sys.getrefcount(owner)
                try:
                    make(owner).close()
                except (ValueError, barcopy.Error):
                    pass
                gc.collect()
                self.assertEqual(sys.getrefcount(owner), before)
        del make


CONSUMER = """
/* Frees an array of DLPack as C code does: whatever exception is on its way, in its own thread, behind Python's end. */
#include <pthread.h>

extern void *PyCapsule_GetPointer(void *, const char *);
extern void *PyCapsule_New(void *, const char *, void (*)(void *));
extern int PyCapsule_SetName(void *, const char *);

static void end(void *capsule)
{
	char *managed = PyCapsule_GetPointer(capsule, "consumed");

	(*(void (**)(void *))(managed + 56))(managed); /* of DLManagedTensor: its deleter */
}

void *consume(void *capsule)
{
	void *managed = PyCapsule_GetPointer(capsule, "dltensor");

	PyCapsule_SetName(capsule, "used_dltensor");
	return PyCapsule_New(managed, "consumed", end);
}

static void *kept;

void keep(void *capsule)
{
	kept = PyCapsule_GetPointer(capsule, "dltensor");
	PyCapsule_SetName(capsule, "used_dltensor");
}

static void *end_kept(void *unused)
{
	if (kept)
		(*(void (**)(void *))((char *)kept + 56))(kept);
	kept = 0;
	return unused;
}

void end_in_a_thread(void)
{
	pthread_t thread;

	pthread_create(&thread, 0, end_kept, 0);
	pthread_join(thread, 0);
}

__attribute__((destructor)) static void end_at_exit(void)
{
	end_kept(0);
}
"""
RAISES = """
import ctypes, gc, sys, barcopy
consume = ctypes.PyDLL(sys.argv[1]).consume
consume.restype, consume.argtypes = ctypes.py_object, [ctypes.py_object]
def taken(m):
    for i, array in enumerate((consume(m.__dlpack__()), consume(m.__dlpack__()))):
        assert not i
keep, end_in_a_thread = ctypes.PyDLL(sys.argv[1]).keep, ctypes.CDLL(sys.argv[1]).end_in_a_thread
keep.argtypes = [ctypes.py_object]
with barcopy.open() as gdr, gdr.alloc(64) as m:
    for i in range(520):
        try:
            taken(m)
        except AssertionError:
            pass
        assert not m.busy
        if i == 20:
            gc.collect()
            blocks = sys.getallocatedblocks()
    gc.collect()
    assert sys.getallocatedblocks() < blocks + 500
    keep(m.__dlpack__())
    end_in_a_thread()
    assert not m.busy
    keep(m.__dlpack__())
print("ended")
"""
SUBINTERPRETER = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
program = f'''
import sys
sys.argv, sys.path[:] = {sys.argv!r}, {sys.path!r}
import ctypes, barcopy
consume = ctypes.PyDLL(sys.argv[1]).consume
consume.restype, consume.argtypes = ctypes.py_object, [ctypes.py_object]
with barcopy.open() as gdr, gdr.alloc((4,), "float32") as m:
    m.write([1, 2, 3, 4])
    array = consume(m.__dlpack__())
    assert m.busy and m[2] == 3
    del array
    assert not m.busy
print("ended", flush=True)
'''
try:
    one = interpreters.create(isolated=False)
except TypeError:
    one = interpreters.create("legacy")
failed = interpreters.run_string(one, program)
if failed:
    sys.exit(failed)
interpreters.destroy(one)
"""


class Consumers(Balanced):
    def test_garbage_collector(self):
        """It runs inside a sweep, and ends a mapping whose array nobody has taken."""
        def set_threshold(*threshold, old=gc.get_threshold()):
            gc.set_threshold(*threshold or old)

        self.addCleanup(set_threshold)
        with barcopy.open() as gdr, gdr.alloc(64) as mem:
            arrays = [mem.__dlpack__() for _ in range(100)]
            for allocations in range(2, 90, 4):  # of the sweep, until the collector runs
                gc.collect()
                gc.disable()
                m = gdr.map(mem.address, 64)
                m.cycle, m.array = m, m.__dlpack__()
                del m.array, m
                spare = [(i, i) for i in range(2100)]  # Python has no such objects left, so the sweep's are new
                gc.set_threshold(gc.get_count()[0] + allocations)
                gc.enable()
                self.assertTrue(mem.busy)  # sweeps
                set_threshold()
                del spare
            del arrays

    def runs(self, program):
        """With the consumer's library; what hangs is killed."""
        with tempfile.TemporaryDirectory() as top:
            subprocess.run(["gcc", "-shared", "-fPIC", "-pthread", "-o", top + "/consumer.so", "-x", "c", "-"],
                           input=CONSUMER, text=True, check=True)
            done = subprocess.run([sys.executable, "-c", program, top + "/consumer.so"], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "ended\n", ""))

    @unittest.skipUnless(shutil.which("gcc"), "no gcc")
    def test_freed_by_an_exception(self):
        """
        An array of a consumer, on the stack of a function that raises: the exception stays, the memory is given back.
        As by a thread of C; and at the end of the process, where Python has ended.
        """
        self.runs(RAISES)

    @unittest.skipUnless(shutil.which("gcc"), "no gcc")
    @unittest.skipIf(sys.version_info < (3, 9), "this Python cannot make one that shares its lock")
    def test_subinterpreter(self):
        """An array whose consumer frees it there."""
        self.runs(SUBINTERPRETER)


@unittest.skipUnless(hasattr(os, "fork"), "no fork here")
class Forked(Balanced):
    def setUp(self):
        super().setUp()
        self.gdr = barcopy.open()
        self.addCleanup(self.gdr.close)

    def in_a_child(self, body):
        sys.stdout.flush()
        pid = os.fork()
        if not pid:
            status = 1
            try:
                status = body() or 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if hasattr(os, "waitstatus_to_exitcode")
                         else os.waitpid(pid, 0)[1], 0)

    def test_close(self):
        """Of each object: releases nothing, raises nothing; the parent's goes on."""
        mem, cache = self.gdr.alloc(1 << 20), self.gdr.cache()
        things = [self.gdr.map(mem), cache.get(mem), self.gdr.pin(mem), self.gdr.queue(), self.gdr.port(), cache, mem,
                  self.gdr]

        def child():
            for thing in things:
                with thing:
                    pass
                if not thing.closed:
                    return 2

        self.in_a_child(child)
        mem.put32(0, 7)
        self.assertEqual((things[0].get32(0), things[1].get32(0)), (7, 7))
        del things

    def test_forgotten(self):
        things = [self.gdr.alloc(4096), self.gdr.cache()]
        view = things[0].view()

        def child():
            nonlocal view
            things.clear()
            del view
            gc.collect()

        self.in_a_child(child)
        things[0].write(b"still")
        self.assertEqual(bytes(view[:5]), b"still")

    def test_its_own(self):
        """What the child opens itself it closes itself."""
        self.gdr.alloc(4096)

        def child():
            recorder = Recorder(_lib.library())
            _lib._loaded = recorder
            barcopy.open().close()
            return 0 if [name for name, *_ in recorder.calls if name == "gdr_close"] else 5

        self.in_a_child(child)

    def test_used(self):
        mem = self.gdr.alloc(4096)

        def child():
            for call in (lambda: mem.read(1), lambda: mem.put32(0, 1), lambda: self.gdr.alloc(64), self.gdr.cache,
                         lambda: mem.wait32(0, "==", 5, timeout=1), mem.flush, lambda: self.gdr.map(mem.address, 64)):
                try:
                    call()
                    return 3
                except barcopy.Error as why:
                    if why.errno != errno.EACCES:
                        return 4

        self.in_a_child(child)


if __name__ == "__main__":
    unittest.main()
