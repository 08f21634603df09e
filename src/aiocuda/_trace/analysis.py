"""The figures of a trace: who took how long, who waited for whom, the critical path, what ran at the same time.

Always true: nothing here knows a device or a file. A figure of a device leaves out work without known times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from aiocuda._trace.model import Asked, Operation, Trace

__all__ = ["Analysis", "AwaitParts", "DeviceUse", "Held", "Row", "StreamUse", "analyse"]

Span = tuple[int, int]


@dataclass(slots=True)
class Row:
    """All operations of one kind and name.

    Attributes
    ----------
    kind, name
        Theirs.
    count
        How many there are.
    run_ns
        How long the device was at them; of functions, the host.
    queued_ns
        How long they were with the driver and had not begun.
    waited_ns
        How much of that they waited for what they need, by its name.
    """

    kind: str
    name: str
    count: int = 0
    run_ns: int = 0
    queued_ns: int = 0
    waited_ns: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class AwaitParts:
    """What an await was made of. All but `build_ns` add up to the time from its begin to its end.

    Attributes
    ----------
    asked
        Its index in `Trace.asked`.
    build_ns
        From the first of its operations that was built until it began.
    submit_ns
        It held its thread, and none of its operations ran.
    queue_ns
        None of its operations ran, and the result was not there.
    run_ns
        Some of its operations ran.
    wake_ns
        The result was there, and the task did not go on yet.
    """

    asked: int
    build_ns: int
    submit_ns: int
    queue_ns: int
    run_ns: int
    wake_ns: int


@dataclass(frozen=True, slots=True)
class StreamUse:
    """How long a stream was at work, of the time from the first operation of the trace to the last."""

    device: int
    stream: int
    count: int
    busy_ns: int
    part: float


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """How long a device's streams were at copies and at all else, and at both together."""

    device: int
    busy_ns: int
    part: float
    copies_ns: int
    kernels_ns: int
    both_ns: int


@dataclass(frozen=True, slots=True)
class Held:
    """How long aiocuda held a thread, and the longest time at once, with the index of who had asked then."""

    who: str
    total_ns: int
    longest_ns: int
    longest_of: int


@dataclass(frozen=True, slots=True)
class Analysis:
    """What a trace says.

    Attributes
    ----------
    rows
        The operations by kind and name, those first that ran longest.
    critical
        The numbers of the operations on the critical path, in their order: each began when the one before it had
        ended, or was held up by it.
    critical_run_ns, critical_ns
        How long they ran, and the time from the first one's begin to the last one's end.
    awaits, streams, devices, held
        Of each await, stream, device and thread.
    """

    rows: tuple[Row, ...]
    critical: tuple[int, ...]
    critical_run_ns: int
    critical_ns: int
    awaits: tuple[AwaitParts, ...]
    streams: tuple[StreamUse, ...]
    devices: tuple[DeviceUse, ...]
    held: tuple[Held, ...]


def analyse(trace: Trace) -> Analysis:
    """Return what a trace says."""
    critical = _critical_path(trace)
    on_path = [trace.operations[number] for number in critical]
    streams, devices = _uses(trace)
    return Analysis(
        _rows(trace),
        critical,
        sum(each.end_ns - each.begin_ns for each in on_path),
        on_path[-1].end_ns - on_path[0].begin_ns if on_path else 0,
        tuple(_parts(trace)),
        streams,
        devices,
        _held(trace),
    )


