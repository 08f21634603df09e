"""Fixtures that the rows share: a wait that must not end before the thing that it waits for.

Always true: nothing here waits for a length of time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest


@pytest.fixture
def waits_for() -> Callable[..., Awaitable[bool]]:
    """Await something that a latch holds up, and tell whether what it stands for was done when it ended."""

    async def wait(awaitable: Any, latch: Any, done: Callable[[], bool]) -> bool:
        started, found = anyio.Event(), []

        async def waiter() -> None:
            started.set()
            await awaitable
            found.append(done())

        async with anyio.create_task_group() as group:
            group.start_soon(waiter)
            await started.wait()
            latch.release()
        return found == [True]

    return wait
