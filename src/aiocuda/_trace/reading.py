"""Reads what the native recorder has, as a `Trace`.

Always true: the times of a device lie behind the call that had it begin. A device's first event is taken for the
host's time when it was recorded; where that makes work begin before its call, the device's times are put later.
"""

from __future__ import annotations

import time
from dataclasses import replace

from aiocuda import _native
from aiocuda._trace.model import Asked, Operation, Step, Trace

__all__ = ["NONE", "await_times", "read"]

NONE = (1 << 64) - 1  # in place of a number
_POLL_S = 0.001


def await_times(recording: _native.Recording, patience_s: float) -> bool:
    """Wait until the devices have passed what was recorded; False: they have not, after so many seconds."""
    until = time.monotonic() + patience_s
    while not recording.read_times():
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_S)  # without the GIL
    return True


def read(recording: _native.Recording, name: str, begun_ns: int, ended_ns: int, *, is_emulated: bool) -> Trace:
    """Return the trace that was recorded."""
    places = [f"{file}:{line}" for file, line in recording.places()]

    def place(number: int) -> str:
        return "" if number == NONE else places[number]

    operations: list[Operation] = []
    numbers: dict[int, int] = {}  # without those where a walk stopped, which begin again
    for recorded in range(recording.work_count()):
        _, kind, called, at, asked, device, stream, tick, state, size_bytes, held_bytes, needs, *rest = recording.work(
            recorded
        )
        if state == "withdrawn":
            continue
        built, decided, called_ns, returned, started, ended, brought_by = rest
        number = numbers[recorded] = len(operations)
        needed = tuple(numbers[each] for each in needs)
        by = None if asked == NONE else asked
        copied = None if brought_by == NONE else numbers[brought_by]
        operations.append(
            Operation(
                number, kind, called, place(at), by, device, stream, tick, state, size_bytes, held_bytes, needed, built,
                decided, called_ns, returned, started, ended, copied,
            )
        )  # fmt: skip
    asked_by = (
        Asked(kind, outcome, of, place(at), who, tuple(numbers[each] for each in results), begun, ended)
        for kind, outcome, of, at, who, results, begun, ended in recording.asks()
    )
    steps = (Step(*each) for each in recording.steps())
    return Trace(name, begun_ns, ended_ns, is_emulated, _behind_their_calls(operations), tuple(asked_by), tuple(steps))


def _behind_their_calls(operations: list[Operation]) -> tuple[Operation, ...]:
    late_ns: dict[int, int] = {}
    for each in operations:
        if each.is_measured:
            late_ns[each.device] = max(late_ns.get(each.device, 0), each.called_ns - each.started_ns)
    for i, each in enumerate(operations):
        late = late_ns.get(each.device, 0) if each.is_measured else 0
        if late:
            operations[i] = replace(each, started_ns=each.started_ns + late, ended_ns=each.ended_ns + late)
    return tuple(operations)
