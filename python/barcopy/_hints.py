# SPDX-License-Identifier: MIT
"""What the methods' types name, for type checkers alone: no module imports it at run time."""
from typing import Any, List, Protocol, Tuple, Union

from _typeshed import ReadableBuffer, WriteableBuffer


class CudaArray(Protocol):
    @property
    def __cuda_array_interface__(self) -> Any: ...


class HostArray(Protocol):
    @property
    def __array_interface__(self) -> Any: ...


class DLPack(Protocol):
    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> Any: ...


class Tensor(Protocol):
    @property
    def is_cpu(self) -> bool: ...
    def data_ptr(self) -> int: ...


class Index(Protocol):
    def __index__(self) -> int: ...


class CudaStream(Protocol):
    def __cuda_stream__(self) -> Any: ...


class TorchStream(Protocol):
    @property
    def cuda_stream(self) -> int: ...


class CupyStream(Protocol):
    @property
    def ptr(self) -> Any: ...


# A stream of another library, its handle, or "current", PyTorch's.
Stream = Union[CudaStream, TorchStream, CupyStream, Index, str]
class TorchDevice(Protocol):
    @property
    def type(self) -> str: ...
    @property
    def index(self) -> Any: ...


class CoreDevice(Protocol):
    @property
    def device_id(self) -> int: ...


class Integer(Protocol):
    def __int__(self) -> int: ...


Gpu = Union[int, str, TorchDevice, CoreDevice, Index]
# An array on a GPU, one in memory of cudaHostAlloc, or an address.
Device = Union[CudaArray, DLPack, HostArray, Index, Integer]
# What has the buffer protocol (checkers before PEP 688 do not see numpy's), or a CPU tensor of PyTorch.
Buffer = Union[ReadableBuffer, HostArray, Tensor]
Writable = Union[WriteableBuffer, HostArray, Tensor]
# A number, or a list of numbers, which may be nested. No Sequence: a str and a range are refused.
Numbers = Union[complex, List[Any], Tuple[Any, ...]]
# "float32", or a type of numpy's or PyTorch's, which need not be installed.
DType = Any
Piece = Union[Tuple[int, Buffer], Tuple[int, Buffer, bool]]
