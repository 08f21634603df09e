"""Findings of traces that were made up: each habit is found, and what only looks like it is not."""

from __future__ import annotations

from typing import Any

import pytest

from aiocuda._trace.findings import Busy, Finding, find
from aiocuda._trace.model import Asked, Operation, Step, Trace

MS = 1_000_000
LOOP = "asyncio: Task-1"
BASE: dict[str, Any] = {
    "kind": "launch", "name": "k", "place": "p.py:1", "asked": None, "device": 0, "stream": 0, "tick": 1,
    "state": "measured", "size_bytes": 0, "held_bytes": 0, "needs": (), "built_ns": 0, "decided_ns": 0,
    "called_ns": 0, "returned_ns": 0, "started_ns": 0, "ended_ns": 0,
}  # fmt: skip


def ran(begin_ms: float, end_ms: float, called_ms: float | None = None, **more: Any) -> dict[str, Any]:
    """Return an operation that a device was at from one time to another; it was called then, or before."""
    called_ns = int((begin_ms if called_ms is None else called_ms) * MS)
    times = {"called_ns": called_ns, "returned_ns": called_ns}
    return {**BASE, **times, "started_ns": int(begin_ms * MS), "ended_ns": int(end_ms * MS), **more}


def awaited(begin_ms: float, end_ms: float, place: str = "p.py:1", **more: Any) -> Asked:
    fields = {"kind": "await", "outcome": "done", "name": "the launch of k", "who": LOOP, **more}
    return Asked(place=place, results=(), begun_ns=int(begin_ms * MS), ended_ns=int(end_ms * MS), **fields)


def found(
    *operations: dict[str, Any],
    asked: tuple[Asked, ...] = (),
    steps: tuple[Step, ...] = (),
    busy: tuple[Busy, ...] = (),
) -> list[Finding]:
    numbered = tuple(Operation(number=number, **each) for number, each in enumerate(operations))
    return list(find(Trace("made", 0, 200 * MS, False, numbered, asked, steps), busy))


def kinds(findings: list[Finding]) -> list[str]:
    return [each.kind for each in findings]


# ----- An event loop is held


def function(begin_ms: float, end_ms: float, place: str) -> dict[str, Any]:
    times = {"called_ns": int(begin_ms * MS), "returned_ns": int(end_ms * MS)}
    return {**BASE, **times, "kind": "function", "name": "map()", "stream": None, "state": "submitted", "place": place}


def test_a_function_that_holds_a_loop_is_found_with_its_line() -> None:
    asked = (awaited(0, 120, "await.py:1"),)
    (one,) = found(function(11, 80, "map.py:2"), asked=asked, steps=(Step(0, 10 * MS, 81 * MS),))
    assert (one.kind, one.places, one.count, one.cost_ns) == ("held loop", ("map.py:2",), 1, 71 * MS)
    assert "the function of map(), at map.py:2, held the event loop up for 71 ms" in one.text


def test_a_submission_and_a_sync_that_hold_a_loop_are_found() -> None:
    asked = (awaited(0, 80, "await.py:1"), awaited(90, 190, "sync.py:1", kind="sync"))
    steps = (Step(0, 10 * MS, 70 * MS), Step(1, 90 * MS, 190 * MS))
    sync, submission = found(function(11, 20, "map.py:2"), asked=asked, steps=steps)
    assert sync.text.startswith("sync() of the launch of k, at sync.py:1, held")
    assert submission.text.startswith("the submission of the launch of k, at await.py:1, held")


def test_of_one_line_the_times_are_one_finding() -> None:
    asked = (awaited(0, 200),)
    (one,) = found(asked=asked, steps=(Step(0, 0, 60 * MS), Step(0, 100 * MS, 155 * MS)))
    assert (one.count, one.cost_ns) == (2, 115 * MS)
    assert "2 times, for up to 60 ms" in one.text


def test_a_thread_without_a_loop_and_a_short_step_are_not_found() -> None:
    asked = (awaited(0, 200, who="thread: MainThread", kind="sync"), awaited(0, 200))
    assert found(asked=asked, steps=(Step(0, 0, 199 * MS), Step(1, 0, 50 * MS))) == []


