"""A framework that stands in for PyTorch and its like: it speaks DLPack strictly, and nothing but the driver runs it.

It has a stream that is current in a thread, and an allocator that keeps what is freed for its stream, gives it out
again at once, and overwrites it first. It knows nothing of aiocuda: where the two are not ordered, the race oracle
sees it, or a wrong value comes out.
"""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import aiocuda as ac

ac.devices()  # chooses the driver, before anything of cuda.* is imported

from cuda.bindings import driver  # noqa: E402

from aiocuda._driver import frameworks  # noqa: E402

CUDA, CUDA_HOST, MANAGED = 2, 3, 13  # DLPack's kinds of devices
LEGACY, PER_THREAD = 1, 2
READ_ONLY = 1
POISON = 0x5A5A5A5A

# aiocuda knows of PyTorch's streams that they live as long as the process, and here of these.
_lasting: set[int] = set()
# Streams of frameworks that were closed, by device, for the next ones, as PyTorch's go round. A GPU may make no more
# streams while a latch holds it, and each takes room from graphs, so tests leave few behind.
_idle: defaultdict[int, list[int]] = defaultdict(list)
_keeper_of_stream = frameworks.keeper_of_stream


def _keeper(handle: int, ordinal: int, asker: str = "") -> object | None:
    return _lasting if handle in _lasting else _keeper_of_stream(handle, ordinal, asker)


frameworks.keeper_of_stream = _keeper


def checked(result: tuple[Any, ...]) -> Any:
    assert result[0] == driver.CUresult.CUDA_SUCCESS, result[0]
    return result[1] if len(result) > 1 else None


class Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", Deleter))


class Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


python_api = ctypes.PyDLL(None)  # ctypes.pythonapi is everybody's: Warp declares the same functions in another way
python_api.PyCapsule_New.restype = ctypes.py_object
python_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
python_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
python_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
python_api.PyCapsule_GetName.restype = ctypes.c_char_p
python_api.PyCapsule_GetName.argtypes = [ctypes.py_object]
python_api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_void_p]

# The names of capsules that were taken; a capsule points to its name.
_USED = {name: ctypes.create_string_buffer(b"used_" + name) for name in (b"dltensor", b"dltensor_versioned")}
_UNUSED = ctypes.create_string_buffer(b"dltensor_versioned")
_kept: dict[int, Any] = {}  # what was lent, by the address of its description


@Deleter
def _end(address: int) -> None:
    del _kept[address]


class Free(dict[tuple[int, int], list[int]]):
    """Memory to be given out: of a stream, and of so many items."""

    is_over = False  # it was a capture's, whose stream is there no more


