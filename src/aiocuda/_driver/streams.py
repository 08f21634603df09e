"""Streams and events of other libraries: their handles and their devices."""

from __future__ import annotations

import operator
from typing import Any, Final

from aiocuda._driver import runtime
from aiocuda.errors import ArgumentTypeError

__all__ = ["device_of_event", "device_of_stream", "event_handle", "stream_handle"]

_NULL_STREAMS: Final = (0, 1)  # CU_STREAM_LEGACY is 1


def stream_handle(x: Any) -> int | None:
    """Return a stream's handle; None if it is no stream.

    Raises
    ------
    ArgumentTypeError
        Its ``__cuda_stream__`` gives something else.
    """
    protocol = getattr(x, "__cuda_stream__", None)
    if protocol is None:
        handle = getattr(x, "cuda_stream", None)  # PyTorch's, before 2.15
        return handle if isinstance(handle, int) else None
    version_and_handle = protocol() if callable(protocol) else protocol
    try:
        return operator.index(version_and_handle[1])
    except (TypeError, LookupError):
        raise ArgumentTypeError(
            f"__cuda_stream__ of {x!r:.80} gives {version_and_handle!r:.80}; it is to give (version, handle)"
        ) from None


def event_handle(x: Any) -> int | None:
    """Return an event's handle, 0 if it was never recorded; None if it is no event."""
    names: tuple[str, ...] = ("cuda_event",)  # of PyTorch and Warp
    if any(each.__name__ == "Event" for each in type(x).__mro__):
        names = (*names, "ptr", "handle")  # of CuPy; of cuda.core and Numba
    for name in names:
        handle = getattr(x, name, None)
        if handle is not None:
            return int(getattr(handle, "value", handle) or 0)
    return None


def device_of_event(x: Any) -> int | None:
    """Return the ordinal of an event's device; None if it does not tell."""
    device = getattr(x, "device", None)
    for name in ("index", "device_id", "ordinal"):
        ordinal = getattr(device, name, None)
        if isinstance(ordinal, int):
            return ordinal
    return None


def device_of_stream(handle: int) -> int | None:
    """Return the ordinal of a stream's device; None: it is a null stream's current context's, and there is none.

    Raises
    ------
    DriverError
        The handle is no stream's.
    """
    from cuda.bindings import driver

    runtime.device_count()
    before = runtime.call(driver.cuCtxGetCurrent)
    if handle in _NULL_STREAMS and not int(before):
        return None
    context = runtime.call(driver.cuStreamGetCtx, driver.CUstream(handle))
    runtime.call(driver.cuCtxSetCurrent, context)
    try:
        return int(runtime.call(driver.cuCtxGetDevice))
    finally:
        runtime.call(driver.cuCtxSetCurrent, before)
