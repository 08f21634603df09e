"""Waiting for several operations: one after another as they complete, or for some of them.

Always true: all are submitted at the call, as far as there is room and no `map` stands in between; giving up the wait
leaves what was submitted to the device. One loop's port serves all of a wait: there is no task for each operation.
"""

from __future__ import annotations

import enum
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import Any, Final, Generic, TypeVar

from aiocuda import _loops, _native
from aiocuda._engine import placement
from aiocuda._engine.execution import checked_timeout
from aiocuda._engine.futures import DeviceFuture
from aiocuda._engine.stream_wait import StreamWait
from aiocuda.errors import AiocudaError, ArgumentTypeError, ArgumentValueError
from aiocuda.event import Event
from aiocuda.ops import DeviceOp

__all__ = [
    "ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION", "ReturnWhen", "as_completed", "as_coroutine", "wait",
]  # fmt: skip

T = TypeVar("T")


class ReturnWhen(enum.StrEnum):
    """When `wait` returns; asyncio's constants of the same names are as good.

    Attributes
    ----------
    ALL_COMPLETED
        When all are complete, failed or cancelled.
    FIRST_COMPLETED
        When one of them is.
    FIRST_EXCEPTION
        When one of them has failed; else when all are complete. A cancelled future has not failed.
    """

    ALL_COMPLETED = "ALL_COMPLETED"
    FIRST_COMPLETED = "FIRST_COMPLETED"
    FIRST_EXCEPTION = "FIRST_EXCEPTION"


ALL_COMPLETED: Final = ReturnWhen.ALL_COMPLETED
FIRST_COMPLETED: Final = ReturnWhen.FIRST_COMPLETED
FIRST_EXCEPTION: Final = ReturnWhen.FIRST_EXCEPTION


def as_completed(ops: Iterable[DeviceOp[T] | DeviceFuture[T]]) -> AsyncIterator[DeviceFuture[T]]:
    """Execute operations, and yield their futures in the order in which the device completes them.

    Parameters
    ----------
    ops
        Operations and futures; a future that was scheduled starts. One that is given twice is yielded twice.

    Returns
    -------
    AsyncIterator[DeviceFuture[T]]
        For ``async for``, of the loop in which this was called; there is none for a plain ``for``. Each future that
        it yields is done: ask its `DeviceFuture.result`. A future that was given is yielded itself.

    Raises
    ------
    ArgumentTypeError
        Something is neither an operation nor a future; nothing is submitted then.
    AiocudaError
        No event loop runs in this thread.

    Notes
    -----
    All are submitted now, at the call, from left to right; what stands behind a `DeviceOp.map` or finds its stream
    full is submitted as the iteration comes to it. An operation's error comes out when its future is asked, not from
    here. The order is that in which completions are learnt, which for those of one stream is the stream's.
    *Stream*: the one in force at the call. *Blocks*: no. *On cancel*, and where the iteration is left early: what
    was submitted goes on.
    """
    return _Arrivals(_futures_of(ops))


async def as_coroutine(awaited: Awaitable[T]) -> T:
    """Await an operation, a future, an event or a stream: for what takes coroutines and coroutine functions only.

    Such are `asyncio.create_task`, `asyncio.TaskGroup.create_task` and `asyncio.Runner.run`, to which one gives
    ``as_coroutine(op)``, and trio's ``nursery.start_soon(as_coroutine, op)``. What takes awaitables, such as
    `asyncio.gather`, `asyncio.wait_for`, `asyncio.shield` and `asyncio.ensure_future`, takes operations and futures
    themselves.

    Parameters
    ----------
    awaited
        An operation (`DeviceOp`), a `DeviceFuture`, an `Event`, or a wait for a stream or a device (`StreamWait`).

    Returns
    -------
    T
        What awaiting it gives.

    Raises
    ------
    ArgumentTypeError
        It is neither of these.
    AiocudaError
        The operation failed; its own error.

    Notes
    -----
    *Stream*: the one in force when this is awaited; a task has the context in which it was made. *Blocks*: no.
    *On cancel*: as for ``await op``.

    What takes coroutines only looks at the type of what it is given, and raises its own error for an operation:

    - ``TypeError: a coroutine was expected, got <DeviceOp: ...>`` comes from `asyncio.create_task` and
      `asyncio.TaskGroup.create_task`;
    - ``ValueError: a coroutine was expected, got <DeviceOp: ...>`` comes from `asyncio.run`;
    - ``TypeError: A coroutine object is required`` comes from `asyncio.run_coroutine_threadsafe`;
    - ``TypeError: 'LaunchOp' object is not callable`` comes from trio's ``nursery.start_soon``.

    In each case give ``as_coroutine(op)``; to ``start_soon``, which calls a function, ``as_coroutine, op``.
    """
    given: object = awaited
    if not isinstance(given, (_native.Op, DeviceFuture, StreamWait, Event)):
        raise ArgumentTypeError(f"as_coroutine() takes an operation, future, event or wait; {given!r} was given")
    return await awaited


