"""Spans of OpenTelemetry: one for each await, whose children are its operations, with the device's times.

Always true: a span's parent is the span that was current where the await began. Spans are made behind the end, by a
thread of their own, and what they are made of is forgotten then: a service that runs for ever keeps what goes on, and
no more. More than a thread can tell is counted and left out. An error of a provider's costs the spans of one who asked:
`threading.excepthook` is told.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiocuda import _loops, _native
from aiocuda._loops.thread import report as tell_of_error
from aiocuda._trace.model import Asked, Operation
from aiocuda._trace.reading import asked_of, await_times, operation_of
from aiocuda.errors import AiocudaError

__all__ = ["Spans"]

_INTERVAL_S = 0.5
_TOGETHER = 1 << 10  # who asked; when so many have ended, the thread comes earlier
_MOST = 1 << 14  # spans that are made in one go
_PATIENCE_S = 5.0  # for the times of a piece of work, before others are looked at
_LAST_PATIENCE_S = 1.0

_EXCEPTIONS = {"cancelled": "CancelledError", "timed out": "DeviceTimeoutError"}


class _Failed(NamedTuple):
    kind: str
    message: str


@dataclass(slots=True)
class _Work:
    """The operations that somebody asked for, as many as are told, and how many more there were."""

    told: list[Operation] = field(default_factory=list)
    left_out: int = 0


class Spans:
    """Records awaits and operations, and makes spans of them, until it is closed.

    Parameters
    ----------
    provider
        A ``TracerProvider``; None: OpenTelemetry's own.
    version
        The version of aiocuda.
    most_operations
        So many children has a span at most; it says how many were left out.

    Raises
    ------
    AiocudaError
        A trace is being recorded.
    """

    def __init__(self, provider: Any, version: str, most_operations: int) -> None:
        from opentelemetry import context, trace

        self._context, self._trace = context, trace
        self._tracer = trace.get_tracer("aiocuda", version, provider)
        self._most_operations = most_operations
        self.dropped = 0
        self._begin()

    def _begin(self) -> None:
        self._begun: dict[int, Any] = {}  # the context that was current where somebody asked
        self._failed: dict[int, _Failed] = {}
        self._work: dict[int, _Work] = defaultdict(_Work)  # by who asked for it
        self._late_ns: dict[int, int] = defaultdict(int)  # by device
        self._ended = itertools.count(1)
        self._comes = threading.Event()
        self._is_closed = False
        self._making = threading.Lock()
        self._recording = _native.Recording(_who)
        self._recording.tell(self._note_begun, self._note_ended)
        if not self._recording.start():
            raise AiocudaError("a trace is being recorded, and there is one at a time; let its with block end first")
        self._thread = threading.Thread(target=self._run, name="aiocuda spans", daemon=True)
        self._thread.start()

    def start_anew(self, *, can_work: bool) -> None:
        """Forget all that was recorded; if this process can work, record what it does. In a forked process."""
        self._recording.stop()
        self._is_closed = True
        self.dropped = 0
        if can_work:
            self._begin()

    def close(self) -> None:
        """Record no more, and make the spans of all that has ended. Waits for the device for a second at most."""
        if self._is_closed:  # in a forked process that can do nothing
            return
        self._recording.stop()
        self._is_closed = True
        self._comes.set()
        self._thread.join()
        await_times(self._recording, _LAST_PATIENCE_S)
        self.make(all_work=True)

    def _run(self) -> None:
        while not self._is_closed:
            self._comes.wait(_INTERVAL_S)
            self._comes.clear()
            self.make()

    def make(self, *, all_work: bool = False) -> None:
        """Make the spans of all that is complete; or of all that has ended, whether the device's times are known."""
        with self._making:
            work, asked = self._recording.take(_PATIENCE_S, all_work)
            places = self._recording.places()
            for each in work:
                self._take(each, places)
            # Clocks are set; the difference of the two is taken when it is needed.
            to_epoch_ns = time.time_ns() - time.monotonic_ns()
            left = _MOST
            for number, *fields in asked:
                context, failed = self._begun.pop(number, None), self._failed.pop(number, None)
                operations = self._work.pop(number, _Work())
                if left <= 0:
                    self.dropped += 1 + len(operations.told) + operations.left_out
                    continue
                try:
                    left -= 1 + self._tell(asked_of(fields, places), context, failed, operations, to_epoch_ns)
                except Exception:  # noqa: BLE001 - of a sampler or a processor of the program's
                    self.dropped += 1
                    tell_of_error()

    def _note_begun(self, number: int, _: str) -> None:
        self._begun[number] = self._context.get_current()

    def _note_ended(self, number: int, error: BaseException | None) -> None:
        if error is not None:  # as words: the error itself would keep what its frames hold
            self._failed[number] = _Failed(type(error).__qualname__, _words_of(error))
        if next(self._ended) % _TOGETHER == 0:
            self._comes.set()

    def _take(self, fields: tuple[Any, ...], places: list[tuple[str, int]]) -> None:
        operation = operation_of(fields, places)
        if operation is None or operation.asked is None:
            return
        if operation.is_measured:
            late = operation.called_ns - operation.started_ns
            self._late_ns[operation.device] = max(self._late_ns[operation.device], late)
        work = self._work[operation.asked]
        if len(work.told) < self._most_operations:
            work.told.append(operation)
        else:
            work.left_out += 1

    def _tell(self, ask: Asked, context: Any, failed: _Failed | None, operations: _Work, to_epoch_ns: int) -> int:
        """Make the spans of who asked, and return how many children there are."""
        span = self._tracer.start_span(
            f"{ask.kind} {ask.name}",
            context,
            attributes={**_code(ask.place), "aiocuda.kind": ask.kind, "aiocuda.outcome": ask.outcome},
            start_time=ask.begun_ns + to_epoch_ns,
        )
        told = operations.told if span.is_recording() else []
        within = self._trace.set_span_in_context(span, context)
        for each in told:
            self._tell_operation(each, ask, within, to_epoch_ns)
        if operations.left_out:
            span.set_attribute("aiocuda.operations.dropped", operations.left_out)
            self.dropped += operations.left_out
        if ask.outcome != "done":
            kind = failed.kind if failed else _EXCEPTIONS.get(ask.outcome, "")
            self._fail(span, ask.outcome, kind, failed.message if failed else "", ask.ended_ns + to_epoch_ns)
        span.end(ask.ended_ns + to_epoch_ns)
        return len(told)

    def _tell_operation(self, operation: Operation, ask: Asked, within: Any, to_epoch_ns: int) -> None:
        late_ns = self._late_ns[operation.device] if operation.is_measured else 0
        attributes: dict[str, str | int] = {
            **_code(operation.place),
            "aiocuda.kind": operation.kind,
            "aiocuda.is_measured": operation.is_measured,
        }
        if operation.device >= 0:
            attributes["aiocuda.device"] = operation.device
        if operation.stream is not None:
            attributes["aiocuda.stream"] = operation.stream
        if operation.size_bytes:
            attributes["aiocuda.size_bytes"] = operation.size_bytes
        name = f"launch {operation.name}" if operation.kind == "launch" else operation.name
        begin_ns = operation.begin_ns + late_ns
        span = self._tracer.start_span(name, within, attributes=attributes, start_time=begin_ns + to_epoch_ns)
        if operation.state == "refused":
            self._fail(span, "refused", "", "", ask.ended_ns + to_epoch_ns)
        span.end(max(begin_ns, operation.end_ns + late_ns) + to_epoch_ns)

    def _fail(self, span: Any, outcome: str, kind: str, message: str, at_ns: int) -> None:
        said = f"{kind}: {message}" if message else outcome
        span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, said))
        if kind:
            span.set_attribute("error.type", kind)
        if message:
            span.add_event("exception", {"exception.type": kind, "exception.message": message}, at_ns)


def _words_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the program's own error cannot say itself
        return ""


def _who() -> str:
    """Return the kind of loop, or the thread; without the task: there are ever new ones."""
    return _loops.current_name().partition(":")[0]


def _code(place: str) -> dict[str, str | int]:
    """Return a line of the program in the words of OpenTelemetry's conventions."""
    file, _, line = place.rpartition(":")
    found: dict[str, str | int] = {}
    if file:
        with contextlib.suppress(ValueError):
            found["code.line.number"] = int(line)
        found["code.file.path"] = file
    return found
