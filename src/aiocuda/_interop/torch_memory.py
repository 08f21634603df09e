"""PyTorch's memory from aiocuda's memory pools.

Always true: once it is so, it stays so until the process ends, as PyTorch changes its allocator once at most.
"""

from __future__ import annotations

from typing import Any

from aiocuda import _forks, _native
from aiocuda._devices.device import DeviceLike, as_ordinal
from aiocuda._driver import runtime
from aiocuda._interop.operation import require_installed
from aiocuda.errors import ExchangeError

__all__ = ["is_pool_shared", "share_memory_pool"]

_lock = _forks.reentrant_lock()
_is_shared = False


def share_memory_pool(*devices: DeviceLike) -> None:
    """Have PyTorch take its memory from aiocuda's memory pools, so that both use what the other has let go of.

    Call it before PyTorch first uses a GPU. It holds for the whole process, until that ends. Further calls name further
    devices.

    Parameters
    ----------
    *devices
        Those that PyTorch will use; none named: the one in force. Each device that aiocuda has opened will do, and on
        others PyTorch gets no memory. *Blocks*: until the devices are open.

    Raises
    ------
    MissingPackageError
        PyTorch is not installed.
    ExchangeError
        PyTorch has its memory already, or is too old to be given an allocator.
    ArgumentTypeError, ArgumentValueError
        What was given is no device.

    Notes
    -----
    *Stream*: memory comes and goes in the order of PyTorch's current stream, without a wait; ``Tensor.record_stream``
    holds. `MemoryInfo.frameworks_bytes` is what PyTorch holds, and `aiocuda.memory_limit` counts it.

    If there is no memory left, PyTorch raises a ``RuntimeError`` that begins with "CUDA out of memory", and not its
    ``OutOfMemoryError``. A stream that is captured gets no memory: operations of PyTorch's cannot be part of graphs
    then, and ``torch.cuda.graph`` captures only what allocates nothing. PyTorch does not cache this memory, nor count
    it: ``torch.cuda.memory_stats`` and its like raise.
    """
    require_installed("torch", "PyTorch", "pip install torch", "share_memory_pool()")
    for ordinal in [as_ordinal(device) for device in devices] or [as_ordinal(None)]:
        runtime.open_device(ordinal)
    with _lock:
        _share()


def is_pool_shared() -> bool:
    """Return whether PyTorch takes its memory from aiocuda's memory pools."""
    return _is_shared


def _share() -> None:
    global _is_shared
    if _is_shared:
        return
    import torch

    cuda: Any = torch.cuda  # part of it has no types
    if cuda.is_initialized():
        raise ExchangeError(
            "PyTorch has used a GPU, and has memory of its own there: call share_memory_pool() before that, at the "
            "beginning of the program"
        )
    memory = cuda.memory
    allocator = memory.CUDAPluggableAllocator(_native.__file__, "aiocuda_guest_allocate", "aiocuda_guest_free")
    note_use = getattr(allocator.allocator(), "set_record_stream_fn", None)
    if note_use is None:
        raise ExchangeError(
            f"PyTorch {torch.__version__} does not tell an allocator which streams use its memory "
            "(Tensor.record_stream); use a newer PyTorch"
        )
    note_use(_native.guest_note_use())
    try:
        memory.change_current_allocator(allocator)
    except RuntimeError as error:
        raise ExchangeError(f"PyTorch does not change its allocator any more: {error}") from error
    _is_shared = True
