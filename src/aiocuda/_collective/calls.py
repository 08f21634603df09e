"""A call of a collective: its arguments, its results, and the words that ranks compare. Knows no device.

Always true: two ranks that do the same give the same words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from aiocuda._collective.agreement import brief
from aiocuda._driver.nccl import DTYPES, OPS, NcclCall
from aiocuda._values.given import between, shown
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["CONNECT", "Call", "Part", "checked_call"]

_BYTE: Final = DTYPES["uint8"]

# Kinds by name: the binding, and whether it reduces.
_FUNCTIONS: Final = {
    "all_reduce": "all_reduce",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "all_gather": "all_gather",
    "broadcast": "broadcast",
    "all_to_all": "allto_all",
    "send": "send",
    "recv": "recv",
}
_REDUCING: Final = frozenset({"all_reduce", "reduce", "reduce_scatter"})
_ROOTED: Final = frozenset({"reduce", "broadcast"})
CONNECT: Final = "connect"  # all of them, once, with arrays that have an item for each rank


class Part(NamedTuple):
    """An array that a collective is called with.

    Attributes
    ----------
    address, shape, dtype
        The array's.
    item_bytes
        The size of one item.
    """

    address: int
    shape: tuple[int, ...]
    dtype: str
    item_bytes: int

    @property
    def item_count(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.item_count * self.item_bytes

    @property
    def end(self) -> int:
        return self.address + self.size_bytes

    def __str__(self) -> str:
        return f"{self.dtype}{self.shape}"


class Call(NamedTuple):
    """One collective, but for its arrays.

    Attributes
    ----------
    kind
        The name of the method.
    size
        How many ranks there are.
    op
        The operator; empty where nothing is reduced.
    root
        The root, or the peer; -1 where there is none.
    """

    kind: str
    size: int
    op: str = ""
    root: int = -1

    def reads(self, rank: int) -> bool:
        """Return whether a rank's `x` is read."""
        return self.kind != "recv" and (self.kind != "broadcast" or self.root == rank)

    def writes(self, rank: int) -> bool:
        """Return whether a rank's `out`, or else its `x`, is written."""
        return self.kind != "send" and (self.kind != "broadcast" or self.root != rank)

    def words(self, sent: Sequence[Part]) -> str:
        """Return what ranks compare: the call, and the shapes of what one rank sends, or receives from one other."""
        shapes = ", ".join(map(str, sent))
        if self.kind in ("send", "recv"):
            return brief(f"a message of {shapes}")
        text = f"{self.kind} of {shapes}"
        if self.op:
            text += f", {self.op}"
        return brief(f"{text}, root {self.root}" if self.kind in _ROOTED else text)

    def check(self, send: Part, receive: Part | None) -> None:
        """Raise where what is sent and received by one rank does not fit together."""
        if self.kind in _REDUCING and send.dtype not in DTYPES:
            raise ArgumentTypeError(f"{self.kind}: NCCL does not reduce {send.dtype}; it reduces {', '.join(DTYPES)}")
        if receive is None:
            return
        if send.dtype != receive.dtype:
            raise ArgumentTypeError(
                f"{self.kind}: out is of {receive.dtype}, and what is sent of {send.dtype}; give one of the same dtype"
            )
        expected = self.received_shape(send.shape)
        if math.prod(expected) != receive.item_count:
            raise ArgumentValueError(
                f"{self.kind}: of {send} each of {self.size} ranks gets {expected}; out is of {receive.shape}"
            )

    def received_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of what a rank receives, of what it sends."""
        if self.kind == "all_gather":
            return (self.size, *shape)
        if self.kind in ("reduce_scatter", "all_to_all"):
            if not shape or shape[0] % self.size != 0:
                raise ArgumentValueError(
                    f"{self.kind}: the first axis is cut into {self.size} parts, one for each rank; "
                    f"an array of {shape} cannot be"
                )
            if self.kind == "reduce_scatter":
                return (shape[0] // self.size, *shape[1:])
        return shape

    def for_nccl(self, send: Part, receive: Part | None) -> list[NcclCall]:
        """Return the calls on one device."""
        if self.kind == CONNECT:
            one = send._replace(shape=(1,))  # of which each rank receives as many as there are ranks
            kinds = [(each, one if each.kind == "all_gather" else send) for each in self._connecting()]
            return [call for each, sent in kinds for call in each.for_nccl(sent, receive)]
        count = send.item_count
        if self.kind in ("reduce_scatter", "all_to_all"):
            count //= self.size
        dtype = DTYPES.get(send.dtype, _BYTE)
        if send.dtype not in DTYPES:
            count *= send.item_bytes
        more: tuple[int, ...] = ()
        if self.op:
            more += (OPS[self.op],)
        if self.root >= 0:
            more += (self.root,)
        if self.kind == "send":
            return [NcclCall("send", send.address, None, count, dtype, more)]
        if self.kind == "recv":
            return [NcclCall("recv", None, send.address, count, dtype, more)]
        into = receive.address if receive is not None else send.address
        return [NcclCall(_FUNCTIONS[self.kind], send.address, into, count, dtype, more)]

    def _connecting(self) -> list[Call]:
        # NCCL connects two ranks for a way of working together when they first do so, and keeps the caller until then.
        kinds = [each for each in _FUNCTIONS if each not in ("send", "recv")]
        return [
            Call(each, self.size, "sum" if each in _REDUCING else "", 0 if each in _ROOTED else -1) for each in kinds
        ]


def checked_call(kind: str, size: int, op: Any, root: Any) -> Call:
    """Return a call with the operator and the root that a caller gave.

    None is for kinds that take none. The peer of a message is given as the root, and was checked.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        There is no such operator, or the root is no rank.
    """
    if kind in _REDUCING and (not isinstance(op, str) or op not in OPS):
        raise ArgumentValueError(f"op is one of {', '.join(OPS)}, not {shown(op)}")
    if kind in _ROOTED:
        root = between(root, "root", 0, size - 1)
    return Call(kind, size, op or "", -1 if root is None else root)
