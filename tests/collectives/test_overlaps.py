"""Arrays that share memory: which of them NCCL may work on. Without devices."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocuda import ArgumentValueError
from aiocuda._collective.calls import Call, Part
from aiocuda._collective.overlaps import check_overlaps

SIZE = 3


def part(at: int, count: int) -> Part:
    return Part(0x1000 + 4 * at, (count,), "int32", 4)


def call(kind: str, root: int = -1) -> Call:
    return Call(kind, SIZE, "sum", root)


IN_PLACE: dict[str, Any] = {
    "all_reduce": (part(0, 8), part(0, 8)),
    "reduce": (part(0, 8), part(0, 8)),
    "all_gather": (part(8, 8), part(0, 24)),  # as rank 1
    "reduce_scatter": (part(0, 24), part(8, 8)),
}


@pytest.mark.parametrize("kind", IN_PLACE)
def test_in_place_is_where_nccl_has_it(kind):
    send, receive = IN_PLACE[kind]
    check_overlaps(call(kind, 1 if kind == "reduce" else -1), [1], [[send]], [[receive]])
    moved = Part(send.address + 4, send.shape, send.dtype, 4)
    with pytest.raises(ArgumentValueError, match=f"{kind}: out, .* shares memory with x, .* of rank 1; NCCL works in"):
        check_overlaps(call(kind), [1], [[moved]], [[receive]])


def test_another_rank_s_place_is_none():
    send, receive = IN_PLACE["all_gather"]
    with pytest.raises(ArgumentValueError, match="where x is the part of out that its rank fills"):
        check_overlaps(call("all_gather"), [0], [[send]], [[receive]])


def test_all_to_all_has_no_place():
    with pytest.raises(ArgumentValueError, match="NCCL works in place in no case"):
        check_overlaps(call("all_to_all"), [0], [[part(0, 9)]], [[part(0, 9)]])


def test_what_is_only_read_may_overlap():
    check_overlaps(call("all_reduce"), [0], [[part(0, 8), part(4, 4)]], [[part(8, 8), part(16, 4)]])
    check_overlaps(call("broadcast", 0), [0], [[part(0, 8), part(4, 4)]], [[part(0, 8), part(4, 4)]])
    check_overlaps(call("send", 1), [0], [[part(0, 8), part(4, 4)]], [[part(0, 8), part(4, 4)]])
    check_overlaps(call("all_reduce"), [0], [[part(0, 0)]], [[part(0, 0)]])


@pytest.mark.parametrize("kind", ["broadcast", "recv"])
def test_what_is_written_twice_is_refused(kind):
    with pytest.raises(ArgumentValueError, match=f"{kind}: rank 0 writes .* share memory"):
        check_overlaps(call(kind, 1), [0], [[part(0, 8), part(4, 4)]], [[part(0, 8), part(4, 4)]])


def test_an_array_in_place_of_another_is_refused():
    with pytest.raises(ArgumentValueError, match="where out is x itself"):
        check_overlaps(call("all_reduce"), [0], [[part(0, 8), part(8, 8)]], [[part(8, 8), part(0, 8)]])


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5), st.integers(0, 20)), min_size=1, max_size=5))
def test_all_overlaps_are_found(arrays):
    sends = [part(send, count) for send, count, _ in arrays]
    receives = [part(receive, count) for _, count, receive in arrays]

    def share(one: Part, other: Part) -> bool:
        return one.item_count > 0 and other.item_count > 0 and one.address < other.end and other.address < one.end

    wrong = any(share(one, other) for n, one in enumerate(receives) for other in receives[:n]) or any(
        share(send, receive) and (n != m or send.address != receive.address)
        for n, send in enumerate(sends)
        for m, receive in enumerate(receives)
    )
    try:
        check_overlaps(call("all_reduce"), [0], [sends], [receives])
    except ArgumentValueError:
        assert wrong
    else:
        assert not wrong
