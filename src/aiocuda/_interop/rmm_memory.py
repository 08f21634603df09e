"""RMM's memory from aiocuda's memory pools.

Always true: a device has one resource that does so, which lives until the process ends, as what RMM has allocated goes
back through it.
"""

from __future__ import annotations

from typing import Any, Final

from aiocuda import _forks, _native
from aiocuda._devices.device import DeviceLike, as_ordinal
from aiocuda._driver import runtime
from aiocuda._interop.operation import require_installed
from aiocuda.errors import ExchangeError

__all__ = ["share_memory_pool"]

_PER_THREAD: Final = 2  # CU_STREAM_PER_THREAD
_lock = _forks.reentrant_lock()
_resources: Final[dict[int, Any]] = {}  # by device


def share_memory_pool(*devices: DeviceLike) -> None:
    """Have RMM take its memory from aiocuda's memory pools, so that both use what the other has let go of.

    Libraries that allocate with RMM, such as cuDF, do so, too. It becomes RMM's memory resource of each device, until
    somebody sets another one. Call it before anything is allocated with RMM.

    Parameters
    ----------
    *devices
        Those that RMM will use; none named: the one in force. *Blocks*: until the devices are open.

    Raises
    ------
    MissingPackageError
        RMM is not installed.
    ExchangeError
        RMM is too old: its streams do not tell their handles.
    ArgumentTypeError, ArgumentValueError
        What was given is no device.

    Notes
    -----
    *Stream*: memory comes in the order of the stream that RMM allocates it on, and goes in that of the stream that RMM
    frees it on, without a wait. `MemoryInfo.frameworks_bytes` is what RMM holds, and `aiocuda.memory_limit` counts it.

    If there is no memory left, RMM raises a ``MemoryError``. Its ``RuntimeError`` says that the stream is captured, or
    is the per-thread default stream: neither gets memory.

    RMM calls Python for each allocation. ``rmm.mr.PoolMemoryResource`` on top of
    ``rmm.mr.get_current_device_resource()`` calls it seldom, but keeps to itself what it has taken.
    """
    require_installed("rmm", "RMM", "pip install rmm-cu13", "share_memory_pool()")
    import rmm.mr
    from rmm.pylibrmm.stream import Stream

    package: Any = rmm  # its types leave out the version
    if not hasattr(Stream, "__cuda_stream__"):
        raise ExchangeError(
            f"streams of RMM {package.__version__} do not tell their handles (__cuda_stream__), so memory cannot be "
            "allocated in their order; use a newer RMM"
        )
    for ordinal in [as_ordinal(device) for device in devices] or [as_ordinal(None)]:
        runtime.open_device(ordinal)
        with _lock:
            if ordinal not in _resources:
                memory = _Memory(ordinal)
                _resources[ordinal] = rmm.mr.CallbackMemoryResource(memory.allocate, memory.free)
            rmm.mr.set_per_device_resource(ordinal, _resources[ordinal])


class _Memory:
    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal
        self._free = _native.free_guest  # names of modules are gone where the interpreter ends

    def allocate(self, size_bytes: int, stream: Any) -> int:
        if not size_bytes:
            return 0
        _, handle = stream.__cuda_stream__()
        if handle == _PER_THREAD:
            raise ExchangeError(
                "memory is not allocated in the order of the per-thread default stream: another thread, which may free "
                "it, cannot name that stream; use a stream with a handle of its own"
            )
        return _native.allocate_guest(self._ordinal, size_bytes, handle)

    def free(self, address: int, _size_bytes: int, stream: Any) -> None:
        # The stream that it was allocated on may be gone: RMM keeps the one that it frees on.
        self._free(address, stream.__cuda_stream__()[1])
