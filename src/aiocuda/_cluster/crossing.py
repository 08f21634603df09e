"""Waits of any event loop for something of another thread, and several waits side by side.

Always true: the thread waits for nobody, and a loop that has ended is told nothing.
"""

from __future__ import annotations

import concurrent.futures
import contextvars
import functools
import math
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from aiocuda._loops import current_destination, current_tasks

__all__ = ["in_thread", "settle", "side_by_side", "wait_for"]

T = TypeVar("T")


async def wait_for(future: concurrent.futures.Future[T], within_s: float = math.inf) -> T:
    """Wait for a future that any thread sets. If the wait is cancelled, or takes too long, the future goes on.

    Raises
    ------
    TimeoutError
        The future has not ended within so many seconds.
    """
    tasks = current_tasks()
    waiter, loop = tasks.make_waiter(), current_destination()

    def tell() -> None:
        if waiter.is_done:
            return
        if (error := future.exception()) is not None:
            waiter.set_error(error)
        else:
            waiter.set_value(future.result())

    def time_is_up() -> None:
        if not waiter.is_done:
            waiter.set_error(TimeoutError())

    future.add_done_callback(lambda _: loop.post(tell))
    if math.isinf(within_s):
        result: T = await waiter.wait()
        return result
    timer = tasks.call_at(tasks.time() + within_s, time_is_up)
    try:
        result = await waiter.wait()
    finally:
        timer.cancel()
    return result


async def in_thread(function: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
    """Call a function that blocks, in a thread of its own and with the caller's context.

    If the wait is cancelled, the function goes on, and its result is dropped.
    """
    future: concurrent.futures.Future[T] = concurrent.futures.Future()
    call = functools.partial(contextvars.copy_context().run, function, *arguments, **keywords)
    threading.Thread(target=settle, args=(call, future), name=f"aiocuda: {_name(function)}", daemon=True).start()
    return await wait_for(future)


def settle(call: Callable[[], Any], future: concurrent.futures.Future[Any]) -> None:
    """Make a call, and have a future end as it does."""
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - the waiter gets it
        future.set_exception(error)
    else:
        future.set_result(result)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


async def side_by_side(functions: Sequence[Callable[[], Awaitable[T]]], name: str) -> list[T]:
    """Run functions as tasks of their own; return their results in order.

    If one fails, the others are cancelled, and its error is raised once all have ended. If the wait is cancelled, all
    are cancelled, and end soon after.
    """
    results: dict[int, T] = {}
    errors: list[Exception] = []
    left = len(functions)
    ended: concurrent.futures.Future[None] = concurrent.futures.Future()

    def one_ended() -> None:
        nonlocal left
        left -= 1
        if not left:
            ended.set_result(None)

    async def run(number: int) -> None:
        try:
            results[number] = await functions[number]()
        except Exception as error:  # noqa: BLE001 - the first is raised by who waits for all
            errors.append(error)
            for each in tasks:
                each.cancel()

    if not functions:
        return []
    tasks: list[Any] = []
    spawn, context = current_tasks().spawn, contextvars.copy_context()
    for number in range(len(functions)):
        tasks.append(spawn(functools.partial(run, number), f"{name} {number}", context.copy(), one_ended))
    try:
        await wait_for(ended)
    except BaseException:
        for each in tasks:
            each.cancel()
        raise
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(functions))]
