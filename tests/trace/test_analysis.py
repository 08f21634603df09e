"""Figures and pictures of traces that were made up: each is known."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from aiocuda._trace.analysis import analyse, common, union
from aiocuda._trace.dag import MOST_SHOWN, picture
from aiocuda._trace.model import Asked, Operation, Step, Trace
from aiocuda._trace.terminal import summary
from aiocuda._values.durations import duration_text

_SVG = "{http://www.w3.org/2000/svg}"
BASE: dict[str, Any] = {
    "kind": "launch", "name": "k", "place": "p.py:1", "asked": 0, "device": 0, "stream": 0, "tick": 1,
    "state": "measured", "size_bytes": 0, "held_bytes": 0, "needs": (), "built_ns": 10, "decided_ns": 100,
    "called_ns": 100, "returned_ns": 110, "started_ns": 0, "ended_ns": 0,
}  # fmt: skip


def made(*operations: dict[str, Any], steps: tuple[Step, ...] = (), asked: Asked | None = None) -> Trace:
    who = asked or Asked("await", "done", "k", "p.py:1", "asyncio: Task-1", (len(operations) - 1,), 90, 1000)
    numbered = tuple(Operation(number=i, **{**BASE, **each}) for i, each in enumerate(operations))
    return Trace("made", 0, 2000, False, numbered, (who,), steps)


def test_spans_are_joined_and_what_they_have_in_common_is_found() -> None:
    assert union([(5, 7), (1, 3), (2, 4), (7, 9), (8, 8)]) == [(1, 4), (5, 9)]
    assert common([(1, 4), (6, 9)], [(2, 7), (8, 12)]) == [(2, 4), (6, 7), (8, 9)]


def test_the_critical_path_goes_by_what_ended_last() -> None:
    trace = made(
        {"name": "short", "stream": 0, "started_ns": 200, "ended_ns": 300},
        {"name": "long", "stream": 1, "started_ns": 200, "ended_ns": 500},
        {"name": "last", "stream": 0, "started_ns": 510, "ended_ns": 600, "needs": (0, 1)},
        {"name": "beside", "stream": 2, "started_ns": 200, "ended_ns": 590},
    )
    analysis = analyse(trace)
    assert analysis.critical == (1, 2)
    assert (analysis.critical_run_ns, analysis.critical_ns) == (390, 400)


def test_what_had_ended_before_it_was_called_held_nothing_up() -> None:
    trace = made(
        {"started_ns": 120, "ended_ns": 130},
        {"started_ns": 400, "ended_ns": 500, "needs": (0,), "called_ns": 390, "returned_ns": 395},
    )
    assert analyse(trace).critical == (1,)


def test_rows_say_for_whom_operations_waited() -> None:
    trace = made(
        {"name": "first", "started_ns": 150, "ended_ns": 400},
        {"name": "second", "stream": 1, "started_ns": 450, "ended_ns": 470, "needs": (0,)},
        {"name": "second", "stream": 1, "started_ns": 480, "ended_ns": 500},
    )
    rows = {row.name: row for row in analyse(trace).rows}
    assert (rows["second"].count, rows["second"].run_ns, rows["second"].queued_ns) == (2, 40, 340 + 370)
    assert rows["second"].waited_ns == {"first": 290}


def test_the_parts_of_an_await_are_all_of_it() -> None:
    trace = made(
        {"started_ns": 300, "ended_ns": 700},
        {"started_ns": 750, "ended_ns": 800},
        steps=(Step(0, 90, 190), Step(0, 310, 350)),
    )
    (parts,) = analyse(trace).awaits
    assert (parts.build_ns, parts.submit_ns, parts.queue_ns, parts.run_ns, parts.wake_ns) == (80, 100, 160, 450, 200)
    assert parts.submit_ns + parts.queue_ns + parts.run_ns + parts.wake_ns == 1000 - 90


def test_streams_and_devices_are_at_work_and_copies_beside_kernels() -> None:
    trace = made(
        {"started_ns": 200, "ended_ns": 300},
        {"stream": 1, "kind": "copy", "started_ns": 250, "ended_ns": 400},
    )
    analysis = analyse(trace)
    assert [(each.stream, each.busy_ns, each.part) for each in analysis.streams] == [(0, 100, 0.5), (1, 150, 0.75)]
    (device,) = analysis.devices
    assert (device.busy_ns, device.copies_ns, device.kernels_ns, device.both_ns) == (200, 150, 100, 50)


def test_threads_are_held() -> None:
    (held,) = analyse(made({}, steps=(Step(0, 100, 150), Step(0, 200, 220)))).held
    assert (held.who, held.total_ns, held.longest_ns) == ("asyncio", 70, 50)


def test_a_trace_of_nothing_says_nothing() -> None:
    analysis = analyse(Trace("empty", 0, 10, True, (), (), ()))
    assert analysis.critical == ()
    assert "0 operations" in summary(Trace("empty", 0, 10, True, (), (), ()), analysis)


def test_the_summary_has_the_figures() -> None:
    trace = made({"name": "scale", "started_ns": 1150, "ended_ns": 2400})
    said = summary(trace, analyse(trace))
    assert "trace made: 1 operations in 2 µs" in said
    assert "launch scale" in said
    assert "1.25 µs" in said


def test_durations_have_units() -> None:
    texts = [duration_text(each) for each in (0, 999, 1500, 2_000_000, 3e9)]
    assert texts == ["0 ns", "999 ns", "1.5 µs", "2 ms", "3 s"]


def marks(text: str, tag: str, kind: str) -> list[bool]:
    """Say of each element of a kind whether it is marked."""
    classes = [each.get("class", "").split() for each in ElementTree.fromstring(text).iter(f"{_SVG}{tag}")]
    return ["marked" in each for each in classes if kind in each]


def test_the_critical_path_stands_out() -> None:
    trace = made({}, {"needs": (0,)}, {"needs": (1, 0)}, {"needs": (2,)})
    text = picture(trace, [1, 2])
    assert marks(text, "g", "node") == [False, True, True, False]
    assert marks(text, "path", "head") == [False, True, False, False]


def test_of_many_operations_the_critical_path_and_what_it_needed_is_shown() -> None:
    count = 3 * MOST_SHOWN
    needs = [(number - 2, number - 1) for number in range(2, count)]
    trace = made({}, {}, *({"needs": each} for each in needs))
    path = list(range(1, count, 2))
    text = picture(trace, path)
    shown = {int(each.get("data-operation", "-1")) for each in ElementTree.fromstring(text).iter(f"{_SVG}g")}
    assert shown == set(path[-MOST_SHOWN:])
    few = picture(trace, path[:10])
    shown = {int(each.get("data-operation", "-1")) for each in ElementTree.fromstring(few).iter(f"{_SVG}g")}
    assert shown == set(range(1, 20))
