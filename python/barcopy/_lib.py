# SPDX-License-Identifier: MIT
"""
libgdrapi as ctypes sees it: the structs and prototypes of gdrapi.h, and errors as exceptions. It
knows nothing of lifetimes. The library is what BARCOPY_LIBRARY names (except under python3 -E and -I),
else that of the wheel, which lies next to this file, else the system's libgdrapi.so.2.
"""
from __future__ import annotations

import ctypes
import enum
import os
import re
import sys
from ctypes import POINTER, Structure, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_ulong, c_void_p
from errno import ETIMEDOUT
from math import inf
from operator import index

try:
    if "t" in sys.abiflags:
        raise ImportError  # free-threaded: objects have another layout
    from . import _fast as extension  # of wheels
except ImportError:
    extension = None

OPEN_ANY = 1
MAP_RANGE_READ_ONLY, MAP_RANGE_NO_SYNC_MEMOPS = 1, 2
CACHE_NO_SYNC_MEMOPS = 1
MEM_CACHED = 1
MEM_SHAREABLE = 4
COPY_ORDERED, COPY_NO_FENCE = 1, 2
ENGINE_AUTO = c_size_t(-1).value
QUEUE_ORDERED, QUEUE_ABORT = 1, 2
PORT_MANUAL, PORT_ABORT = 1, 2
COMPARISONS = {"==": 1, "!=": 2, "<": 3, "<=": 4, ">": 5, ">=": 6}
BACKENDS = {1: "gdrdrv", 2: "dmabuf", 3: "rm", 4: "host"}
MAPPING_TYPES = {0: "none", 1: "write-combining", 2: "caching", 3: "device"}
(ATTR_BACKEND, ATTR_DEVICE, ATTR_PERSISTENT, ATTR_SYNC_MEMOPS, ATTR_MAPPING_TYPE) = range(1, 6)
STATS_COPIES = 1
WORDS = "put32", "put64", "post32", "post64", "get32", "get64"  # in _fast's order
FOREVER = 2**64 - 1
_SLICE_NS = 100_000_000  # of a wait, so that Ctrl-C is noticed


class Fence(enum.IntEnum):
    """Of Mapping.fence(): barcopy_fence(3)."""

    BEFORE_READ, AFTER_READ, AFTER_WRITE, FULL = 1, 2, 3, 4
    __str__ = enum.Enum.__str__  # its name, where Python 3.11 and newer print the number


class Validity(enum.IntEnum):
    """Of Context.cache(), how a cache learns of freed memory: barcopy_cache_create(3)."""

    CHECK_TAG, NOTIFIED = 0, 1
    __str__ = enum.Enum.__str__


class Error(OSError):
    """A call of the library failed: errno, and the cause in words as strerror."""


class Timeout(Error, TimeoutError):
    """A wait ended without its condition."""


def _struct(name, *fields):
    return type(Structure)(name, (Structure,), {"_fields_": fields})


def _sized(name, fields):
    return _struct(name, ("struct_size", c_size_t), *((field, c_uint64) for field in fields.split()))


Handle = _struct("gdr_mh_t", ("h", c_ulong))
Handle._as_parameter_ = Handle.h  # an argument is the word, as below
Info = _struct("gdr_info_v2_t", ("va", c_uint64), ("mapped_size", c_uint64), ("page_size", c_uint32),
               ("tm_cycles", c_uint64), ("cycles_per_ms", c_uint32), ("mapped", c_uint32, 1),
               ("wc_mapping", c_uint32, 1), ("mapping_type", c_int))
Segment = _struct("barcopy_copy_seg_t", ("map_ptr", c_void_p), ("host_ptr", c_void_p), ("size", c_size_t),
                  ("flags", c_uint32), ("reserved", c_uint32))
CopyOptions = _struct("barcopy_copy_options_t", ("struct_size", c_size_t), ("flags", c_uint32),
                      ("reserved", c_uint32), ("engine_read_min", c_size_t), ("engine_write_min", c_size_t))
