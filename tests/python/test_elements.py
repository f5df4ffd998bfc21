# SPDX-License-Identifier: MIT
"""Arrays as their users know them: sizes, elements by index, numbers and lists, types, devices, addresses, names."""
import array
import collections
import ctypes
import importlib.util
import math
import os
import re
import struct
import sys
import types
import unittest
from fractions import Fraction
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import barcopy  # noqa: E402
from balance import Balanced  # noqa: E402
from barcopy import _types  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None

with_numpy = unittest.skipIf(numpy is None, "numpy is not installed")


class Interface:
    def __init__(self, address, shape, typestr, strides=None, **more):
        self.__cuda_array_interface__ = dict(shape=shape, typestr=typestr, data=(address, False), version=3,
                                             strides=strides)
        vars(self).update(more)


class Way:
    """An integer by one method."""

    def __init__(self, value, name="__index__"):
        self.value = value
        self.__class__ = type("Way", (Way,), {name: lambda self: self.value})


class Case(Balanced):
    def setUp(self):
        super().setUp()
        self.gdr = barcopy.open()
        self.addCleanup(self.gdr.close)
        self.mem = self.gdr.alloc(4096, shareable=True)


class Sizes(Case):
    def test_as_numpy_has_them(self):
        for shape, dtype, itemsize in (((3, 4), "float32", 4), ((5,), "int16", 2), ((), "float64", 8),
                                       ((2, 1, 3), "complex64", 8), ((4,), "bfloat16", 2)):
            mem = self.gdr.alloc(shape, dtype)
            with self.gdr.pin(mem) as pin, pin.map() as mapped, self.gdr.cache() as cache, cache.get(mem) as region:
                for thing in mem, self.gdr.map(mem), pin, mapped, region:
                    count = math.prod(shape)
                    self.assertEqual((thing.shape, thing.ndim, thing.size, thing.itemsize, thing.nbytes, thing.dtype),
                                     (shape, len(shape), count, itemsize, count * itemsize, dtype))
                    if shape:
                        self.assertEqual(len(thing), shape[0])
                    else:
                        self.assertRaisesRegex(TypeError, "without dimensions", len, thing)
                    self.assertTrue(thing)
        m = self.gdr.map(self.mem.address, 100)
        self.assertEqual((m.shape, m.size, m.nbytes, len(m), m.itemsize, m.dtype), ((100,), 100, 100, 100, 1, "uint8"))

    def test_partner(self):
        for mem in self.mem, self.gdr.alloc((3, 4), "float32", shareable=True):
            fd = mem.export()
            self.addCleanup(os.close, fd)
            mem.fill(7)
            with self.gdr.import_memory(fd, mem.nbytes, device="cuda:0") as other:
                self.assertEqual(other.read(), mem.read())