def test_a_compilation_is_found_once_also_within_a_step() -> None:
    asked = (awaited(0, 100, kind="submit"), awaited(0, 5))
    busy = (Busy(LOOP, "loading kernel k", "compile.py:3", 10 * MS, 90 * MS),)
    (one,) = found(asked=asked, steps=(Step(0, 9 * MS, 95 * MS),), busy=busy)
    assert one.text.startswith("loading kernel k, at compile.py:3, held the event loop up for 80 ms")


def test_a_short_compilation_in_a_long_step_and_the_step_are_found() -> None:
    asked = (awaited(0, 200, "await.py:1"), awaited(0, 5))
    busy = (Busy(LOOP, "loading kernel k", "compile.py:3", 10 * MS, 70 * MS),)
    step, compilation = found(asked=asked, steps=(Step(0, 9 * MS, 190 * MS),), busy=busy)
    assert step.text.startswith("the submission of the launch of k, at await.py:1, held the event loop up for 181 ms")
    assert compilation.text.startswith("loading kernel k, at compile.py:3, held the event loop up for 60 ms")


@pytest.mark.parametrize(("who", "begun_ms"), [("thread: MainThread", 10), (LOOP, 1)])
def test_a_compilation_holds_nobody_up_in_a_thread_or_before_the_first_await(who: str, begun_ms: int) -> None:
    busy = (Busy(who, "loading kernel k", "compile.py:3", begun_ms * MS, 90 * MS),)
    assert found(asked=(awaited(5, 100),), busy=busy) == []


# ----- Copies wait for what they do not need


def copy(begin_ms: float, end_ms: float, called_ms: float, name: str = "copy to host", **more: Any) -> dict[str, Any]:
    return ran(begin_ms, end_ms, called_ms, **{"kind": "copy", "name": name, "place": "copy.py:1", **more})


def test_a_copy_behind_a_kernel_that_it_does_not_need_is_found() -> None:
    (one,) = found(ran(0, 100), copy(100, 130, 1))
    assert (one.kind, one.places, one.count, one.cost_ns) == ("serial copies", ("p.py:1", "copy.py:1"), 1, 30 * MS)
    assert "'copy to host' (built at copy.py:1) waited 1 times behind the launch of k (built at p.py:1)" in one.text


def test_a_kernel_behind_a_copy_and_copies_in_both_directions_are_found() -> None:
    assert kinds(found(copy(0, 100, 0), ran(100, 150, 1))) == ["serial copies"]
    assert kinds(found(copy(0, 100, 0), copy(100, 150, 1, "copy to device"))) == ["serial copies"]


@pytest.mark.parametrize(
    "second",
    [
        copy(100, 130, 1, needs=(0,)),  # it needs it
        copy(100, 130, 1, stream=1),  # it is on another stream
        copy(100, 130, 100),  # it was asked for afterwards
        copy(100, 102, 1),  # it is short
        ran(100, 130, 1),  # both need the same of the device
    ],
)
def test_copies_that_had_to_wait_or_did_not_are_not_found(second: dict[str, Any]) -> None:
    assert found(ran(0, 100), second) == []


def test_only_the_time_in_which_the_work_before_it_ran_counts() -> None:
    assert found(ran(95, 100, 0), copy(100, 130, 1)) == []  # 5 ms of 200


def test_a_copy_that_needs_it_through_others_is_not_found() -> None:
    assert found(ran(0, 100), ran(100, 101, 0, stream=1, needs=(0,)), copy(101, 130, 1, needs=(1,))) == []


def test_time_in_which_something_else_was_needed_does_not_count() -> None:
    other = ran(0, 95, stream=1)
    assert found(other, ran(0, 100), copy(100, 130, 1, needs=(0,))) == []  # 5 ms of 200


# ----- Arrays go back and forth


