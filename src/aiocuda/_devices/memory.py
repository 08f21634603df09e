"""The facts of a device's memory, as `Device.memory_info` gives them.

Always true: it is how things were when it was asked for, and changes no more.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiocuda._naming import name_publicly

__all__ = ["MemoryHolder", "MemoryInfo", "MemoryPool"]


@dataclass(frozen=True, slots=True)
class MemoryHolder:
    """An array, or all arrays that one line of the program made, and what they hold.

    Attributes
    ----------
    place
        The line that built the operation, or made the graph, whose memory it is, as ``"file:line"``;
        or ``"aiocuda itself, for copies"``.
    size_bytes
        Its memory, in bytes. Views and shared handles are no further memory, and keep the array's alive.
    arrays
        How many arrays.
    """

    place: str
    size_bytes: int
    arrays: int


@dataclass(frozen=True, slots=True)
class MemoryPool:
    """The settings of a device's memory pool, in bytes; see `Device.set_memory_pool`.

    Attributes
    ----------
    release_threshold
        What it keeps of memory that is not in use; None: everything.
    max_bytes
        What it may hold; None: what the device has.
    """

    release_threshold: int | None
    max_bytes: int | None


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """A device's memory at a moment, in bytes.

    Attributes
    ----------
    free_bytes
        What a new array can have: what the driver has free, and what the memory pool keeps unused.
    total_bytes
        The device's memory.
    used_bytes
        Held by arrays of this process that are alive, or whose memory still waits for its last user.
    pool_bytes
        What the memory pool holds from the driver, used or kept for later.
    peak_bytes
        The most that `used_bytes` was since the process began, or since `Device.reset_peak_memory`.
    managed_bytes
        Held likewise by arrays in managed memory that were made for the device. They lie where they were last used, so
        they are none of `used_bytes`, and no limit counts them.
    frameworks_bytes
        Held by other libraries that take their memory from the memory pool (`aiocuda.interop.torch.share_memory_pool`
        and its like). They are none of `used_bytes`, and limits count them.
    largest_arrays
        As many as were asked for of the arrays that hold the most, largest first.
    largest_places
        The same for the lines of the program that made arrays: each with all its arrays together.
    """

    free_bytes: int
    total_bytes: int
    used_bytes: int
    pool_bytes: int
    peak_bytes: int
    managed_bytes: int
    frameworks_bytes: int
    largest_arrays: tuple[MemoryHolder, ...] = ()
    largest_places: tuple[MemoryHolder, ...] = ()


name_publicly("aiocuda", globals(), __all__)
