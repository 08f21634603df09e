"""CuPy's memory from aiocuda's memory pools.

Always true: a stream of CuPy's lives as long as memory that is to be freed in its order.
"""

from __future__ import annotations

from typing import Any, Final

from aiocuda import _native
from aiocuda._interop.operation import require_installed
from aiocuda.errors import ExchangeError

__all__ = ["share_memory_pool"]

_PER_THREAD: Final = 2  # CU_STREAM_PER_THREAD


def share_memory_pool() -> None:
    """Have CuPy take its memory from aiocuda's memory pools, so that both use what the other has let go of.

    It holds for what CuPy allocates from now on, in the whole process, until somebody calls ``cupy.cuda.set_allocator``
    again. *Blocks*: not now; the first allocation on a device that aiocuda has not opened opens it.

    Raises
    ------
    MissingPackageError
        CuPy is not installed.
    ValueError
        CuPy's: the thread is within ``cupy.cuda.using_allocator``.

    Notes
    -----
    *Stream*: memory comes and goes in the order of the stream of CuPy's that was current when it was allocated, without
    a wait. An allocation raises `OutOfMemoryError` if there is no memory left, `CaptureError` if the stream is
    captured, and `ExchangeError` if it is the per-thread default stream. In a graph, functions of
    `aiocuda.interop.cupy.op` take memory from a pool of CuPy's own, as without this.

    `MemoryInfo.frameworks_bytes` is what CuPy holds of it, and `aiocuda.memory_limit` counts that.
    """
    require_installed("cupy", "CuPy", "pip install cupy-cuda13x", "share_memory_pool()")
    import cupy

    memory = _Memory(cupy)
    # Its allocator of C functions takes a null pointer for memory. This one passes on what is raised.
    cupy.cuda.set_allocator(cupy.cuda.PythonFunctionAllocator(memory.allocate, memory.free).malloc)


class _Memory:
    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._streams: dict[int, Any] = {}  # by the address of what was allocated there
        self._free = _native.free_guest  # names of modules are gone where the interpreter ends

    def allocate(self, size_bytes: int, ordinal: int) -> int:
        stream = self._cupy.cuda.get_current_stream(ordinal)
        if stream.ptr == _PER_THREAD:
            raise ExchangeError(
                "memory is not allocated in the order of the per-thread default stream: another thread, which may free "
                "it, cannot name that stream; use a stream with a handle of its own"
            )
        address = _native.allocate_guest(ordinal, size_bytes, stream.ptr)
        self._streams[address] = stream
        return address

    def free(self, address: int, _ordinal: int) -> None:
        stream = self._streams.pop(address, None)  # first: once it is free, the address may be another's
        self._free(address)
        del stream
