"""Habits that cost time, found in a trace, each with the lines that have it.

Always true: nothing here knows a device or a file. A habit is found where it costs time that is worth a line: what
takes less than `LEAST_NS`, or than `LEAST_PART` of the trace, is left out. So a short program has no findings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from aiocuda._trace.analysis import common, length, union
from aiocuda._trace.model import Asked, Operation, Trace
from aiocuda._values.durations import duration_text

__all__ = ["HELD_NS", "LEAST_NS", "LEAST_PART", "Busy", "Finding", "find"]

HELD_NS = 50_000_000
LEAST_NS = 5_000_000
LEAST_PART = 0.05
_LEAST_TIMES = 3  # that something is seen
_MOST_IN_ROUND = 32  # awaits of a loop
_LEAST_WORK = 8  # on each of two streams
_LEAST_BYTES = 64 << 10  # a smaller array is often a number that the host decides by


@dataclass(frozen=True, slots=True)
class Finding:
    """A habit of a program's that costs time.

    Attributes
    ----------
    kind
        ``"held loop"``, ``"serial copies"``, ``"back and forth"``, ``"await in a loop"`` or ``"streams in turn"``.
    places
        The lines that have it, as ``"file:line"``; empty where none is known.
    count
        How often it was seen.
    cost_ns
        The nanoseconds it took, or held up.
    text
        What was seen and what to do, in words.
    """

    kind: str
    places: tuple[str, ...]
    count: int
    cost_ns: int
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Busy:
    """A time in which a thread was at something that is no operation, such as compiling a kernel.

    Attributes
    ----------
    who
        The event loop and the task, as ``"loop: task"``.
    text
        What it was at, in words.
    place
        The line that asked for it, as ``"file:line"``.
    begun_ns, ended_ns
        When it began and ended.
    """

    who: str
    text: str
    place: str
    begun_ns: int
    ended_ns: int


def find(trace: Trace, busy: Sequence[Busy] = (), held_ns: int = HELD_NS) -> tuple[Finding, ...]:
    """Return the habits that cost time in a trace, the dearest first.

    Parameters
    ----------
    trace
        The trace.
    busy
        What else threads were at.
    held_ns
        How long an event loop may be held at once.
    """
    turns = list(_turns(trace))
    found = [
        *_held_loops(trace, busy, held_ns),
        *_serial_copies(trace),
        *_back_and_forth(trace),
        *_awaits_in_loops(trace, turns),
        *_streams_in_turn(trace, frozenset(index for turn in turns for index in turn.after)),
    ]
    return tuple(sorted(found, key=lambda finding: -finding.cost_ns))


def _at(places: Iterable[str]) -> str:
    return "".join(f", at {each}" for each in dict.fromkeys(places) if each)[:400]


def _words(operation: Operation) -> str:
    """Return an operation's name and line, for the midst of a sentence."""
    name = f"the launch of {operation.name}" if operation.kind == "launch" else f"'{operation.name}'"
    return name + (f" (built at {operation.place})" if operation.place else "")


def _is_worth_it(trace: Trace, cost_ns: int) -> bool:
    return cost_ns >= max(LEAST_NS, LEAST_PART * (trace.ended_ns - trace.begun_ns))


def _is_loop(who: str) -> bool:
    return not who.startswith("thread: ")


# ----- An event loop is held


