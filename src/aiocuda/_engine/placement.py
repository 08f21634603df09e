"""Where operations go that say nothing of it themselves: a ContextVar, so right in tasks and threads alike."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from aiocuda import _native
from aiocuda.errors import CaptureError

__all__ = ["MOST_IN_FLIGHT", "MemoryLimit", "Placement", "bounds", "current", "process_policy", "set_process_policy"]

# Who submits to a full queue of the driver waits there, with the GIL. NVIDIA's has room for 1,021 launches and flags;
# streams share eight of them (docs/measurements/2026-11-20-h200.md): room for two with a flag for each operation.
MOST_IN_FLIGHT: Final = 250

# Device, stream, policy, how long to spin, the most that may be taken up.
_Native: TypeAlias = tuple[int, int, _native.Policy, int, _native.Bounds]

process_policy: _native.Policy  # in force where no `use` says otherwise; there once aiocuda.policies was imported


def set_process_policy(policy: _native.Policy) -> None:
    """Choose the policy in force where no `use` says otherwise, for every thread and task."""
    global process_policy
    process_policy = policy


class MemoryLimit(NamedTuple):
    """The most that arrays may hold on a device, by its ordinal, in bytes; and whether who asks for more waits."""

    device: int
    size_bytes: int
    waits: bool


@dataclass(frozen=True, slots=True)
class Placement:
    """A device, and on it one stream, or a policy that chooses among several.

    Attributes
    ----------
    device
        The device's ordinal.
    stream
        The native index of a stream; -1: the policy chooses for each operation.
    keepalive
        The stream's object.
    policy
        A policy; None: the process's.
    spin_us
        How long an await may spin, in microseconds, before it gives the event loop back.
    max_in_flight
        The most submissions that a stream may hold; then who submits waits.
    memory_limits
        One for a device, or none.
    recording_at
        What is recorded into a graph here, in words, so that nothing is executed.
    known
        What `native` was when it was last asked for; the process's policy may have changed since then.
    """

    device: int = 0
    stream: int = -1
    keepalive: Any = None
    policy: _native.Policy | None = None
    spin_us: int = 20
    max_in_flight: int = MOST_IN_FLIGHT
    memory_limits: tuple[MemoryLimit, ...] = ()
    recording_at: str | None = None
    known: _Native | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def native(self) -> _Native:
        """What native code wants to know of it: device, stream, policy, how long to spin, the most to be taken up.

        Raises
        ------
        CaptureError
            Nothing is executed here: a graph is recorded.
        """
        known = self.known
        if self.recording_at is not None:
            raise CaptureError(
                f"an operation was to be executed inside {self.recording_at}: nothing runs there, it is recorded into "
                "a graph; make the operation a part of that, or execute it outside"
            )
        if known is None or (self.policy is None and known[2] is not process_policy):
            known = self.device, self.stream, self.policy or process_policy, self.spin_us, self.bounds
            object.__setattr__(self, "known", known)  # though it is frozen: this follows from the rest
        return known

    @property
    def bounds(self) -> _native.Bounds:
        """The most that what is executed may take up."""
        return _native.Bounds(self.max_in_flight, self.memory_limits)


def bounds() -> _native.Bounds:
    """Return the most that what is executed here may take up."""
    return current.get().bounds


current: Final[ContextVar[Placement]] = ContextVar("aiocuda placement", default=Placement())  # noqa: B039 - frozen
