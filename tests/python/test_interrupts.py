# SPDX-License-Identifier: MIT
"""
Ctrl-C inside a call: an exception before each instruction of the module, one after the other. Python raises
KeyboardInterrupt before some of them (in 3.11 at a function's begin, after a call, and where a loop jumps back).
Whatever the library has given is given back, once.
"""
import array
import collections
import ctypes
import errno
import gc
import os
import signal
import sys
import unittest

import barcopy
from barcopy import _lib, _life
from test_barcopy import Case, Device, Foreign, mapping, numpy

FOLDER = os.path.dirname(os.path.abspath(barcopy.__file__))
# What a call of the library makes, by the call that ends it; which argument of each is its name.
PAIRS = {"barcopy_open": ("gdr_close", 0), "barcopy_map_range": ("barcopy_unmap_range", 1),
         "gdr_pin_buffer_v2": ("gdr_unpin_buffer", 1), "gdr_map_v2": ("gdr_unmap", 2),
         "barcopy_mem_alloc": ("barcopy_mem_free", 1), "barcopy_mem_import": ("barcopy_mem_free", 1),
         "barcopy_cache_create": ("barcopy_cache_destroy", 0), "barcopy_cache_get": ("barcopy_cache_put", 1),
         "barcopy_queue_create": ("barcopy_queue_destroy", 0), "barcopy_port_create": ("barcopy_port_destroy", 0)}
MADE = {"gdr_map_v2": 2}  # else the last argument


def name_of(thing):
    """A handle or pointer in any of the forms in which the module hands it over."""
    for part in "_obj", "handle", "h", "value", "_as_parameter_":
        if hasattr(thing, part):
            return name_of(getattr(thing, part))
    return thing


class Ledger:
    """The library, with an account of what it makes and ends."""

    def __init__(self, library):
        self._library, self.open, self.wrong = library, collections.Counter(), []

    def __getattr__(self, name):
        function = getattr(self._library, name)
        ends = {end: (end, place) for end, place in PAIRS.values()}
        if name in PAIRS:
            function = self._making(name, function, PAIRS[name][0])
        elif name in ends:
            function = self._ending(name, function, ends[name][1])
        setattr(self, name, function)
        return function

    def _making(self, name, function, end):
        def make(*arguments):
            result = function(*arguments)
            if name == "barcopy_open":
                self.open[end, result] += 1
            elif not result:
                self.open[end, name_of(arguments[MADE.get(name, -1)])] += 1
            return result
        return make

    def _ending(self, name, function, place):
        def stop(*arguments):
            key = name, name_of(arguments[place])
            self.open[key] -= 1
            if self.open[key] < 0:
                self.wrong.append(key)
            return function(*arguments)
        return stop

    def still_open(self):
        return +self.open


