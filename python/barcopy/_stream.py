# SPDX-License-Identifier: MIT
"""Waits for the work of a CUDA stream, by the driver's API; the streams of other libraries in each of their forms."""
import ctypes
import enum
import functools
import struct
import sys
from ctypes import byref, c_int, c_uint64, c_void_p
from itertools import chain, compress
from operator import not_

from ._lib import extension, fitting, integer
from ._life import AtEnd

LEGACY, PER_THREAD = 1, 2  # CU_STREAM_LEGACY, CU_STREAM_PER_THREAD
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
# CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, _INVALIDATED, _IMPLICIT
_CAPTURE_ERRORS = 900, 901, 906
_PROTOTYPES = {
    "cuPointerGetAttribute": (c_void_p, c_int, c_uint64), "cuCtxGetCurrent": (c_void_p,),
    "cuDevicePrimaryCtxRetain": (c_void_p, c_int), "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxPushCurrent_v2": (c_void_p,), "cuCtxPopCurrent_v2": (c_void_p,),
    "cuStreamIsCapturing": (c_void_p, c_void_p), "cuStreamSynchronize": (c_void_p,)}
_fast = extension.wait if extension else lambda *_: -1
_NOWHERE = 1  # no context's address
_primary = {}  # ordinal: the address of its primary context, as it was last seen


class Default(enum.Enum):
    """Of the parameter stream: it was not given."""

    OF_MAPPING = "the mapping's"


@functools.lru_cache(maxsize=None)
def _driver():
    cuda = ctypes.CDLL("libcuda.so.1")
    for name, argtypes in _PROTOTYPES.items():
        getattr(cuda, name).argtypes = argtypes
    cuda.addresses = struct.pack("3Q", *(ctypes.cast(f, c_void_p).value for f in (
        cuda.cuCtxGetCurrent, cuda.cuStreamIsCapturing, cuda.cuStreamSynchronize)))  # of fast.c
    return cuda


def ordinal_of(address):
    """The ordinal of the GPU that this address is of."""
    ordinal = c_int()
    _check(_driver().cuPointerGetAttribute(byref(ordinal), _DEVICE_ORDINAL, address), "cuPointerGetAttribute")
    return ordinal.value


def handle_of(stream, ordinal):
    """
    The CUstream of what a caller gives: "current", PyTorch's for that GPU; an object of another library, or a
    handle. 0, which they all have for it, is CUDA's legacy default stream, as in cuda.core.
    """
    if type(stream) is int and 0 < stream < 1 << 64:
        return stream
    if isinstance(stream, str):
        torch = sys.modules.get("torch")
        if stream != "current" or torch is None:
            raise ValueError(f"no stream {stream!r}" if stream != "current" else
                             "stream \"current\" is PyTorch's, and torch is not imported")
        raw = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
        if raw is not None:  # as the code that torch.compile makes: the object below takes microseconds
            return raw(ordinal) or LEGACY
        stream = torch.cuda.current_stream(ordinal)
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        version, handle = protocol() if callable(protocol) else protocol
        if version != 0:
            raise TypeError(f"this {type(stream).__name__} has version {version} of __cuda_stream__, not 0")
    else:
        handle = next((getattr(stream, name) for name in ("cuda_stream", "ptr") if hasattr(stream, name)), stream)
    return fitting(c_uint64, integer(handle, "a stream"), "stream") or LEGACY


def wait(stream, ordinal):
    """
    Waits for the work that is in the stream now: a handle, or 1 or 2, the default streams of the GPU's primary context,
    as frameworks have. Other threads run. The caller's context is current afterwards.
    """
    cuda, current = _driver(), c_void_p()
    primary = _primary.get(ordinal, _NOWHERE)
    if not _fast(cuda.addresses, stream, primary):
        return
    _check(cuda.cuCtxGetCurrent(byref(current)), "cuCtxGetCurrent")
    if current.value == primary:
        _wait_here(cuda, stream)
        return
    context, retained, pushed = c_void_p(), [], []
    undo = AtEnd(chain(map(cuda.cuCtxPopCurrent_v2, compress((byref(current),), map(not_, pushed))),
                       map(cuda.cuDevicePrimaryCtxRelease_v2, compress((ordinal,), map(not_, retained)))))
    try:
        retained.extend(map(cuda.cuDevicePrimaryCtxRetain, (byref(context),), (ordinal,)))
        _check(*retained, "cuDevicePrimaryCtxRetain")
        pushed.extend(map(cuda.cuCtxPushCurrent_v2, (context,)))
        _check(*pushed, "cuCtxPushCurrent")
        _primary[ordinal] = context.value
        _wait_here(cuda, stream)
    finally:
        undo.__del__()


def refuse_capture(stream):
    """
    Raises if a wait for it would end the capture of a graph. An error of something else is left to the wait.
    """
    capturing = c_int()
    # Of a question about the streams of each thread the children that a process forks later die (580.159.04).
    code = _driver().cuStreamIsCapturing(stream, byref(capturing)) if stream != PER_THREAD else 0
    if capturing.value or code in _CAPTURE_ERRORS:
        raise RuntimeError(f"stream {stream:#x} is part of the capture of a CUDA graph, which a wait would end: map, "
                           "write and read outside of the capture, or with stream=None")


def _wait_here(cuda, stream):
    refuse_capture(stream)
    _check(cuda.cuStreamSynchronize(stream), f"stream {stream:#x}: cuStreamSynchronize")


def _check(code, name):
    if code:
        raise RuntimeError(f"cannot wait for a stream: {name} fails with CUDA's error {code}")


def wait_for_stream(stream, address):
    """Of an array's interface, where 0 is not allowed."""
    stream = fitting(c_uint64, stream, "stream")
    if stream == 0:
        raise ValueError("stream 0 is ambiguous: 1 is CUDA's legacy default stream, 2 the one of each thread")
    wait(stream, ordinal_of(address))
