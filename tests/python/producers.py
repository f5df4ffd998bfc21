# SPDX-License-Identifier: MIT
"""
Arrays on the stand-in's GPU that behave as those of JAX, CuPy and PyTorch: when their numbers are there, which streams
they name, who keeps their memory, what each protocol refuses. Each is written from that project's source, which its
class names; no code is theirs.

Their work is late (late()), and their memory comes from a pool that gives what is freed to the next array, at once.
"""
import contextlib
import ctypes
import os
import types

CUDA_DEVICE = (2, 0)


# ---- CUDA ----------------------------------------------------------------------------------------

class Cuda:
    """The driver, with the primary context current in this thread."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        code = getattr(self.lib, name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: {code}")

    def made(self, name, *arguments):
        made = ctypes.c_void_p()
        self.call(name, ctypes.byref(made), *arguments)
        return made.value

    def stream(self, non_blocking=True):
        return self.made("cuStreamCreate", int(non_blocking))

    def synchronize(self, stream):
        self.call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def fill(self, address, value, size, stream):
        self.call("cuMemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(value), ctypes.c_size_t(size),
                  ctypes.c_void_p(stream))

    def follows(self, stream, other):
        """What is submitted to `stream` from now on comes behind the work of `other`."""
        event = ctypes.c_void_p(self.made("cuEventCreate", 2))
        self.call("cuEventRecord", event, ctypes.c_void_p(other))
        self.call("cuStreamWaitEvent", ctypes.c_void_p(stream), event, 0)
        self.call("cuEventDestroy_v2", event)


@contextlib.contextmanager
def late(milliseconds=100):
    """Asynchronous work that is submitted meanwhile is done so much later."""
    name = "GDRSIM_ASYNC_DELAY_US"
    usual = os.environ.get(name)
    os.environ[name] = str(1000 * milliseconds)
    try:
        yield
    finally:
        if usual is None:
            del os.environ[name]
        else:
            os.environ[name] = usual


class Pool:
    """Blocks of one allocation; the one that was freed last is given first."""

    SIZE = 4096

    def __init__(self, cuda, count=16):
        memory = ctypes.c_uint64()
        cuda.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(self.SIZE * count))
        self.free = [memory.value + self.SIZE * i for i in range(count)]


class Block:
    """A block, until the last reference to it has gone, as of a torch.Storage or a PjRtBuffer's memory."""

    def __init__(self, pool):
        self._pool, self.address = pool, pool.free.pop()

    def __del__(self):
        self._pool.free.append(self.address)


# ---- DLPack (dmlc/dlpack, include/dlpack/dlpack.h) -------------------------------------------------

class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64)]


