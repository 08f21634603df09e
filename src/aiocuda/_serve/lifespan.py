"""The life of a service in an event loop: at its end it takes no more items, and what it has accepted is done.

Always true: an end waits for no longer than it may, and then names what is left.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from aiocuda import _loops
from aiocuda._devices.device import Device
from aiocuda._driver import runtime
from aiocuda._engine.execution import checked_timeout
from aiocuda._serve.batcher import Batcher
from aiocuda._serve.taking import Taking, taking_of
from aiocuda.errors import AiocudaError, DeviceLostError, DeviceTimeoutError, DrainTimeoutError

__all__ = ["lifespan"]

_DRAIN_S: Final = 30.0


@contextlib.asynccontextmanager
async def lifespan(*, drain_s: float = _DRAIN_S) -> AsyncIterator[None]:
    """Have a service of this event loop end in good order: it stops taking, drains, and ends.

    Parameters
    ----------
    drain_s
        How long the end may take, in seconds.

    Returns
    -------
    AsyncContextManager
        For ``async with``, around all that the service does. It gives nothing.

    Raises
    ------
    ArgumentValueError
        `drain_s` is no number of seconds.
    AiocudaError
        No event loop runs in this thread, or the last lifespan of the loop is just ending.
    DrainTimeoutError
        At the end: something was not done in time. It names all that was left. If the block ends with an error of its
        own, that one is raised, with this as a note.

    Notes
    -----
    When the block ends, the `batched` functions of the loop take no more items: new callers get a `StoppingError`.
    Items that wait begin at once, for no others come. A batch that is under way may still use other batched functions.
    Then the end waits until each item has its result or its error, and until the devices have done all that was
    submitted. A device that was lost is not waited for.

    Operations are not refused, for whoever has been accepted may need them to end. So the requests themselves are the
    server's to end, before the block does. Servers such as uvicorn do that.

    Lifespans may lie within one another, as those of mounted applications do: the last one that ends drains. After that
    the loop may begin another.

    *Stream*: none. *Blocks*: no, the end is awaited. *On cancel*: a cancelled block of asyncio drains all the same; a
    second cancellation ends that. Under trio a cancelled scope lets nothing wait, so put the block in a shielded scope.

    Examples
    --------
    >>> import asyncio
    >>> import aiocuda as ac
    >>> async def main():
    ...     async with ac.lifespan(drain_s=10):
    ...         return (await ac.to_host(ac.ones(3))).tolist()
    >>> asyncio.run(main())
    [1.0, 1.0, 1.0]
    """
    limit_s = checked_timeout(drain_s)
    tasks = _loops.current_tasks()
    taking = taking_of(tasks)
    if taking.is_draining:
        raise AiocudaError(
            "a lifespan begins while the last one of this event loop drains; begin it when that has ended"
        )
    taking.users += 1
    taking.is_stopped = False
    try:
        yield
    except GeneratorExit:  # it was thrown away, with its loop as a rule: nothing can be awaited
        taking.users -= 1
        raise
    except BaseException as error:
        try:
            await _leave(tasks, taking, limit_s)
        except DrainTimeoutError as late:
            error.add_note(str(late))
        raise
    else:
        await _leave(tasks, taking, limit_s)


async def _leave(tasks: _loops.Tasks, taking: Taking, limit_s: float) -> None:
    taking.users -= 1
    if taking.users:
        return
    taking.is_stopped = taking.is_draining = True
    try:
        await _drain(tasks, taking, limit_s)
    finally:
        taking.is_draining = False


async def _drain(tasks: _loops.Tasks, taking: Taking, limit_s: float) -> None:
    end = tasks.time() + limit_s
    for batcher in _batchers(tasks):
        batcher.hurry()
    while _left(tasks) and tasks.time() < end:
        await _until_idle(tasks, taking, end)
    left = _left(tasks)
    for ordinal in runtime.open_devices():
        try:
            await Device(ordinal).synchronize().within(max(0.0, end - tasks.time()))
        except DeviceTimeoutError as error:
            left.append(f"device {ordinal}: {', '.join(error.running) or 'work that was submitted'}")
        except DeviceLostError:
            pass  # each caller was told
    if left:
        raise DrainTimeoutError(limit_s, tuple(left))


async def _until_idle(tasks: _loops.Tasks, taking: Taking, end: float) -> None:
    """Wait until a function may have become idle, or the time is over."""
    waiter = tasks.make_waiter()

    def wake() -> None:
        if not waiter.is_done:
            waiter.set_value(None)

    taking.when_idle = wake
    timer = tasks.call_at(end, wake)
    try:
        await waiter.wait()
    finally:
        timer.cancel()
        taking.when_idle = None


def _batchers(tasks: _loops.Tasks) -> list[Batcher]:
    return [each for each in list(tasks.kept.values()) if isinstance(each, Batcher)]


def _left(tasks: _loops.Tasks) -> list[str]:
    return [left for batcher in _batchers(tasks) if (left := batcher.left)]
