# SPDX-License-Identifier: MIT
"""A teardown that fails if a test leaves an object of the module, a pin or a mapping behind."""
import collections
import gc
import unittest

import barcopy
from barcopy import _dlpack


def objects():
    """How many objects of the module's own types there are, by type; and arrays that DLPack has given away."""
    gc.collect()
    found = collections.Counter(type(thing).__name__ for thing in gc.get_objects()
                                if str(getattr(type(thing), "__module__", "")).startswith("barcopy"))
    found["given by DLPack"] = len(_dlpack._given)
    return found


def held():
    stats = barcopy.stats()
    return {"pins": stats.pins - stats.unpins, "maps": stats.maps - stats.unmaps}


class Balanced(unittest.TestCase):
    def setUp(self):
        barcopy.library_version()  # loads the library
        self._objects, self._held = objects(), held()
        self.addCleanup(self._compare)  # the first one: behind all others

    def _compare(self):
        for name in [name for name in vars(self) if name[0] != "_"]:
            delattr(self, name)
        self.assertEqual(dict(objects() - self._objects), {}, "objects that the test has left")
        self.assertEqual(held(), self._held, "what the test has left pinned and mapped")