Mem = _struct("barcopy_mem_t", ("device_ptr", c_uint64), ("cpu_ptr", c_void_p), ("size", c_size_t),
              ("handle", Handle))
BarInfo = _sized("barcopy_bar_info_t", "total used free")
CacheOptions = _struct("barcopy_cache_options_t", ("struct_size", c_size_t), ("validity", c_uint32),
                       ("flags", c_uint32), ("max_bytes", c_uint64), ("max_regions", c_uint64),
                       ("engine_read_min", c_size_t), ("engine_write_min", c_size_t))
CacheRegion = _struct("barcopy_region_t", ("cpu_ptr", c_void_p), ("device_ptr", c_uint64), ("size", c_size_t),
                      ("handle", Handle), ("entry", c_uint64))
CacheStats = _sized("barcopy_cache_stats_t", "hits misses evictions invalidations regions regions_in_use "
                    "bytes_pinned max_bytes")
RawStats = _sized("barcopy_stats_t", "flags pins unpins maps unmaps revoked engine_copies engine_fallbacks "
                  "cache_hits cache_misses cache_evictions copies_to bytes_to copies_from bytes_from puts gets waits")
QueueOptions = _struct("barcopy_queue_options_t", ("struct_size", c_size_t), ("lines", c_uint32),
                       ("flags", c_uint32))
QueueView = _struct("barcopy_queue_view_t", *((name, c_uint64) for name in "requests replies control state".split()),
                    ("lines", c_uint32), ("version", c_uint32))
PortOptions = _struct("barcopy_port_options_t", ("struct_size", c_size_t), ("lines", c_uint32), ("flags", c_uint32),
                      *((name, c_uint64) for name in "spin_ns yield_ns sleep_ns".split()))
PortView = _struct("barcopy_port_view_t", *((name, c_uint64) for name in "ring control generation".split()),
                   ("lines", c_uint32), ("reserved", c_uint32))
PortMessage = _struct("barcopy_port_message_t", ("post", c_uint64), ("size", c_uint32), ("call", c_uint32),
                      ("data", c_uint64 * 6))

