"""How a program of these tests is executed: waited for by a thread, or awaited under each loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

import aiocuda as ac

LOOPS: dict[str, dict[str, Any]] = {
    "asyncio": {"backend": "asyncio"},
    "uvloop": {"backend": "asyncio", "backend_options": {"use_uvloop": True}},
    "trio": {"backend": "trio"},
}
HOW = ["sync", *LOOPS]
Execute = Callable[..., Any]


def executed(how: str, op: Any) -> Any:
    """Return the result of an operation or a future that is waited for ("sync"), or awaited under a loop."""

    async def main() -> Any:
        return await op

    return op.sync() if how == "sync" else anyio.run(main, **LOOPS[how])


@pytest.fixture(params=HOW)
def execute(request: pytest.FixtureRequest) -> Execute:
    return lambda op: executed(request.param, op)


@pytest.fixture
def set_device() -> Iterator[Callable[[int], ac.Device]]:
    """`ac.set_device`, taken back afterwards."""
    before = ac.current_device()
    yield ac.set_device
    ac.set_device(before)
