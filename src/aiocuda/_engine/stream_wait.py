"""Waiting for streams, whatever they hold."""

from __future__ import annotations

from aiocuda import _native
from aiocuda._engine.timed_waits import TimedWaits

__all__ = ["StreamWait"]


class StreamWait(TimedWaits, _native.StreamWait):
    """A wait for everything that some streams hold now, whoever submitted it: await it, or `sync` it."""

    __slots__ = ()
