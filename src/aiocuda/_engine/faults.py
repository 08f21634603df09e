"""From the driver's refusals to the package's errors; native code calls this.

Always true: the error names what was asked, the operation and the line that built it, where there is one.
"""

from __future__ import annotations

from typing import Final

from aiocuda import _native
from aiocuda._driver import runtime
from aiocuda.errors import AiocudaError, DeviceLostError, DriverError, LaunchError, OutOfMemoryError

__all__ = ["describe", "lost", "origin_text", "refused"]

_OUT_OF_MEMORY: Final = 2
_HOST: Final = -1
_UNKNOWN: Final = -2

# After one of these a context does nothing more (CUDA driver API, "CUresult": "This leaves the
# process in an inconsistent state and any further CUDA work will return the same error").
_FATAL: Final = frozenset({4, 46, 214, 220, 226, 700, 702, 708, 709, 710, 714, 715, 716, 717, 718, 719, 721, 911, 999})

# Answers of the launch functions that are about the launch's configuration.
_CONFIGURATION: Final = {
    1: "a grid, block or shared memory size that this device does not take",
    98: "the function is not one of this device",
    701: "too many threads, registers or too much shared memory for this device",
    720: "more cooperative blocks than fit on the device at once",
    912: "a cluster shape that this device does not take",
}


def describe(op: _native.Op | None) -> str:
    """Return what an operation is called in messages."""
    return "work" if op is None else op._title


def origin_text(op: _native.Op | None) -> str:
    """Return where an operation was built, as ``"file:line"``; empty where that is not known."""
    location = None if op is None else op._origin
    return "" if location is None else f"{location[0]}:{location[1]}"


def refused(code: int, function: str, op: _native.Op | None, asked_bytes: int, device: int) -> AiocudaError:
    """Return the error for a call that the driver refused.

    Parameters
    ----------
    code
        The driver's ``CUresult``.
    function
        The driver's function that was called.
    op
        The operation it was called for.
    asked_bytes
        The size of an allocation, in bytes; else 0.
    device
        The ordinal; -1 for page-locked host memory, -2 where it is not known.
    """
    if code in _FATAL:
        return lost(code, op, device)
    if code == _OUT_OF_MEMORY and function in {"cuMemAllocFromPoolAsync", "cuMemHostAlloc"}:
        if device == _HOST:
            return OutOfMemoryError(asked_bytes, 0, _native.memory(0)[1], "page-locked host memory")
        free, total = runtime.memory_free_total(device)
        reserved, used = runtime.pool_reserved_used(device)
        return OutOfMemoryError(asked_bytes, free + reserved - used, total, f"device {device}")
    origin = origin_text(op)
    asked = describe(op) + (f" (built at {origin})" if origin else "") + f", {function}"
    error = DriverError(*runtime.error_text(code), asked)
    if function.startswith("cuLaunchKernel") and code in _CONFIGURATION:
        configuration = LaunchError(f"{error}; the launch asks for {_CONFIGURATION[code]}")
        configuration.__cause__ = error
        return configuration
    return error


def lost(code: int, op: _native.Op | None, device: int = _UNKNOWN) -> DeviceLostError:
    """Return the error for an operation whose device's context was broken by a fault."""
    if device < 0 and op is not None and op._ready:
        device = _native.stream_device(op._ready[0][0])
    return DeviceLostError(
        describe(op),
        origin_text(op),
        DriverError(*runtime.error_text(code)),
        f"device {device}" if device >= 0 else "",
    )
