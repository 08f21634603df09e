"""Turns on what OpenTelemetry is told, and off.

Always true: it is on once at most. A process that is forked tells of its own work, and of nothing that was before.
"""

from __future__ import annotations

import atexit
import os
from typing import Any

from aiocuda import _forks, _native
from aiocuda._devices.numbers import whole_number
from aiocuda._telemetry.metrics import Metrics, opened
from aiocuda._telemetry.spans import Spans
from aiocuda._version import __version__
from aiocuda.errors import AiocudaError, MissingPackageError

__all__ = ["instrument", "uninstrument"]

_lock = _forks.lock()
_on: tuple[Metrics | None, Spans | None] | None = None


def instrument(
    *,
    tracer_provider: Any = None,
    meter_provider: Any = None,
    spans: bool = True,
    metrics: bool = True,
    max_operations: int = 128,
) -> None:
    """Tell OpenTelemetry what aiocuda does: each await as a span with its operations, and counts as metrics.

    Parameters
    ----------
    tracer_provider, meter_provider
        They get the spans and the metrics; None: the providers that are set for the process.
    spans, metrics
        Which of the two to tell.
    max_operations
        How many operations of an await become spans at most. The await's span says how many were left out.

    Raises
    ------
    MissingPackageError
        The package ``opentelemetry-api`` is not installed (extra ``otel``).
    AiocudaError
        It is on already; or `spans` is asked for while a trace is recorded.
    ArgumentValueError
        `max_operations` is no whole number, 0 or more.

    Notes
    -----
    A span's parent is the span that is current where the await begins, so a request's awaits are under the request.
    ``sync``, ``submit`` and futures that nobody awaits have spans, too. The times of operations are the device's, by
    events around each. An await that failed, was cancelled or came too late has the status of an error.

    While spans are on, no `trace` can be recorded, and each await and each operation costs the making of a span. A
    thread of its own makes them twice a second, when the device's times are known. An error of a provider's goes to
    `threading.excepthook`. A process that is forked before a device is used tells of its own work. *Blocks*: not.
    """
    global _on
    try:
        import opentelemetry  # noqa: F401
    except ImportError as error:
        raise MissingPackageError(
            "telling OpenTelemetry needs the package opentelemetry-api, which is not installed: "
            "pip install 'aiocuda[otel]'"
        ) from error
    most = whole_number(max_operations, "max_operations")
    with _lock:
        if _on is not None:
            raise AiocudaError("OpenTelemetry is told already; call uninstrument() first")
        counted = opened(meter_provider, __version__) if metrics else None
        try:
            told = Spans(tracer_provider, __version__, most) if spans else None
        except BaseException:
            if counted is not None:
                counted.close()
            raise
        if counted is not None and told is not None:
            counted.dropped_spans = lambda: told.dropped
        _on = counted, told
    atexit.register(uninstrument)  # before the providers end, which were there before


def uninstrument() -> None:
    """Tell OpenTelemetry nothing from here on, and hand over the spans of all that has ended. Does nothing twice.

    Notes
    -----
    *Blocks*: until the devices have passed what was recorded, for a second at most.
    """
    global _on
    with _lock:
        on, _on = _on, None
    if on is None:
        return
    atexit.unregister(uninstrument)
    metrics, spans = on
    if metrics is not None:
        metrics.close()
    if spans is not None:
        spans.close()


def _start_anew() -> None:
    """In a forked process: the thread that makes spans is not here, and what was begun is the other process'."""
    if _on is None:
        return
    metrics, spans = _on
    can_work = not _native.forked_from()  # else there are no counts, and no work
    if metrics is not None and not can_work:
        metrics.close()
    if spans is not None:
        spans.start_anew(can_work=can_work)


os.register_at_fork(after_in_child=_start_anew)