@unittest.skipIf(sys.version_info[:2] == (3, 12), "this Python does not trace each instruction")
class Interrupts(Case):
    def setUp(self):
        super().setUp()
        self.ledger = Ledger(_lib.library())
        _lib._loaded = self.ledger
        self.addCleanup(setattr, _lib, "_loaded", self.ledger._library)
        self.noise = []
        self.addCleanup(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = lambda what: self.noise.append((what.exc_value, what.object))

    def interrupted(self, call, at, handler=signal.default_int_handler):
        """Whether the call came to its instruction number `at`, where the handler ran: it raises KeyboardInterrupt."""
        seen, ran = 0, False

        def trace(frame, event, _):
            nonlocal seen, ran
            if os.path.dirname(frame.f_code.co_filename) != FOLDER:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                seen += 1
                if seen == at:
                    sys.settrace(None)
                    ran = True
                    handler(signal.SIGINT, frame)
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            call()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        return ran

    def at_each_instruction(self, call, prepare=lambda: ()):
        """call(made, *prepare()) appends what it makes to `made`; the program then closes what it got."""
        call([], *prepare())  # the first call imports and loads
        at, last = 0, False
        while not last:
            at += 1
            made = list(prepare())
            last = not self.interrupted(lambda: call(made, *made), at)
            for thing in reversed(made):
                thing.close()
            made.clear()
            if self.ledger.still_open():
                gc.collect()
            self.assertEqual((self.ledger.still_open(), self.ledger.wrong, self.noise),
                             (collections.Counter(), [], []), f"instruction {at}")
        self.assertGreater(at, 20)

    def test_calls(self):
        """The end of a mapping's owner is the proof that nothing holds the mapping."""
        class Owner(Device):
            living = 0

            def __init__(self, *arguments):
                super().__init__(*arguments)
                Owner.living += 1

            def __del__(self):
                Owner.living -= 1

        buffer, address = bytearray(64), self.mem.address
        doubles = array.array("d", range(8))

        def owned():
            return [self.gdr.map(Owner(address, (64,), "|u1"))]

        calls = {
            "map": lambda made, _: made.append(*owned()),
            "write": lambda _, m: m.write(b"x" * 64),
            "write of a typed buffer": lambda _, m: m.write(doubles),
            "write of a read-only buffer": lambda _, m: m.write(memoryview(buffer).toreadonly()),
            "write_bytes": lambda _, m: m.write_bytes(buffer),
            "fill": lambda _, m: m.fill(1),
            "read": lambda _, m: m.read(),
            "read_into": lambda _, m: m.read_into(buffer),
            "pieces": lambda _, m: (m.write_pieces([(8, b"a"), (0, doubles, True)]), m.read_pieces([(0, buffer)])),
            "words": lambda _, m: (m.put32(0, 1), m.post64(8, 2), m.get32(0), m.get64(8)),
            "waits": lambda _, m: (m.put32(0, 1), m.wait32(0, "==", 1, timeout=1)),
            "order": lambda _, m: (m.fence(barcopy.FULL), m.flush()),
            "post_line": lambda _, m: m.post_line(0, bytes(64)),
            "options": lambda _, m: m.set_copy_options(),
            "attributes": lambda _, m: (m.backend, m.busy, m.closed, repr(m)),
            "view": lambda _, m: m.view()[:8],
            "array": lambda _, m: m.array("u1")[:8] if numpy else m.view(),
            "capsule": lambda _, m: m.__dlpack__(),
            "capsule of a mapping that is forgotten": lambda made, m: self.gdr.map(m).__dlpack__(),
            "exchange": lambda made, m: made.append(self.gdr.map(Foreign(m))),
            "close": lambda _, m: m.close(),
            "with": lambda _, m: m.__enter__().__exit__(None, None, None),
        }
        for name, call in calls.items():
            with self.subTest(name):
                self.at_each_instruction(call, owned)
                gc.collect()
                self.assertEqual(Owner.living, 0)
        buffer.extend(b"resized")  # nothing holds its memory

    @unittest.skipIf(mapping._fast, "done without the extension, which has no part in it")
    def test_other_objects(self):
        fd = self.mem.export()
        self.addCleanup(os.close, fd)

        def pin(made):
            made.append(self.gdr.pin(self.mem.address, 64))
            made.append(made[0].map())

        def cache(made):
            made.append(self.gdr.cache())
            made.append(made[0].get(self.mem.address, 64))

        def memory(made):
            made.append(self.gdr.alloc(4, "float32"))
            made.append(self.gdr.import_memory(fd, self.mem.size))

        def rings(made):
            made.append(self.gdr.queue(lines=16))
            made.append(self.gdr.port(lines=16))

        def of_memory(made):
            made.append(self.gdr.alloc(64))
            made.append(self.gdr.map(made[0]))
            made[0].close()

        def context(made):
            made.append(barcopy.open())
            made.append(made[0].alloc(64))
            made[0].close()

        for run in pin, cache, memory, rings, of_memory, context:
            with self.subTest(run.__name__):
                self.at_each_instruction(run)

    def test_errors_of_later_ends(self):
        """An interrupted close() takes no errors of what ends later."""
        at, ran = 0, True
        while ran:
            at += 1
            m = self.gdr.map(self.mem.address, 64)
            ran = self.interrupted(m.close, at)
            self.assertRaises(barcopy.Error, _life._failed, errno.EIO)
            m.close()

    def test_closing_handler(self):
        """A signal handler, or another thread, closes what a call uses or closes."""
        buffer = bytearray(64)
        for name, call in {
            "close": lambda m: m.close(),
            "with": lambda m: m.__exit__(None, None, None),
            "busy": lambda m: m.busy,
            "repr": repr,
            "write": lambda m: m.write(buffer),
            "element": lambda m: m[0],
            "words": lambda m: (m.put32(0, 1), m.get64(8)),
            "waits": lambda m: m.wait32(0, "!=", m.get32(0) ^ 1, timeout=1),
            "view": lambda m: m.view()[0],
            "map": lambda m: self.gdr.map(m).close(),
            "exchange": lambda m: self.gdr.map(Foreign(m)).close(),
        }.items():
            with self.subTest(name):
                at, ran = 0, True
                while ran:
                    at += 1
                    m = self.gdr.map(self.mem.address, 64)

                    def used():
                        try:
                            call(m)
                        except barcopy.Closed:
                            pass

                    ran = self.interrupted(used, at, lambda *_: m.close())
                    m.close()
                    self.assertEqual((m.closed, m.busy), (True, False))
                    self.assertEqual((self.ledger.still_open(), self.ledger.wrong, self.noise),
                                     (collections.Counter(), [], []), f"instruction {at}")

    def test_stream(self):
        """The caller's CUDA context stays as it was."""
        cuda, before, after = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
        owner = Device(self.mem.address, (64,), "|u1")
        owner.__cuda_array_interface__["stream"] = 1
        cuda.cuCtxGetCurrent(ctypes.byref(before))
        self.at_each_instruction(lambda made: made.append(self.gdr.map(owner)))
        cuda.cuCtxGetCurrent(ctypes.byref(after))
        self.assertEqual(before.value, after.value)


if __name__ == "__main__":
    unittest.main()
