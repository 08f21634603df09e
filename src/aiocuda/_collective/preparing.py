"""What a call of a group asks of NCCL, of the addresses, shapes and dtypes of its arrays; checked first.

Always true: the answer is of these values alone, so a call that is made again, as in a loop that trains, is not
checked again.
"""

from __future__ import annotations

import functools
from typing import Final

from aiocuda._collective.calls import Call, Part
from aiocuda._collective.overlaps import check_overlaps
from aiocuda._driver.nccl import NcclCall
from aiocuda.errors import ArgumentValueError

__all__ = ["prepared"]

# A call of more arrays takes long on the device, too, and would take much room.
_MOST_ARRAYS: Final = 32
_KEPT: Final = 128

# For each rank of this process, its arrays.
Sent = tuple[tuple[Part, ...], ...]
Received = tuple[tuple[Part | None, ...], ...]
Prepared = tuple[str, tuple[tuple[NcclCall, ...], ...]]


def prepared(call: Call, name: str, ranks: tuple[int, ...], sent: Sent, received: Received) -> Prepared:
    """Return what is called in words, and the calls of each rank.

    Parameters
    ----------
    call
        What is called.
    name
        The words, if they are not to be made of the arrays; or empty.
    ranks
        Those of this process.
    sent, received
        For each of them, the arrays.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        NCCL does not do that, or the ranks do not call the same, or arrays share memory that must not.
    """
    is_small = len(ranks) * len(sent[0]) <= _MOST_ARRAYS
    return (_prepared_once if is_small else _prepared)(call, name, ranks, sent, received)


def _prepared(call: Call, name: str, ranks: tuple[int, ...], sent: Sent, received: Received) -> Prepared:
    words = ""
    for rank, ones, others in zip(ranks, sent, received, strict=True):
        for one, other in zip(ones, others, strict=True):
            call.check(one, other)
        of_rank = name or call.words(ones)
        if words and of_rank != words:
            raise ArgumentValueError(
                f"the devices of the group do not do the same: rank {ranks[0]} calls {words}, rank {rank} {of_rank}"
            )
        words = of_rank
    check_overlaps(call, ranks, sent, received)
    calls = (
        tuple(made for one, other in zip(*row, strict=True) if one.item_count > 0 for made in call.for_nccl(one, other))
        for row in zip(sent, received, strict=True)
    )
    return words, tuple(calls)


_prepared_once = functools.lru_cache(_KEPT)(_prepared)