def there_and_back(count: int, size_bytes: int = 1 << 20, *, is_linked: bool = True) -> list[dict[str, Any]]:
    copies: list[dict[str, Any]] = []
    for number in range(2 * count):
        name, place = (("copy to host", "a.py:1"), ("copy to device", "b.py:2"))[number % 2]
        by = number - 1 if number and is_linked else None
        needs = (number - 1,) if number else ()
        at = 5 * number
        copies.append(copy(at, at + 5, at, name, place=place, size_bytes=size_bytes, brought_by=by, needs=needs))
    return copies


def test_an_array_that_goes_back_and_forth_is_found_once() -> None:
    (one,) = found(*there_and_back(4))
    assert (one.kind, one.places, one.count, one.cost_ns) == ("back and forth", ("a.py:1", "b.py:2"), 4, 40 * MS)
    assert "4 times 1,048,576 bytes went there and back" in one.text


def test_two_round_trips_small_arrays_and_arrays_that_were_written_are_not_found() -> None:
    assert found(*there_and_back(2)) == []
    assert found(*there_and_back(4, 64 << 10)) == []
    assert found(*there_and_back(4, is_linked=False)) == []


def test_parts_of_another_size_and_short_copies_are_not_found() -> None:
    parts = there_and_back(4)
    for each in parts[1::2]:
        each["size_bytes"] = 1 << 19
    assert found(*parts) == []
    short = there_and_back(4)
    for each in short:
        each["ended_ns"] = each["started_ns"] + MS
    assert found(*short) == []  # 8 ms of 200


def test_between_devices_only_what_returns_is_found() -> None:
    def between(devices: list[int]) -> list[Finding]:
        return found(
            *(
                copy(5 * i, 5 * i + 5, 5 * i, "copy between devices", device=device, size_bytes=1 << 20,
                     brought_by=i - 1 if i else None, needs=(i - 1,) if i else ())
                for i, device in enumerate(devices)
            )
        )  # fmt: skip

    assert kinds(between([1, 0, 1, 0, 1, 0])) == ["back and forth"]
    assert between([1, 1, 1, 1, 1, 1]) == []


# ----- Awaits one after the other


def rounds(
    count: int, places: tuple[str, ...], needs: dict[int, tuple[int, ...]] | None = None, pause_ms: float = 0.5
) -> tuple[list[dict[str, Any]], tuple[Asked, ...]]:
    """Return awaits of one launch each, one after the other, 5 ms each; by number, what a launch needs."""
    operations, asked = [], []
    for number in range(count * len(places)):
        place, begin = places[number % len(places)], number * (5 + pause_ms)
        asked.append(awaited(begin, begin + 5, place))
        operations.append(ran(begin, begin + 5, asked=number, place=place, needs=(needs or {}).get(number, ())))
    return operations, tuple(asked)


def test_awaits_of_one_line_that_do_not_need_each_other_are_found() -> None:
    operations, asked = rounds(8, ("p.py:1",))
    (one,) = found(*operations, asked=asked)
    assert (one.kind, one.places, one.count, one.cost_ns) == ("await in a loop", ("p.py:1",), 8, 35 * MS)
    assert "in 8 rounds there were awaited, one after the other: the launch of k (built at p.py:1)" in one.text


def test_rounds_of_several_awaits_that_need_each_other_within_a_round_are_found() -> None:
    needs = {number: (number - 1,) for number in range(24) if number % 3}
    operations, asked = rounds(8, ("a.py:1", "b.py:2", "c.py:3"), needs)
    (one,) = found(*operations, asked=asked)
    assert (one.places, one.count) == (("a.py:1", "b.py:2", "c.py:3"), 8)


def test_two_lines_that_could_be_awaited_together_in_each_round_are_found() -> None:
    needs = {number: (number - 2,) for number in range(2, 16)}
    operations, asked = rounds(8, ("a.py:1", "b.py:2"), needs)
    (one,) = found(*operations, asked=asked)
    assert one.places == ("a.py:1", "b.py:2")
    assert "15 times there were awaited" in one.text


@pytest.mark.parametrize(("lines", "is_round"), [(32, True), (33, False)])
def test_a_round_has_no_more_awaits_than_somebody_would_write(lines: int, is_round: bool) -> None:
    needs = {number: (number - 1,) for number in range(5 * lines) if number % lines}
    operations, asked = rounds(5, tuple(f"p.py:{i}" for i in range(lines)), needs)
    assert (lines in [len(each.places) for each in found(*operations, asked=asked)]) is is_round


