"""The limits of a device's context, as `Device.limits` gives them.

Always true: they are those of the moment when they were asked for, and change no more.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiocuda._naming import name_publicly

__all__ = ["DeviceLimits"]


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """The limits of a device's context, as `Device.limits` reads them. None: the device has no such limit.

    Attributes
    ----------
    stack_bytes
        The stack of each thread of a kernel, for calls and what registers do not hold.
    printf_bytes
        What kernels may have printed until the host next waits through the driver; what is older is overwritten.
    heap_bytes
        The memory from which kernels' ``malloc`` and ``new`` take.
    sync_depth
        How many levels of kernels that launch kernels may wait for those; no device of compute capability 9.0 or later
        has it.
    pending_launches
        How many launches that kernels make may wait for their turn.
    l2_fetch_bytes
        How much the second-level cache fetches at once at most, from 0 to 128: a hint.
    persisting_l2_bytes
        How much of the second-level cache may be set aside for accesses that persist.
    """

    stack_bytes: int | None
    printf_bytes: int | None
    heap_bytes: int | None
    sync_depth: int | None
    pending_launches: int | None
    l2_fetch_bytes: int | None
    persisting_l2_bytes: int | None


name_publicly("aiocuda", globals(), __all__)