def _held_loops(trace: Trace, busy: Sequence[Busy], held_ns: int) -> Iterator[Finding]:
    """Find what held an event loop: functions of operations, compilations, `sync()`, and submissions."""
    times: dict[tuple[str, str], list[int]] = defaultdict(list)
    functions = [each for each in trace.operations if each.kind == "function"]
    first_ns = min((each.begun_ns for each in trace.asked if each.kind == "await"), default=trace.ended_ns)
    long_busy = [
        each
        for each in busy  # before the first await there is nobody to be held up
        if each.ended_ns - each.begun_ns > held_ns and _is_loop(each.who) and each.begun_ns > first_ns
    ]
    for each in long_busy:
        times[each.text, each.place].append(each.ended_ns - each.begun_ns)
    for step in trace.steps:
        asked = trace.asked[step.asked]
        taken = step.ended_ns - step.begun_ns
        if taken <= held_ns or not _is_loop(asked.who):
            continue
        inner = [one for one in long_busy if step.begun_ns <= one.begun_ns and one.ended_ns <= step.ended_ns]
        if 2 * sum(one.ended_ns - one.begun_ns for one in inner) > taken:
            continue  # told already
        text, place = _of_step(step.begun_ns, step.ended_ns, asked, functions)
        times[text, place].append(taken)
    for (text, place), taken_ns in times.items():
        most = duration_text(max(taken_ns))
        often = f"{len(taken_ns)} times, for up to {most}" if len(taken_ns) > 1 else f"for {most}"
        told = f"{text}{_at([place])}, held the event loop up {often}; 'What blocks' in the reference says what to do"
        yield Finding("held loop", (place,) if place else (), len(taken_ns), sum(taken_ns), told)


def _of_step(begun_ns: int, ended_ns: int, asked: Asked, functions: Sequence[Operation]) -> tuple[str, str]:
    own = [each for each in functions if begun_ns <= each.called_ns and each.returned_ns <= ended_ns]
    if asked.kind == "sync":
        return f"sync() of {asked.name}", asked.place
    longest = max(own, key=lambda each: each.returned_ns - each.called_ns, default=None)
    if longest and 2 * (longest.returned_ns - longest.called_ns) > ended_ns - begun_ns:
        return f"the function of {longest.name}", longest.place
    return f"the submission of {asked.name}", asked.place


# ----- Copies wait for what they do not need


def _serial_copies(trace: Trace) -> Iterator[Finding]:
    """Find copies that waited on their stream behind work that they do not need, and work behind such copies."""
    needs = _Needs(trace)
    last_of: dict[tuple[int, int | None], Operation] = {}
    found: dict[tuple[str, str], list[tuple[Operation, Operation, int]]] = defaultdict(list)
    for each in trace.operations:
        if not each.is_measured:
            continue
        before = last_of.get((each.device, each.stream))
        last_of[each.device, each.stream] = each
        if before is None or not _could_overlap(before, each):
            continue
        needed_ns = max((trace.operations[one].end_ns for one in each.needs), default=0)
        waited_ns = min(before.ended_ns, each.started_ns) - max(each.returned_ns, needed_ns, before.started_ns)
        could_save_ns = min(waited_ns, each.ended_ns - each.started_ns)
        if could_save_ns > 0 and not needs.reach(each.number, {before.number}):
            found[before.place, each.place].append((before, each, could_save_ns))
    for times in found.values():
        cost_ns = sum(one[2] for one in times)
        before, each, _ = max(times, key=lambda one: one[2])
        if not _is_worth_it(trace, cost_ns):
            continue
        text = (
            f"{_words(each)} waited {len(times)} times behind {_words(before)} on stream {each.stream}, and does not "
            f"need it: {duration_text(cost_ns)} could have overlapped; have them on different streams (a policy with "
            "more streams, or none)"
        )
        yield Finding("serial copies", _places(before, each), len(times), cost_ns, text)


def _could_overlap(one: Operation, other: Operation) -> bool:
    """Whether two operations use different engines of a device: a copy one way, the other way, and all else."""
    return "copy" in (one.kind, other.kind) and _engine(one) != _engine(other)


def _engine(operation: Operation) -> str:
    return operation.name if operation.kind == "copy" else "compute"


def _places(*operations: Operation) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.place for each in operations if each.place))


# ----- Arrays go back and forth