def test_awaits_that_need_the_one_before_are_not_found() -> None:
    operations, asked = rounds(8, ("p.py:1",), {number: (number - 1,) for number in range(1, 8)})
    assert found(*operations, asked=asked) == []


def test_few_awaits_long_pauses_tasks_of_their_own_and_failures_are_not_found() -> None:
    operations, asked = rounds(3, ("p.py:1",))
    assert found(*operations, asked=asked) == []
    operations, asked = rounds(8, ("p.py:1",), pause_ms=11)
    assert found(*operations, asked=asked) == []
    operations, asked = rounds(8, ("p.py:1",))
    tasks = tuple(awaited(each.begun_ns / MS, each.ended_ns / MS, who=f"asyncio: {i}") for i, each in enumerate(asked))
    assert found(*operations, asked=tasks) == []
    failed = tuple(awaited(each.begun_ns / MS, each.ended_ns / MS, outcome="failed") for each in asked)
    assert found(*operations, asked=failed) == []


def test_awaits_at_the_same_time_are_not_found() -> None:
    asked = tuple(awaited(0, 100) for _ in range(8))
    assert found(*(ran(0, 100, asked=number) for number in range(8)), asked=asked) == []


# ----- Streams take turns


def in_turn(count: int, *, called_before: bool = False, needs: bool = False, lasts_ms: float = 5) -> list[Finding]:
    operations = [
        ran(5 * i, 5 * i + lasts_ms, 0 if called_before else 5 * i, stream=i % 2, place=f"{i % 2}.py:1",
            needs=(i - 1,) if needs and i else ())
        for i in range(count)
    ]  # fmt: skip
    for i, each in enumerate(operations):  # asked for when the one before had ended
        each["called_ns"] += 0 if called_before or not i else 1
    return found(*operations)


def test_streams_that_take_turns_are_found() -> None:
    (one,) = in_turn(20)
    assert (one.kind, one.places, one.count, one.cost_ns) == ("streams in turn", ("0.py:1", "1.py:1"), 19, 50 * MS)


def test_streams_that_had_to_take_turns_or_hardly_work_or_overlap_are_not_found() -> None:
    assert in_turn(20, called_before=True) == []  # the device took them in turn
    assert in_turn(20, needs=True) == []
    assert in_turn(8) == []
    assert in_turn(20, lasts_ms=0.4) == []
    assert in_turn(20, lasts_ms=6) == []


def test_of_three_streams_two_that_overlap_are_enough() -> None:
    three = [ran(5 * i, 5 * i + 5, 5 * i + 1, stream=i % 3) for i in range(36)]
    assert kinds(found(*three)) == ["streams in turn"]
    three[1]["ended_ns"] += 2 * MS
    assert found(*three) == []


def test_streams_of_awaits_in_a_loop_are_not_told_again() -> None:
    operations, asked = rounds(20, ("p.py:1",))
    for number, each in enumerate(operations):
        each.update(stream=number % 2)
    assert kinds(found(*operations, asked=asked)) == ["await in a loop"]
    tasks = tuple(awaited(one.begun_ns / MS, one.ended_ns / MS, who=f"asyncio: {i}") for i, one in enumerate(asked))
    assert kinds(found(*operations, asked=tasks)) == ["streams in turn"]


def test_awaits_of_functions_alone_are_not_found() -> None:
    _, asked = rounds(8, ("p.py:1",))
    functions = [
        {**function(each.begun_ns / MS, each.ended_ns / MS, "p.py:1"), "asked": i} for i, each in enumerate(asked)
    ]
    assert found(*functions, asked=asked) == []


def test_the_dearest_is_first_and_each_says_itself_as_text() -> None:
    operations, asked = rounds(8, ("p.py:1",))
    two = found(*operations, asked=asked, steps=(Step(0, 0, 60 * MS),))
    assert kinds(two) == ["held loop", "await in a loop"]
    assert [str(each) for each in two] == [each.text for each in two]
