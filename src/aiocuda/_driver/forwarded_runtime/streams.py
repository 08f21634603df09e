"""Calls that make streams and events."""

from __future__ import annotations

from typing import Any

from aiocuda._driver.forwarded_runtime.asking import Asking

__all__ = ["Streams"]


class Streams(Asking):
    """Streams and events without flags."""

    def cudaStreamCreate(self) -> tuple[Any, ...]:
        """Make a stream that the legacy default stream waits for."""
        return self._ask(self._driver.cuStreamCreate, 0)

    def cudaEventCreate(self) -> tuple[Any, ...]:
        """Make an event with timing."""
        return self._ask(self._driver.cuEventCreate, 0)
