# SPDX-License-Identifier: MIT
"""
barcopy: direct CPU access to NVIDIA GPU memory, by ctypes over libgdrapi. numpy and PyTorch are used if
installed, and not needed.

    with barcopy.open() as gdr, gdr.map(tensor) as m:
        m.write(data)           # any buffer, into the tensor
        m.array()[0] = 1.5      # the tensor itself, as a numpy array

Every object with close() is a context manager. An object that is closed while a view or another thread's
copy uses it lives until they end: a view never points at memory that is gone. Two exceptions, both the
library's: a forked child does not have the parent's views, and where mappings are not persistent, memory
that is freed takes its mapping along (a Mapping keeps the tensor that it was made of).
"""
from ._lib import ENGINE_AUTO, Error, Fence, Timeout, Validity, library_version
from ._life import Closed
from .cache import Cache, Region
from .context import Context, open as open  # noqa: A004  "as" makes it public to type checkers
from .mapping import Mapping, Memory
from .pin import Pin
from .port import Port, Post
from .queue import Queue
from .stats import Stats, stats

# Each by its name: type checkers do not take an enumeration apart.
BEFORE_READ, AFTER_READ, AFTER_WRITE, FULL = Fence.BEFORE_READ, Fence.AFTER_READ, Fence.AFTER_WRITE, Fence.FULL
CHECK_TAG, NOTIFIED = Validity.CHECK_TAG, Validity.NOTIFIED
__version__ = "2.6.0"
__all__ = ["AFTER_READ", "AFTER_WRITE", "BEFORE_READ", "CHECK_TAG", "Cache",
           "Closed", "Context", "ENGINE_AUTO", "Error", "FULL", "Fence", "Mapping", "Memory", "NOTIFIED", "Pin", "Port",
           "Post", "Queue", "Region", "Stats", "Timeout", "Validity", "library_version", "stats"]  # no open: Python's
