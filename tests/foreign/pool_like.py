"""Stand-ins for PyTorch and CuPy, as far as they take their memory from an allocator that somebody else gives them.

As in PyTorch, the allocator is two functions of a shared library. They are called without the GIL, a null pointer is
taken for memory, and a C++ exception is the only refusal. A function that is compiled here turns that into Python's.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import shutil
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from framework import POISON, Framework, Free, checked, driver

import aiocuda as ac

CALLER = r"""
#include <sys/types.h>
#include <cstdio>
#include <exception>
using Allocate = void* (*)(ssize_t, int, void*);
using Free = void (*)(void*, ssize_t, int, void*);
extern "C" int allocate(void* function, void** made, ssize_t bytes, int device, void* stream, char* said) {
  try {
    *made = reinterpret_cast<Allocate>(function)(bytes, device, stream);
    return 0;
  } catch (const std::exception& error) {
    std::snprintf(said, 1000, "%s", error.what());
    return 1;
  }
}
// An allocator that is used once more when the libraries of the process end.
static struct Late {
  Free free = nullptr;
  Allocate allocate = nullptr;
  void* memory = nullptr;
  ~Late() {
    if (!free) return;
    free(memory, 4096, 0, nullptr);
    try {
      std::printf("%p\n", allocate(4096, 0, nullptr));
    } catch (const std::exception& error) {
      std::printf("%s\n", error.what());
    }
    std::fflush(stdout);
  }
} late;
extern "C" void use_at_exit(void* allocate, void* free, void* memory) {
  late.allocate = reinterpret_cast<Allocate>(allocate);
  late.free = reinterpret_cast<Free>(free);
  late.memory = memory;
}
"""


@functools.cache
def caller() -> Any:
    """Return the compiled function; None where there is no compiler."""
    compiler = shutil.which("c++")
    if compiler is None:
        return None
    folder = Path(tempfile.mkdtemp())
    (folder / "caller.cpp").write_text(CALLER)
    command = [compiler, "-std=c++17", "-shared", "-fPIC", "-o", "caller.so", "caller.cpp"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    return ctypes.CDLL(str(folder / "caller.so"))


class PluggableAllocator:
    """What PyTorch makes of the two functions, and of the third that is told of `record_stream`."""

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str) -> None:
        library = ctypes.CDLL(path_to_so_file)
        self.allocate_at = ctypes.cast(getattr(library, alloc_fn_name), ctypes.c_void_p).value
        self.free_at = ctypes.cast(getattr(library, free_fn_name), ctypes.c_void_p).value
        self._allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)(
            self.allocate_at
        )
        self._free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)(
            self.free_at
        )
        self._note_use: Any = None
        self._lock = threading.Lock()
        self._known: dict[int, tuple[int, int, int]] = {}

    def allocator(self) -> PluggableAllocator:
        return self

    def set_record_stream_fn(self, address: int) -> None:
        self._note_use = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)

    def malloc(self, size_bytes: int, ordinal: int, stream: int) -> int:
        address = self._called(size_bytes, ordinal, stream)
        with self._lock:
            assert address not in self._known or not address, "memory was given out twice"
            self._known[address] = (size_bytes, ordinal, stream)
        return address

    def _called(self, size_bytes: int, ordinal: int, stream: int) -> int:
        if caller() is None:
            return int(self._allocate(size_bytes, ordinal, stream) or 0)
        made, said = ctypes.c_void_p(), ctypes.create_string_buffer(1000)
        function, handle = ctypes.c_void_p(self.allocate_at), ctypes.c_void_p(stream)
        if caller().allocate(function, ctypes.byref(made), ctypes.c_ssize_t(size_bytes), ordinal, handle, said):
            raise RuntimeError(said.value.decode())
        return made.value or 0

    def raw_delete(self, address: int) -> None:
        with self._lock:
            size_bytes, ordinal, stream = self._known.pop(address)
        self._free(address, size_bytes, ordinal, stream)

    def record_stream(self, address: int, stream: int) -> None:
        self._note_use(address, stream)


class Torch:
    """PyTorch, before it has used a GPU."""

    def __init__(self) -> None:
        self.is_initialized = False
        self.allocator: Any = None
        self.module: Any = module("torch")
        self.module.__version__ = "2.11.0"
        memory = types.SimpleNamespace(CUDAPluggableAllocator=PluggableAllocator, change_current_allocator=self._change)
        self.module.cuda = types.SimpleNamespace(is_initialized=lambda: self.is_initialized, memory=memory)

    def _change(self, allocator: PluggableAllocator) -> None:
        if self.is_initialized:
            raise RuntimeError("Can't swap an already initialized allocator")
        self.allocator = allocator

    def framework(self, ordinal: int = 0) -> SharingFramework:
        return SharingFramework(self.allocator, ordinal)


class SharingFramework(Framework):
    """The strict framework, with an allocator of somebody else's; in a capture it has its own."""

    def __init__(self, allocator: PluggableAllocator, ordinal: int = 0) -> None:
        super().__init__(ordinal)
        self._allocator = allocator
        self._shared = self._free
        self._lent: set[int] = set()

    def allocate(self, items: int) -> int:
        if self._free is not self._shared:
            return super().allocate(items)
        address = self._allocator.malloc(items * 4, self.ordinal, self.current)
        self._lent.add(address)
        return address

    def free(self, address: int, items: int, stream: int, free: Free) -> None:
        if address not in self._lent:
            super().free(address, items, stream, free)
            return
        self._lent.remove(address)
        checked(driver.cuMemsetD32Async(address, POISON, items, stream))
        self._allocator.raw_delete(address)