class Framework:
    """One framework, on one device."""

    def __init__(self, ordinal: int = 0) -> None:
        ac.Device(ordinal).synchronize().sync()
        self.ordinal = ordinal
        self._lasting: list[int] = []
        with self.device_current():
            self.default_stream = self.stream()
        self._local = threading.local()
        self._free = Free()
        self._all: list[int] = []
        self.allocations = 0  # that it asked the driver for

    @contextmanager
    def device_current(self) -> Iterator[None]:
        before = checked(driver.cuCtxGetCurrent())
        checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(self.ordinal))))
        try:
            yield
        finally:
            checked(driver.cuDevicePrimaryCtxRelease(self.ordinal))
            checked(driver.cuCtxSetCurrent(before))

    def stream(self, *, lasts: bool = True) -> int:
        """Return a stream that is nobody else's; one that does not last may be destroyed."""
        idle = _idle[self.ordinal]
        if lasts and idle:
            made = idle.pop()
        else:
            made = int(checked(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)))
            (_lasting.add if lasts else _lasting.discard)(made)
        if lasts:
            self._lasting.append(made)
        return made

    def destroy(self, stream: int) -> None:
        if stream in self._lasting:
            self._lasting.remove(stream)
        checked(driver.cuStreamDestroy(stream))

    @property
    def current(self) -> int:
        return getattr(self._local, "stream", self.default_stream)

    @contextmanager
    def using(self, stream: int) -> Iterator[None]:
        before = self.current
        self._local.stream = stream
        try:
            yield
        finally:
            self._local.stream = before

    @contextmanager
    def allocating_from(self, free: Free) -> Iterator[None]:
        before, self._free = self._free, free
        try:
            yield
        finally:
            self._free = before

    def order(self, stream: int, behind: int) -> None:
        if stream == behind:
            return
        event = checked(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
        checked(driver.cuEventRecord(event, behind))
        checked(driver.cuStreamWaitEvent(stream, event, 0))
        checked(driver.cuEventDestroy(event))

    def allocate(self, items: int) -> int:
        kept = self._free.setdefault((self.current, items), [])
        if kept:
            return kept.pop()
        with self.device_current():
            address = int(checked(driver.cuMemAlloc(items * 4)))
        self._all.append(address)
        self.allocations += 1
        return address

    def free(self, address: int, items: int, stream: int, free: Free) -> None:
        if not free.is_over:
            checked(driver.cuMemsetD32Async(address, POISON, items, stream))
        free.setdefault((stream, items), []).append(address)

    def full(self, items: int, value: int) -> Tensor:
        tensor = Tensor(self, self.allocate(items), items)
        tensor.stream, tensor.free = self.current, self._free
        return tensor.fill_(value)

    def from_dlpack(self, x: Any, **asked: Any) -> Tensor:
        """Take what another library lends, ordered behind its work by that library, on the current stream."""
        with self.device_current():
            capsule = x.__dlpack__(**{"max_version": (1, 0), "stream": self.current, **asked})
        return Tensor.taken(self, capsule)

    def close(self) -> None:
        with self.device_current():
            checked(driver.cuCtxSynchronize())
            for address in self._all:
                checked(driver.cuMemFree(address))
        _idle[self.ordinal] += self._lasting


class Tensor:
    """Some int32 items, of the framework's own or lent."""

    requires_grad = False

    @property
    def _version(self) -> int:
        return self.version

    def __init__(self, framework: Framework, address: int, items: int) -> None:
        self.framework, self.address, self.items = framework, address, items
        self.stream: int | None = None  # whose allocator it goes back to
        self.free = Free()
        self.whole: Tensor | None = None  # that it is a part of
        self.strides: tuple[int, ...] | None = None
        self.version = 0  # how often it was written in place
        self.lent: Any = None
        self.is_read_only = False
        self.asked: list[Any] = []  # how it was asked to lend itself

    @classmethod
    def taken(cls, framework: Framework, capsule: Any) -> Tensor:
        name = python_api.PyCapsule_GetName(capsule)
        kind = {b"dltensor": Managed, b"dltensor_versioned": Versioned}[name]  # a KeyError where it was taken before
        lent = kind.from_address(python_api.PyCapsule_GetPointer(capsule, name))
        python_api.PyCapsule_SetName(capsule, ctypes.addressof(_USED[name]))
        return cls.over(framework, lent)

    @classmethod
    def over(cls, framework: Framework, lent: Managed | Versioned) -> Tensor:
        described = lent.tensor
        shape = [described.shape[axis] for axis in range(described.ndim)]
        tensor = cls(framework, (described.data or 0) + described.byte_offset, int(np.prod(shape)))
        tensor.lent = lent
        tensor.is_read_only = isinstance(lent, Versioned) and bool(lent.flags & READ_ONLY)
        return tensor

    def is_neg(self) -> bool:
        return False

    def fill_(self, value: int) -> Tensor:
        checked(driver.cuMemsetD32Async(self.address, value, self.items, self.framework.current))
        self._count()
        return self

    def copy_(self, other: Tensor) -> Tensor:
        checked(driver.cuMemcpyAsync(self.address, other.address, self.items * 4, self.framework.current))
        self._count()
        return self

    def _count(self) -> None:
        self.version += 1
        if self.whole is not None:
            self.whole._count()

    def part(self, start: int, items: int) -> Tensor:
        part = Tensor(self.framework, self.address + start * 4, items)
        part.whole = self
        return part

    def tolist(self) -> list[int]:
        """Wait, on the host, as the framework would."""
        found = np.zeros(self.items, np.int32)
        checked(driver.cuMemcpyDtoHAsync(found.ctypes.data, self.address, self.items * 4, self.framework.current))
        checked(driver.cuStreamSynchronize(self.framework.current))
        return found.tolist()

    def __dlpack_device__(self) -> tuple[int, int]:
        self.asked.append("device")
        return CUDA, self.framework.ordinal

    def __dlpack__(
        self, *, stream: int | None = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        self.asked.append(stream)
        assert int(checked(driver.cuCtxGetDevice())) == self.framework.ordinal, "it lends on its current device alone"
        assert stream is None or stream == -1 or stream > PER_THREAD
        if stream != -1:
            self.framework.order(stream or LEGACY, self.framework.current)
        shape, strides = (ctypes.c_int64 * 1)(self.items), (ctypes.c_int64 * 1)(1)
        lent = Versioned(1, 0, None, _end, READ_ONLY if self.is_read_only else 0)
        lent.tensor = DLTensor(
            self.address, Device(CUDA, self.framework.ordinal), 1, DataType(0, 32, 1), shape, strides, 0
        )
        _kept[ctypes.addressof(lent)] = (lent, self, shape, strides)
        return python_api.PyCapsule_New(ctypes.addressof(lent), ctypes.addressof(_UNUSED), None)

    def release(self) -> None:
        """End a loan: the lender is told."""
        lent, self.lent = self.lent, None
        lent.deleter(ctypes.addressof(lent))

    def __del__(self) -> None:
        if self.lent is not None:
            self.release()
        elif self.stream is not None:
            self.framework.free(self.address, self.items, self.stream, self.free)
