"""Groups of ranks, whose collectives are operations.

Always true: the collectives of a process are submitted in the order in which they were built.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from aiocuda._collective.building import Builder
from aiocuda._collective.hub import open_hub
from aiocuda._collective.meeting import Place
from aiocuda._collective.members import Members
from aiocuda._devices.device import Device, DeviceLike, as_ordinal
from aiocuda._driver import nccl
from aiocuda._engine.execution import checked_timeout
from aiocuda._ops.operation import DeviceOp
from aiocuda._values.given import between, sequence, text
from aiocuda.errors import ArgumentValueError, CollectiveError

__all__ = ["Group", "unique_id"]

_LONGEST_S: Final = 2e6  # which sockets and locks take


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
    ArgumentTypeError, ArgumentValueError
        `host` is no address of this machine, or `answers_within_s` is no number above 0.
    """
    text(host, "host", "the address of this machine")
    if not checked_timeout(answers_within_s):
        raise ArgumentValueError("answers_within_s is a number of seconds above 0; 0 was given")
    identity = nccl.new_id()
    return open_hub(host, answers_within_s).to_id(identity)


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
        self._builder = Builder(self._members)
        try:
            self._members.wait_until_ready(deadline)
        except BaseException as error:
            if isinstance(error, CollectiveError):
                reason = error.reason
            else:  # whose words name no rank
                reason = f"rank {ranks[0]} gave up ({type(error).__name__}{f': {error}' if str(error) else ''})"
            self._members.fail(f"the group was not made: {reason}")
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
        ArgumentTypeError, ArgumentValueError
            There is no device, or one is named twice; or `timeout_s` is no number, negative or NaN.
        CollectiveError
            NCCL does not connect them.
        """
        timeout_s = min(checked_timeout(timeout_s), _LONGEST_S)
        ordinals = [as_ordinal(each) for each in sequence(devices, "devices", "devices")]
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
        ArgumentTypeError, ArgumentValueError
            `rank` is not below `size`, `unique_id` is none, or not whole, or one of another version of aiocuda; or
            `timeout_s` is no number, negative or NaN.
        CollectiveError
            Not all ranks have joined in time, which the error names; or one is gone; or another process has joined as
            this rank; or the id is that of another group.
        """
        timeout_s = min(checked_timeout(timeout_s), _LONGEST_S)
        size = between(size, "the size of a group", 1, 1 << 20)
        rank = between(rank, "a rank", 0, size - 1)
        place, identity = Place.from_id(unique_id)
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
        return self._builder.make("all_reduce", x, out, op=op)

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
        return self._builder.make("all_gather", x, out)

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
        return self._builder.make("reduce_scatter", x, out, op=op)

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
        return self._builder.make("all_to_all", x, out)

    def reduce(self, x: Any, root: int = 0, op: str = "sum", *, out: Any = None) -> Any:
        """Join the arrays of all ranks, item by item; `root` alone gets the result, and the others None.

        Otherwise as `all_reduce`.

        Parameters
        ----------
        x
            As for `all_reduce`.
        root
            The rank that gets the result.
        op
            As for `all_reduce`.
        out
            As for `all_reduce`. That of `root` alone is written; in a local group, the others may be None.

        Returns
        -------
        DeviceOp[DeviceArray], or lists of them
            The result at `root`; elsewhere None.
        """
        return self._builder.make("reduce", x, out, op=op, root=root)

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
        return self._builder.make("broadcast", x, None, root=root)

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
        return self._builder.make("send", x, None, root=self._builder.checked_peer(to))

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
        return self._builder.make("recv", out, None, root=self._builder.checked_peer(source))

    def barrier(self) -> DeviceOp[None]:
        """Wait for all ranks: the operation ends when all have come to theirs. It orders no other work.

        It yields None. *Raises*: as `all_reduce`.

        Returns
        -------
        DeviceOp[None]
            *Stream*, *Blocks*, *On cancel*: as `all_reduce`.
        """
        return self._builder.barrier()

    def waits_for(self) -> str:
        """Return in words which collective is under way, and for which ranks it waits; empty if there is none.

        Returns
        -------
        str
            One sentence, or nothing. It says if a rank has built the collective, and nobody has executed it. *Blocks*:
            a group of processes asks the process that made its id, and waits for the answer for a second at most; then
            the ranks are not named. The ranks have another second to say what they have built.
        """
        return self._members.waits_for()

    def abort(self) -> None:
        """End the group at once, on all ranks: what is under way fails with `CollectiveError`, and so do later calls.

        What a collective was to write, and what was made of that, is not used again. *Blocks*: while NCCL lets go of
        the devices. *Thread-safe*.
        """
        self._members.fail(f"rank {self.rank} aborted the group")

    def close(self, timeout_s: float = 600.0) -> None:
        """Wait for calls, and launches of graphs with calls, that are under way; then let go of the group.

        Closing twice is fine.

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
        NCCL keeps a rank's memory until the other ranks on its host have closed, too. `close()` waits for that a second
        at most, and then a thread does.
        """
        self._members.close(min(checked_timeout(timeout_s), _LONGEST_S))