def union(spans: Iterable[Span]) -> list[Span]:
    """Return spans that do not meet, in ascending order, which cover the same."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        elif begin < end:
            joined.append((begin, end))
    return joined


def common(some: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """Return what two sequences of spans cover both; each of them as `union` returns it."""
    found: list[Span] = []
    i = j = 0
    while i < len(some) and j < len(others):
        begin, end = max(some[i][0], others[j][0]), min(some[i][1], others[j][1])
        if begin < end:
            found.append((begin, end))
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return found


def length(spans: Iterable[Span]) -> int:
    """Return how long spans are that do not meet."""
    return sum(end - begin for begin, end in spans)


def _rows(trace: Trace) -> tuple[Row, ...]:
    rows: dict[tuple[str, str], Row] = {}
    for each in trace.operations:
        row = rows.setdefault((each.kind, each.name), Row(each.kind, each.name))
        row.count += 1
        if each.kind == "function":
            row.run_ns += each.end_ns - each.begin_ns
        if not each.is_measured:
            continue
        row.run_ns += each.ended_ns - each.started_ns
        row.queued_ns += max(0, each.started_ns - each.returned_ns)
        needed = [trace.operations[number] for number in each.needs if trace.operations[number].is_measured]
        if needed:
            last = max(needed, key=lambda one: one.ended_ns)
            waited = min(last.ended_ns, each.started_ns) - each.returned_ns
            if waited > 0:
                row.waited_ns[last.name] += waited
    return tuple(sorted(rows.values(), key=lambda row: -row.run_ns))


def _critical_path(trace: Trace) -> tuple[int, ...]:
    timed = [each for each in trace.operations if each.is_measured]
    if not timed:
        return ()
    before: dict[int, int] = {}  # on the same stream
    last_of: dict[int | None, int] = {}
    for each in timed:
        if each.stream in last_of:
            before[each.number] = last_of[each.stream]
        last_of[each.stream] = each.number
    at: Operation | None = max(timed, key=lambda each: each.ended_ns)
    path: list[int] = []
    while at is not None:
        path.append(at.number)
        candidates = list(_measured_needs(trace, at))
        if at.number in before:
            candidates.append(before[at.number])
        held_up = [
            trace.operations[number] for number in candidates if trace.operations[number].ended_ns > at.called_ns
        ]
        at = max(held_up, key=lambda each: each.ended_ns, default=None)
    return tuple(reversed(path))


def _measured_needs(trace: Trace, operation: Operation) -> set[int]:
    """Return what it needs, through operations of which no time is known."""
    found: set[int] = set()
    left = list(operation.needs)
    seen: set[int] = set()
    while left:
        number = left.pop()
        if number in seen:
            continue
        seen.add(number)
        each = trace.operations[number]
        if each.is_measured:
            found.add(number)
        else:
            left.extend(each.needs)
    return found


def _parts(trace: Trace) -> Iterable[AwaitParts]:
    operations: dict[int, list[Operation]] = {}
    for each in trace.operations:
        if each.asked is not None:
            operations.setdefault(each.asked, []).append(each)
    steps: dict[int, list[Span]] = {}
    for step in trace.steps:
        steps.setdefault(step.asked, []).append((step.begun_ns, step.ended_ns))
    for index, asked in enumerate(trace.asked):
        if asked.kind in ("await", "sync") and asked.ended_ns:
            yield _parts_of(trace, index, asked, operations.get(index, []), steps.get(index, []))


def _parts_of(trace: Trace, index: int, asked: Asked, own: list[Operation], steps: list[Span]) -> AwaitParts:
    whole = [(asked.begun_ns, asked.ended_ns)]
    ends = [trace.operations[number].ended_ns for number in asked.results]
    ready = min(max([*ends, asked.begun_ns]), asked.ended_ns) if ends else asked.ended_ns
    before_ready = [(asked.begun_ns, ready)]
    results = [trace.operations[number] for number in asked.results]
    run = common(union((each.started_ns, each.ended_ns) for each in [*own, *results] if each.is_measured), before_ready)
    held = common(union(steps), before_ready)
    submit = length(held) - length(common(held, run))
    built = [each.built_ns for each in own if each.built_ns]
    return AwaitParts(
        index,
        max(0, asked.begun_ns - min(built)) if built else 0,
        submit,
        length(before_ready) - length(run) - submit,
        length(run),
        length(whole) - length(before_ready),
    )


def _uses(trace: Trace) -> tuple[tuple[StreamUse, ...], tuple[DeviceUse, ...]]:
    timed = [each for each in trace.operations if each.is_measured]
    if not timed:
        return (), ()
    whole = max(1, max(each.ended_ns for each in timed) - min(each.started_ns for each in timed))

    def busy(which: Callable[[Operation], bool]) -> list[Span]:
        return union((each.started_ns, each.ended_ns) for each in timed if which(each))

    streams = []
    for device, stream in sorted({(each.device, each.stream or 0) for each in timed}):
        own = [each for each in timed if (each.device, each.stream or 0) == (device, stream)]
        took = length(union((each.started_ns, each.ended_ns) for each in own))
        streams.append(StreamUse(device, stream, len(own), took, took / whole))
    devices = []
    for device in sorted({each.device for each in timed}):
        copies = busy(lambda each: each.device == device and each.kind == "copy")  # noqa: B023 - called at once
        others = busy(lambda each: each.device == device and each.kind != "copy")  # noqa: B023
        took = length(union([*copies, *others]))
        both = length(common(copies, others))
        devices.append(DeviceUse(device, took, took / whole, length(copies), length(others), both))
    return tuple(streams), tuple(devices)


def _held(trace: Trace) -> tuple[Held, ...]:
    held: dict[str, Held] = {}
    for step in trace.steps:
        who, _, task = trace.asked[step.asked].who.partition(": ")
        who = f"thread {task}" if who == "thread" else who
        took = step.ended_ns - step.begun_ns
        so_far = held.get(who, Held(who, 0, -1, 0))
        is_longest = took > so_far.longest_ns
        held[who] = Held(
            who,
            so_far.total_ns + took,
            took if is_longest else so_far.longest_ns,
            step.asked if is_longest else so_far.longest_of,
        )
    return tuple(held.values())
