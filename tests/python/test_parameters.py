# SPDX-License-Identifier: MIT
"""
Each parameter of each public call, left out and given: what the library is called with then, as a library that records
its calls has it, or what the call returns. A call or a parameter without its row fails.
"""
import array
import ctypes
import inspect
import os
import sys
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import barcopy  # noqa: E402
from balance import Balanced  # noqa: E402
from barcopy import _lib, mapping  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None

ANY = mock.ANY
FOREVER = 2**64 - 1
SLICE = 100_000_000  # nanoseconds that one call of the library waits at most, so that Ctrl-C is noticed


class Stop(Exception):
    """Leaves a call that would wait."""


def plain(value):
    """An argument as ctypes was given it, copied."""
    value = getattr(value, "_as_parameter_", value)  # of the module's objects, which a list of calls would keep
    value = getattr(value, "_obj", value)  # of byref()
    value = getattr(value, "_as_parameter_", value)
    if isinstance(value, ctypes.Structure):
        return {name: getattr(value, name) for name, *_ in value._fields_}
    if isinstance(value, ctypes.Array):
        return [plain(element) for element in value]
    return getattr(value, "value", value)


class Recorder:
    """
    The library, whose calls are listed: (name, arguments), and (name, None) where one has returned. meanwhile: what
    is done once, inside the call of that name.
    """

    def __init__(self, library):
        self.library, self.calls, self.stops = library, [], ()
        self.meanwhile = {}

    def __getattr__(self, name):
        function = getattr(self.library, name)
        if not callable(function):
            return function

        def call(*arguments):
            self.calls.append((name, [plain(argument) for argument in arguments]))
            self.meanwhile.pop(name, lambda: None)()
            try:
                if name in self.stops:
                    raise Stop
                return function(*arguments)
            finally:
                self.calls.append((name, None))
        return call


def matches(got, want):
    """A dict in `want` names some members of a struct, a list its elements."""
    if isinstance(want, dict):
        return all(matches(got[name], value) for name, value in want.items())
    if isinstance(want, list):
        return len(got) == len(want) and all(map(matches, got, want))
    return got == want


class Interface:
    def __init__(self, address):
        self.__cuda_array_interface__ = dict(shape=(16,), typestr="<f4", version=3, data=(address, False))


