"""The contents of a device's memory, and the settings of its memory pool.

Always true: sizes are bytes; what is told is how things were when they were asked for.
"""

from __future__ import annotations

from aiocuda import _devices, _native
from aiocuda._devices.numbers import whole_number
from aiocuda._driver import runtime
from aiocuda._engine import accounts, faults
from aiocuda._later import aiocuda

__all__ = ["DeviceMemory"]


class DeviceMemory:
    """The members of `Device` for its memory."""

    __slots__ = ()

    _ordinal: int

    def memory_info(self, *, largest: int = 0) -> aiocuda.MemoryInfo:
        """Return the device's memory as it is now. Asks the driver; does not wait for the device.

        Parameters
        ----------
        largest
            How many of the largest arrays to name, and how many of the lines of the program whose arrays hold the
            most. Looks at all arrays of the device, about a microsecond each.

        Returns
        -------
        MemoryInfo
            A value of that moment, in bytes.

        Raises
        ------
        ArgumentValueError
            `largest` is no whole number, 0 or more.
        """
        largest = whole_number(largest, "largest")
        _native.collect()
        with faults.raised_as(f"asking for the memory of device {self._ordinal}", self._ordinal):
            free, total = runtime.memory_free_total(self._ordinal)
            reserved, used = runtime.pool_reserved_used(self._ordinal)
        free += reserved - used
        if bound := runtime.pool_bound(self._ordinal):
            free = min(free, max(bound - used, 0))
        held, peak = _native.memory(self._ordinal)
        arrays = accounts.each_array(self._ordinal) if largest else []
        named = [
            tuple(
                _devices.MemoryHolder(each.place, each.size_bytes, each.arrays)
                for each in accounts.largest(found, largest)
            )
            for found in (arrays, accounts.by_place(arrays))
        ]
        managed, _, _ = _native.managed_memory(self._ordinal)
        kept = _native.kept_interprocess_bytes(self._ordinal)
        return _devices.MemoryInfo(
            free + kept, total, held, reserved, peak, managed, _native.guest_bytes(self._ordinal), *named
        )

    def reset_peak_memory(self) -> None:
        """Have `MemoryInfo.peak_bytes` begin anew, with what is in use now."""
        _native.collect()
        _native.reset_peak_memory(self._ordinal)

    @property
    def memory_pool(self) -> aiocuda.MemoryPool:
        """The settings of the device's memory pool, as `set_memory_pool` takes them."""
        with faults.raised_as(f"asking for the memory pool of device {self._ordinal}", self._ordinal):
            kept, bound = runtime.release_threshold(self._ordinal), runtime.pool_bound(self._ordinal)
        return _devices.MemoryPool(None if kept == runtime.EVERYTHING else kept, bound or None)

    def set_memory_pool(
        self, *, release_threshold: int | None = None, max_bytes: int | None = None
    ) -> aiocuda.MemoryPool:
        """Say how much memory the device's memory pool may hold, and how much of that when it is not in use.

        A setting that is not given is as it was at first.

        Parameters
        ----------
        release_threshold
            In bytes. Unused memory that the pool holds beyond that goes back to the driver when the host next waits for
            a stream, an event or the context through the driver; other processes, and other libraries that do not
            allocate from this pool, can have it then. None, as it is at first: it keeps everything, since memory that
            went back is mapped anew at the next allocation, which can take milliseconds.
        max_bytes
            The most that it may hold, in bytes, used or kept, which leaves the rest of the device to others. A request
            for more is an `OutOfMemoryError`. The driver rounds it up to whole pieces of memory, and to those it also
            rounds what arrays take. None, as it is at first, or all that the device has: no bound.
            `aiocuda.memory_limit` bounds what arrays hold, to the byte, in a part of the program, and can wait.

        Returns
        -------
        MemoryPool
            What the settings are now.

        Raises
        ------
        ArgumentValueError
            It is no number of bytes, 0 or more for the threshold, 1 or more for the bound.

        Notes
        -----
        For the whole process, from now on; blocks nothing. Another `max_bytes` makes another pool: arrays that are
        there stay in the former one, and do not count in the new. The former one keeps nothing for later. Each
        `memory_info`, `trim_memory` and `set_memory_pool` gives back what is free in it, and so does an allocation that
        finds no memory. aiocuda destroys it when it holds nothing more.

        aiocuda's own waits look at memory that the device writes, and ask the driver nothing: in a program that waits
        in no other way nothing goes back by itself, and `trim_memory` gives it back there and then.
        """
        kept = runtime.EVERYTHING if release_threshold is None else whole_number(release_threshold, "release_threshold")
        most = 0 if max_bytes is None else whole_number(max_bytes, "max_bytes", 1)
        with faults.raised_as(f"setting the memory pool of device {self._ordinal}", self._ordinal):
            runtime.set_pool(self._ordinal, min(kept, runtime.EVERYTHING), most)
        return self.memory_pool

    def trim_memory(self, keep_bytes: int = 0) -> int:
        """Give memory that nobody uses back to the driver.

        Parameters
        ----------
        keep_bytes
            How much the memory pool is to hold at least, in bytes, used memory included.

        Returns
        -------
        int
            How many bytes the pool gave back. Memory whose last users have not passed on the device stays: wait for
            them before, with `synchronize`. The driver gives memory back in large pieces, those of which no byte is
            in use. Memory for managed and interprocess arrays that is kept for later goes back too, and is not counted.

        Raises
        ------
        ArgumentValueError
            `keep_bytes` is no number of bytes, 0 or more.
        DeviceLostError
            The device is lost.

        Notes
        -----
        *Blocks*: until the device has done all its work, with the GIL released, where memory for managed or
        interprocess arrays is kept for later; not else.
        """
        keep_bytes = whole_number(keep_bytes, "keep_bytes")
        _native.collect()
        with faults.raised_as(f"trimming the memory of device {self._ordinal}", self._ordinal):
            runtime.settle_frees(self._ordinal)
            before, _ = runtime.pool_reserved_used(self._ordinal)
            # Asked to keep 2**64 - 1 bytes, NVIDIA's driver keeps nothing.
            runtime.trim_pool(self._ordinal, min(keep_bytes, before))
            after, _ = runtime.pool_reserved_used(self._ordinal)
        _native.trim_blocks(self._ordinal)
        return max(before - after, 0)
