# SPDX-License-Identifier: Apache-2.0
"""The fake driver of tests/fake_cuda in this process, and what a library does with a tensor there."""

from __future__ import annotations

import ctypes
import os
import pathlib
import threading
from collections.abc import Callable
from uuid import UUID

import numpy as np
import spdld

# Beside the package that is tested.
LIBRARY = pathlib.Path(spdld.__file__).parents[2] / "fake_cuda" / "libcuda.so.1"


class DLDevice(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("number", ctypes.c_int32)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_uint64),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def tensor_of(capsule: object) -> DLTensor:
    """What a capsule that nobody has taken over yet says."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return DLTensor.from_address(pointer(capsule, b"dltensor"))


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [
        ("tensor", DLTensor),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


def take_over(capsule: object, *, with_gil: bool) -> Callable[[], None]:
    """As a library does; what comes back lets go of the tensor, with the GIL or without."""
    managed = ctypes.addressof(tensor_of(capsule))
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    rename(capsule, b"used_dltensor")
    kind = ctypes.PYFUNCTYPE if with_gil else ctypes.CFUNCTYPE
    deleter = kind(None, ctypes.c_void_p)(_Managed.from_address(managed).deleter)
    return lambda: deleter(managed)


class FakeGpu:
    """One device. Copies and kernels run late, in an order that a seed draws."""

    def __init__(self) -> None:
        os.environ.setdefault("FAKE_CUDA_LATENESS", "12")
        os.environ.setdefault("FAKE_CUDA_SEED", "11")
        # It is found by its name from now on, as if it lay in a folder of the linker's.
        self._library = ctypes.CDLL(str(LIBRARY))
        self._library.fake_cuda_peek.restype = ctypes.c_void_p
        self._library.fake_cuda_peek.argtypes = [ctypes.c_uint64]
        self._library.fake_cuda_calls.restype = ctypes.c_uint64
        self._call("cuInit", 0)
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), 0)
        self._call("cuCtxPushCurrent_v2", self._context)

    def shared_memory(self, size: int) -> SharedMemory:
        """On any thread."""
        return SharedMemory(self, size)

    def close(self) -> None:
        self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        self._call("cuDevicePrimaryCtxRelease_v2", 0)

    def stream(self) -> int:
        stream = ctypes.c_void_p()
        self._call("cuStreamCreateWithPriority", ctypes.byref(stream), 1, 0)
        return stream.value or 0

    def synchronize(self, stream: int) -> None:
        self._call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def calls(self, function: str) -> int:
        return self._library.fake_cuda_calls(function.encode())

    def read(self, address: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """What is there now, as an array of its own."""
        content = self._library.fake_cuda_peek(address)
        assert content, "no device memory lies there"
        size = int(np.prod(shape)) * dtype.itemsize
        return np.frombuffer(ctypes.string_at(content, size), dtype).reshape(shape)

    def launch_slow_sum(self, stream: int, address: int, size: int) -> ctypes.c_uint64:
        """A kernel that reads all of the memory when it runs at last; its result."""
        content = self._library.fake_cuda_peek(address)
        result = ctypes.c_uint64()

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def kernel(_: int | None) -> None:
            result.value = int(np.frombuffer(ctypes.string_at(content, size), np.uint8).sum())

        result.kernel = kernel  # as long as the result is waited for
        self._call("fake_cuda_launch", ctypes.c_void_p(stream), kernel, None)
        return result

    def launch_gate(self, stream: int) -> threading.Event:
        """A kernel that holds the stream up until the event is set."""
        gate = threading.Event()

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def kernel(_: int | None) -> None:
            gate.wait(30)

        gate.kernel = kernel
        self._call("fake_cuda_launch", ctypes.c_void_p(stream), kernel, None)
        return gate

    def uuid(self) -> str:
        """As nvidia-smi prints it."""
        uuid = (ctypes.c_uint8 * 16)()
        self._call("cuDeviceGetUuid_v2", uuid, 0)
        return f"GPU-{UUID(bytes=bytes(uuid))}"

    def _call(self, function: str, *arguments: object) -> None:
        result = getattr(self._library, function)(*arguments)
        assert result == 0, f"{function} returned {result}"


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_uint8 * 8),
    ]


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


class SharedMemory:
    """Memory of the device that others may import by ``fd``, as a daemon has it; for good."""

    def __init__(self, gpu: FakeGpu, size: int) -> None:
        device, pinned, posix_fd, read_write = _Location(1, 0), 1, 1, 3
        call, self._library = gpu._call, gpu._library
        call("cuCtxPushCurrent_v2", gpu._context)
        handle, address, fd = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_int()
        properties = _Properties(pinned, posix_fd, device)
        bytes_ = ctypes.c_size_t(size)
        none = ctypes.c_uint64(0)
        call("cuMemCreate", ctypes.byref(handle), bytes_, ctypes.byref(properties), none)
        call("cuMemAddressReserve", ctypes.byref(address), bytes_, ctypes.c_size_t(0), none, none)
        call("cuMemMap", address, bytes_, ctypes.c_size_t(0), handle, none)
        access = _Access(device, read_write)
        call("cuMemSetAccess", address, bytes_, ctypes.byref(access), ctypes.c_size_t(1))
        call("cuMemExportToShareableHandle", ctypes.byref(fd), handle, posix_fd, none)
        call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        self.fd = fd.value
        self._content = self._library.fake_cuda_peek(address)

    def write(self, offset: int, content: bytes) -> None:
        """As a copy that is complete when this returns."""
        ctypes.memmove(self._content + offset, content, len(content))
