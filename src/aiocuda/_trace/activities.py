"""CUPTI's times of what a device did, for the operations of a trace.

Always true: a time is an operation's by the number that CUPTI was given with the driver's calls for it. What CUPTI says
nothing of keeps the times of its events.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field
from typing import Any

from aiocuda import _native
from aiocuda._driver.select import select_driver, submission_thread
from aiocuda.errors import AiocudaError, ArgumentValueError, MissingPackageError

__all__ = ["Activities", "times_of"]

_LIBRARY = "libcupti.so.13"  # as cupti-python has loaded it
_BUFFER_BYTES = 8 << 20


@dataclass(slots=True)
class Records:
    """CUPTI's records: what was asked for by which call, and when the device did it.

    Attributes
    ----------
    calls
        The number that CUPTI was given, by the call.
    spans
        The call, and when the device began and ended: of each kernel, copy and fill, also in graphs.
    """

    calls: dict[int, int] = field(default_factory=dict)
    spans: list[tuple[int, int, int]] = field(default_factory=list)


def times_of(records: Records) -> dict[int, tuple[int, int]]:
    """Return when the device began and ended each numbered piece of work: from its first activity to its last."""
    times: dict[int, tuple[int, int]] = {}
    for call, begun, ended in records.spans:
        number = records.calls.get(call)
        if number is None or not ended:
            continue
        first, last = times.get(number, (begun, ended))
        times[number] = (min(first, begun), max(last, ended))
    return times


class Activities:
    """Has CUPTI record what the devices do, from `begin` to `end`.

    Raises
    ------
    ArgumentValueError
        The driver is emulated, or calls are made by the submission thread.
    MissingPackageError
        The package ``cupti-python`` is not installed.
    """

    def __init__(self) -> None:
        if select_driver().is_emulated:
            raise ArgumentValueError(
                "cupti=True asks for the times of NVIDIA's CUPTI, and the emulated driver has none; leave it out: the "
                "times then come from events"
            )
        if submission_thread() != "never":
            raise ArgumentValueError(
                "cupti=True needs AIOCUDA_SUBMISSION_THREAD=never: CUPTI is told in the thread of each call what it is "
                "for"
            )
        try:
            from cupti import cupti  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise MissingPackageError(
                "the times of CUPTI need the package cupti-python, which is not installed: pip install cupti-python"
            ) from error
        self._cupti: Any = cupti
        self._records = Records()
        kinds = cupti.ActivityKind
        # Records of calls carry the numbers. Of a graph, its kernels, copies and fills are recorded: GRAPH_TRACE, one
        # record for all of it, ends the process when a graph runs that was made before (CUPTI 13.0).
        self._kinds = [
            kinds.EXTERNAL_CORRELATION, kinds.DRIVER, kinds.CONCURRENT_KERNEL,
            kinds.MEMCPY, kinds.MEMCPY2, kinds.MEMSET,
        ]  # fmt: skip
        self._spans = {int(each) for each in self._kinds[2:]}
        self._enabled: list[Any] = []
        self._offset_ns = 0

    def begin(self, recording: _native.Recording) -> None:
        """Begin, with a trace that has begun.

        Raises
        ------
        AiocudaError
            CUPTI refused.
        """
        cupti = self._cupti
        try:
            cupti.activity_register_callbacks(lambda: (_BUFFER_BYTES, 0), self._take)
            for kind in self._kinds:
                cupti.activity_enable(kind)
                self._enabled.append(kind)
            self._offset_ns = self._clock_offset_ns()
            library = ctypes.CDLL(_LIBRARY)
        except Exception as error:
            self._disable()
            raise AiocudaError(
                f"CUPTI does not record: {error}. Another profiler may use it, or the version of cupti-python may not "
                "suit the driver's; without cupti=True the times come from events"
            ) from error
        push, pop = library.cuptiActivityPushExternalCorrelationId, library.cuptiActivityPopExternalCorrelationId
        recording.correlate(*(_address(each) for each in (push, pop)))

    def end(self, recording: _native.Recording) -> None:
        """End, when the devices have passed what was recorded, and give its times to the trace."""
        try:
            self._cupti.activity_flush_all(1)  # also buffers that are not full
        finally:
            self._disable()
        for number, (begun, ended) in times_of(self._records).items():
            recording.set_times(number, begun + self._offset_ns, ended + self._offset_ns)

    def _disable(self) -> None:
        while self._enabled:
            self._cupti.activity_disable(self._enabled.pop())

    def _take(self, activities: list[Any]) -> None:
        """Keep what a buffer of CUPTI's has. Its records are gone afterwards."""
        calls, spans = self._records.calls, self._records.spans
        for each in activities:
            if each.kind in self._spans:
                spans.append((each.correlation_id, each.start, each.end))
            elif each.kind == self._cupti.ActivityKind.EXTERNAL_CORRELATION:
                calls[each.correlation_id] = each.external_id

    def _clock_offset_ns(self) -> int:
        """Return what CUPTI's clock lacks to ours: of several readings, that of the closest pair."""
        readings: list[tuple[int, int]] = []
        for _ in range(16):
            before = time.monotonic_ns()
            theirs: int = self._cupti.get_timestamp()
            after = time.monotonic_ns()
            readings.append((after - before, (before + after) // 2 - theirs))
        return min(readings)[1]


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
