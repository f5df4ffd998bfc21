#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Pins and maps a PyTorch tensor, writes it from the CPU without a copy of CUDA's, and shows that
torch sees it:

    python3 pin_tensor.py

Tensors are mappable with the stock driver where torch allocates with expandable segments, as is
asked for below before torch is imported; with the gdrdrv kernel driver any tensor is.
"""
import ctypes
import os

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

GDR_OPEN_ANY = 1
GDR_MAP_RANGE_READ_ONLY = 1


class Handle(ctypes.Structure):
    """gdr_mh_t"""
    _fields_ = [("h", ctypes.c_ulong)]


class Gdr:
    """A context of libgdrapi. Ranges end with close() at the latest."""

    def __init__(self, library="libgdrapi.so.2"):
        self._lib = lib = ctypes.CDLL(library)
        lib.gdr_last_error.restype = ctypes.c_char_p
        lib.gdr_open_ex.restype = ctypes.c_void_p
        lib.gdr_open_ex.argtypes = [ctypes.c_uint32]
        lib.gdr_close.argtypes = [ctypes.c_void_p]
        lib.gdr_map_range.argtypes = [
            ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_uint32,
            ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(Handle)]
        lib.gdr_unmap_range.argtypes = [ctypes.c_void_p, Handle]
        lib.gdr_copy_to_mapping.argtypes = [
            Handle, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        lib.gdr_copy_from_mapping.argtypes = [
            Handle, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        self._g = lib.gdr_open_ex(GDR_OPEN_ANY)
        if not self._g:
            raise OSError(ctypes.get_errno(), self._reason())

    def _reason(self):
        return self._lib.gdr_last_error().decode()

    def check(self, err):
        if err:
            raise OSError(err, self._reason())

    def map(self, address, size, flags=0):
        """The Range of `size` bytes at a device address."""
        cpu, handle = ctypes.c_void_p(), Handle()
        self.check(self._lib.gdr_map_range(self._g, address, size, flags,
                                           ctypes.byref(cpu), ctypes.byref(handle)))
        return Range(self, cpu.value, size, handle)

    def close(self):
        if self._g:
            self.check(self._lib.gdr_close(self._g))
            self._g = None


class Range:
    """Device memory as the CPU reaches it."""

    def __init__(self, gdr, pointer, size, handle):
        self._gdr, self._pointer, self._size, self._handle = gdr, pointer, size, handle

    def write(self, data, offset=0):
        data = bytes(data)
        self._gdr.check(self._gdr._lib.gdr_copy_to_mapping(
            self._handle, self._pointer + offset, data, len(data)))

    def read(self, size=None, offset=0):
        size = self._size - offset if size is None else size
        buffer = ctypes.create_string_buffer(size)
        self._gdr.check(self._gdr._lib.gdr_copy_from_mapping(
            self._handle, buffer, self._pointer + offset, size))
        return buffer.raw

    def unmap(self):
        self._gdr.check(self._gdr._lib.gdr_unmap_range(self._gdr._g, self._handle))


def main():
    import array
    import torch

    tensor = torch.zeros(1000, dtype=torch.float32, device="cuda")
    # VMM memory refuses SYNC_MEMOPS: what torch has started must be over before the CPU looks.
    torch.cuda.synchronize()

    gdr = Gdr()
    mapped = gdr.map(tensor.data_ptr(), tensor.numel() * tensor.element_size())
    mapped.write(array.array("f", [3.5] * 1000))
    assert tensor.sum().item() == 3500.0
    tensor.fill_(7)
    torch.cuda.synchronize()
    assert array.array("f", mapped.read(12)).tolist() == [7.0, 7.0, 7.0]
    print("torch and the CPU see the same", tensor.numel(), "numbers")
    mapped.unmap()
    gdr.close()


if __name__ == "__main__":
    main()
