"""The event loops that are installed, as the measures need them.

Always true: each sample has a loop of its own, made and closed outside of what is timed.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
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
    """

    name: str
    start: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]
    together: Callable[[Callable[[int], Coroutine[Any, Any, None]], int], Awaitable[None]]
    sleep: Callable[[float], Awaitable[None]]

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

    return Loop(name, start, together, asyncio.sleep)


def _uvloop() -> Loop:
    return _asyncio("uvloop", importlib.import_module("uvloop").new_event_loop)


def _trio() -> Loop:
    import trio  # noqa: PLC0415 - optional

    async def together(function: Callable[[int], Coroutine[Any, Any, None]], number: int) -> None:
        async with trio.open_nursery() as nursery:
            for i in range(number):
                nursery.start_soon(function, i)

    return Loop("trio", trio.run, together, trio.sleep)
