"""A compiler that is held, so that what goes on meanwhile can be looked at."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from aiocuda._kernels import module_image


class HeldCompiler:
    """Counts compilations, and holds them until it is told to let them go."""

    def __init__(self, compile_sources: Any) -> None:
        self._compile = compile_sources
        self._begun = threading.Semaphore(0)
        self.released = threading.Event()
        self.threads: list[threading.Thread] = []

    def __call__(self, *arguments: Any) -> Any:
        self.threads.append(threading.current_thread())
        self._begun.release()
        assert self.released.wait(60)
        return self._compile(*arguments)

    async def until_begun(self) -> None:
        """Wait until one more compilation has begun; the loop comes round meanwhile."""
        while not self._begun.acquire(blocking=False):
            await anyio.lowlevel.checkpoint()

    def wait_until_begun(self) -> None:
        """Block until one more compilation has begun."""
        assert self._begun.acquire(timeout=60)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldCompiler]:
    held = HeldCompiler(module_image.compile_sources)
    monkeypatch.setattr(module_image, "compile_sources", held)
    yield held
    held.released.set()  # where the test failed