# gdr_mh_t by value is passed as the one word that it is: to ctypes a struct is twice as slow.
_H, _HP, _P, _PV = c_ulong, POINTER(Handle), POINTER, POINTER(c_void_p)
_PROTOTYPES = {
    "barcopy_open": (c_void_p, c_uint32),
    "gdr_close": (c_int, c_void_p),
    "barcopy_last_error": (c_char_p,),
    "gdr_runtime_get_version": (None, _P(c_int), _P(c_int)),
    "gdr_driver_get_version": (c_int, c_void_p, _P(c_int), _P(c_int)),
    "gdr_pin_buffer_v2": (c_int, c_void_p, c_ulong, c_size_t, c_uint32, _HP),
    "gdr_unpin_buffer": (c_int, c_void_p, _H),
    "gdr_get_info_v2": (c_int, c_void_p, _H, _P(Info)),
    "gdr_get_callback_flag": (c_int, c_void_p, _H, _P(c_int)),
    "barcopy_get_handle_attribute": (c_int, c_void_p, _H, c_int, _P(c_uint64)),
    "gdr_map_v2": (c_int, c_void_p, _H, _PV, c_size_t, c_int),
    "gdr_unmap": (c_int, c_void_p, _H, c_void_p, c_size_t),
    "barcopy_map_range": (c_int, c_void_p, c_uint64, c_size_t, c_uint32, _PV, _HP),
    "barcopy_unmap_range": (c_int, c_void_p, _H),
    "gdr_copy_to_mapping": (c_int, _H, c_void_p, c_void_p, c_size_t),
    "gdr_copy_from_mapping": (c_int, _H, c_void_p, c_void_p, c_size_t),
    "barcopy_copyv_to_mapping": (c_int, _H, _P(Segment), c_size_t, c_uint32),
    "barcopy_copyv_from_mapping": (c_int, _H, _P(Segment), c_size_t, c_uint32),
    "barcopy_set_copy_options": (c_int, _H, _P(CopyOptions)),
    "barcopy_fence": (c_int, _H, c_int),
    "barcopy_flush": (c_int, _H),
    "barcopy_put32": (c_int, _H, c_void_p, c_uint32),
    "barcopy_put64": (c_int, _H, c_void_p, c_uint64),
    "barcopy_post32": (c_int, _H, c_void_p, c_uint32),
    "barcopy_post64": (c_int, _H, c_void_p, c_uint64),
    "barcopy_post_line": (c_int, _H, c_void_p, c_void_p),
    "barcopy_get32": (c_int, _H, c_void_p, _P(c_uint32)),
    "barcopy_get64": (c_int, _H, c_void_p, _P(c_uint64)),
    "barcopy_wait32": (c_int, _H, c_void_p, c_int, c_uint32, c_uint64),
    "barcopy_wait64": (c_int, _H, c_void_p, c_int, c_uint64, c_uint64),
    "barcopy_mem_alloc": (c_int, c_void_p, c_int, c_size_t, c_uint32, _P(Mem)),
    "barcopy_mem_free": (c_int, c_void_p, _P(Mem)),
    "barcopy_mem_export": (c_int, c_void_p, _P(Mem), _P(c_int)),
    "barcopy_mem_import": (c_int, c_void_p, c_int, c_int, c_size_t, c_uint32, _P(Mem)),
    "barcopy_get_bar_info": (c_int, c_int, _P(BarInfo)),
    "barcopy_cache_create": (c_int, c_void_p, _P(CacheOptions), _PV),
    "barcopy_cache_destroy": (c_int, c_void_p),
    "barcopy_cache_get": (c_int, c_void_p, c_uint64, c_size_t, _P(CacheRegion)),
    "barcopy_cache_put": (c_int, c_void_p, _P(CacheRegion)),
    "barcopy_cache_invalidate": (c_int, c_void_p, c_uint64, c_size_t),
    "barcopy_cache_trim": (c_int, c_void_p, c_uint64),
    "barcopy_cache_get_stats": (c_int, c_void_p, _P(CacheStats)),
    "barcopy_get_stats": (c_int, c_void_p, _P(RawStats)),
    "barcopy_port_create": (c_int, c_void_p, c_int, _P(PortOptions), _PV),
    "barcopy_port_get_view": (c_int, c_void_p, _P(PortView)),
    "barcopy_port_receive": (c_int, c_void_p, _P(PortMessage), c_uint32, _P(c_uint32), c_uint64),
    "barcopy_port_retire": (c_int, c_void_p, c_uint64, c_uint32),
    "barcopy_port_answer": (c_int, c_void_p, _P(c_uint32), _P(c_uint64), c_uint32),
    "barcopy_port_stop": (c_int, c_void_p, c_uint32),
    "barcopy_port_end": (c_int, c_void_p),
    "barcopy_port_destroy": (c_int, c_void_p),
    "barcopy_queue_create": (c_int, c_void_p, c_int, _P(QueueOptions), _PV),
    "barcopy_queue_get_view": (c_int, c_void_p, _P(QueueView)),
    "barcopy_queue_send": (c_int, c_void_p, c_void_p, c_size_t, c_uint32, c_uint64),
    "barcopy_queue_receive": (c_int, c_void_p, c_void_p, c_size_t, _P(c_size_t), c_uint64),
    "barcopy_queue_stop": (c_int, c_void_p, c_uint32),
    "barcopy_queue_destroy": (c_int, c_void_p),
}

_loaded = None


class _Missing:
    """In the place of a function that this library does not have."""

    def __init__(self, name):
        self._name = name

    def __call__(self, *args):
        raise NotImplementedError(f"this libgdrapi.so.2 has no {self._name}: it is not barcopy's, "
                                  "or an older one")


