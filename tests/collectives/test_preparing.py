"""What a call asks of NCCL: it is of addresses, shapes and dtypes alone, and equal calls are checked once."""

from __future__ import annotations

import pytest

import aiocuda as ac
from aiocuda._collective.calls import CONNECT, Call, Part
from aiocuda._collective.preparing import Prepared, prepared

RANKS = (0, 1)


def part(address: int, items: int = 4, dtype: str = "float32") -> Part:
    return Part(address, (items,), dtype, 4)


def ask(*addresses: int, op: str = "sum", name: str = "", into: int = 1 << 20) -> Prepared:
    """Reduce arrays of each of two ranks, which lie 64 KiB apart, into others."""
    sent = tuple(tuple(part((rank << 16) + address) for address in addresses) for rank in RANKS)
    received = tuple(tuple(part(into + each.address) for each in row) for row in sent)
    return prepared(Call("all_reduce", 2, op), name, RANKS, sent, received)


def test_each_rank_has_a_call_for_each_array():
    words, calls = ask(0, 64)
    assert words == "all_reduce of float32(4,), float32(4,), sum"
    assert [[(each.send, each.receive, each.count) for each in row] for row in calls] == [
        [(0, 1 << 20, 4), (64, (1 << 20) + 64, 4)],
        [(1 << 16, (1 << 20) + (1 << 16), 4), ((1 << 16) + 64, (1 << 20) + (1 << 16) + 64, 4)],
    ]


def test_an_equal_call_is_not_checked_again():
    assert ask(128) is ask(128)


@pytest.mark.parametrize("change", [{"op": "max"}, {"name": "named"}, {"into": 1 << 21}])
def test_another_call_has_an_answer_of_its_own(change):
    first, other = ask(0), ask(0, **change)
    assert first != other
    assert ask(0) == first


def test_calls_of_many_arrays_are_not_kept():
    many = tuple(range(0, 64 * 17, 64))
    assert ask(*many) == ask(*many)
    assert ask(*many) is not ask(*many)
    assert ask(*many[:16]) is ask(*many[:16])


def test_what_is_refused_is_refused_each_time():
    for _ in range(2):
        with pytest.raises(ac.ArgumentValueError, match="shares memory with x"):
            ask(0, into=4)


@pytest.mark.parametrize("size", [1, 2, 16])
def test_the_first_call_stays_within_its_arrays(size):
    """They have an item for each rank."""
    array = Part(0, (size,), "int32", 4)
    calls = Call(CONNECT, size).for_nccl(array, array)
    sent = {
        each.function: each.count * (size if each.function in ("reduce_scatter", "allto_all") else 1) for each in calls
    }
    received = {
        each.function: each.count * (size if each.function in ("all_gather", "allto_all") else 1) for each in calls
    }
    assert len(calls) == len(sent) == 6
    assert all(0 < each <= size for each in (*sent.values(), *received.values())), (sent, received)
