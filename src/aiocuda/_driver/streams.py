"""Streams and events of other libraries: their handles and their devices."""

from __future__ import annotations

import operator
from typing import Any, Final

from aiocuda._driver import runtime
from aiocuda.errors import ArgumentTypeError

__all__ = ["device_of_stream", "device_said", "event_handle", "stream_handle"]

# Each device has these, under the same handles: CU_STREAM_LEGACY is 1, CU_STREAM_PER_THREAD is 2.
_DEFAULT_STREAMS: Final = (0, 1, 2)


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


def device_said(x: Any) -> int | None:
    """Return the ordinal of the device that a stream or an event says it is on; None if it does not say."""
    try:
        device = getattr(x, "device", None)
    except Exception:  # noqa: BLE001 - cuda.core's default streams ask for the current device, and there may be none
        return None
    # Of PyTorch, of CuPy and cuda.core, of Warp.
    said = [getattr(device, name, None) for name in ("index", "device_id", "ordinal")]
    said += [getattr(x, name, None) for name in ("device_index", "device_id")]
    return next((ordinal for ordinal in said if isinstance(ordinal, int) and ordinal >= 0), None)


def device_of_stream(handle: int, x: Any = None) -> int | None:
    """Return the ordinal of a stream's device.

    Parameters
    ----------
    handle
        Its handle. That of a default stream is the same on each device.
    x
        The stream itself, which may say its device.

    Returns
    -------
    int or None
        Of a default stream that does not say its device, it is the one whose context is current. None: there is none.

    Raises
    ------
    DriverError
        The handle is no stream's.
    """
    from cuda.bindings import driver

    runtime.device_count()
    before = runtime.call(driver.cuCtxGetCurrent)
    if handle in _DEFAULT_STREAMS:
        if (said := device_said(x)) is not None:
            return said
        if not int(before):
            return None
    context = runtime.call(driver.cuStreamGetCtx, driver.CUstream(handle))
    runtime.call(driver.cuCtxSetCurrent, context)
    try:
        return int(runtime.call(driver.cuCtxGetDevice))
    finally:
        runtime.call(driver.cuCtxSetCurrent, before)
