"""Counts of the library's work so far.

Always true: reading them waits for nothing and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiocuda import _native

__all__ = ["Statistics", "statistics"]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts since the process began.

    Attributes
    ----------
    in_flight
        Submissions, on all streams, that as far as is known have not passed; it is learnt when somebody waits.
    pending
        Waits that go on.
    waits_for_room
        Times that a submission met a stream that held as much as it may, or a memory limit, or others who waited for
        that, and got in line; coming back to its place counts again.
    completed
        Waits that ended because the device had written its flag, or the driver, asked about it, said so.
    without_flag
        Waits about which the driver was asked: no flag was free, or the device cannot write them.
    spins, spins_that_paid
        Waits that began with spinning; and those that had ended before they were given to the reactor.
    batches
        Times the reactor found flags written: `completed` over it is how many it handed on at once.
    sleeps, parks
        Times it backed off with something pending, and times it had nothing to do.
    staging_bytes
        Page-locked memory, on all devices, through which copies of pageable memory go.
    staging_threads
        Threads that carry such copies.
    latencies
        How long the waits that ended were pending: the first number counts those under 1 microsecond, each next
        one those under twice as much, the last all longer ones.
    """

    in_flight: int
    pending: int
    waits_for_room: int
    completed: int
    without_flag: int
    spins: int
    spins_that_paid: int
    batches: int
    sleeps: int
    parks: int
    staging_bytes: int
    staging_threads: int
    latencies: tuple[int, ...]


def statistics() -> Statistics:
    """Return the counts as they are now. Does not block."""
    counts = _native.statistics()
    latencies = tuple(counts.pop("latency_histogram"))
    return Statistics(**counts, latencies=latencies)