class CuPy:
    """CuPy's allocators, and its current stream."""

    def __init__(self) -> None:
        self.stream: Any = types.SimpleNamespace(ptr=1)
        self.malloc: Any = None
        self.module: Any = module("cupy")
        self.module.cuda = types.SimpleNamespace(
            get_current_stream=lambda ordinal: self.stream,
            set_allocator=lambda malloc: setattr(self, "malloc", malloc),
            PythonFunctionAllocator=PythonFunctionAllocator,
        )


class PythonFunctionAllocator:
    def __init__(self, malloc_func: Any, free_func: Any) -> None:
        self._functions = malloc_func, free_func

    def malloc(self, size_bytes: int) -> PythonFunctionAllocatorMemory:
        return PythonFunctionAllocatorMemory(size_bytes, *self._functions, 0)


class PythonFunctionAllocatorMemory:
    def __init__(self, size_bytes: int, malloc_func: Any, free_func: Any, ordinal: int) -> None:
        self._free, self.ordinal, self.ptr = free_func, ordinal, 0
        if size_bytes > 0:
            self.ptr = malloc_func(size_bytes, ordinal)

    def __del__(self) -> None:
        if self.ptr:
            self._free(self.ptr, self.ordinal)


class RMM:
    """RMM's memory resources: what a callback raises becomes an exception of C++, and one of Python's again."""

    def __init__(self) -> None:
        self.resources: dict[int, Any] = {}
        self.stream_class: Any = RMMStream
        self.modules = {name: module(name) for name in ("rmm", "rmm.mr", "rmm.pylibrmm", "rmm.pylibrmm.stream")}
        self.module: Any = self.modules["rmm"]
        self.module.__version__ = "26.10.00"
        self.module.mr = self.modules["rmm.mr"]
        self.module.mr.CallbackMemoryResource = CallbackMemoryResource
        self.module.mr.set_per_device_resource = self.resources.__setitem__
        self.module.mr.get_per_device_resource = self.resources.__getitem__
        self.modules["rmm.pylibrmm.stream"].Stream = RMMStream  # type: ignore[attr-defined]


class RMMStream:
    """One of another library's, which it keeps; or, for a callback, one of a handle, which keeps nothing."""

    def __init__(self, stream: Any, *, keeps: bool = True) -> None:
        self._protocol = stream.__cuda_stream__()
        self._owner = stream if keeps else None

    def __cuda_stream__(self) -> tuple[int, int]:
        return self._protocol


class CallbackMemoryResource:
    def __init__(self, allocate_func: Any, deallocate_func: Any) -> None:
        self._functions = allocate_func, deallocate_func

    def allocate(self, size_bytes: int, stream: RMMStream) -> int:
        assert type(stream) is RMMStream
        try:
            address = self._functions[0](size_bytes, RMMStream(stream, keeps=False))
        except MemoryError as error:
            raise MemoryError(f"std::bad_alloc: out_of_memory: {error}") from None
        except Exception as error:  # noqa: BLE001 - as RMM does with whatever it is
            raise RuntimeError(str(error)) from None
        assert type(address) is int
        return address

    def deallocate(self, address: int, size_bytes: int, stream: RMMStream) -> None:
        self._functions[1](address, size_bytes, RMMStream(stream, keeps=False))


def assert_one_pool(device: ac.Device, take_and_free: Callable[[int], None], size_bytes: int) -> None:
    """Check that aiocuda and a framework each use the memory that the other has let go of: the pool does not grow."""
    take_and_free(size_bytes)
    device.synchronize().sync()
    before = device.memory_info().pool_bytes
    x = ac.zeros(size_bytes, np.uint8).sync()
    assert device.memory_info().pool_bytes == before
    del x
    device.synchronize().sync()
    take_and_free(size_bytes)
    assert device.memory_info().pool_bytes == before


def module(name: str) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None)
    return made


@contextmanager
def imported(stand_in: Any) -> Iterator[Any]:
    """Have the module imported, as if no program of this process had shared a memory pool before."""
    from aiocuda._interop import torch_memory

    name = stand_in.module.__name__
    before, was_shared = sys.modules.get(name), torch_memory._is_shared
    sys.modules[name], torch_memory._is_shared = stand_in.module, False
    try:
        yield stand_in
    finally:
        torch_memory._is_shared = was_shared
        sys.modules.pop(name, None)  # there is none at the end of the interpreter
        if before is not None:
            sys.modules[name] = before