class Elements(Case):
    def test_index(self):
        for dtype, values in (("float32", (1.5, -2)), ("int8", (-128, 127)), ("uint64", (0, 2**64 - 1)),
                              ("bool", (True, False)), ("complex128", (1 + 2j, -1j)), ("float16", (0.5, 65504)),
                              ("bfloat16", (1.5, -3.0)), ("float8_e4m3fn", (448, -0.5)), ("float8_e8m0fnu", (4, 0.25))):
            m = self.gdr.alloc((2, 3), dtype)
            m.write_bytes(b"\1" * m.nbytes)
            other = m[0, 1]
            m[1, 2], m[0, -3] = values
            self.assertEqual((m[1, 2], m[-2, 0], m[0, 1]), (*values, other))
            self.assertIs(type(m[1, 2]), type(values[0]) if dtype in ("bool", "complex128", "int8") else type(m[0, 0]))
        m = self.gdr.alloc((), "float64")
        m[()] = 2.5
        self.assertEqual(m[()], 2.5)
        self.mem[3] = 200
        self.assertEqual((self.mem[3], self.mem[3 - len(self.mem)]), (200, 200))
        if numpy:
            self.mem[numpy.int64(3)] = numpy.uint8(7)
            self.assertEqual(self.mem[numpy.uint8(3)], 7)

    def test_index_refused(self):
        m = self.gdr.alloc((2, 3), "float32")
        m.fill(0)
        for index in (2, 0), (0, 3), (-3, 0), (0, -4):
            self.assertRaises(IndexError, lambda index=index: m[index])
            self.assertRaises(IndexError, m.__setitem__, index, 1)
        for index in 0, slice(None), (0, slice(1)), (), (0, 0, 0), Ellipsis, None, "x", (0, 1.0):
            self.assertRaises(TypeError, lambda index=index: m[index])
            self.assertRaises(TypeError, m.__setitem__, index, 1)
        self.assertRaisesRegex(TypeError, r"parts are m.array\(\)", lambda: m[0])
        self.assertRaises(ValueError, m.__setitem__, (0, 0), "x")
        self.assertRaises(TypeError, iter, m)
        self.assertRaises(TypeError, lambda: 0 in m)
        self.assertRaises(TypeError, reversed, self.mem)
        self.assertRaises(TypeError, self.gdr.map(m, read_only=True).__setitem__, (0, 0), 1)
        for typestr in "|V8", "<f16", "<c32", ">f4":
            unknown = self.gdr.map(Interface(self.mem.address, (4,), typestr))
            self.assertRaisesRegex(TypeError, "no number of Python", lambda m=unknown: m[0])
            self.assertRaisesRegex(TypeError, "is unknown here", unknown.__setitem__, 0, 1)
            self.assertRaisesRegex(TypeError, "is unknown here", unknown.fill, 1)
            unknown.fill(0)
        m.close()
        self.assertRaises(barcopy.Closed, lambda: m[0, 0])
        self.assertRaises(barcopy.Closed, m.__setitem__, (0, 0), 1)

    def test_numbers_and_lists(self):
        m = self.gdr.alloc((2, 3), "float32")
        m.write([[1, 2, 3], [4, 5, 6.5]])
        m.write(9.0, 4)
        m.write([7, 8], 12)
        self.assertEqual(array.array("f", m.read()).tolist(), [1, 9, 3, 7, 8, 6.5])
        m.write([[1, 2], [3, 4]], 4)  # any offset but 0
        m.write([1, 2])
        m.write([])
        self.assertEqual((m[0, 0], m[0, 1], m[0, 2]), (1, 2, 2))
        m.write(collections.namedtuple("Size", "rows columns")(5, barcopy.FULL))
        m.write(barcopy.AFTER_READ, 8)
        self.assertEqual((m[0, 0], m[0, 1], m[0, 2]), (5, 4, 2))
        small = self.gdr.alloc(3, "bfloat16")
        small.write((1, 2.5, float("inf")))
        self.assertEqual([small[i] for i in range(3)], [1, 2.5, math.inf])
        for wrong, error in ([[1], [2, 3]], ValueError), ([[1, 2], [3, 4]], ValueError), (["x"], ValueError), \
                ([1] * 7, ValueError), ({}, TypeError), ("text", TypeError), ([None], ValueError):
            self.assertRaises(error, m.write, wrong)
        for wrong in 1, [1], 2.5:
            self.assertRaisesRegex(TypeError, "where the mapping has a type", self.mem.write, wrong)
            self.assertRaises(TypeError, m.read_into, wrong)

    @with_numpy
    def test_shapes(self):
        """Rows of another length are refused at the mapping's begin, where they would lie askew."""
        m = self.gdr.alloc((4, 5), "float32")
        m.fill(0)
        for shape in (5, 4), (2, 10), (20, 1, 1, 1)[:1] + (1,), (2, 2, 5), (4, 4):
            data = numpy.ones(shape, "f4")
            if len([n for n in shape if n != 1]) < 2:
                m.write(data)
                m.fill(0)
                continue
            for call in m.write, m.read_into:
                self.assertRaisesRegex(ValueError, "does not fit the mapping's shape", call, data)
        self.assertFalse(m.array().any())
        for shape in (4, 5), (2, 5), (20,), (7,), (1, 4, 5), (4, 1, 5), (1, 20):
            m.write(numpy.ones(shape, "f4"))
            m.read_into(numpy.ones(shape, "f4"))
        m.write(numpy.ones((2, 4), "f4"), 4)  # any offset but 0
        m.read_into(numpy.ones((2, 4), "f4"), 4)
        for rows in numpy.ones((5, 4), "f4"), [[1, 2], [3, 4]]:
            for flat in 20, (1, 20):
                self.gdr.alloc(flat, "float32").write(rows)
        m = self.gdr.alloc((3, 4, 5), "float32")
        for i in range(3):  # each matrix at its place
            m.write(numpy.full((4, 5), i, "f4"), 80 * i)
        m.read_into(numpy.ones((2, 4, 5), "f4"))
        for shape in (5, 4), (2, 5, 4), (2, 3, 5):
            self.assertRaises(ValueError, m.write, numpy.ones(shape, "f4"))
        self.assertEqual([m[i, 3, 4] for i in range(3)], [0, 1, 2])


