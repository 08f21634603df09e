"""Events of the driver, for measuring and for work that aiocuda does not know of."""

from __future__ import annotations

import sys
from typing import Any, Final

from aiocuda import _native
from aiocuda._driver import runtime

__all__ = ["Opened", "Recorded", "device_of_stream"]

_NULL_STREAMS: Final = (0, 1)  # CU_STREAM_LEGACY is 1


class Recorded:
    """An event recorded once in a stream; destroyed with this object."""

    __slots__ = ("_destroy", "_event", "interprocess", "timing")

    def __init__(self, ordinal: int, stream: int, *, timing: bool, interprocess: bool = False) -> None:
        from cuda.bindings import driver

        self.timing = timing
        self.interprocess = interprocess
        self._event: Any = None
        self._destroy = driver.cuEventDestroy  # found now: a finalizer may run when nothing can be imported
        with runtime.context_of(ordinal):
            flags = driver.CUevent_flags
            kind = int(flags.CU_EVENT_DEFAULT if timing else flags.CU_EVENT_DISABLE_TIMING)
            if interprocess:
                kind |= int(flags.CU_EVENT_INTERPROCESS)
            self._event = runtime.call(driver.cuEventCreate, kind)
            runtime.call(driver.cuEventRecord, self._event, driver.CUstream(stream))

    def has_passed(self) -> bool:
        """Whether all before it has run.

        Raises
        ------
        DriverError
            The device's context is broken.
        """
        from cuda.bindings import driver

        with _native.RelaxedCaptures():
            (result,) = driver.cuEventQuery(self._event)
        if result == driver.CUresult.CUDA_ERROR_NOT_READY:
            return False
        runtime.require(result, "cuEventQuery")
        return True

    def order(self, stream: int) -> None:
        """Order all later work of a stream after the event."""
        from cuda.bindings import driver

        runtime.call(driver.cuStreamWaitEvent, driver.CUstream(stream), self._event, 0)

    def milliseconds_to(self, later: Recorded) -> float:
        """Return the device's time between two events that have passed."""
        from cuda.bindings import driver

        return float(runtime.call(driver.cuEventElapsedTime, self._event, later._event))

    @property
    def handle(self) -> int:
        """The driver's handle, a ``CUevent`` as a number."""
        return int(self._event)

    def __del__(self) -> None:
        # A broken context has destroyed it already, and at the end of the process nobody needs it to be.
        event = getattr(self, "_event", None)
        if event is not None and not sys.is_finalizing():
            self._destroy(event)


class Opened(Recorded):
    """An event that another process has recorded, opened here; destroyed with this object."""

    __slots__ = ()

    def __init__(self, handle: int) -> None:
        from cuda.bindings import driver

        self.timing = self.interprocess = False
        self._destroy = driver.cuEventDestroy
        self._event = driver.CUevent(handle)


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
