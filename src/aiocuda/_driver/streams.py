"""Streams of other libraries."""

from __future__ import annotations

from typing import Final

from aiocuda._driver import runtime

__all__ = ["device_of_stream"]

_NULL_STREAMS: Final = (0, 1)  # CU_STREAM_LEGACY is 1


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
