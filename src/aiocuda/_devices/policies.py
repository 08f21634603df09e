"""Policies: which stream an operation goes to, where nobody says it.

Always true: a policy chooses for speed alone. Whatever it chooses, operations wait for what they read and
overwrite, so every policy gives the same results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aiocuda import _forks, _native
from aiocuda._devices.device import Device, DeviceLike, Stream, as_ordinal, as_stream, priority_of
from aiocuda._devices.placing import as_policy
from aiocuda._driver.context_limits import highest_stream_priority
from aiocuda._engine import faults, placement
from aiocuda._values.given import between
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = [
    "Dataflow",
    "LeastLoaded",
    "Policy",
    "RoundRobin",
    "SchedulingPolicy",
    "SingleStream",
    "current_policy",
    "set_policy",
    "streams_for",
]

_MOST_STREAMS = 128
_lock = _forks.lock()


class Policy:
    """The base of all policies: they have their own streams on each device, made when they are first needed there."""

    _kept: dict[tuple[int, int], tuple[Stream, ...]]  # by device and priority
    _lent: dict[int, dict[int, Stream]]  # by device

    def streams(self, device: DeviceLike | None = None) -> tuple[Stream, ...]:
        """Return the streams that it chooses from on a device.

        Parameters
        ----------
        device
            The device; None takes the one in force.

        Returns
        -------
        tuple[Stream, ...]
            In the order in which the policy made them.

        Notes
        -----
        With ``use(priority=…)`` in force, they are those of that priority.
        """
        ordinal = as_ordinal(device)
        opened = self._open(ordinal, placement.current.get().stream_priority(_native_of(self)))
        return tuple(self._lend(ordinal, [stream._index for stream in opened]).values())

    def _lend(self, ordinal: int, indices: Iterable[int]) -> dict[int, Stream]:
        """Return streams of its own on a device, by index, as others get them: closing these closes nothing."""
        if not hasattr(self, "_lent"):
            self._lent = {}
        lent = self._lent.setdefault(ordinal, {})
        device = Device(ordinal)
        return {index: lent.get(index) or lent.setdefault(index, Stream._known(index, device)) for index in indices}

    def __repr__(self) -> str:
        if not _native.is_made(self):
            return f"<{type(self).__name__}, whose __init__() has not called super().__init__()>"
        native = _native_of(self)
        return f"<{type(self).__name__} of {native._streams} streams, priority {native._priority}>"

    def _open(self, ordinal: int, priority: int) -> tuple[Stream, ...]:
        native = _native_of(self)
        device = Device(ordinal)
        # The driver takes what is beyond its range for the end of it: such streams are the same.
        priority = min(max(priority, highest_stream_priority(ordinal)), 0)
        with _lock:
            if not hasattr(self, "_kept"):
                self._kept = {}
            if (ordinal, priority) not in self._kept:
                first = [device.default_stream] if native._uses_default_stream(priority) else []
                more = [device.stream(priority) for _ in range(native._streams - len(first))]
                self._kept[ordinal, priority] = (*first, *more)
            return self._kept[ordinal, priority]


class Dataflow(_native.Dataflow, Policy):
    """Follow the data: the default.

    An operation goes on in the stream of the first of its arguments whose producer is still the last thing
    there; then it need not wait for it. Others, such as the second consumer of a result, take a stream that is
    idle, or the next in turn. A chain stays on one stream, independent branches overlap, and a new array is made on the
    stream of its first user.

    Parameters
    ----------
    streams
        How many on each device; the first is the device's default stream, where the priority is 0.
    priority
        As for `Device.stream`.
    """

    def __init__(self, streams: int = 8, priority: int = 0) -> None:
        super().__init__(streams=_count(streams), priority=priority_of(priority))


class RoundRobin(_native.RoundRobin, Policy):
    """Put each operation on the next of some streams, in turn.

    Parameters
    ----------
    n
        How many streams on each device.
    priority
        As for `Device.stream`.
    """

    def __init__(self, n: int = 4, priority: int = 0) -> None:
        super().__init__(streams=_count(n), priority=priority_of(priority))


class LeastLoaded(_native.LeastLoaded, Policy):
    """Put each operation on the stream with the fewest submissions that have not passed.

    It asks the driver how far each stream is, for each operation: some tenths of a microsecond a stream.

    Parameters
    ----------
    n
        How many streams on each device.
    priority
        As for `Device.stream`.
    """

    def __init__(self, n: int = 4, priority: int = 0) -> None:
        super().__init__(streams=_count(n), priority=priority_of(priority))


class SingleStream(_native.SingleStream, Policy):
    """Put everything on the device's default stream, in the order of submission."""

    def __init__(self) -> None:
        super().__init__()

    def __repr__(self) -> str:
        return "<SingleStream>"