def _back_and_forth(trace: Trace) -> Iterator[Finding]:
    """Find arrays that copies brought from where copies bring them again, without a change between that is known."""
    found: dict[tuple[str, str], list[tuple[Operation, Operation]]] = defaultdict(list)
    for each in trace.operations:
        if each.brought_by is None or each.size_bytes <= _LEAST_BYTES:
            continue
        before = trace.operations[each.brought_by]
        if _goes_back(before, each) and before.size_bytes == each.size_bytes:
            found[min(before.place, each.place), max(before.place, each.place)].append((before, each))
    for pairs in found.values():
        times = [pair for pair in pairs if pair[0].name == pairs[0][0].name]  # not back and forth and back
        copies = {one.number: one for pair in pairs for one in pair if one.is_measured}
        cost_ns = sum(one.ended_ns - one.started_ns for one in copies.values())
        before, each = times[0]
        if len(times) < _LEAST_TIMES or not _is_worth_it(trace, cost_ns):
            continue
        text = (
            f"{_words(before)}, then {_words(each)}: {len(times)} times {each.size_bytes:,} bytes went there and back, "
            f"and the copies took {duration_text(cost_ns)}; keep the array where it is used"
        )
        yield Finding("back and forth", _places(before, each), len(times), cost_ns, text)


def _goes_back(first: Operation, second: Operation) -> bool:
    ways = (first.name, second.name)
    if ways == ("copy between devices",) * 2:
        return first.device != second.device
    return ways in (("copy to host", "copy to device"), ("copy to device", "copy to host"))


# ----- Awaits one after the other


@dataclass(frozen=True, slots=True)
class _Turn:
    """Awaits of a task that one task had after others, and of which none needs one of those.

    A round of a loop ends with the line that the round before it ended with. A pair is one await and the next.
    """

    is_round: bool
    before: tuple[int, ...]
    after: tuple[int, ...]


def _turns(trace: Trace) -> Iterator[_Turn]:
    needs = _Needs(trace)
    own: dict[int, list[int]] = defaultdict(list)
    for each in trace.operations:
        if each.asked is not None and each.kind != "function":
            own[each.asked].append(each.number)
    of_task: dict[str, list[int]] = defaultdict(list)
    for index, asked in enumerate(trace.asked):
        if asked.kind in ("await", "sync") and asked.outcome == "done" and asked.place and own[index]:
            of_task[asked.who].append(index)
    for awaits in of_task.values():
        last: dict[str, int] = {}
        for at, index in enumerate(awaits):
            place = trace.asked[index].place
            width = at - last.get(place, at)
            last[place] = at
            if 0 < width <= _MOST_IN_ROUND:
                turn = _Turn(
                    True,
                    tuple(awaits[max(0, at - 2 * width + 1) : at - width + 1]),
                    tuple(awaits[at - width + 1 : at + 1]),
                )
                if _could_be_one(trace, needs, own, turn):
                    yield turn
            if at and width != 1:
                turn = _Turn(False, (awaits[at - 1],), (index,))
                if _could_be_one(trace, needs, own, turn):
                    yield turn


def _could_be_one(trace: Trace, needs: _Needs, own: dict[int, list[int]], turn: _Turn) -> bool:
    """Whether awaits came soon one after the other, and those after need nothing of those before."""
    inside = (*turn.before, *turn.after)
    spans = [(trace.asked[index].begun_ns, trace.asked[index].ended_ns) for index in inside]
    if any(later[0] < earlier[1] for earlier, later in pairwise(spans)):
        return False
    if spans[-1][1] - spans[0][0] > 2 * length(spans):
        return False  # what lies between takes longer than the awaits
    earlier = {number for index in turn.before for number in own[index]}
    return not any(needs.reach(number, earlier) for index in turn.after for number in own[index])


