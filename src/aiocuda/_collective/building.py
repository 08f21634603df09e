"""How a call of a group becomes an operation.

Always true: all calls of a group write one array, so they have one order, in graphs, too. A call that was built has its
number. One that cannot be built is refused, so that the other ranks hear of it.
"""

from __future__ import annotations

from typing import Any, cast

from aiocuda import _native
from aiocuda._collective.calls import Call, checked_call
from aiocuda._collective.dropping import let_go_when_dropped
from aiocuda._collective.members import Members
from aiocuda._collective.order import chained
from aiocuda._collective.others import Promise
from aiocuda._devices.device import Stream
from aiocuda._ops.executing import native_op
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import dtypes
from aiocuda._values.given import between
from aiocuda._verbs.create import empty
from aiocuda._verbs.likeness import empty_like
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, ClosedError

__all__ = ["Builder"]


class Builder:
    """Makes the operations of one group, whose ranks of this process are `members`."""

    def __init__(self, members: Members) -> None:
        self._members = members
        let_go_when_dropped(self, members)

    def barrier(self) -> DeviceOp[None]:
        """Return an operation of which nobody needs the result."""
        tokens: list[list[Any]] = [[each] for each in self._members.tokens]
        made = self._operation(Call("all_reduce", self._members.size, "sum"), tokens, tokens, name="barrier")
        return cast("DeviceOp[None]", made.then(_nothing))

    def make(self, kind: str, x: Any, out: Any, *, op: str | None = None, root: int | None = None) -> Any:
        """Return operations that make a call, in the form of `x`.

        `x` and `out` are as the methods of `Group` take them. If it cannot be built, the other ranks are told.
        """
        self._members.require_usable()
        try:
            return self._made(kind, x, out, op, root)
        except Exception as error:
            # Other ranks may have called it.
            call = Call(kind, self._members.size, root=-1 if root is None else root)
            self._members.refuse(self._members.promise(call), error)
            raise

    def checked_peer(self, rank: int) -> int:
        """Return a rank to exchange messages with, or raise `ArgumentTypeError` or `ArgumentValueError`."""
        if self._members.is_local:
            raise ArgumentValueError(
                "send and recv are for groups of processes; in a local group use copy() or all_to_all"
            )
        peer = between(rank, "the other rank", 0, self._members.size - 1)
        if peer == self._members.ranks[0]:
            raise ArgumentValueError(f"rank {peer} is this one; copy() copies within a rank")
        return peer

    def _rows(self, given: Any, name: str) -> list[list[Any]]:
        """Return a list of arrays for each device."""
        per_device, count = given if self._members.is_local else [given], len(self._members.devices)
        if not isinstance(per_device, (list, tuple)) or len(per_device) != count:
            raise ArgumentTypeError(
                f"{name} is a list of {count} arrays, one for each device of the group, not {given!r:.80}"
            )
        rows = [list(each) if isinstance(each, (list, tuple)) else [each] for each in per_device]
        if len({len(each) for each in rows}) != 1:
            raise ArgumentValueError(f"{name} has lists of different lengths; each device has as many arrays")
        for row in rows:
            for place, each in enumerate(row):
                row[place] = as_array(each, name)
                if not isinstance(row[place], (_native.Array, _native.Op)):
                    raise ArgumentTypeError(f"{name} is of arrays and operations that yield them, not {each!r:.80}")
        return rows

    def _made(self, kind: str, x: Any, out: Any, op: str | None, root: int | None) -> Any:
        call = checked_call(kind, self._members.size, op, root)
        sends: list[list[Any]] = self._rows(x, "x")
        receives: list[list[Any]]
        if call.kind in ("send", "recv", "broadcast"):
            receives = sends
        elif out is not None:
            receives = self._rows(self._with_all_rows(call, out, sends), "out")
            if [len(each) for each in receives] != [len(each) for each in sends]:
                raise ArgumentValueError("out has another form than x; give an array for each of x")
        else:
            receives = [
                [self._new(call, each, device) for each in row]
                for row, device in zip(sends, self._members.devices, strict=True)
            ]
        if call.kind == "reduce":
            receives = [
                row if rank == call.root else [None] * len(row)
                for row, rank in zip(receives, self._members.ranks, strict=True)
            ]
        made = self._operation(call, sends, receives)
        items = iter(made.unzip(sum(len(row) for row in sends)))
        rows = [[next(items) for _ in row] for row in sends]
        given = x if self._members.is_local else [x]
        formed = [row if isinstance(each, (list, tuple)) else row[0] for row, each in zip(rows, given, strict=True)]
        return formed if self._members.is_local else formed[0]

    def _with_all_rows(self, call: Call, out: Any, sends: list[list[Any]]) -> Any:
        """Return `out` with something in the place of None where it is not looked at: what is sent."""
        is_list = self._members.is_local and isinstance(out, (list, tuple)) and len(out) == len(sends)
        if call.kind != "reduce" or not is_list:
            return out
        return [
            row if each is None and rank != call.root else each
            for each, row, rank in zip(out, sends, self._members.ranks, strict=True)
        ]

    def _new(self, call: Call, x: Any, device: int) -> Any:
        """Return an operation that makes what a rank receives."""
        if isinstance(x, _native.Array):
            shape = call.received_shape(x._shape)
            return empty(shape, dtypes.dtype_of(x._dtype), device)
        if call.kind in ("all_gather", "reduce_scatter"):
            raise ArgumentTypeError(
                f"{call.kind}: the shape of what {x._title} yields is not known yet; await it first, or give out="
            )
        return empty_like(x)

    def _operation(
        self, call: Call, sends: list[list[Any]], receives: list[list[Any]], name: str = ""
    ) -> DeviceOp[Any]:
        self._members.require_usable()
        doubt = _native.Doubt(self._members.waits_for_now)
        flat_sends = [each for row in sends for each in row]
        flat_receives = [each for row in receives for each in row]
        token = self._members.tokens[0]
        reads, writes = [], [token]
        for rank, row, into in zip(self._members.ranks, sends, receives, strict=True):
            if call.reads(rank):
                reads += row
            if call.writes(rank):
                writes += [each for each in into if each is not None and each is not token]
        length = len(sends[0])
        promise: Promise | None = None

        def perform(stream: Stream, before: object, *arrays: Any) -> Any:
            half = len(arrays) // 2
            rows = [arrays[at : at + length] for at in range(0, half, length)]
            into = [arrays[half + at : half + at + length] for at in range(0, half, length)]
            self._members.perform(stream, call, name, promise, doubt, rows, into)
            return arrays[half:]

        perform.__name__ = perform.__qualname__ = f"Group.{name or call.kind}"

        def build(before: Any) -> Any:
            nonlocal promise
            # It is there for the order, and its arrays need not be kept for that.
            arguments = (before.then(_nothing) if before is not None else None, *flat_sends, *flat_receives)
            made = _native.collective_op(perform, arguments, reads, writes, doubt).on(self._members.streams[0])
            # In the order in which they were built. Nothing is refused from here on.
            promise = self._members.promise(call, _place_of(made))
            return made

        try:
            return cast("DeviceOp[Any]", chained(build, self._members))
        except ClosedError:  # of the stream, which another thread has closed with the group
            self._members.require_usable()
            raise


def _place_of(op: Any) -> str:
    """Return where an operation was built, as it stands in a sentence."""
    origin = native_op(op)._origin
    return f" at {origin[0]}:{origin[1]}" if origin is not None else ""


def _nothing(_: object) -> None:
    return None