def _load():
    named = None if sys.flags.ignore_environment else os.environ.get("BARCOPY_LIBRARY")
    inside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libgdrapi.so.2")
    try:
        return ctypes.CDLL(named or (inside if os.path.exists(inside) else "libgdrapi.so.2"),
                           use_errno=True)
    except OSError as why:
        raise OSError(f"{why} (" + ("BARCOPY_LIBRARY names it)" if named else
                      "the library comes with barcopy's wheel for x86_64 and aarch64, with the package "
                      "libgdrapi2, or with `make install`; BARCOPY_LIBRARY may name the file)")) from None


class _Library:
    def __init__(self):
        lib = _load()
        for name, (restype, *argtypes) in _PROTOTYPES.items():
            try:
                function = getattr(lib, name)
            except AttributeError:
                setattr(self, name, _Missing(name))
                continue
            function.restype = restype
            function.argtypes = argtypes
            setattr(self, name, function)
        # for _fast: addresses
        self.copy_to = ctypes.cast(lib.gdr_copy_to_mapping, c_void_p).value
        self.copy_from = ctypes.cast(lib.gdr_copy_from_mapping, c_void_p).value
        words = (getattr(self, f"barcopy_{name}") for name in WORDS)
        self.words = [0 if isinstance(word, _Missing) else ctypes.cast(word, c_void_p).value for word in words]


def library():
    """The library, loaded at the first call; OSError where there is none."""
    global _loaded
    if _loaded is None:
        _loaded = _Library()  # maybe once more, in another thread or a signal handler, with the same functions
    return _loaded


def error(number):
    """The exception for an errno that a call of this thread has just returned."""
    text = library().barcopy_last_error().decode(errors="replace") or os.strerror(number)
    return (Timeout if number == ETIMEDOUT else Error)(number, text)


def integer(value, what):
    """
    Any integer as an int: by __index__, or by __int__, which addresses and handles of CUDA's Python libraries have;
    TypeError for a float, a str, a bool, a buffer, and others.
    """
    if not isinstance(value, bool):
        try:
            return index(value)
        except TypeError:
            if hasattr(value, "__int__") and not hasattr(value, "__float__"):
                return int(value)
    raise TypeError(f"{what} is an integer, not a {type(value).__name__}")


def ordinal(device):
    """CUDA's ordinal of a GPU: of that, "cuda:1", "cuda" (PyTorch's current one), a torch.device, cuda.core's Device."""
    if hasattr(device, "index"):  # a str, a torch.device
        form = re.match(r"cuda(?::(\d+))?$", str(device))
        if not form:
            raise TypeError(f"device {str(device)!r} is no GPU of CUDA: one is \"cuda:0\", or 0")
        torch = sys.modules.get("torch")
        device = int(form.group(1)) if form.group(1) else torch.cuda.current_device() if torch else 0
    return fitting(c_int, integer(getattr(device, "device_id", device), "a device"), "device")


def fitting(ctype, value, what):
    """
    The value as an int, of any integer (numpy's too), where it fits: ctypes would drop what does not, and
    call with another number.
    """
    value = index(value)
    if ctype(value).value != value:
        raise ValueError(f"{what} {value} is out of range")
    return value


def of_enum(kind, value, what):
    """The number of one of `kind`, or a plain integer; TypeError for one of another enumeration."""
    if isinstance(value, enum.Enum) and not isinstance(value, kind):
        raise TypeError(f"{what} {value!r} is no {kind.__name__}")
    return value


def check(number):
    """Raises Error unless it is 0."""
    if number:
        raise error(number)


def wait(timeout, call):
    """call(nanoseconds) until it returns something else than ETIMEDOUT; Timeout after so many seconds."""
    timeout = inf if timeout is None else timeout
    if not timeout >= 0:
        raise ValueError(f"a timeout of {timeout} seconds")
    left = int(min(timeout * 1e9, FOREVER))
    while True:
        now = min(left, _SLICE_NS)
        err = call(now)
        left -= now
        if err != ETIMEDOUT or not left:
            return check(err)


def library_version() -> tuple[int, int]:
    """The interface level of the library: (2, 6)."""
    major, minor = c_int(), c_int()
    library().gdr_runtime_get_version(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value