class Parameters(Balanced):
    def setUp(self):
        super().setUp()
        self.begin()
        self.addCleanup(lambda: self.gdr.close())
        self.recorder = Recorder(_lib.library())
        for patch in (mock.patch.object(_lib, "_loaded", self.recorder), mock.patch.object(mapping, "_fast", None),
                      mock.patch.object(mapping, "_word", lambda *_: -1)):
            patch.start()
            self.addCleanup(patch.stop)

    def begin(self):
        self.gdr = barcopy.open()
        self.mem = self.gdr.alloc((16,), dtype="float32", shareable=True)
        self.mem.fill(0)
        self.cache, self.queue, self.port = self.gdr.cache(), self.gdr.queue(), self.gdr.port(manual=True)
        self.pin = self.gdr.pin(self.mem.address, 64)

    def rows(self):
        """call: (object, function of the library, [(the parameters given, {argument: value})])."""
        gdr, mem, cache, queue, port = self.gdr, self.mem, self.cache, self.queue, self.port
        at, cpu = mem.address, mem.pointer
        of = Interface(at)
        sixteen, four = bytes(16), bytearray(4)
        pieces = [(0, b"1234"), (8, b"12345678", True), (16, b"1234", False)]
        segments = [{"map_ptr": cpu, "size": 4, "flags": 0}, {"map_ptr": cpu + 8, "size": 8, "flags": 1},
                    {"map_ptr": cpu + 16, "size": 4, "flags": 0}]
        into = [(0, bytearray(4)), (8, bytearray(8), True), (16, bytearray(4), False)]
        none = {"lines": 0, "flags": 0}
        times = {"spin_ns": 0, "yield_ns": 0, "sleep_ns": 0}
        cached = {"validity": 0, "flags": 0, "max_bytes": 0, "max_regions": 0, "engine_read_min": 0,
                  "engine_write_min": 0}
        return {
            "open": (barcopy, "barcopy_open", [
                ({}, {0: 1}), ({"any_memory": True}, {0: 1}), ({"any_memory": False}, {0: 0})]),
            "Context.map": (gdr, "barcopy_map_range", [
                ({"obj": of}, {1: at, 2: 64, 3: 0}), ({"obj": at, "size": 100}, {1: at, 2: 100, 3: 0}),
                ({"obj": of, "read_only": True}, {3: 1}), ({"obj": of, "sync_memops": False}, {3: 2}),
                ({"obj": of, "stream": 1}, {1: at, 2: 64, 3: 0}),
                ({"obj": of, "read_only": True, "sync_memops": False}, {1: at, 2: 64, 3: 3})]),
            "Context.pin": (gdr, "gdr_pin_buffer_v2", [
                ({"obj": of}, {1: at, 2: 64, 3: 0}), ({"obj": at, "size": 100}, {1: at, 2: 100, 3: 0})]),
            "Context.alloc": (gdr, "barcopy_mem_alloc", [
                ({"shape": 96}, {1: 0, 2: 96, 3: 0}), ({"shape": 12, "dtype": "float64"}, {1: 0, 2: 96, 3: 0}),
                ({"shape": (3, 4), "dtype": "int16"}, {2: 24}), ({"shape": 96, "device": 7}, {1: 7, 2: 96, 3: 0}),
                ({"shape": 96, "cached": True}, {1: 0, 3: 1}), ({"shape": 96, "shareable": True}, {1: 0, 3: 4}),
                ({"shape": 96, "cached": True, "shareable": True, "device": 0}, {1: 0, 3: 5})]),
            "Context.import_memory": (gdr, "barcopy_mem_import", [
                ({"fd": 0, "size": 4096}, {1: 0, 2: 0, 3: 2**21, 4: 0}),
                ({"fd": 0, "size": 2**21}, {3: 2**21}), ({"fd": 0, "size": 2**21 + 1}, {3: 2**22}),
                ({"fd": 1, "size": 0, "device": 7}, {1: 7, 2: 1, 3: 0, 4: 0})]),
            "Context.cache": (gdr, "barcopy_cache_create", [
                ({}, {1: cached}), ({"validity": barcopy.NOTIFIED}, {1: {**cached, "validity": 1}}),
                ({"max_bytes": 7}, {1: {**cached, "max_bytes": 7}}),
                ({"max_regions": 7}, {1: {**cached, "max_regions": 7}}),
                ({"engine_read_min": 7}, {1: {**cached, "engine_read_min": 7}}),
                ({"engine_write_min": 7}, {1: {**cached, "engine_write_min": 7}}),
                ({"sync_memops": False}, {1: {**cached, "flags": 1}})]),
            "Context.queue": (gdr, "barcopy_queue_create", [
                ({}, {1: 0, 2: none}), ({"device": 7}, {1: 7, 2: none}), ({"lines": 64}, {1: 0, 2: {"lines": 64}})]),
            "Context.port": (gdr, "barcopy_port_create", [
                ({}, {1: 0, 2: {**none, **times}}), ({"device": 7}, {1: 7, 2: {**none, **times}}),
                ({"lines": 64}, {2: {**times, "lines": 64, "flags": 0}}),
                ({"manual": True}, {2: {**times, "lines": 0, "flags": 1}}), ({"manual": None}, {2: {**times, **none}}),
                ({"spin": 1.5}, {2: {**none, **times, "spin_ns": 1500000000}}),
                ({"yielding": 2e-6}, {2: {**none, **times, "yield_ns": 2000}}),
                ({"sleep": 1e-3}, {2: {**none, **times, "sleep_ns": 1000000}})]),
            "Context.bar_info": (gdr, "barcopy_get_bar_info", [({}, {0: 0}), ({"device": 7}, {0: 7})]),
            "Cache.get": (cache, "barcopy_cache_get", [
                ({"obj": of}, {1: at, 2: 64}), ({"obj": at, "size": 100}, {1: at, 2: 100})]),
            "Cache.invalidate": (cache, "barcopy_cache_invalidate", [
                ({}, {1: 0, 2: FOREVER}), ({"address": at}, {1: at, 2: FOREVER}), ({"size": 64}, {1: 0, 2: 64}),
                ({"address": at, "size": 64}, {1: at, 2: 64})]),
            "Cache.trim": (cache, "barcopy_cache_trim", [({}, {1: 0}), ({"max_idle_bytes": 7}, {1: 7})]),
            "Mapping.write": (mem, "gdr_copy_to_mapping", [
                ({"data": sixteen}, {1: cpu, 2: sixteen, 3: 16}),
                ({"data": sixteen, "offset": 8, "stream": 1}, {1: cpu + 8, 2: sixteen, 3: 16})]),
            "Mapping.write_bytes": (mem, "gdr_copy_to_mapping", [
                ({"data": sixteen}, {1: cpu, 3: 16}), ({"data": sixteen, "offset": 3, "stream": 1}, {1: cpu + 3, 3: 16})]),
            "Mapping.fill": (mem, "gdr_copy_to_mapping", [
                ({"value": 0}, {1: cpu, 3: 64}), ({"value": 0, "stream": 1}, {1: cpu, 3: 64})]),
            "Mapping.read": (mem, "gdr_copy_from_mapping", [
                ({}, {2: cpu, 3: 64}), ({"size": 5}, {2: cpu, 3: 5}), ({"offset": 9}, {2: cpu + 9, 3: 55}),
                ({"size": 5, "offset": 9, "stream": 1}, {2: cpu + 9, 3: 5})]),
            "Mapping.read_into": (mem, "gdr_copy_from_mapping", [
                ({"buffer": four}, {2: cpu, 3: 4}), ({"buffer": four, "offset": 8, "stream": 1}, {2: cpu + 8, 3: 4})]),
            "Mapping.write_pieces": (mem, "barcopy_copyv_to_mapping", [
                ({"pieces": pieces}, {1: segments, 2: 3, 3: 0}), ({"pieces": pieces, "fence": True}, {3: 0}),
                ({"pieces": iter(pieces), "fence": False, "stream": 1}, {1: segments, 2: 3, 3: 2})]),
            "Mapping.read_pieces": (mem, "barcopy_copyv_from_mapping", [
                ({"pieces": into}, {1: segments, 2: 3, 3: 0}), ({"pieces": into, "fence": False, "stream": 1}, {1: segments, 3: 2})]),
            "Mapping.set_copy_options": (mem, "barcopy_set_copy_options", [
                ({}, {1: {"flags": 0, "engine_read_min": 0, "engine_write_min": 0}}),
                ({"engine_read_min": barcopy.ENGINE_AUTO}, {1: {"engine_read_min": FOREVER}}),
                ({"engine_read_min": 4096}, {1: {"engine_read_min": 4096, "engine_write_min": 0}}),
                ({"engine_write_min": 4096}, {1: {"engine_read_min": 0, "engine_write_min": 4096}})]),
            "Mapping.fence": (mem, "barcopy_fence", [({"use": barcopy.FULL}, {1: 4})]),
            "Mapping.put32": (mem, "barcopy_put32", [({"offset": 8, "value": 7}, {1: cpu + 8, 2: 7})]),
            "Mapping.put64": (mem, "barcopy_put64", [({"offset": 8, "value": 7}, {1: cpu + 8, 2: 7})]),
            "Mapping.post32": (mem, "barcopy_post32", [({"offset": 8, "value": 7}, {1: cpu + 8, 2: 7})]),
            "Mapping.post64": (mem, "barcopy_post64", [({"offset": 8, "value": 7}, {1: cpu + 8, 2: 7})]),
            "Mapping.post_line": (mem, "barcopy_post_line", [({"offset": 0, "line": bytes(64)}, {1: cpu})]),
            "Mapping.get32": (mem, "barcopy_get32", [({"offset": 8}, {1: cpu + 8})]),
            "Mapping.get64": (mem, "barcopy_get64", [({"offset": 8}, {1: cpu + 8})]),
            "Mapping.wait32": (mem, "barcopy_wait32", [
                ({"offset": 8, "comparison": "!=", "value": 7}, {1: cpu + 8, 2: 2, 3: 7, 4: SLICE}),
                ({"offset": 8, "comparison": "<", "value": 7, "timeout": .05}, {2: 3, 4: 50_000_000}),
                ({"offset": 8, "comparison": "<=", "value": 7, "timeout": 0}, {2: 4, 4: 0})]),
            "Mapping.wait64": (mem, "barcopy_wait64", [
                ({"offset": 8, "comparison": "==", "value": 7}, {1: cpu + 8, 2: 1, 3: 7, 4: SLICE}),
                ({"offset": 8, "comparison": ">", "value": 7, "timeout": 5}, {2: 5, 4: SLICE}),
                ({"offset": 8, "comparison": ">=", "value": 7, "timeout": 0}, {2: 6, 4: 0})]),
            "Queue.send": (queue, "barcopy_queue_send", [
                ({"message": b"hello"}, {2: 5, 3: 0, 4: SLICE}), ({"message": b"h", "timeout": .05}, {4: 50_000_000}),
                ({"message": array.array("I", [1, 2]), "ordered": True}, {2: 8, 3: 1, 4: SLICE}),
                ({"message": b"h", "ordered": None}, {3: 0})]),
            "Queue.receive": (queue, "barcopy_queue_receive", [
                ({}, {2: 48, 4: SLICE}), ({"timeout": 0}, {4: 0}), ({"timeout": .05}, {4: 50_000_000})]),
            "Queue.stop": (queue, "barcopy_queue_stop", [({}, {1: 0}), ({"abort": True}, {1: 2}),
                                                         ({"abort": None}, {1: 0})]),
            "Port.receive": (port, "barcopy_port_receive", [
                ({}, {2: 32, 4: SLICE}), ({"most": 7}, {2: 7, 4: SLICE}), ({"most": 99, "timeout": .05},
                                                                          {2: 32, 4: 50_000_000})]),
            "Port.retire": (port, "barcopy_port_retire", [
                ({"post": 5}, {1: 5, 2: 1}), ({"post": 5, "count": 3}, {1: 5, 2: 3})]),
            "Port.answer": (port, "barcopy_port_answer", [
                ({"answers": {3: 9, 4: 2**55}}, {1: [3, 4], 2: [9, 2**55], 3: 2})]),
            "Port.stop": (port, "barcopy_port_stop", [({}, {1: 0}), ({"abort": True}, {1: 2}),
                                                      ({"abort": None}, {1: 0})]),
        }

    def results(self):
        """Calls whose parameters go elsewhere: (object, [(the parameters given, the result as text)])."""
        mem = self.mem

        def name_of(capsule):
            return str(capsule).split('"')[1]

        def form(a):
            return a.dtype.name, a.shape, bool(a.base is not None)

        rows = {"Mapping.__dlpack__": (mem, name_of, [
            ({}, "dltensor"), ({"stream": 1}, "dltensor"), ({"max_version": (1, 0)}, "dltensor_versioned"),
            ({"max_version": (0, 8)}, "dltensor"), ({"dl_device": (2, 0)}, "dltensor"), ({"copy": False}, "dltensor"),
            ({"dl_device": (1, 0)}, BufferError), ({"copy": True}, BufferError)])}
        if numpy:
            rows["Mapping.array"] = mem, form, [
                ({}, ("float32", (16,), True)), ({"dtype": "int32"}, ("int32", (16,), True)),
                ({"dtype": "int16"}, ("int16", (32,), True)), ({"shape": (2, 8)}, ("float32", (2, 8), True)),
                ({"dtype": "uint8", "shape": (8, -1)}, ("uint8", (8, 8), True)), ({"shape": (3, 3)}, ValueError)]
            rows["Mapping.__array__"] = mem, form, [
                ({}, ("float32", (16,), True)), ({"dtype": "float32"}, ("float32", (16,), True)),
                ({"dtype": "float64"}, ("float64", (16,), False)), ({"copy": None}, ("float32", (16,), True)),
                ({"copy": True}, ("float32", (16,), False))]
        return rows

    # Their only parameter is of the protocol, or they have none that is left out.
    OTHERS = {"Mapping.__buffer__"}

    def call(self, target, name, given):
        try:
            getattr(target, name.rsplit(".", 1)[-1])(**given)
        except (barcopy.Error, Stop):
            pass  # what counts is how it was called

    def test_calls(self):
        # Whether a wait ends depends on what other rows have stored.
        waits = {"barcopy_queue_receive", "barcopy_port_receive", "barcopy_wait32", "barcopy_wait64",
                 "barcopy_queue_send"}
        for name, (target, function, cases) in self.rows().items():
            for given, wanted in cases:
                with self.subTest(name, given=given):
                    self.recorder.calls.clear()
                    self.recorder.stops = waits & {function}
                    self.call(target, name, given)
                    first = next((a for called, a in self.recorder.calls if called == function and a is not None), None)
                    self.assertIsNotNone(first, f"{function} was not called")
                    for place, value in wanted.items():
                        self.assertTrue(matches(first[place], value), f"argument {place}: {first[place]}, not {value}")

    # Calls without a parameter, as rows().
    def plain_rows(self):
        of = {"Mapping": self.mem, "Memory": self.mem, "Pin": self.pin, "Cache": self.cache, "Queue": self.queue,
              "Port": self.port, "Context": self.gdr}
        for name, function in {
                "Pin.map": "gdr_map_v2", "Pin.info": "gdr_get_info_v2", "Pin.revoked": "gdr_get_callback_flag",
                "Pin.__repr__": "barcopy_get_handle_attribute",
                "Memory.export": "barcopy_mem_export", "Mapping.flush": "barcopy_flush",
                "Cache.stats": "barcopy_cache_get_stats", "Queue.view": "barcopy_queue_get_view",
                "Port.view": "barcopy_port_get_view", "Port.end": "barcopy_port_end",
                "Context.stats": "barcopy_get_stats", "Context.driver_version": "gdr_driver_get_version",
                **dict.fromkeys(("Mapping.backend", "Mapping.device", "Mapping.persistent", "Mapping.sync_memops",
                                 "Mapping.mapping_type"), "barcopy_get_handle_attribute")}.items():
            yield name, of[name.split(".")[0]], function

    def test_closed_during_a_call(self):
        """By another thread: what the call uses is released when it has returned, and not before."""
        ends = {"Mapping": "barcopy_mem_free", "Memory": "barcopy_mem_free", "Pin": "gdr_unpin_buffer",
                "Cache": "barcopy_cache_destroy", "Queue": "barcopy_queue_destroy", "Port": "barcopy_port_destroy",
                "Context": "gdr_close"}
        # bar_info() calls the library without the context.
        names = [name for name in self.rows() if name not in ("open", "Context.bar_info")]
        names += [name for name, *_ in self.plain_rows()]
        for name in names:
            with self.subTest(name):
                self.gdr.close()
                self.begin()
                row = self.rows().get(name)
                target, function = row[:2] if row else next(rest for n, *rest in self.plain_rows() if n == name)
                given = row[2][0][0] if row else {}
                self.recorder.calls.clear()
                self.recorder.stops = {function} if "wait" in function or "receive" in function else ()
                closed = []
                self.recorder.meanwhile = {function: lambda target=target, closed=closed:
                                           closed.append((target.close(), self.gdr.close()))}
                try:
                    member = getattr(target, name.split(".")[1])
                    if callable(member):
                        member = member(**given)
                    if isinstance(member, int) and name == "Memory.export":
                        os.close(member)
                except (barcopy.Error, Stop, barcopy.Closed):
                    pass
                del target, row
                self.assertEqual(len(closed), 1, f"{function} was not called")
                calls = self.recorder.calls
                at = next(i for i, (called, _) in enumerate(calls) if called == function)
                end = calls.index((function, None))
                early = [called for called, _ in calls[at:end] if called in (ends[name.split(".")[0]], "gdr_close")]
                self.assertEqual(early, [], f"released while {function} was under way")

    def test_results(self):
        for name, (target, shown, cases) in self.results().items():
            for given, wanted in cases:
                with self.subTest(name, given=given):
                    call = getattr(target, name.rsplit(".", 1)[-1])
                    if isinstance(wanted, type):
                        self.assertRaises(wanted, call, **given)
                    else:
                        self.assertEqual(shown(call(**given)), wanted)

    @unittest.skipIf(numpy is None, "numpy is not installed")
    def test_each_has_its_rows(self):
        """Every parameter of a public call is given in a row, and every one with a default is left out in another."""
        tables = {**{name: [given for given, _ in cases] for name, (_, _, cases) in self.rows().items()},
                  **{name: [given for given, _ in cases] for name, (_, _, cases) in self.results().items()}}
        calls = {"open": barcopy.open}
        for name in barcopy.__all__:
            kind = getattr(barcopy, name)
            if inspect.isclass(kind) and issubclass(kind, barcopy.Pin.__mro__[1]):
                calls.update({f"{name}.{n}": f for n, f in vars(kind).items() if inspect.isfunction(f) and (
                    n[0] != "_" or n in ("__array__", "__dlpack__", "__buffer__"))})
        lacking = []
        for name, function in calls.items():
            parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
            given = tables.pop(name, [])
            for p in parameters if name not in self.OTHERS else []:
                if not any(p.name in row for row in given) or \
                        p.default is not p.empty and all(p.name in row for row in given):
                    lacking.append(f"{name}({p.name})")
        self.assertEqual((lacking, list(tables)), ([], []))


if __name__ == "__main__":
    unittest.main()
