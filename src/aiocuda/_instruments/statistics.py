"""Counts of the library's work so far, and who holds memory now.

Always true: reading them waits for no device and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiocuda import _native
from aiocuda._devices.memory import MemoryHolder
from aiocuda._devices.numbers import whole_number
from aiocuda._driver import runtime
from aiocuda._engine import accounts
from aiocuda.errors import DriverError

__all__ = ["MemoryUse", "Statistics", "statistics"]


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory of a device, or page-locked memory of the host, by who holds it, in bytes. No byte counts twice.

    Attributes
    ----------
    device
        The device's ordinal; None: it is page-locked memory.
    arrays_bytes
        Held by arrays that are alive, or whose memory still waits for its last user. Of page-locked memory, the rings
        that carry copies are among them (`Statistics.staging_bytes`).
    managed_bytes
        Held likewise by arrays in managed memory that were made for the device. They lie where they were last used.
    frameworks_bytes
        Held by other libraries that take their memory from the device's memory pool.
    kept_bytes
        Held by nobody, and kept for the next arrays. None: a lost device does not say it.
    peak_bytes
        The most that `arrays_bytes` was since the process began, or since `Device.reset_peak_memory`; None for
        page-locked memory.
    largest_places
        As many as were asked for of the lines of the program whose arrays and graphs hold the most, largest first.
        Arrays in managed memory count with the others.
    """

    device: int | None
    arrays_bytes: int
    managed_bytes: int
    frameworks_bytes: int
    kept_bytes: int | None
    peak_bytes: int | None
    largest_places: tuple[MemoryHolder, ...] = ()


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts since the process began.

    Attributes
    ----------
    submitted
        Submissions, on all streams.
    in_flight
        Those of them that as far as is known have not passed; it is learnt when somebody waits.
    pending
        Waits that go on.
    waits_for_room
        Times that a submission met a stream that held as much as it may, or a memory limit, or others who waited for
        that, and got in line; coming back to its place counts again.
    completed
        Waits that ended because the device had written its flag, or the driver, asked about it, said so.
    without_flag
        Waits about which the driver was asked: no flag was free, or the device cannot write them.
    wakes
        Times that an event loop was woken: once for all that ended together.
    spins, spins_that_paid
        Waits that began with spinning; and those that had ended before they were given to the reactor.
    batches
        Times the reactor found flags written: `completed` over it is how many it handed on at once.
    sleeps, parks
        Times it backed off with something pending, and times it had nothing to do.
    staged_bytes
        Bytes that reads and writes of files, and copies of more than 64 KiB between devices and pageable memory, such
        as NumPy's, have moved, or are to move.
    staging_bytes
        Page-locked memory, on all devices, through which such copies go.
    staging_threads
        Threads that carry such copies.
    stalls, longest_stall_ns
        Times that aiocuda held the thread of an event loop for more than 50 milliseconds at once; and the longest time
        that it held one, in nanoseconds. No other task of the loop ran meanwhile. A step of an await counts, with the
        functions of `map` that it called, and so does a wait that blocks a loop's thread, such as ``.sync()`` in a
        coroutine.
    latencies
        How long the waits that ended were pending: the first number counts those under 1 microsecond, each next
        one those under twice as much, the last all longer ones.
    memory
        Who holds memory: of each device that is open, in the order of their ordinals, and at last page-locked memory.
    """

    submitted: int
    in_flight: int
    pending: int
    waits_for_room: int
    completed: int
    without_flag: int
    wakes: int
    spins: int
    spins_that_paid: int
    batches: int
    sleeps: int
    parks: int
    staged_bytes: int
    staging_bytes: int
    staging_threads: int
    stalls: int
    longest_stall_ns: int
    latencies: tuple[int, ...]
    memory: tuple[MemoryUse, ...]


def statistics(*, largest: int = 0) -> Statistics:
    """Return the counts as they are now.

    Parameters
    ----------
    largest
        How many of the lines of the program to name whose arrays hold the most, for each device and for page-locked
        memory. It looks at all arrays, about a microsecond each.

    Returns
    -------
    Statistics
        A value of that moment, of all devices together and of each.

    Raises
    ------
    ArgumentValueError
        `largest` is no whole number, 0 or more.

    Notes
    -----
    *Blocks*: not; it asks the driver what its memory pools keep.
    """
    largest = whole_number(largest, "largest")
    counts = _native.statistics()
    latencies = tuple(counts.pop("latency_histogram"))
    return Statistics(**counts, latencies=latencies, memory=(*_of_devices(largest), _of_host(largest)))


def _of_devices(largest: int) -> list[MemoryUse]:
    found = []
    for device in runtime.open_devices():
        used, peak = _native.memory(device)
        managed, _, kept_managed = _native.managed_memory(device)
        frameworks = _native.guest_bytes(device)
        kept = _kept_in_pool(device)
        if kept is not None:
            kept += kept_managed + _native.kept_interprocess_bytes(device)
        held = accounts.each_array(device) + accounts.each_array(device, is_managed=True) if largest else []
        found.append(MemoryUse(device, used, managed, frameworks, kept, peak, _largest(held, largest)))
    return found


def _of_host(largest: int) -> MemoryUse:
    held, kept = _native.page_locked_memory()
    arrays = accounts.each_array(_native.HOST) if largest else []
    return MemoryUse(None, held - kept, 0, 0, kept, None, _largest(arrays, largest))


def _kept_in_pool(device: int) -> int | None:
    try:
        reserved, used = runtime.pool_reserved_used(device)
    except DriverError:
        return None
    return reserved - used


def _largest(held: list[accounts.Held], number: int) -> tuple[MemoryHolder, ...]:
    found = accounts.largest(accounts.by_place(held), number)
    return tuple(MemoryHolder(each.place, each.size_bytes, each.arrays) for each in found)
