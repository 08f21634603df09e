"""The words of ranks are compared: without devices and channels."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocuda._collective.agreement import Agreement, Key, brief


def message(number: int, source: int, to: int) -> Key:
    return Key(number, source, to)


def test_a_call_is_agreed_on_when_all_have_said_it():
    agreement = Agreement(2)
    agreement.call(0, Key(1), "x")
    assert agreement.take_agreed() == []
    assert agreement.waits_for(0) == "call 1, x: rank 1 has not called it"
    agreement.call(1, Key(1), "x")
    assert agreement.wrong is None
    assert agreement.take_agreed() == [Key(1)]
    assert agreement.take_agreed() == []
    assert agreement.waits_for(0) is None


def test_what_was_said_before_counts():
    agreement = Agreement(2)
    agreement.call(0, Key(1), "x")
    agreement.call(1, Key(1), "x")
    assert (agreement.take_agreed(), agreement.wrong) == ([Key(1)], None)


def test_a_disagreement_names_both():
    agreement = Agreement(2)
    agreement.call(0, Key(1), "all_reduce")
    agreement.call(1, Key(1), "barrier")
    assert "as call 1, rank 0 calls all_reduce, rank 1 calls barrier" in str(agreement.wrong)


def test_a_disagreement_is_found_before_all_have_said_it():
    agreement = Agreement(3)
    agreement.call(0, Key(1), "x")
    agreement.call(2, Key(1), "y")
    assert "rank 2 calls y" in str(agreement.wrong)


def test_messages_concern_their_ends_alone():
    agreement = Agreement(3)
    agreement.call(0, message(1, 0, 2), "x")
    agreement.call(1, Key(1), "y")
    agreement.call(2, message(1, 0, 2), "x")
    assert (agreement.take_agreed(), agreement.wrong) == ([message(1, 0, 2)], None)


def test_a_call_that_all_refuse_is_none():
    agreement = Agreement(2)
    for rank in range(2):
        agreement.refuse(rank, Key(1), "refuses it")
        agreement.call(rank, Key(2), "x")
    assert (agreement.take_agreed(), agreement.wrong) == ([Key(2)], None)


@pytest.mark.parametrize("refused_first", [False, True])
def test_a_call_that_one_refuses_names_both(refused_first):
    agreement = Agreement(2)
    steps = [
        lambda: agreement.call(0, Key(1), "all_reduce"),
        lambda: agreement.refuse(1, Key(1), "refuses its call: no"),
    ]
    for each in reversed(steps) if refused_first else steps:
        each()
    assert "as call 1, rank 0 calls all_reduce, rank 1 refuses its call: no" in str(agreement.wrong)


@pytest.mark.parametrize("skipped_first", [False, True])
def test_a_call_that_one_leaves_out_is_no_later_one(skipped_first):
    """All have the same words: their numbers alone tell them apart."""
    agreement = Agreement(2)
    steps = [lambda: agreement.call(0, Key(1), "x"), lambda: agreement.call(1, Key(2), "x")]
    for each in reversed(steps) if skipped_first else steps:
        each()
    assert "as call 1, rank 0 calls x, rank 1 has dropped it" in str(agreement.wrong)
    assert "goes on with call 2" in str(agreement.wrong)


def test_a_refusal_that_comes_behind_a_later_call_is_known():
    agreement = Agreement(2)
    for rank in range(2):
        agreement.call(rank, Key(2), "x")
        agreement.refuse(rank, Key(1), "has dropped it")
    agreement.call(0, Key(3), "x")
    agreement.refuse(1, Key(1), "has dropped it")  # late, and of a call that is long over
    assert agreement.wrong is None
    assert agreement._refused == {}


def test_a_call_that_all_leave_out_is_none():
    agreement = Agreement(2)
    for rank in range(2):
        agreement.call(rank, Key(2), "x")
        agreement.call(rank, message(3, 0, 1), "y")
    assert (agreement.take_agreed(), agreement.wrong) == ([Key(2), message(3, 0, 1)], None)


@pytest.mark.parametrize("left_first", [False, True])
def test_one_that_has_left_is_named(left_first):
    agreement = Agreement(3)
    agreement.call(1, message(1, 1, 2), "m")
    steps = [lambda: agreement.call(0, Key(1), "x"), lambda: agreement.leave(2)]
    agreement.call(2, message(1, 1, 2), "m")
    for each in reversed(steps) if left_first else steps:
        each()
    assert "as call 1, rank 0 calls x, rank 2 has closed the group" in str(agreement.wrong)


def test_one_that_has_left_after_its_calls_is_in_nobody_s_way():
    agreement = Agreement(2)
    agreement.call(1, Key(1), "x")
    agreement.leave(1)
    agreement.call(0, Key(1), "x")
    assert (agreement.take_agreed(), agreement.wrong) == ([Key(1)], None)


def test_two_that_send_first_wait_for_each_other():
    agreement = Agreement(3)
    agreement.call(0, message(1, 0, 1), "a message of a")
    assert agreement.wrong is None
    agreement.call(1, message(1, 1, 0), "a message of b")
    assert "rank 0 calls a message of a (message 1 from rank 0 to rank 1)" in str(agreement.wrong)
    assert "rank 1 calls a message of b (message 1 from rank 1 to rank 0)" in str(agreement.wrong)


def test_messages_around_a_ring_wait_for_each_other():
    agreement = Agreement(3)
    for rank in range(3):
        agreement.call(rank, message(1, rank, (rank + 1) % 3), "m")
        assert (agreement.wrong is None) == (rank < 2)
    assert [str(agreement.wrong).count(f"rank {each} calls") for each in range(3)] == [1, 1, 1]


def test_a_message_that_crosses_a_collective_names_both():
    agreement = Agreement(3)
    agreement.call(0, message(1, 0, 1), "a message of m")
    agreement.call(2, Key(1), "all_reduce")
    agreement.call(1, Key(1), "all_reduce")
    assert "rank 0 calls a message of m" in str(agreement.wrong)
    assert "rank 1 calls all_reduce (call 1)" in str(agreement.wrong)
    assert "rank 2" not in str(agreement.wrong)


def test_what_another_rank_is_busy_with_is_said():
    agreement = Agreement(3)
    agreement.call(1, message(1, 1, 2), "m")
    agreement.call(1, Key(1), "x")
    agreement.call(0, Key(1), "x")
    waits = "call 1, x: rank 2 has not called it; rank 1 waits in message 1 from rank 1 to rank 2, m"
    assert agreement.waits_for(0) == waits


def random_program(chosen: random.Random, size: int) -> list[list[tuple[Key, str]]]:
    """Calls of each rank, in an order in which they can be done."""
    programs: list[list[tuple[Key, str]]] = [[] for _ in range(size)]
    numbers: dict[Key, int] = {}
    for at in range(chosen.randrange(1, 15)):
        source, to = chosen.sample(range(size), 2)
        series = Key(0) if chosen.random() < 0.5 else Key(0, source, to)
        numbers[series] = numbers.get(series, 0) + 1
        ranks = range(size) if series.source < 0 else (source, to)
        for rank in ranks:
            programs[rank].append((series.in_series(numbers[series]), f"words {at}"))
    return programs


@given(st.integers(0, 1 << 30), st.integers(2, 4))
def test_calls_that_can_be_done_are_agreed_on_whenever_they_are_heard(seed, size):
    chosen = random.Random(seed)
    programs = random_program(chosen, size)
    agreement, heard = Agreement(size), [0] * size
    while left := [rank for rank in range(size) if heard[rank] < len(programs[rank])]:
        rank = chosen.choice(left)
        agreement.call(rank, *programs[rank][heard[rank]])
        heard[rank] += 1
        assert agreement.wrong is None
    assert sorted(agreement.take_agreed()) == sorted({key for calls in programs for key, _ in calls})
    assert [agreement.waits_for(rank) for rank in range(size)] == [None] * size


@given(st.integers(0, 1 << 30), st.integers(2, 4))
def test_all_ranks_find_out_that_calls_cannot_be_done(seed, size):
    """In whatever order they are heard: calls that were exchanged end in the same for all."""
    chosen = random.Random(seed)
    programs = random_program(chosen, size)
    for calls in programs:
        chosen.shuffle(calls)

    def outcome() -> bool:
        agreement, heard = Agreement(size), [0] * size
        while left := [rank for rank in range(size) if heard[rank] < len(programs[rank])]:
            rank = chosen.choice(left)
            agreement.call(rank, *programs[rank][heard[rank]])
            heard[rank] += 1
        for rank in range(size):
            agreement.leave(rank)
        all_keys = {key for calls in programs for key, _ in calls}
        return agreement.wrong is None and len(agreement.take_agreed()) == len(all_keys)

    first = outcome()
    assert [outcome() for _ in range(3)] == [first] * 3


@given(st.lists(st.integers(0, 9), min_size=1, max_size=2000))
def test_words_of_any_length_are_told_apart(lengths):
    words = "all_reduce of " + ", ".join(f"float32({each},)" for each in lengths)
    assert len(brief(words)) <= 1000
    assert brief(words) == brief(str(words))
    assert brief(words + "0") != brief(words)