class _Old(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
exported = {}  # by address of the struct: what its consumer keeps


@_DELETER
def _delete(address):
    del exported[address]


def capsule(owner, address, device, code, bits, shape, versioned=False, strides=None):
    """Keeps `owner` until its consumer calls the deleter."""
    managed = (_Versioned if versioned else _Old)()
    lengths = (ctypes.c_int64 * (len(shape) or 1))(*shape)
    steps = (ctypes.c_int64 * (len(shape) or 1))(*strides) if strides else None
    managed.tensor = _Tensor(address, *device, len(shape), code, bits, 1, ctypes.addressof(lengths),
                             ctypes.addressof(steps) if steps else None, 0)
    managed.deleter = ctypes.cast(_delete, ctypes.c_void_p)
    if versioned:
        managed.major = 1
    exported[ctypes.addressof(managed)] = owner, managed, lengths, steps
    return _new(ctypes.addressof(managed), b"dltensor_versioned" if versioned else b"dltensor", None)


KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


def code_of(typestr):
    """DLPack's code and bits of "<f4"; BufferError for a type that it lacks."""
    if typestr[1] not in KINDS:
        raise BufferError("dtype is not supported for dlpack export")
    return KINDS[typestr[1]], 8 * int(typestr[2:])


# ---- JAX -----------------------------------------------------------------------------------------

class Jax:
    """
    jax-ml/jax, jaxlib/py_array.cc (CudaArrayInterface()) and jaxlib/dlpack.cc (BufferToDLPackManagedTensor()):
    the interface is of version 2, read-only, names no stream and holds the buffer only while it is made. DLPack's
    capsule is one without version and so without flags; it waits on the consumer's stream, or itself if that names none,
    and holds the buffer. delete() and donation free a buffer that no capsule holds (jax/_src/array.py).
    """

    def __init__(self, cuda):
        self.cuda, self.pool, self.stream = cuda, Pool(cuda), cuda.stream()

    class Array:
        def __init__(self, client, shape, typestr, value, error=None):
            self.client, self.shape, self.typestr, self.error = client, shape, typestr, error
            self.size = int(typestr[2:])
            for length in shape:
                self.size *= length
            self.block = Block(client.pool)
            client.cuda.fill(self.block.address, value, self.size, client.stream)

        def delete(self):
            self.block = None

        def _check_if_deleted(self):
            if self.block is None:
                raise RuntimeError("Array has been deleted with shape=" + str(self.shape))

        @property
        def __cuda_array_interface__(self):
            self._check_if_deleted()
            if self.typestr == "<V2":
                raise AttributeError("__cuda_array_interface__ is not supported for BF16 buffers.")
            return {"shape": self.shape, "typestr": self.typestr, "data": (self.block.address, True), "version": 2}

        def __dlpack_device__(self):
            return CUDA_DEVICE

        def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
            self._check_if_deleted()
            if self.error:  # the hold waits for what defines the buffer
                raise self.error
            if stream is None:
                self.client.cuda.synchronize(self.client.stream)
            else:
                self.client.cuda.follows(stream, self.client.stream)
            code = (4, 16) if self.typestr == "<V2" else code_of(self.typestr)
            return capsule(self.block, self.block.address, CUDA_DEVICE, *code, self.shape)

    def array(self, shape, typestr, value, error=None):
        return self.Array(self, shape, typestr, value, error)


# ---- CuPy ----------------------------------------------------------------------------------------

class Cupy:
    """
    cupy/cupy, cupy/_core/core.pyx (_ndarray_base.__cuda_array_interface__ and __dlpack__) and dlpack.pyx: the interface
    names the stream that is current when it is asked, 1 for the default one; DLPack makes the consumer's stream
    wait for the current one, refuses records and times, gives a versioned capsule where the consumer takes one.
    Either keeps the memory as long as somebody keeps the array.
    """

    def __init__(self, cuda):
        self.cuda, self.pool, self.current = cuda, Pool(cuda), 0

    @contextlib.contextmanager
    def on(self, stream):
        former, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = former

    class Array:
        def __init__(self, library, shape, typestr, strides=None):
            self.library, self.shape, self.typestr, self.strides = library, shape, typestr, strides
            self.block = Block(library.pool)

        def fill(self, value, size):
            self.library.cuda.fill(self.block.address, value, size, self.library.current)

        @property
        def __cuda_array_interface__(self):
            return {"shape": self.shape, "typestr": self.typestr, "descr": [("", self.typestr)], "version": 3,
                    "stream": self.library.current or 1, "strides": self.strides, "data": (self.block.address, False)}

        def __dlpack_device__(self):
            return CUDA_DEVICE

        def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
            if copy or dl_device not in (None, CUDA_DEVICE):
                raise BufferError("unsupported device requested.")
            consumer = 1 if stream is None else stream
            if consumer < -1:
                raise ValueError(f"the valid stream is -1, 1, 2, or any larger value, but {stream} was provided")
            if consumer >= 0 and consumer != (self.library.current or 1):
                self.library.cuda.follows(consumer, self.library.current)
            strides = self.strides and [step // int(self.typestr[2:]) for step in self.strides]
            return capsule(self, self.block.address, CUDA_DEVICE, *code_of(self.typestr), self.shape,
                           versioned=max_version is not None and max_version[0] >= 1, strides=strides)

    def array(self, shape, typestr, strides=None):
        return self.Array(self, shape, typestr, strides)


# ---- PyTorch -------------------------------------------------------------------------------------

class Torch(types.ModuleType):
    """
    pytorch/pytorch, torch/_tensor.py (__dlpack__ and __cuda_array_interface__), c10/core/TensorImpl.h and
    aten/src/ATen/native/cuda/Resize.cpp: a tensor refers to a storage, which `t.data = other`, set_() and a module's
    half() replace; resize_() gives the same storage other memory. detach() is another tensor of the same storage.
    Neither protocol takes a tensor that requires a gradient, and the interface, of version 2, names no stream.
    """

    class Storage:
        def __init__(self, pool):
            self.block = Block(pool)

    strided = "strided"

    def __init__(self, cuda):
        super().__init__("torch")
        self.driver, self.pool, self.stream = cuda, Pool(cuda), cuda.stream()
        self.cuda = types.SimpleNamespace(current_stream=self._current)
        self.autograd = types.SimpleNamespace(graph=types.SimpleNamespace(increment_version=self._increment))
        library = self

        class Tensor:
            layout = "strided"
            is_cpu = is_sparse = False

            def __init__(self, count, storage=None, requires_grad=False):
                self.storage, self.count = storage or library.Storage(library.pool), count
                self.requires_grad = requires_grad
                self.dtype, self.device = "torch.float32", types.SimpleNamespace(type="cuda", index=0)
                self.version = 0

            shape = property(lambda self: (self.count,))
            block = property(lambda self: self.storage.block)
            _version = property(lambda self: self.version)
            data = property(lambda self: self.detach(), lambda self, other: self.set_(other))

            def set_(self, other):
                self.storage, self.count = other.storage, other.count
                return self

            def resize_(self, count):
                self.storage.block, self.count = Block(library.pool), count
                return self

            def detach(self):
                return Tensor(self.count, self.storage)

            def fill_(self, value):
                library.driver.fill(self.data_ptr(), value, 4 * self.count, library.stream)
                return self

            def is_contiguous(self):
                return True

            def is_conj(self):
                return False

            is_neg = is_inference = is_conj

            def numel(self):
                return self.count

            def element_size(self):
                return 4

            def data_ptr(self):
                return self.block.address

            @property
            def __cuda_array_interface__(self):
                if self.requires_grad:
                    raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad.")
                return {"shape": self.shape, "typestr": "<f4", "strides": None, "version": 2,
                        "data": (self.data_ptr(), False)}

            def __dlpack_device__(self):
                return CUDA_DEVICE

            def __dlpack__(self, *, stream=-1, max_version=None, dl_device=None, copy=None):
                if self.requires_grad:
                    raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
                if stream != -1 and (stream or 1) != library.stream:
                    library.driver.follows(stream or 1, library.stream)
                return capsule(self.storage, self.data_ptr(), CUDA_DEVICE, 2, 32, self.shape,
                               versioned=bool(max_version))

        self.Tensor = Tensor

    def _current(self, device=None):
        return types.SimpleNamespace(cuda_stream=self.stream, synchronize=lambda: self.driver.synchronize(self.stream))

    @staticmethod
    def _increment(tensor):
        tensor.version += 1
