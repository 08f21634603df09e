"""Waiting for several operations: one after another as they complete, or for some of them.

Always true: all are submitted before the first is given out, as far as there is room and no `map` stands in between.
Giving up the wait leaves what was submitted to the device. One loop's port serves all of a wait: there is no task for
each operation.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from aiocuda import _native
from aiocuda._devices.event import Event
from aiocuda._engine import placement
from aiocuda._engine.execution import checked_timeout
from aiocuda._engine.futures import DeviceFuture
from aiocuda._engine.stream_wait import StreamWait
from aiocuda._ops.operation import DeviceOp
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

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
    They are submitted from left to right, the first 96 now, at the call. The others follow when the iteration is
    first awaited, 96 in each turn of the loop, before it yields a future. If an operation stands behind a
    `DeviceOp.map`, or finds its stream full, it is submitted as the iteration comes to it. An operation's error comes
    out when its future is asked, not from here. The order is that in which completions are learnt, which for those of
    one stream is the stream's.
    *Stream*: the one in force at the call. *Blocks*: no. *On cancel*, and where the iteration is left early: what was
    submitted goes on.
    """
    iterator: AsyncIterator[DeviceFuture[T]] = _native.Arrivals(_futures_of(ops))
    return iterator


async def as_coroutine(awaited: Awaitable[T]) -> T:
    """Await an operation, a future, an event or a stream: for what takes coroutines and coroutine functions only.

    Such are `asyncio.create_task`, `asyncio.TaskGroup.create_task` and `asyncio.Runner.run`, to which one gives
    ``as_coroutine(op)``, and trio's ``nursery.start_soon(as_coroutine, op)``. Functions that take awaitables, such as
    `asyncio.gather`, `asyncio.wait_for`, `asyncio.shield` and `asyncio.ensure_future`, take operations and futures
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

    Functions that take only coroutines look at the type of their argument, and raise their own error for an operation:

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
    Operations are submitted 96 in a turn of the loop, all before this returns, unless the time is over first.
    An operation's error comes out when its future is asked. *Stream*: the one in force when this is awaited.
    *Blocks*: no. *On cancel*, and for those still pending: what was submitted goes on.
    """
    enough = _checked_return_when(return_when)
    timeout = None if timeout_s is None else checked_timeout(timeout_s)
    futures = _futures_of(ops)
    arrivals = _native.Arrivals(futures, -1.0 if timeout is None else timeout)
    try:
        done: set[DeviceFuture[T]] = await arrivals.done(_IS_ENOUGH[enough])
    finally:
        arrivals.close()
    pending: set[DeviceFuture[T]] = set()
    if len(done) != len(futures):  # one that is given twice is done once
        pending = set(futures) - done
    return done, pending


def _checked_return_when(return_when: ReturnWhen | str) -> ReturnWhen:
    try:
        return ReturnWhen(return_when)
    except ValueError:
        names = ", ".join(ReturnWhen)
        raise ArgumentValueError(f"return_when is one of {names}; {return_when!r} was given") from None


def _has_failed(future: DeviceFuture[Any]) -> bool:
    return not future.cancelled() and future.exception() is not None


# Whether one future that is done is enough; None where only all are.
_IS_ENOUGH: Final[dict[ReturnWhen, Callable[[DeviceFuture[Any]], bool] | None]] = {
    ALL_COMPLETED: None,
    FIRST_COMPLETED: lambda _: True,
    FIRST_EXCEPTION: _has_failed,
}


def _futures_of(ops: Iterable[DeviceOp[T] | DeviceFuture[T]]) -> list[DeviceFuture[T]]:
    """Return a future for each, after all have been looked at."""
    return _native.futures_of(ops, placement.current.get())
