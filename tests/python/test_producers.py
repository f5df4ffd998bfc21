# SPDX-License-Identifier: MIT
"""
Arrays of other libraries (producers.py): what map(), pin() and Cache.get() do with two protocols at once, with work that
is under way, and with memory that its library frees or replaces meanwhile.
"""
import functools
import gc
import os
import sys
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import barcopy  # noqa: E402
from balance import Balanced  # noqa: E402
from producers import Cuda, Cupy, Jax, Torch, code_of, exported, late  # noqa: E402


def each_way(test):
    """A test of map(), of pin() and of Cache.get()."""
    @functools.wraps(test)
    def run(self):
        for name, way in self.ways.items():
            with self.subTest(way=name):
                test(self, way)
            gc.collect()
    return run


class Case(Balanced):
    def setUp(self):
        super().setUp()
        self.cuda = Cuda()
        self.gdr = barcopy.open()
        self.addCleanup(self.gdr.close)
        self.cache = self.gdr.cache()
        # Each way to a mapping of an object.
        self.ways = {"map": self.gdr.map, "pin": lambda o: self.gdr.pin(o).map(), "cache": self.cache.get}

    def not_given_away(self, mapping, make):
        """No array that is made now has the memory of the mapping; after close() the next one does."""
        address = mapping.address
        gc.collect()
        others = [make() for _ in range(4)]
        self.assertNotIn(address, [other.block.address for other in others])
        mapping.close()
        del mapping
        gc.collect()
        self.assertEqual(make().block.address, address)


class OfJax(Case):
    def setUp(self):
        super().setUp()
        self.jax = Jax(self.cuda)

    @each_way
    def test_waits(self, way):
        """The numbers of a computation that is under way, which the interface does not name."""
        for value in 1, 2:
            with late():
                array = self.jax.array((64,), "|u1", value)
            with way(array) as m:
                self.assertEqual(m.read(), bytes([value]) * 64)

    @each_way
    def test_deleted_while_mapped(self, way):
        array = self.jax.array((64,), "|u1", 1)
        m = way(array)
        array.delete()
        del array
        self.not_given_away(m, lambda: self.jax.array((64,), "|u1", 0))

    def test_forgotten_while_mapped(self):
        m = self.gdr.map(self.jax.array((64,), "|u1", 1))
        self.not_given_away(m, lambda: self.jax.array((64,), "|u1", 0))

    @each_way
    def test_read_only(self, way):
        """The interface says so, which a capsule without a version cannot say."""
        with way(self.jax.array((16,), "<i4", 0)) as m:
            self.assertTrue(m.read_only)
            self.assertRaises(TypeError, m.put32, 0, 1)

    @each_way
    def test_error_of_a_computation(self, way):
        """Is raised: the interface would give numbers that were never computed."""
        for kind in RuntimeError, ValueError, TypeError:
            array = self.jax.array((16,), "<i4", 0, kind("INTERNAL: out of memory"))
            self.assertRaisesRegex(kind, "INTERNAL", way, array)

    @each_way
    def test_deleted(self, way):
        array = self.jax.array((16,), "<i4", 0)
        array.delete()
        self.assertRaisesRegex(RuntimeError, "deleted", way, array)

    def test_types(self):
        for typestr, name in ("<f4", "float32"), ("|b1", "bool"), ("<c8", "complex64"), ("<V2", "bfloat16"):
            with self.gdr.map(self.jax.array((3, 4), typestr, 0)) as m:
                self.assertEqual((str(m.dtype), m.shape), (name, (3, 4)))

    def test_number(self):
        with self.gdr.map(self.jax.array((), "<f4", 0)) as m:
            self.assertEqual((m.shape, len(m.read())), ((), 4))