def _awaits_in_loops(trace: Trace, turns: Iterable[_Turn]) -> Iterator[Finding]:
    by_places: dict[tuple[bool, tuple[str, ...]], list[_Turn]] = defaultdict(list)
    for turn in turns:
        inside = turn.after if turn.is_round else (*turn.before, *turn.after)
        by_places[turn.is_round, tuple(sorted({trace.asked[index].place for index in inside}))].append(turn)
    in_rounds = [set(places) for is_round, places in by_places if is_round]
    for (is_round, places), times in by_places.items():
        if not is_round and any(places_of >= set(places) for places_of in in_rounds):
            continue
        cost_ns = sum(min(_took(trace, turn.before), _took(trace, turn.after)) for turn in times)
        if len(times) < _LEAST_TIMES or not _is_worth_it(trace, cost_ns):
            continue
        inside = times[0].after if is_round else (*times[0].before, *times[0].after)
        awaits = ", ".join(f"{trace.asked[index].name} (built at {trace.asked[index].place})" for index in inside)
        seen = f"in {len(times) + 1} rounds" if is_round else f"{len(times)} times"
        free = "no round needs" if is_round else "the later one does not need"
        text = (
            f"{seen} there were awaited, one after the other: {awaits}; {free} the one before, and up to "
            f"{duration_text(cost_ns)} could have overlapped; await ac.zip() of them, or submit() them before the "
            "first await"
        )
        yield Finding("await in a loop", places, len(times) + is_round, cost_ns, text)


def _took(trace: Trace, awaits: Iterable[int]) -> int:
    return sum(trace.asked[index].ended_ns - trace.asked[index].begun_ns for index in awaits)


# ----- Streams that never overlap


def _streams_in_turn(trace: Trace, told: frozenset[int]) -> Iterator[Finding]:
    """Find streams of a device with work that could overlap, and never does; of awaits that are `told`, nothing."""
    needs = _Needs(trace)
    work: dict[tuple[int, int], list[Operation]] = defaultdict(list)
    for each in trace.operations:
        if each.is_measured and each.stream is not None:
            work[each.device, each.stream].append(each)
    streams = {at: _spans(all_of) for at, all_of in work.items() if len(all_of) >= _LEAST_WORK}
    for device in sorted({at[0] for at in streams}):
        own = [at for at in sorted(streams) if at[0] == device]
        if len(own) < 2 or any(common(streams[a], streams[b]) for a, b in _pairs(own)):
            continue
        cost_ns = sum(length(streams[at]) for at in own) - max(length(streams[at]) for at in own)
        everything = sorted((each for at in own for each in work[at]), key=lambda each: each.started_ns)
        late = [
            (one, other)
            for one, other in pairwise(everything)
            if one.stream != other.stream
            and other.called_ns > one.ended_ns
            and other.asked not in told
            and not needs.reach(other.number, {one.number})
        ]
        if len(late) < _LEAST_WORK or not _is_worth_it(trace, cost_ns):
            continue
        one, other = late[0]
        text = (
            f"the {len(own)} streams of device {device} never worked at the same time, {duration_text(cost_ns)} in "
            f"turn: {len(late)} times the host asked for work only when what it does not need had ended, such as "
            f"{_words(other)} after {_words(one)}; submit both before the first is awaited"
        )
        yield Finding("streams in turn", _places(one, other), len(late), cost_ns, text)


def _spans(operations: Iterable[Operation]) -> list[tuple[int, int]]:
    return union((each.started_ns, each.ended_ns) for each in operations)


def _pairs(items: Sequence[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    for i, one in enumerate(items):
        for other in items[i + 1 :]:
            yield one, other


# ----- Who needs whom


class _Needs:
    """Says which operations come after which."""

    def __init__(self, trace: Trace) -> None:
        self._operations = trace.operations

    def reach(self, number: int, wanted: set[int]) -> bool:
        """Whether an operation comes after one of some others, directly or not."""
        if not wanted:
            return False
        lowest = min(wanted)
        left, seen = [number], {number}
        while left:
            for each in self._operations[left.pop()].needs:
                if each in wanted:
                    return True
                if each > lowest and each not in seen:
                    seen.add(each)
                    left.append(each)
        return False
