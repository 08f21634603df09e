"""The answers of a group's hub: without devices and channels."""

from __future__ import annotations

from typing import Any

import pytest

from aiocuda._collective.agreement import Key
from aiocuda._collective.coordinator import LONGEST_REASON, Coordinator
from aiocuda._collective.meeting import encoded, lines_of

CALL = [1, -1, -1]


def joined(size: int) -> Coordinator:
    made = Coordinator(0, size)
    for rank in range(size):
        assert made.join(rank, size) == []
    return made


def told(answers: list[Any]) -> dict[int, list[Any]]:
    """Return what each rank is told."""
    found: dict[int, list[Any]] = {}
    for ranks, what in answers:
        for rank in ranks:
            found.setdefault(rank, []).append(what)
    return found


@pytest.mark.parametrize("size", [2, 8, 64])
def test_a_call_takes_one_answer_for_each_rank(size):
    coordinator = joined(size)
    answers = [coordinator.hear(rank, [["call", CALL, "x"]]) for rank in range(size)]
    assert answers[:-1] == [[]] * (size - 1)
    assert told(answers[-1]) == {rank: [["agreed", [tuple(CALL)]]] for rank in range(size)}


def test_calls_that_are_said_together_take_one_answer_for_each_rank():
    coordinator = joined(2)
    calls = [["call", [each, -1, -1], "x"] for each in range(1, 4)]
    assert coordinator.hear(0, calls) == []
    answers = told(coordinator.hear(1, [*calls[:2], ["waits", 1]]))
    agreed = ["agreed", [(1, -1, -1), (2, -1, -1)]]
    assert answers == {0: [agreed], 1: [["waits", 1, ""], agreed]}


def test_a_message_is_answered_to_its_ends():
    coordinator = joined(4)
    assert coordinator.hear(1, [["call", [1, 1, 3], "x"]]) == []
    assert told(coordinator.hear(3, [["call", [1, 1, 3], "x"]])).keys() == {1, 3}


def test_ranks_that_differ_have_not_agreed():
    coordinator = joined(2)
    coordinator.hear(0, [["call", CALL, "x"]])
    answers = told(coordinator.hear(1, [["call", CALL, "y"]]))
    reason = "the ranks of the group do not call the same: as call 1, rank 0 calls x, rank 1 calls y"
    assert answers == {0: [["ended", reason, ""]], 1: [["ended", reason, ""]]}
    assert coordinator.hear(0, [["call", [2, -1, -1], "x"]]) == []  # it has ended once


def test_one_that_has_left_is_told_nothing():
    coordinator = joined(3)
    assert coordinator.hear(2, [["bye"]]) == []
    assert coordinator.lose(2, "is gone") == []
    assert told(coordinator.hear(0, [["failed", "no"]])) == {1: [["ended", "no", ""]]}


def test_ranks_that_were_told_different_sizes_are_named():
    coordinator = Coordinator(1, 4)
    coordinator.join(1, 4)
    reason = "rank 0 has joined, and was told that there are 2 ranks; rank 1 was told that there are 4"
    assert told(coordinator.join(0, 2)) == {0: [["ended", reason, ""]], 1: [["ended", reason, ""]]}
    assert told(coordinator.hear(0, [["waits", 1]])) == {0: [["waits", 1, ""]]}


def test_the_board_is_used_once_all_have_it():
    coordinator = Coordinator(2, 3)
    assert coordinator.join(2, 3, True) == coordinator.join(0, 3, True) == []
    assert told(coordinator.join(1, 3, True)) == {rank: [["board"]] for rank in range(3)}


def test_a_board_that_one_rank_has_not_is_used_by_none():
    coordinator = Coordinator(0, 3)
    for rank in range(3):
        assert coordinator.join(rank, 3, rank != 1) == []


def test_answers_to_very_many_calls_fit_into_lines():
    """Two ranks may have said any number of messages behind a call that a third one has not come to."""
    coordinator, count = joined(3), 6000
    messages = [["call", [each, 0, 1], "x"] for each in range(10**9, 10**9 + count)]
    coordinator._agreement._last = {(Key(0, 0, 1), rank): 10**9 - 1 for rank in range(2)}
    for rank in range(2):
        assert coordinator.hear(rank, [["call", CALL, "x"], *messages]) == []
    answers = coordinator.hear(2, [["call", CALL, "x"]])
    assert max(len(lines_of([encoded(what)])) for _, what in answers) < 1 << 16  # which readers take
    assert [key for _, keys in told(answers)[0] for key in keys] == [
        tuple(CALL),
        *(tuple(each[1]) for each in messages),
    ]


def test_answers_are_of_bounded_length():
    coordinator = joined(1000)
    for rank in range(1, 999):
        coordinator.hear(rank, [["call", [1, rank, rank + 1], "x" * 1000]])
    coordinator.hear(0, [["call", CALL, "x" * 1000]])
    ((_, number, waiting),) = told(coordinator.hear(0, [["waits", 5]]))[0]
    assert number == 5
    assert waiting.startswith("call 1, xxx")
    assert len(waiting) <= LONGEST_REASON
