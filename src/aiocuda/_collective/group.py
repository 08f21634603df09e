"""Groups of ranks, whose collectives are operations.

Always true: the collectives of a process are submitted in the order in which they were built.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, cast

from aiocuda import _native
from aiocuda._collective.calls import CONNECT, Call, checked_op
from aiocuda._collective.hub import open_hub
from aiocuda._collective.meeting import Place
from aiocuda._collective.members import Members
from aiocuda._collective.order import chained
from aiocuda._collective.others import Promise
from aiocuda._devices.device import Device, DeviceLike, Stream, as_ordinal
from aiocuda._driver import nccl
from aiocuda._engine.execution import checked_timeout
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import dtypes
from aiocuda._values.given import between
from aiocuda._verbs.create import empty, zeros
from aiocuda._verbs.likeness import empty_like
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["Group", "unique_id"]


def unique_id(host: str = "127.0.0.1", *, answers_within_s: float = 30.0) -> bytes:
    """Make the id by which the processes of one group find one another.

    Parameters
    ----------
    host
        The address of this machine at which all ranks reach it. One of the ranks' processes, or another one, calls this
        and lives as long as the group.
    answers_within_s
        A rank that says nothing to this process for so long, in seconds, is gone, and the group fails: its process is
        stopped, or the network is cut. The same holds the other way round. Each process says something four times in
        this time, on a thread of its own; it is found out a quarter later at most.

    Returns
    -------
    bytes
        For `Group.init` of all ranks, for one group. It holds a secret: whoever has it may join the group. *Blocks*:
        for some milliseconds.

    Raises
    ------
    MissingPackageError
        nccl4py or NCCL is not installed.
    ArgumentValueError
        `answers_within_s` is no number above 0.
    """
    if not checked_timeout(answers_within_s):
        raise ArgumentValueError("answers_within_s is a number of seconds above 0; 0 was given")
    identity = nccl.new_id()
    return open_hub(host, answers_within_s).to_bytes() + identity


class Group:
    """Ranks, numbered from 0, that compute together: one for each device of this process, or one of each process.

    Made by `Group.local` or `Group.init`. Its methods make operations. They are submitted in the order in which they
    were built, whatever else they wait for, so that all ranks agree on it: each rank must build the same ones in the
    same order. One that was built and that nobody has any more takes no part.

    In a local group, a method takes a list with one array for each device, and gives a list of operations with one
    result for each. They are parts of one operation, which all devices do, or none. In a group of processes, a method
    takes this rank's array and gives one operation. In place of an array, a list of arrays may be given. Then there is
    a list of results, and all go out in one group of NCCL's, which is quicker for small arrays.

    Work goes to a stream of the group's own on each device, so it overlaps with kernels on other streams. It is ordered
    by what it reads and writes, as all work is.
    """

    def __init__(
        self,
        devices: Sequence[int],
        ranks: Sequence[int],
        size: int,
        identity: bytes,
        place: Place | None,
        timeout_s: float,
    ) -> None:
        deadline = time.monotonic() + timeout_s
        self._members = Members(devices, ranks, size, identity, place, timeout_s)
        self._tokens = [zeros(1, "int32", device=each).sync() for each in devices]
        _native.make_token(self._tokens[0])  # which all calls write
        try:
            self._members.wait_until_ready(deadline)
            sends, receives = ([[zeros(size, "int32", device=each)] for each in devices] for _ in range(2))
            connection = self._operation(Call(CONNECT, size), sends, receives, name="the first call")
            connection.sync(max(deadline - time.monotonic(), 0.001))
        except BaseException as error:
            self._members.fail(f"the group was not made: {error}")
            self._members.close(0)
            raise

    @classmethod
    def local(cls, devices: Sequence[DeviceLike], *, timeout_s: float = 60.0) -> Self:
        """Make a group of devices of this process; rank n is the n-th of them.

        Parameters
        ----------
        devices
            Each once.
        timeout_s
            How long it may take.

        Returns
        -------
        Group
            *Blocks*: while the devices are opened and connected.

        Raises
        ------
        MissingPackageError
            nccl4py or NCCL is not installed.
        ArgumentValueError
            There is no device, or one is named twice.
        CollectiveError
            NCCL does not connect them.
        """
        ordinals = [as_ordinal(each) for each in devices]
        if not ordinals or len(set(ordinals)) != len(ordinals):
            raise ArgumentValueError(f"a local group is of different devices, at least one; {ordinals} were given")
        return cls(ordinals, range(len(ordinals)), len(ordinals), nccl.new_id(), None, timeout_s)

    @classmethod
    def init(
        cls, rank: int, size: int, unique_id: bytes, *, device: DeviceLike | None = None, timeout_s: float = 60.0
    ) -> Self:
        """Join a group of processes; each of them calls this.

        Parameters
        ----------
        rank
            This process's number, from 0.
        size
            How many processes there are.
        unique_id
            What `aiocuda.collective.unique_id` gave, the same in all processes. It is for one group.
        device
            The device of this rank; None: the one in force.
        timeout_s
            How long it may take until all have joined.

        Returns
        -------
        Group
            *Blocks*: until all ranks have joined. In an event loop call it by ``asyncio.to_thread``.

        Raises
        ------
        MissingPackageError
            nccl4py or NCCL is not installed.
        ArgumentValueError
            `rank` is not below `size`, or `unique_id` is none.
        CollectiveError
            Not all ranks have joined in time, or one is gone.
        """
        size = between(size, "the size of a group", 1, 1 << 20)
        rank = between(rank, "a rank", 0, size - 1)
        place, identity = Place.from_bytes(unique_id)
        return cls([as_ordinal(device)], [rank], size, identity, place, timeout_s)

    @property
    def rank(self) -> int:
        """The number of this process; 0 in a local group, which has all ranks."""
        return self._members.ranks[0]

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self._members.size

    @property
    def is_local(self) -> bool:
        """Whether all ranks are devices of this process."""
        return self._members.is_local

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices of this process, in the order of their ranks."""
        return tuple(Device(each) for each in self._members.devices)

    def __repr__(self) -> str:
        members = self._members
        what = f"local, devices {list(members.devices)}" if self.is_local else f"rank {self.rank} of {self.size}"
        return f"<aiocuda.collective.Group {what}{members.state_in_words()}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort()
        self.close()

    def all_reduce(self, x: Any, op: str = "sum", *, out: Any = None) -> Any:
        """Join the arrays of all ranks, item by item; each rank gets the result.

        Parameters
        ----------
        x
            Arrays, or operations that yield them, in one piece; of the same shape and dtype on all ranks. In a local
            group a list, with one for each device; in place of one, a list of arrays.
        op
            ``"sum"``, ``"prod"``, ``"max"``, ``"min"`` or ``"avg"``. Averages of integers are rounded towards zero.
        out
            Where the results go, in the form of `x`, and maybe `x` itself. None: new arrays. Arrays that share memory
            in another way are refused.

        Returns
        -------
        DeviceOp[DeviceArray], or lists of them
            In the form of `x`. *Stream*: the group's. *Blocks*: no. *On cancel*: before the submission nothing has
            happened, and a later collective of the process submits it first if somebody still has it. What was
            submitted goes on.

        Raises
        ------
        ArgumentTypeError, ArgumentValueError
            Lists of other lengths, an operator that is none; when executed: dtypes that NCCL does not reduce, shapes
            that do not fit, memory that overlaps. Ranks of other processes that have called it, or do so later, fail
            with `CollectiveError`, unless all of them refuse it.
        DeviceMismatchError
            When executed: an array is on another device than its rank.
        CollectiveError
            The group has failed. When awaited: it failed before the collective had ended.
        """
        return self._make("all_reduce", x, out, op=op)

    def all_gather(self, x: Any, *, out: Any = None) -> Any:
        """Bring the arrays of all ranks together; each rank gets all of them.

        Otherwise as `all_reduce`. Results are of shape ``(size, *x.shape)``. `x` may be the part of `out` that its rank
        fills. Without `out`, `x` is an array and no operation, as its shape must be known.

        Parameters
        ----------
        x, out
            As for `all_reduce`.

        Returns
        -------
        DeviceOp[DeviceArray], or lists of them
            The arrays of all ranks, by rank.
        """
        return self._make("all_gather", x, out)

    def reduce_scatter(self, x: Any, op: str = "sum", *, out: Any = None) -> Any:
        """Join the arrays of all ranks, item by item; each rank gets its part of the result.

        Otherwise as `all_reduce`. The first axis is cut into `size` parts, and rank n gets the n-th, which `out` may
        be. Without `out`, `x` is an array and no operation, as its shape must be known.

        Parameters
        ----------
        x, op, out
            As for `all_reduce`.

        Returns
        -------
        DeviceOp[DeviceArray], or lists of them
            The rank's part, of the shape ``(x.shape[0] // size, *x.shape[1:])``.
        """
        return self._make("reduce_scatter", x, out, op=op)

    def all_to_all(self, x: Any, *, out: Any = None) -> Any:
        """Send a part of each rank's array to each rank.

        Otherwise as `all_reduce`. The first axis is cut into `size` parts. The n-th goes to rank n, which puts what
        comes from rank m at the m-th place. `out` must not be `x`.

        Parameters
        ----------
        x, out
            As for `all_reduce`.

        Returns
        -------
        DeviceOp[DeviceArray], or lists of them
            Of the shape of `x`.
        """
        return self._make("all_to_all", x, out)

    def reduce(self, x: Any, root: int = 0, op: str = "sum", *, out: Any = None) -> Any:
        """Join the arrays of all ranks, item by item; `root` alone gets the result, and the others None.

        Otherwise as `all_reduce`.

        Parameters
        ----------
        x
            As for `all_reduce`.
        root
            The rank that gets the result.
        op, out
            As for `all_reduce`.

        Returns
        -------
        DeviceOp[DeviceArray], or lists of them
            The result at `root`; elsewhere None.
        """
        return self._make("reduce", x, out, op=op, root=root)

    def broadcast(self, x: Any, root: int = 0) -> Any:
        """Copy the array of one rank over those of all others.

        Otherwise as `all_reduce`. It yields `x`, which ranks other than `root` have written.

        Parameters
        ----------
        x
            As for `all_reduce`.
        root
            The rank whose array is copied.

        Returns
        -------
        DeviceOp[DeviceArray], or lists of them
            `x` itself, after it was written.
        """
        return self._make("broadcast", x, None, root=root)

    def send(self, x: Any, to: int) -> Any:
        """Send an array, or a list of them, to a rank, which calls `recv`. For groups of processes.

        Otherwise as `all_reduce`. It yields `x`, and ends when the other rank has got it. So of two ranks that send one
        another something, one must receive first; if none does, the group fails, and the error names both calls.

        Parameters
        ----------
        x
            As for `all_reduce`.
        to
            The rank that receives.

        Returns
        -------
        DeviceOp[DeviceArray], or lists of them
            `x` itself, after the other rank has got it.
        """
        return self._make("send", x, None, root=self._checked_peer(to))

    def recv(self, out: Any, source: int) -> Any:
        """Fill an array, or a list of them, with what a rank sends. For groups of processes.

        Otherwise as `all_reduce`. It yields `out`.

        Parameters
        ----------
        out
            An array, or a list of them, of what is sent.
        source
            The rank that sends.

        Returns
        -------
        DeviceOp[DeviceArray], or lists of them
            `out` itself, after it was written.
        """
        return self._make("recv", out, None, root=self._checked_peer(source))

    def barrier(self) -> DeviceOp[None]:
        """Wait for all ranks: the operation ends when all have come to theirs. It orders no other work.

        It yields None. *Raises*: as `all_reduce`.

        Returns
        -------
        DeviceOp[None]
            *Stream*, *Blocks*, *On cancel*: as `all_reduce`.
        """
        call = Call("all_reduce", self.size, "sum")
        tokens: list[list[Any]] = [[each] for each in self._tokens]
        made = self._operation(call, tokens, tokens, name="barrier")
        return cast("DeviceOp[None]", made.then(_nothing))

    def waits_for(self) -> str:
        """Return in words which collective is under way, and for which ranks it waits; empty if there is none.

        Returns
        -------
        str
            One sentence, or nothing.
        """
        return self._members.waits_for()

    def abort(self) -> None:
        """End the group at once, on all ranks: what is under way fails with `CollectiveError`, and so do later calls.

        What a collective was to write, and what was made of that, is not used again. *Blocks*: while NCCL lets go of
        the devices. *Thread-safe*.
        """
        self._members.fail(f"rank {self.rank} aborted the group")

    def close(self, timeout_s: float = 600.0) -> None:
        """Wait for what is under way, then let go of the group. Closing twice is fine.

        Other ranks that have called what this one has not fail at once, with an error that names this rank.

        Parameters
        ----------
        timeout_s
            How long what is under way may take; then the group is aborted, so that nothing waits for ever. The default
            is that of PyTorch's groups of NCCL.

        Raises
        ------
        CollectiveError
            The time passed first. The error names the ranks that are missing.
        ArgumentValueError
            `timeout_s` is no number, negative or NaN.

        Notes
        -----
        *Blocks*: until then. An abort, by any thread or rank, ends it at once, and so does a failure. *Thread-safe*.
        """
        self._members.close(checked_timeout(timeout_s))

    # Operations, not yet submitted.

    def _checked_rank(self, rank: int, what: str) -> int:
        return between(rank, what, 0, self.size - 1)

    def _checked_peer(self, rank: int) -> int:
        if self.is_local:
            raise ArgumentValueError(
                "send and recv are for groups of processes; in a local group use copy() or all_to_all"
            )
        peer = self._checked_rank(rank, "the other rank")
        if peer == self.rank:
            raise ArgumentValueError(f"rank {peer} is this one; copy() copies within a rank")
        return peer

    def _rows(self, given: Any, name: str) -> list[list[Any]]:
        """Return a list of arrays for each device."""
        per_device, count = given if self.is_local else [given], len(self._members.devices)
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

    def _make(self, kind: str, x: Any, out: Any, *, op: str | None = None, root: int | None = None) -> Any:
        self._members.require_usable()
        try:
            return self._made(kind, x, out, op, root)
        except Exception as error:
            # Other ranks may have called it.
            call = Call(kind, self.size, root=-1 if root is None else root)
            self._members.refuse(self._members.promise(call), error)
            raise

    def _made(self, kind: str, x: Any, out: Any, op: str | None, root: int | None) -> Any:
        call = Call(
            kind,
            self.size,
            "" if op is None else checked_op(op),
            -1 if root is None else self._checked_rank(root, "root"),
        )
        sends: list[list[Any]] = self._rows(x, "x")
        receives: list[list[Any]]
        if call.kind in ("send", "recv", "broadcast"):
            receives = sends
        elif out is not None:
            receives = self._rows(out, "out")
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
        given = x if self.is_local else [x]
        formed = [row if isinstance(each, (list, tuple)) else row[0] for row, each in zip(rows, given, strict=True)]
        return formed if self.is_local else formed[0]

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
        doubt = _native.Doubt()
        flat_sends = [each for row in sends for each in row]
        flat_receives = [each for row in receives for each in row]
        reads, writes = [], [self._tokens[0]]
        for rank, row, into in zip(self._members.ranks, sends, receives, strict=True):
            if call.reads(rank):
                reads += row
            if call.writes(rank):
                writes += [each for each in into if each is not None and each is not self._tokens[0]]
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
            promise = self._members.promise(
                call
            )  # in the order in which they were built; nothing is refused from here on
            return made

        return cast("DeviceOp[Any]", chained(build))


def _nothing(_: object) -> None:
    return None