class SchedulingPolicy(_native.AskedPolicy, Policy):
    """A policy of your own: derive from it, and say in `choose` where each operation goes.

    Parameters
    ----------
    streams
        How many it gets on each device, as candidates.
    priority
        As for `Device.stream`.

    Examples
    --------
    >>> import aiocuda as ac
    >>> class UploadsApart(ac.SchedulingPolicy):
    ...     def choose(self, op, producers, candidates):
    ...         return candidates[0] if producers else candidates[1]
    >>> with ac.use(UploadsApart(streams=2)):
    ...     ac.to_host(ac.ones(3)).sync()
    array([1., 1., 1.], dtype=float32)
    """

    def __init__(self, streams: int = 4, priority: int = 0) -> None:
        super().__init__(_ask, streams=_count(streams), priority=priority_of(priority))

    def choose(self, op: Any, producers: Sequence[Stream], candidates: Sequence[Stream]) -> Stream:
        """Return the stream for an operation that is about to be submitted.

        Parameters
        ----------
        op
            The operation, a `DeviceOp`.
        producers
            The streams of what it must wait for, as far as that has not passed; in the order of its arguments.
        candidates
            The policy's streams on the operation's device.

        Returns
        -------
        Stream
            One of the candidates, or any other stream of the device.

        Raises
        ------
        ArgumentTypeError
            The class of the policy has no ``choose`` of its own.

        Notes
        -----
        Called within the submission, so it must not wait for another thread that submits. An exception from it is the
        operation's error.
        """
        raise ArgumentTypeError(f"{type(self).__name__} has no choose(op, producers, candidates); say where to go")


def current_policy() -> Policy:
    """Return the policy in force: of the innermost `use`, else the process's.

    In a function of `then`, `inspect`, `map` and `call` it is that of the execution, or of the operation's `on`.

    Returns
    -------
    Policy
        `Dataflow`, if nobody has chosen another one.
    """
    policy = placement.current.get().policy or _native.default_policy()
    assert isinstance(policy, Policy)
    return policy


def set_policy(policy: Policy) -> Policy:
    """Choose the policy in force where no `use` says otherwise, for the whole process.

    Parameters
    ----------
    policy
        One of aiocuda's, or a `SchedulingPolicy` of your own.

    Returns
    -------
    Policy
        The one that was in force, to be put back.

    Raises
    ------
    ArgumentTypeError
        It is no policy.
    """
    if not isinstance(policy, Policy):
        raise ArgumentTypeError(f"set_policy takes a policy, such as Dataflow(); {policy!r} was given")
    before = _native.default_policy()
    _native.set_default_policy(_native_of(policy))
    assert isinstance(before, Policy)
    return before


def _ask(policy: SchedulingPolicy, op: Any, ordinal: int, producers: list[int], candidates: list[int]) -> int:
    lent = policy._lend(ordinal, candidates)
    # -1: explain() has met a stream that is being closed.
    made_on = tuple([lent.get(index) or _stream_of(index) for index in producers if index >= 0])
    chosen = policy.choose(op, made_on, tuple(lent.values()))
    try:
        return as_stream(chosen)._index
    except ArgumentTypeError as error:
        raise ArgumentTypeError(
            f"{type(policy).__name__}.choose() returned {chosen!r} for {op!r}; return one of the candidates, "
            f"or another stream of device {ordinal}"
        ) from error


def _stream_of(index: int) -> Stream:
    return Stream._known(index, Device(_native.stream_device(index)))


def streams_for(policy: Policy, ordinal: int, priority: int, op: _native.Op) -> list[int]:
    """Return a policy's streams of a priority on a device; what fails is told of an operation."""
    with faults.raised_as(op, ordinal):
        return [stream._index for stream in policy._open(ordinal, priority)]


def _count(streams: int) -> int:
    try:
        return between(streams, "the number of streams", 1, _MOST_STREAMS)
    except (ArgumentTypeError, ArgumentValueError):
        raise ArgumentValueError(
            f"a policy has 1 to {_MOST_STREAMS} streams on each device; {streams!r:.80} was asked for"
        ) from None


def _native_of(policy: Policy) -> _native.Policy:
    assert isinstance(policy, _native.Policy)
    return as_policy(policy)
