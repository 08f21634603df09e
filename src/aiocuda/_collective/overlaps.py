"""Whether NCCL may work on arrays that share memory. Pure.

Always true: what passes is either apart, or only read, or in place as NCCL defines it: ranks write there what they have
read already.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from aiocuda._collective.calls import Call, Part
from aiocuda.errors import ArgumentValueError

__all__ = ["check_overlaps"]

_IN_PLACE: Final = {
    "all_gather": "where x is the part of out that its rank fills",
    "reduce_scatter": "where out is its rank's part of x",
    "all_to_all": "in no case",
}


def check_overlaps(
    call: Call, ranks: Sequence[int], sends: Sequence[Sequence[Part]], receives: Sequence[Sequence[Part | None]]
) -> None:
    """Raise `ArgumentValueError` where a call would write memory that it also reads or writes elsewhere.

    Parameters
    ----------
    call
        What is called.
    ranks
        Those of this process.
    sends, receives
        For each of them, the arrays.
    """
    reads: list[tuple[Part, tuple[int, int]]] = []
    writes: list[tuple[Part, tuple[int, int]]] = []
    for rank, sent, received in zip(ranks, sends, receives, strict=True):
        for place, (one, into) in enumerate(zip(sent, received, strict=True)):
            if one.item_count and call.reads(rank):
                reads.append((one, (rank, place)))
            if into is not None and into.item_count and call.writes(rank):
                writes.append((into, (rank, place)))
    writes.sort(key=lambda each: each[0].address)
    for (before, _), (after, where) in pairwise(writes):
        if after.address < before.end:
            raise ArgumentValueError(
                f"{call.kind}: rank {where[0]} writes {before} and {after}, which share memory; give others"
            )
    starts = [each.address for each, _ in writes]
    for read, its_place in reads:
        for written, other in _overlapping(read, writes, starts):
            if its_place == other and _is_in_place(call, other[0], read, written):
                continue
            allowed = _IN_PLACE.get(call.kind, "where out is x itself")
            raise ArgumentValueError(
                f"{call.kind}: out, {written} of rank {other[0]}, shares memory with x, {read} of rank {its_place[0]}; "
                f"NCCL works in place {allowed}. Give memory of its own"
            )


def _overlapping(
    read: Part, writes: Sequence[tuple[Part, tuple[int, int]]], starts: Sequence[int]
) -> Iterator[tuple[Part, tuple[int, int]]]:
    """Those that are written, which are apart and sorted, that share memory with one that is read."""
    for at in range(max(bisect_right(starts, read.address) - 1, 0), len(writes)):
        written, where = writes[at]
        if written.address >= read.end:
            return
        if read.address < written.end:
            yield written, where


def _is_in_place(call: Call, rank: int, read: Part, written: Part) -> bool:
    match call.kind:
        case "all_to_all":
            return False
        case "all_gather":
            return read.address == written.address + rank * read.size_bytes
        case "reduce_scatter":
            return written.address == read.address + rank * written.size_bytes
        case _:
            return read.address == written.address
