"""The placement of operations that name no place themselves: a ContextVar, so right in tasks and threads alike."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from aiocuda._native import Placement

__all__ = ["MOST_IN_FLIGHT", "Placement", "current"]

# A thread that submits to a full queue of the driver waits there, with the GIL. NVIDIA's has room for 1,021 launches
# and flags; streams share eight of them (docs/measurements/2026-11-20-h200.md): room for two with a flag for each
# operation.
MOST_IN_FLIGHT: Final = 250

current: Final[ContextVar[Placement]] = ContextVar(
    "aiocuda placement",
    default=Placement().with_max_in_flight(MOST_IN_FLIGHT),  # noqa: B039 - a placement never changes
)