class Types(Case):
    def test_small_floats(self):
        """Each code, and the nearest one of what lies between; the largest and the smallest, as the formats have them."""
        # ... and how many codes are no finite number
        extremes = {"float8_e4m3fn": (448, 2**-9, 2), "float8_e5m2": (57344, 2**-16, 8), "float8_e4m3": (240, 2**-9, 16),
                    "float8_e4m3fnuz": (240, 2**-10, 1), "float8_e5m2fnuz": (57344, 2**-17, 1),
                    "float8_e4m3b11fnuz": (30, 2**-13, 1), "float8_e3m4": (15.5, 2**-6, 32),
                    "float8_e8m0fnu": (2.0**127, 2.0**-127, 1)}
        for name, (largest, smallest, others) in extremes.items():
            numbers = [_types.unpacked(name, bytes([code])) for code in range(256)]
            finite = [n for n in numbers if math.isfinite(n)]
            self.assertEqual((max(finite), min(n for n in finite if n > 0), 256 - len(finite)),
                             (largest, smallest, others), name)
            if name.endswith("uz"):
                self.assertTrue(math.isnan(numbers[0x80]), name)  # that of the negative zero
            for code, number in enumerate(numbers):
                again = _types.unpacked(name, _types.packed(name, number))
                self.assertTrue(again == number or again != again and number != number, (name, code))
                if number == number:
                    self.assertEqual(_types.packed(name, number), bytes([code]))
            beyond = _types.unpacked(name, _types.packed(name, largest * 4))
            self.assertFalse(math.isfinite(beyond))
            if -math.inf in numbers:
                self.assertEqual(_types.unpacked(name, _types.packed(name, -largest * 4)), -math.inf)
            ordered = sorted(n for n in finite if n > 0)
            end = largest + (largest - ordered[-2]) / 2  # a tie goes to the even code
            self.assertEqual(math.isfinite(_types.unpacked(name, _types.packed(name, end))),
                             not _types.packed(name, largest)[0] & 1, name)
            for i, (low, high) in enumerate(zip(ordered, ordered[1:])):
                middle = (low + high) / 2
                for value, want in (low + (middle - low) / 2, low), (middle + (high - middle) / 2, high):
                    self.assertEqual(_types.unpacked(name, _types.packed(name, value)), want)
                self.assertEqual(_types.packed(name, middle)[0] & 1, 0)
        for negative in -1, -math.inf:
            self.assertRaises(ValueError, _types.packed, "float8_e8m0fnu", negative)
        for value, bits in ((1, 0x3f80), (-2, 0xc000), (1 + 2**-8, 0x3f80), (1 + 3 * 2**-8, 0x3f82), (math.inf, 0x7f80),
                            (3.4e38, 0x7f80), (1e-45, 0), (math.nan, 0x7fc0)):
            self.assertEqual(_types.packed("bfloat16", value), bits.to_bytes(2, sys.byteorder), value)
        for nan in math.nan, struct.unpack("=f", struct.pack("=I", 0x7fffffff))[0]:
            self.assertTrue(math.isnan(_types.unpacked("bfloat16", _types.packed("bfloat16", nan))))

    @unittest.skipUnless(importlib.util.find_spec("ml_dtypes"), "no ml_dtypes")
    def test_ml_dtypes(self):
        import ml_dtypes

        for name in _types._SMALL:
            m = self.gdr.alloc(4, name)
            m.write([0.5, 1, 2, 4])
            a = m.array()
            self.assertEqual((a.dtype, a.astype("f4").tolist()), (getattr(ml_dtypes, name), [.5, 1, 2, 4]))
            m.write(numpy.array([8, 4, 2, 1], getattr(ml_dtypes, name)))
            self.assertEqual((m[0], m.dtype == getattr(ml_dtypes, name)), (8, True))

    def test_one_way(self):
        """A type of PyTorch or numpy wherever a type is taken, and equal to the name that the module gives."""
        class Dtype:  # of PyTorch
            def __init__(self, name):
                self.name = name

            def __repr__(self):
                return "torch." + self.name

        for dtype, name in ((Dtype("float32"), "float32"), (Dtype("bfloat16"), "bfloat16"), (Dtype("half"), "float16"),
                            (Dtype("float8_e4m3fn"), "float8_e4m3fn"), ("int16", "int16"), (bool, "bool"),
                            (float, "float64"), (int, "int64"), (complex, "complex128")):
            m = self.gdr.alloc(4, dtype)
            self.assertEqual((str(m.dtype), m.dtype), (name, dtype))
            self.assertFalse(m.dtype != dtype or m.dtype == Dtype("uint32") or m.dtype == "other" or m.dtype == 5
                             or None in (m.dtype,))
            self.assertEqual({m.dtype: 1}[name], 1)
            m.fill(1)
            self.assertEqual((m[0], m[3]), (1, 1))
        if numpy:
            m = self.gdr.alloc((2, 2), Dtype("int32"))
            self.assertTrue(m.dtype == numpy.int32 and m.dtype == numpy.dtype("i4") and numpy.dtype("i4") == m.dtype)
            self.assertEqual(m.array(Dtype("int16")).dtype, numpy.int16)

    def test_void(self):
        """As CuPy has bfloat16: by the interface, of a type that numpy shows as void."""
        for typestr, itemsize in ("<U3", 12), ("<f16", 16):  # U counts characters
            with self.gdr.map(Interface(self.mem.address, (2,), typestr)) as m:
                self.assertEqual((m.nbytes, m.itemsize, len(m.read())), (2 * itemsize, itemsize, 2 * itemsize))
                if numpy:
                    m.write(numpy.ones(2, typestr))
                    m.read_into(numpy.ones(2, typestr))
                    self.assertEqual(m.array().dtype, typestr)
        for typestr in "<V2", "|V2":
            bf16 = types.SimpleNamespace(name="bfloat16", isnative=True, str="<V2")
            with self.gdr.map(Interface(self.mem.address, (4,), typestr, dtype=bf16)) as m:
                self.assertEqual((m.dtype, m.itemsize), ("bfloat16", 2))
            with self.gdr.map(Interface(self.mem.address, (4,), typestr)) as m:
                m.write(b"12345678")
                m.write(array.array("H", [1, 2, 3, 4]))
                if numpy:
                    m.write(numpy.zeros(4, "V2"))
                    self.assertEqual((m.array().dtype.kind, m.array().shape), ("V", (4,)))


