"""From the driver's refusals to the package's errors; native code calls this.

Always true: the error names what was asked, the operation and the line that built it, where there is one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from aiocuda import _native
from aiocuda._driver import runtime
from aiocuda._engine import accounts
from aiocuda._engine import lost as lost_devices
from aiocuda._engine.story import with_story
from aiocuda.errors import (
    AiocudaError,
    CaptureError,
    ClosedError,
    DeviceLostError,
    DriverError,
    ForkedProcessError,
    LaunchError,
    OutOfMemoryError,
)

__all__ = [
    "describe",
    "lost",
    "named",
    "origin_text",
    "out_of_managed_memory",
    "out_of_memory",
    "over",
    "over_limit",
    "raised_as",
    "refused",
    "told_what_instead",
]

_OUT_OF_MEMORY: Final = 2
_NOT_SUPPORTED: Final = 801
_UNKNOWN: Final = -2
_MOST_HOLDERS: Final = 4  # that one error names

# The driver's answers for a stream that is being captured, or takes part in a capture; nothing is lost then.
_CAPTURES: Final = range(900, 909)

# Answers of the launch functions that are about the launch's configuration.
_CONFIGURATION: Final = {
    1: "a grid, block or shared memory size that this device does not take",
    98: "the function is not one of this device",
    701: "too many threads, registers or too much shared memory for this device",
    720: "more cooperative blocks than fit on the device at once",
    912: "a cluster shape that this device does not take",
}


def describe(asked: _native.Op | str) -> str:
    """Return what an operation is called in messages; what is said in words already, as it is."""
    return asked if isinstance(asked, str) else asked._title


def origin_text(asked: _native.Op | str) -> str:
    """Return where an operation was built, as ``"file:line"``; empty where that is not known."""
    location = None if isinstance(asked, str) else asked._origin
    return "" if location is None else f"{location[0]}:{location[1]}"


@contextlib.contextmanager
def raised_as(asked: _native.Op | str, device: int) -> Iterator[None]:
    """Have what the driver refuses inside name the operation, or, in words, what was being done, and the device."""
    said: BaseException
    try:
        yield
        return
    except DriverError as error:
        said = refused(error.code, error.asked, asked, 0, device)
    except DeviceLostError as error:
        if (renamed := named(error, asked)) is error:
            raise
        said = renamed
    raise said  # out here: it has its own cause


def named(error: BaseException, asked: _native.Op | str) -> BaseException:
    """Return an error: that of a lost device as one that names what was asked, where it names no operation itself."""
    if not isinstance(error, DeviceLostError) or error.origin:
        return error
    return lost_devices.renamed(error, describe(asked), origin_text(asked), _blocks(asked))


@contextlib.contextmanager
def told_what_instead(instead: str) -> Iterator[None]:
    """Have what the driver does not support say what to do instead."""
    try:
        yield
        return
    except DriverError as error:
        if error.code != _NOT_SUPPORTED:
            raise
        said = DriverError(error.name, error.code, f"{error.explanation}; {instead}", error.asked)
    raise said


def refused(code: int, function: str, asked: _native.Op | str, asked_bytes: int, device: int) -> AiocudaError:
    """Return the error for a call that the driver refused.

    Parameters
    ----------
    code
        The driver's ``CUresult``.
    function
        The driver's function that was called.
    asked
        The operation it was called for, or, in words, what was being done.
    asked_bytes
        The size of an allocation, in bytes; else 0.
    device
        The ordinal; `_native.HOST` for page-locked host memory, -2 where it is not known.
    """
    if _native.breaks_context(code):
        return _lost(code, asked, device, [])
    if code in _CAPTURES:
        return _captured(code, asked)
    if code == _OUT_OF_MEMORY and function in {"cuMemAllocFromPoolAsync", "cuMemAlloc", "cuMemHostAlloc"}:
        return out_of_memory(asked_bytes, device)
    if code == _OUT_OF_MEMORY and function == "cuMemAllocManaged":
        return out_of_managed_memory(asked_bytes, device)
    origin = origin_text(asked)
    text = describe(asked) + (f" (built at {origin})" if origin else "") + f", {function}"
    error = DriverError(*runtime.error_text(code), text)
    if function.startswith("cuLaunchKernel") and code in _CONFIGURATION:
        configuration = LaunchError(f"{error}; the launch asks for {_CONFIGURATION[code]}")
        configuration.__cause__ = error
        return configuration
    return error


def over() -> AiocudaError:
    """Return the error for what needs the driver in a forked process, or when the interpreter is ending."""
    parent = _native.forked_from()
    if parent:
        return ForkedProcessError(parent)
    return ClosedError(
        "the interpreter is ending, and aiocuda executes nothing any more; execute it before, in the program's last "
        "lines or in a function that is given to atexit.register"
    )


def out_of_memory(asked_bytes: int, device: int) -> OutOfMemoryError:
    """Return the error for an allocation for which a device, or -1 for page-locked memory, has no room."""
    holders = _holders(device)
    if device == _native.HOST:
        locked, kept = _native.page_locked_memory()
        return OutOfMemoryError(asked_bytes, kept, locked, "page-locked host memory", holders)
    free, total = runtime.memory_free_total(device)
    reserved, used = runtime.pool_reserved_used(device)
    free += reserved - used
    bound = runtime.pool_bound(device)
    if bound and bound - used < free:
        bounded = f"the memory pool of device {device}, as set_memory_pool(max_bytes=) bounds it,"
        return OutOfMemoryError(asked_bytes, max(bound - used, 0), bound, bounded, holders)
    return OutOfMemoryError(asked_bytes, free, total, f"device {device}", holders)


def out_of_managed_memory(asked_bytes: int, device: int) -> OutOfMemoryError:
    """Return the error for an allocation of managed memory for which the machine has no room."""
    _, held, kept = _native.managed_memory(device)
    holders = _holders(device, is_managed=True)
    return OutOfMemoryError(asked_bytes, kept, held, f"managed memory of device {device}", holders)


def over_limit(asked_bytes: int, device: int, limit_bytes: int) -> OutOfMemoryError:
    """Return the error for an allocation on a device for which a memory limit leaves no room."""
    used, _ = _native.memory(device)
    left = limit_bytes - used - _native.guest_bytes(device)
    return OutOfMemoryError(asked_bytes, max(left, 0), limit_bytes, f"device {device}", _holders(device), is_limit=True)


def _holders(device: int, *, is_managed: bool = False) -> tuple[tuple[str, int], ...]:
    held = accounts.largest(accounts.by_place(accounts.each_array(device, is_managed=is_managed)), _MOST_HOLDERS)
    found = [(str(each), each.size_bytes) for each in held]
    if not is_managed and device != _native.HOST and (size_bytes := _native.guest_bytes(device)):
        found.append(("other libraries, from the memory pool", size_bytes))
        found.sort(key=lambda each: -each[1])
    return tuple(found[:_MOST_HOLDERS])


def _captured(code: int, asked: _native.Op | str) -> CaptureError:
    origin = origin_text(asked)
    cause = DriverError(*runtime.error_text(code))
    error = CaptureError(
        f"{describe(asked)}{f' (built at {origin})' if origin else ''}: a stream that it needs is being captured into "
        f"a graph by something else in the program ({cause}); end that capture first, or use another stream"
    )
    error.__cause__ = cause
    return error


def lost(code: int, asked: _native.Op | str, device: int = _UNKNOWN) -> DeviceLostError | CaptureError:
    """Return the error for an operation, or what was being done, whose device's context was broken by a fault.

    An answer that CUDA gives because of a stream's capture is no fault: it becomes a `CaptureError`.
    """
    if code in _CAPTURES:
        return _captured(code, asked)
    ready = [] if isinstance(asked, str) else asked._ready
    if device < 0 and ready:
        device = _native.stream_device(ready[0][0])
    is_submitted = not isinstance(asked, str) and asked._state == "submitted"
    return _lost(code, asked, device, ready if is_submitted else [])


def _lost(code: int, asked: _native.Op | str, device: int, ready: list[tuple[int, int]]) -> DeviceLostError:
    error = DriverError(*runtime.error_text(code))
    operation = None if isinstance(asked, str) else asked
    device = _lost_device(device, code)
    return with_story(
        lost_devices.error_of(describe(asked), origin_text(asked), error, device, ready, _blocks(asked), operation)
    )


def _lost_device(asked: int, code: int) -> int:
    """Return the device that was lost: the one that was asked, or one that its work was to meet, as in a peer copy."""
    if asked < 0 or runtime.has_failed(asked, code):
        return asked
    return next((each for each in runtime.open_devices() if runtime.has_failed(each, code)), asked)


def _blocks(asked: _native.Op | str) -> str:
    return "" if isinstance(asked, str) else asked._blocks
