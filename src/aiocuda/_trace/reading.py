"""Reads what the native recorder has, as a `Trace`.

Always true: the times of a device lie behind the call that had it begin. A device's first event is taken for the
host's time when it was recorded; where that makes work begin before its call, the device's times are put later.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from aiocuda import _native
from aiocuda._trace.model import Asked, Operation, Step, Trace

__all__ = ["asked_of", "await_times", "operation_of", "read"]

_NONE = (1 << 64) - 1  # in place of a number
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
    places = recording.places()
    operations: list[Operation] = []
    numbers: dict[int, int] = {}  # without those where a walk stopped, which begin again
    for recorded in range(recording.work_count()):
        each = operation_of(recording.work(recorded), places)
        if each is None:
            continue
        number = numbers[recorded] = len(operations)
        needs = tuple(numbers[one] for one in each.needs)
        brought_by = None if each.brought_by is None else numbers[each.brought_by]
        operations.append(replace(each, number=number, needs=needs, brought_by=brought_by))
    asked_by = (asked_of(each, places) for each in recording.asks())
    asked_by = (replace(each, results=tuple(numbers[one] for one in each.results)) for each in asked_by)
    steps = (Step(*each) for each in recording.steps())
    return Trace(name, begun_ns, ended_ns, is_emulated, _behind_their_calls(operations), tuple(asked_by), tuple(steps))


def operation_of(fields: Sequence[Any], places: Sequence[tuple[str, int]]) -> Operation | None:
    """Return the operation of a native record; None: a walk stopped before it, and it is recorded again.

    Other operations have the numbers of their records.
    """
    number, kind, name, place, asked, device, stream, tick, state, size_bytes, held_bytes, needs, *rest = fields
    if state == "withdrawn":
        return None
    built_ns, decided_ns, called_ns, returned_ns, started_ns, ended_ns, brought_by = rest
    return Operation(
        number, kind, name, _place(place, places), _known(asked), device, stream, tick, state, size_bytes, held_bytes,
        needs, built_ns, decided_ns, called_ns, returned_ns, started_ns, ended_ns, _known(brought_by),
    )  # fmt: skip


def asked_of(fields: Sequence[Any], places: Sequence[tuple[str, int]]) -> Asked:
    """Return who asked, of a native record; the results have the numbers of their records."""
    kind, outcome, name, place, *rest = fields
    return Asked(kind, outcome, name, _place(place, places), *rest)


def _known(number: int) -> int | None:
    return None if number == _NONE else number


def _place(number: int, places: Sequence[tuple[str, int]]) -> str:
    return "" if number == _NONE else "{}:{}".format(*places[number])


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
