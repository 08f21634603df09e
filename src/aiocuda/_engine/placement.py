"""The placement of operations that name no place themselves: a ContextVar, so right in tasks and threads alike."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from aiocuda._native import Placement

__all__ = ["MOST_IN_FLIGHT", "PRIORITIES", "Placement", "current", "priority_in_force"]

# A thread that submits to a full queue of the driver waits there, with the GIL. NVIDIA's has room for 1,021 launches
# and flags; streams share eight of them (docs/measurements/2026-11-20-h200.md): room for two with a flag for each
# operation.
MOST_IN_FLIGHT: Final = 250

PRIORITIES: Final = (-(1 << 31), 1 << 31)  # of work, and of items of batches

current: Final[ContextVar[Placement]] = ContextVar(
    "aiocuda placement",
    default=Placement().with_max_in_flight(MOST_IN_FLIGHT),  # noqa: B039 - a placement never changes
)


def priority_in_force() -> int:
    """Return the priority of work that is built and executed here; 0 where nothing is said."""
    return current.get().priority or 0