class Places(Case):
    def test_devices(self):
        torch_device = types.SimpleNamespace
        class Device(types.SimpleNamespace):
            def __repr__(self):
                return self.text

        for device in (0, "cuda:0", "cuda", Device(type="cuda", index=0, text="cuda:0"),
                       Device(type="cuda", index=None, text="cuda"), torch_device(device_id=0), Way(0),
                       Way(0, "__int__")):
            with self.gdr.alloc(64, device=device) as m:
                self.assertEqual(m.device, 0)
            self.gdr.queue(device=device).close()
            self.gdr.port(device=device).close()
            self.gdr.bar_info(device)
        torch = types.SimpleNamespace(Tensor=type("Tensor", (), {}),
                                      cuda=types.SimpleNamespace(current_device=lambda: 7))
        with mock.patch.dict(sys.modules, torch=torch):
            self.assertRaises(barcopy.Error, self.gdr.alloc, 64, device="cuda")
        for device in ("cpu", "cuda:x", "cuda:-1", "0", Device(type="cpu", index=0, text="cpu"), 1.0, True, None, b"0",
                       bytearray(b"0"), Fraction(0), memoryview(b"0"), ctypes.c_int(0),
                       *((numpy.float32(0), numpy.array(0.5), numpy.void(b"0")) if numpy else ())):
            self.assertRaises(TypeError, self.gdr.alloc, 64, device=device)

    def test_addresses(self):
        address = self.mem.address
        forms = [address, Way(address), Way(address, "__int__")]
        if numpy:
            forms += [numpy.uint64(address), numpy.array(address)]
        cache = self.gdr.cache()
        for form in forms:
            for make in self.gdr.map, self.gdr.pin, cache.get:
                with make(form, 64) as made:
                    self.assertEqual((made.address, type(made.address)), (address, int))
        for form in (float(address), str(address), True, None, b"1", [address]):
            self.assertRaisesRegex(TypeError, "is an integer, not a", self.gdr.map, form, 64)
        self.assertRaises(TypeError, self.gdr.map, self.mem, 64)
        for form in Way(address), Way(address, "__int__"):
            self.assertRaisesRegex(TypeError, "needs a size", self.gdr.map, form)

    def test_names(self):
        mem = self.gdr.alloc((2, 2), "float32")
        cache, pin = self.gdr.cache(), self.gdr.pin(mem)
        for thing, form in ((mem, r"Memory of float32 \(2, 2\) at 0x[0-9a-f]+, cuda:0, rm"),
                            (self.gdr.map(mem, read_only=True), r"Mapping of float32 \(2, 2\) at .*, rm, read-only"),
                            (cache.get(mem), "Region of float32 .*"), (pin, r"Pin of float32 \(2, 2\) at .*, cuda:0"),
                            (cache, "Cache of 1 regions, [0-9]+ bytes pinned"), (self.gdr.queue(), "Queue to cuda:0"),
                            (self.gdr.port(), "Port of cuda:0"), (self.gdr, "Context of [0-9]+ objects")):
            self.assertRegex(repr(thing), f"^<{form}>$")
            thing.close()
            self.assertEqual(repr(thing), f"<closed {type(thing).__name__}>")

    def test_options_are_named(self):
        for call in (lambda: self.gdr.map(self.mem, None, True), lambda: self.gdr.alloc(64, None, 0),
                     lambda: self.gdr.cache(0), lambda: self.gdr.queue(0), lambda: self.gdr.port(0),
                     lambda: self.mem.write_pieces([], False), lambda: self.mem.write(b"x", 0, None),
                     lambda: self.mem.set_copy_options(0), lambda: self.gdr.import_memory(0, 4096, 0)):
            self.assertRaisesRegex(TypeError, "positional argument", call)