async def wait(
    ops: Iterable[DeviceOp[T] | DeviceFuture[T]],
    *,
    return_when: ReturnWhen | str = ALL_COMPLETED,
    timeout_s: float | None = None,
) -> tuple[set[DeviceFuture[T]], set[DeviceFuture[T]]]:
    """Execute operations, and wait until some or all of them are complete.

    Parameters
    ----------
    ops
        Operations and futures. Give futures, such as those of `DeviceOp.submit`, to know which is which afterwards.
    return_when
        `ALL_COMPLETED`, `FIRST_COMPLETED` or `FIRST_EXCEPTION`.
    timeout_s
        In seconds; the time passing is no error. None waits as long as it takes, 0 only looks.

    Returns
    -------
    done, pending
        Futures: those that are complete, failed or cancelled, and the others. Both are empty where nothing is given.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        Something is neither an operation nor a future, `return_when` is none of the three, or the time-out is no
        number of seconds; nothing is submitted then.

    Notes
    -----
    An operation's error comes out when its future is asked. *Stream*: the one in force when this is awaited.
    *Blocks*: no. *On cancel*, and for those still pending: what was submitted goes on.
    """
    enough = _checked_return_when(return_when)
    timeout = None if timeout_s is None else checked_timeout(timeout_s)
    futures = list(dict.fromkeys(_futures_of(ops)))
    port = _loops.current_port()
    until = None if timeout is None else port.time() + timeout
    arrivals = _Arrivals(futures)
    done: set[DeviceFuture[T]] = set()
    try:
        while (future := await arrivals.next(until)) is not None:
            done.add(future)
            if enough is FIRST_COMPLETED or (enough is FIRST_EXCEPTION and _has_failed(future)):
                break
        while (future := arrivals.take()) is not None:  # what is complete too, without waiting
            done.add(future)
    finally:
        arrivals.close()
    return done, set(futures) - done


def _checked_return_when(return_when: ReturnWhen | str) -> ReturnWhen:
    try:
        return ReturnWhen(return_when)
    except ValueError:
        names = ", ".join(ReturnWhen)
        raise ArgumentValueError(f"return_when is one of {names}; {return_when!r} was given") from None


def _has_failed(future: DeviceFuture[Any]) -> bool:
    return not future.cancelled() and future.exception() is not None


def _futures_of(ops: Iterable[DeviceOp[T] | DeviceFuture[T]]) -> list[DeviceFuture[T]]:
    """Return a future for each, after all have been looked at."""
    where = placement.current.get()
    futures: list[DeviceFuture[T]] = []
    for op in ops:
        if isinstance(op, DeviceFuture):
            futures.append(op)
        elif isinstance(op, _native.Op):
            futures.append(DeviceFuture(op, where))
        else:
            raise ArgumentTypeError(f"operations and futures are waited for; {op!r} is neither")
    return futures


def _in_order_of_submission(futures: list[DeviceFuture[T]]) -> list[DeviceFuture[T]]:
    """Return what runs first, each stream's in its order: to be told of one is to be told of all before it."""
    submitted = [future for future in futures if future._op._state == "submitted"]
    others = [future for future in futures if future._op._state != "submitted"]
    return [*sorted(submitted, key=lambda future: future._op._ready), *others]