class OfCupy(Case):
    def setUp(self):
        super().setUp()
        self.cupy = Cupy(self.cuda)

    def on_a_stream(self, way, stream, array, value):
        with self.cupy.on(stream):
            with late():
                array.fill(value, 64)
            with way(array) as m:
                self.assertEqual((m.read(), m.shape, m.read_only), (bytes([value]) * 64, array.shape, False))

    @each_way
    def test_waits_for_the_current_stream(self, way):
        for value, stream in enumerate((0, self.cuda.stream(False), self.cuda.stream(True)), 1):
            self.on_a_stream(way, stream, self.cupy.array((64,), "|u1"), value)

    @each_way
    def test_records_and_times(self, way):
        """DLPack refuses them: by the interface, whose stream is waited for."""
        for value, typestr in enumerate(("<M8[ns]", "|V8", "<m8[us]"), 1):
            self.assertRaises(BufferError, code_of, typestr)
            self.on_a_stream(way, self.cuda.stream(), self.cupy.array((8,), typestr), value)
            with way(self.cupy.array((8,), typestr)) as m:
                self.assertEqual(m.__cuda_array_interface__["typestr"], typestr)

    @each_way
    def test_forgotten_while_mapped(self, way):
        for typestr in "|u1", "|V1":
            m = way(self.cupy.array((64,), typestr))
            self.not_given_away(m, lambda typestr=typestr: self.cupy.array((64,), typestr))

    @each_way
    def test_forms(self, way):
        for shape, strides in ((), None), ((1, 4), (99 * 4, 4)), ((2, 3), (12, 4)), ((1, 1, 1), (4, 4, 4)):
            with way(self.cupy.array(shape, "<f4", strides)) as m:
                self.assertEqual(m.shape, shape)
        for shape, strides in ((4,), (8,)), ((2, 3), (4, 8)), ((4,), (0,)), ((4,), (-4,)):
            self.assertRaisesRegex(ValueError, "contiguous", way, self.cupy.array(shape, "<f4", strides))

    def test_nothing_is_kept(self):
        """Of a mapping that is closed, of one that failed, and of an object that was refused."""
        before = len(exported)
        for _ in range(3):
            self.gdr.map(self.cupy.array((4,), "<f4")).close()
            self.assertRaises(ValueError, self.gdr.map, self.cupy.array((4,), "<f4", (8,)))
            self.assertRaises(ValueError, self.gdr.map, self.cupy.array((0,), "<f4"))
        gc.collect()
        self.assertEqual(len(exported), before)
        self.assertEqual(len(self.cupy.pool.free), 16)


class OfTorch(Case):
    def setUp(self):
        super().setUp()
        self.torch = Torch(self.cuda)
        patch = mock.patch.dict(sys.modules, torch=self.torch)
        patch.start()
        self.addCleanup(patch.stop)

    @each_way
    def test_storage_is_replaced(self, way):
        """By `t.data = other` and others: the mapping keeps the storage, not the object."""
        for swap in lambda t: setattr(t, "data", self.torch.Tensor(4)), lambda t: t.set_(self.torch.Tensor(4)):
            tensor = self.torch.Tensor(64)
            m = way(tensor)
            swap(tensor)
            self.not_given_away(m, lambda: self.torch.Tensor(64))

    @each_way
    def test_forgotten_while_mapped(self, way):
        self.not_given_away(way(self.torch.Tensor(64)), lambda: self.torch.Tensor(64))

    @each_way
    def test_requires_a_gradient(self, way):
        """Neither protocol takes it; a mapping does."""
        with way(self.torch.Tensor(16, requires_grad=True)) as m:
            self.assertEqual((str(m.dtype), m.shape, m.read_only), ("float32", (16,), False))

    def test_names_no_stream(self):
        """The program waits for the tensor's own work: the page says so."""
        tensor = self.torch.Tensor(16)
        with self.gdr.map(tensor) as m:
            with late():
                tensor.fill_(7)
            self.torch.cuda.current_stream().synchronize()
            self.assertEqual(m.read(), b"\7" * 64)


class Both:
    """An object with two protocols that tell different things."""

    def __init__(self, dlpack, interface):
        self.__dlpack__, self.__dlpack_device__ = dlpack.__dlpack__, dlpack.__dlpack_device__
        self.__cuda_array_interface__ = interface.__cuda_array_interface__


class TwoProtocols(Case):
    @each_way
    def test_the_memory_of_one(self, way):
        """Never the address of one and the type or size of the other."""
        cupy = Cupy(self.cuda)
        a, b = cupy.array((16,), "<f4"), cupy.array((4, 2), "<i4")
        with way(Both(a, b)) as m:
            seen = m.address, m.shape, str(m.dtype)
        self.assertIn(seen, [(a.block.address, (16,), "float32"), (b.block.address, (4, 2), "int32")])

    def test_read_only_by_either(self):
        jax, cupy = Jax(self.cuda), Cupy(self.cuda)
        array = jax.array((16,), "<i4", 0)
        for both in Both(cupy.array((16,), "<i4"), array), Both(array, array):
            with self.gdr.map(both) as m:
                self.assertTrue(m.read_only)


if __name__ == "__main__":
    unittest.main()