class Texts(Case):
    def test_alloc(self):
        self.assertRaisesRegex(TypeError, re.escape('alloc((4, 4), "float32")'), self.gdr.alloc, (4, 4))

    def test_other_orders(self):
        """A dense array in another order: the text has the order in which it can be mapped."""
        address = self.mem.address
        for shape, strides, order in (((2, 3, 4, 4), (192, 4, 48, 12), (0, 2, 3, 1)), ((3, 4), (4, 12), (1, 0)),
                                      ((4, 1, 3), (4, 4, 16), None)):
            array = Interface(address, shape, "<f4", strides)
            if order:
                self.assertRaisesRegex(ValueError, re.escape(f"permute{order}"), self.gdr.map, array)
                permuted = Interface(address, [shape[i] for i in order], "<f4", [strides[i] for i in order])
                with self.gdr.map(permuted) as m:
                    self.assertEqual(m.nbytes, 4 * math.prod(shape))
            else:
                self.assertRaisesRegex(ValueError, "permute", self.gdr.map, array)
        for shape, strides in ((4,), (8,)), ((2, 2), (4, 16)), ((4,), (0,)), ((4,), (-4,)), ((3, 3), (4, 4)):
            array = Interface(address, shape, "<f4", strides)
            self.assertRaisesRegex(ValueError, "contiguous copy", self.gdr.map, array)

    def test_nowhere(self):
        tensor = type("Tensor", (), {"layout": "strided", "device": "meta", "dtype": "torch.float32", "shape": (4,),
                                     "detach": lambda self: self, "is_contiguous": lambda self: True,
                                     "is_conj": lambda self: False, "is_neg": lambda self: False,
                                     "data_ptr": lambda self: 0, "numel": lambda self: 4,
                                     "element_size": lambda self: 4})
        with mock.patch.dict(sys.modules, torch=types.SimpleNamespace(Tensor=tensor, strided="strided")):
            self.assertRaisesRegex(ValueError, "meta that has no memory", self.gdr.map, tensor())


if __name__ == "__main__":
    unittest.main()