class _Arrival(Generic[T]):
    """The token of a future that some wait is interested in."""

    __slots__ = ("__weakref__", "_arrivals", "future", "is_due", "lane")

    def __init__(self, arrivals: _Arrivals[T], future: DeviceFuture[T]) -> None:
        # Not the other way round too: results, and their memory, would stay until the garbage collector comes.
        self._arrivals = weakref.ref(arrivals)
        self.future = future
        self.is_due = False
        self.lane: deque[_Arrival[T]] | None = None  # those of its stream, in order

    def wake(self, error: int) -> None:
        arrivals = self._arrivals()
        if arrivals is not None:  # else nobody waits any more
            arrivals.note(self, error)


class _Arrivals(AsyncIterator[DeviceFuture[T]]):
    """Futures on their way; each is taken once, when it is done, in the order in which their tokens came."""

    __slots__ = ("__weakref__", "_due", "_lanes", "_left", "_paused", "_port", "_waiters")

    def __init__(self, futures: list[DeviceFuture[T]]) -> None:
        self._due: deque[_Arrival[T]] = deque()
        self._paused: deque[_Arrival[T]] = deque()  # due when the loop has come round
        self._lanes: dict[int, deque[_Arrival[T]]] = {}
        self._left: set[_Arrival[T]] = set()
        self._port = _loops.current_port()
        self._waiters: set[_loops.Waiter] = set()
        for future in _in_order_of_submission(futures):
            arrival = _Arrival(self, future)
            self._left.add(arrival)
            if future._advance(self._port.native, arrival):
                self._port.native.put(arrival)  # behind those that came before it
            elif len(ready := future._op._ready) == 1:
                arrival.lane = self._lanes.setdefault(ready[0][0], deque())
                arrival.lane.append(arrival)

    def __aiter__(self) -> _Arrivals[T]:
        return self

    async def __anext__(self) -> DeviceFuture[T]:
        future = await self.next()
        if future is None:
            raise StopAsyncIteration
        return future

    async def next(self, until: float | None = None) -> DeviceFuture[T] | None:
        """Return the next future that is done; None: there is no more, or `until` came first."""
        if _loops.current_port() is not self._port:
            raise AiocudaError("as_completed() is iterated in the event loop in which it was called, and in no other")
        if not self._port.admits(None):
            await self._port.turn(until)
        while self._left:
            future = self.take()
            if future is not None:
                return future
            waiter = self._port.waiter()
            self._waiters.add(waiter)
            if self._paused:
                self._port.native.put(waiter, _native.PAUSE)
            try:
                is_up = await self._port.wait(waiter, until) is None
            finally:
                self._waiters.discard(waiter)
            if is_up:
                return self.take()
            while self._paused:
                self._make_due(self._paused.popleft())
        return None

    def take(self) -> DeviceFuture[T] | None:
        """Return the next future that is done, if there is one now."""
        self._port.wake_due()
        while self._due:
            arrival = self._due.popleft()
            arrival.is_due = False
            try:
                is_done = arrival.future._advance(self._port.native, arrival)
            except BaseException:  # an interruption is not the end of the future
                self.note(arrival, 0)
                raise
            if is_done:
                self._left.discard(arrival)
                arrival.lane = None
                return arrival.future
        return None

    def note(self, arrival: _Arrival[T], error: int) -> None:
        """Have a future looked at: it may be done, or go on."""
        if error == _native.PAUSE:
            self._paused.append(arrival)
        else:
            if arrival.lane is not None and not arrival.future.cancelled():
                # What was submitted before it has passed too, though it may be told of on another way, and later.
                while arrival.lane and (earlier := arrival.lane.popleft()) is not arrival:
                    self._make_due(earlier)
            self._make_due(arrival)
        for waiter in self._waiters:  # each looks whether something is left for it
            waiter.wake(error)

    def _make_due(self, arrival: _Arrival[T]) -> None:
        if not arrival.is_due and arrival in self._left:
            arrival.is_due = True
            self._due.append(arrival)

    def close(self) -> None:
        """Give up what is left: nobody is told of it any more."""
        for arrival in self._left:
            arrival.future._withdraw(arrival)
            arrival.lane = None
        self._left.clear()
        self._due.clear()
        self._paused.clear()
        self._lanes.clear()

    def __del__(self) -> None:
        self.close()  # a future that is told of keeps who is told
