"""Where operations go that say nothing of it themselves: a ContextVar, so right in tasks and threads alike."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Placement", "current"]


@dataclass(frozen=True, slots=True)
class Placement:
    """A device, and one stream of it or none.

    Attributes
    ----------
    device
        The device's ordinal.
    stream
        The native index of a stream; -1: each operation goes to its device's default stream.
    keepalive
        The stream's object.
    """

    device: int = 0
    stream: int = -1
    keepalive: Any = None


current: Final[ContextVar[Placement]] = ContextVar("aiocuda placement", default=Placement())  # noqa: B039 - frozen
