"""A trace as plain values: operations, those who asked for them, and when what happened.

Always true: nothing here knows a device or a file. Times are nanoseconds of `time.monotonic_ns`; those of a device are
on that clock, too. A time that is not known is 0. An operation needs operations of lower numbers alone.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Asked", "Operation", "Step", "Trace"]


@dataclass(frozen=True, slots=True)
class Operation:
    """A piece of work that was submitted: a launch, an allocation, a fill, a copy, a call, a graph, or a function.

    Attributes
    ----------
    number
        Its place in the order of submission, from 0.
    kind
        ``"launch"``, ``"allocate"``, ``"fill"``, ``"copy"``, ``"call"`` (work that `call` put on a stream), ``"graph"``
        or ``"function"`` (of `then`, `inspect` or `map`, on the host).
    name
        The kernel's name, or in words what was done.
    place
        The line that built it, as ``"file:line"``; empty where that is not known.
    asked
        The index of who asked for it, in `Trace.asked`; None where that began before the trace.
    device
        The device's ordinal; -1 on the host.
    stream, tick
        The stream and which of its submissions it was; None and 0 on the host.
    state
        ``"measured"`` where the times of the device are known, ``"submitted"`` where they are not, ``"refused"`` where
        the driver did not take it, or its function raised.
    size_bytes
        How much it moves, or makes.
    held_bytes
        How much the arrays of its device held when it was submitted.
    needs
        The numbers of the operations that it came after, because they touch the same bytes.
    built_ns, decided_ns, called_ns, returned_ns
        When it was built; when its stream was decided; when the driver was called, and had it.
    started_ns, ended_ns
        When the device began it, and was done.
    brought_by
        Of a copy: the number of the copy that wrote what it reads, if nothing that is known has written there since;
        else None.
    """

    number: int
    kind: str
    name: str
    place: str
    asked: int | None
    device: int
    stream: int | None
    tick: int
    state: str
    size_bytes: int
    held_bytes: int
    needs: tuple[int, ...]
    built_ns: int
    decided_ns: int
    called_ns: int
    returned_ns: int
    started_ns: int
    ended_ns: int
    brought_by: int | None = None

    @property
    def is_measured(self) -> bool:
        """Whether the device's times are known."""
        return self.state == "measured"

    @property
    def begin_ns(self) -> int:
        """When it began: on the device where that is known, else on the host."""
        return self.started_ns or self.called_ns

    @property
    def end_ns(self) -> int:
        """When it ended: on the device where that is known, else when the host was done with it."""
        return self.ended_ns or self.returned_ns or self.called_ns


@dataclass(frozen=True, slots=True)
class Asked:
    """An await, or another way of having an operation executed.

    Attributes
    ----------
    kind
        ``"await"``, ``"sync"``, ``"submit"`` or ``"future"`` (a step of a future that nobody awaited).
    outcome
        ``"done"``, ``"failed"``, ``"cancelled"``, ``"timed out"``, or ``"open"``: the trace ended first.
    name, place
        A name of the operation, in words, and the line that built it.
    who
        The event loop and the task, or the thread, as ``"loop: task"``.
    results
        The numbers of the operations that the result was ready with.
    begun_ns, ended_ns
        When it began and ended; 0 where it did not end.
    """

    kind: str
    outcome: str
    name: str
    place: str
    who: str
    results: tuple[int, ...]
    begun_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True)
class Step:
    """A time in which aiocuda held the thread of somebody who had asked.

    Attributes
    ----------
    asked
        The index of who had asked, in `Trace.asked`.
    begun_ns, ended_ns
        When it began and ended.
    """

    asked: int
    begun_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True)
class Trace:
    """What was recorded.

    Attributes
    ----------
    name
        Its name.
    begun_ns, ended_ns
        When recording began and ended.
    is_emulated
        Whether the devices were emulated, and their times are those of an emulator.
    operations, asked, steps
        In the order in which they were submitted, began, and ended.
    """

    name: str
    begun_ns: int
    ended_ns: int
    is_emulated: bool
    operations: tuple[Operation, ...]
    asked: tuple[Asked, ...]
    steps: tuple[Step, ...]
