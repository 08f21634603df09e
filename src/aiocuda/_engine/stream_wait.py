"""Waiting for streams, whatever they hold."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from aiocuda import _loops, _native
from aiocuda._engine import faults

__all__ = ["StreamWait"]


class StreamWait:
    """A wait for everything that some streams hold now, whoever submitted it: await it, or `sync` it."""

    __slots__ = ("_asked", "_keepalive", "_streams")

    def __init__(self, streams: list[int], asked: str, keepalive: object = None) -> None:
        self._streams = streams
        self._asked = asked  # what it is called in messages
        self._keepalive = keepalive

    def __await__(self) -> Generator[Any, None, None]:
        return self._wait().__await__()

    async def _wait(self) -> None:
        port = _loops.current_port()
        if not port.admits(None):
            await port.turn()
        waiter = port.waiter()
        if _native.tell_when_streams_pass(self._streams, self._asked, port.native, waiter):
            error = await port.wait(waiter)
            if error:
                raise faults.refused(error, "cuStreamQuery", self._asked, 0, _native.stream_device(self._streams[0]))

    def sync(self) -> None:
        """Wait, blocking the thread with the GIL released."""
        _native.wait_for_streams(self._streams, self._asked)
