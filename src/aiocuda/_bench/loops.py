"""The event loops that are installed, as the measures need them.

Always true: each sample has a loop of its own, made and closed outside of what is timed.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

__all__ = ["Loop", "loops"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Loop:
    """One kind of event loop.

    Attributes
    ----------
    name
        What it is called.
    start
        Runs an async function on a new loop.
    together
        Runs a function for each number below a bound, concurrently, until all have ended.
    sleep
        Sleeps for some seconds.
    woken
        Starts so many tasks, each of which waits to be woken; a thread wakes all of them in one call when the last
        one waits. It is what a loop itself takes for that, whoever the tasks wait for.
    """

    name: str
    start: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]
    together: Callable[[Callable[[int], Coroutine[Any, Any, None]], int], Awaitable[None]]
    sleep: Callable[[float], Awaitable[None]]
    woken: Callable[[int], Awaitable[None]]

    def run(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run an async function on a new loop."""
        result: T = self.start(function)
        return result


def loops() -> tuple[list[Loop], dict[str, str]]:
    """Return those that are installed, and why others are left out."""
    found, left_out = [_asyncio("asyncio", None)], {}
    for name, make in (("uvloop", _uvloop), ("trio", _trio)):
        if importlib.util.find_spec(name) is None:
            left_out[name] = "not installed"
        else:
            found.append(make())
    return found, left_out


def _asyncio(name: str, factory: Callable[[], asyncio.AbstractEventLoop] | None) -> Loop:
    def start(function: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(function())

    async def together(function: Callable[[int], Coroutine[Any, Any, None]], number: int) -> None:
        await asyncio.gather(*[function(i) for i in range(number)])

    async def woken(number: int) -> None:
        loop = asyncio.get_running_loop()
        waits: list[asyncio.Future[None]] = []

        def wake() -> None:
            for wait in waits:
                wait.set_result(None)

        async def one(_: int) -> None:
            wait = loop.create_future()
            waits.append(wait)
            if len(waits) == number:
                threading.Thread(target=loop.call_soon_threadsafe, args=(wake,)).start()
            await wait

        await together(one, number)

    return Loop(name, start, together, asyncio.sleep, woken)


def _uvloop() -> Loop:
    return _asyncio("uvloop", importlib.import_module("uvloop").new_event_loop)


def _trio() -> Loop:
    import trio  # noqa: PLC0415 - optional

    async def together(function: Callable[[int], Coroutine[Any, Any, None]], number: int) -> None:
        async with trio.open_nursery() as nursery:
            for i in range(number):
                nursery.start_soon(function, i)

    async def woken(number: int) -> None:
        token = trio.lowlevel.current_trio_token()
        tasks: list[Any] = []

        def wake() -> None:
            for task in tasks:
                trio.lowlevel.reschedule(task)

        def abort(_: object) -> Any:
            return trio.lowlevel.Abort.SUCCEEDED

        async def one(_: int) -> None:
            tasks.append(trio.lowlevel.current_task())
            if len(tasks) == number:
                threading.Thread(target=token.run_sync_soon, args=(wake,)).start()
            await trio.lowlevel.wait_task_rescheduled(abort)

        await together(one, number)

    return Loop("trio", trio.run, together, trio.sleep, woken)
