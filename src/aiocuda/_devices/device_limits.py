"""The settings of a device's context, for the whole process: its limits, and its first-level cache.

Always true: what is returned was read back from the driver after the last change.
"""

from __future__ import annotations

from aiocuda import _devices
from aiocuda._devices.numbers import whole_number
from aiocuda._driver import context_limits
from aiocuda._driver.context_limits import CACHE_PREFERENCES, CachePreference
from aiocuda._engine import faults
from aiocuda._later import aiocuda
from aiocuda._values.given import one_of
from aiocuda.errors import ArgumentValueError, DriverError

__all__ = ["ContextSettings"]

# Why the driver refuses a value, as CUDA documents it for cuCtxSetLimit, and what can be done.
_REFUSED = {
    "stack_bytes": "it is more than a thread can have; give less",
    "printf_bytes": "it is more than there is room for, or a kernel that calls printf was launched already; "
    "set it before the first such launch",
    "heap_bytes": "it is more than there is room for, or a kernel that calls malloc, free, new or delete was launched "
    "already; set it before the first such launch",
    "l2_fetch_bytes": "it goes from 0 to 128",
}


class ContextSettings:
    """The members of `Device` for its context's settings."""

    __slots__ = ()

    _ordinal: int

    def limits(self) -> aiocuda.DeviceLimits:
        """Return the limits of the device's context as they are now. Asks the driver; does not wait for the device.

        Returns
        -------
        DeviceLimits
            A value of that moment, with a field for each limit.

        Raises
        ------
        DeviceLostError
            The device is lost.
        """
        with faults.raised_as(f"asking for the limits of device {self._ordinal}", self._ordinal):
            return _devices.DeviceLimits(
                **{name: context_limits.limit(self._ordinal, name) for name in context_limits.NAMES}
            )

    def set_limits(
        self,
        *,
        stack_bytes: int | None = None,
        printf_bytes: int | None = None,
        heap_bytes: int | None = None,
        sync_depth: int | None = None,
        pending_launches: int | None = None,
        l2_fetch_bytes: int | None = None,
        persisting_l2_bytes: int | None = None,
    ) -> aiocuda.DeviceLimits:
        """Set limits of the device's context; what is None stays.

        Parameters
        ----------
        stack_bytes, printf_bytes, heap_bytes, sync_depth, pending_launches, l2_fetch_bytes, persisting_l2_bytes
            As for `DeviceLimits`.

        Returns
        -------
        DeviceLimits
            The limits as they are now. The driver rounds a value to what the device can have, or takes the nearest;
            some are hints to it, and may stay as they were.

        Raises
        ------
        ArgumentValueError
            A value is no whole number from 0; the device has no such limit; or the driver refuses it: a heap or a
            printf buffer cannot be changed once a kernel that uses it has been launched. Limits that stand before it in
            the signature are set by then.
        DeviceLostError
            The device is lost.

        Notes
        -----
        For the whole process, for launches from now on. The driver may wait for all that the device holds before it
        changes memory that kernels use (stack, heap, printf buffer), so it *blocks*, with the GIL released: set limits
        before there is work. Larger stacks take memory for every thread that the device can run at once.

        On the emulated driver they are kept, and bound nothing: a kernel's stack, heap and output are the host's.
        """
        given = {
            "stack_bytes": stack_bytes,
            "printf_bytes": printf_bytes,
            "heap_bytes": heap_bytes,
            "sync_depth": sync_depth,
            "pending_launches": pending_launches,
            "l2_fetch_bytes": l2_fetch_bytes,
            "persisting_l2_bytes": persisting_l2_bytes,
        }
        asked = {name: _size(value, name) for name, value in given.items() if value is not None}
        for name, value in asked.items():
            self._set_limit(name, value)
        return self.limits()

    def _set_limit(self, name: str, value: int) -> None:
        try:
            with faults.raised_as(f"setting {name} of device {self._ordinal} to {value}", self._ordinal):
                context_limits.set_limit(self._ordinal, name, value)
        except DriverError as error:
            if error.code == context_limits.UNSUPPORTED:
                there = [each for each in context_limits.NAMES if context_limits.limit(self._ordinal, each) is not None]
                why = f"the device has no such limit; it has {', '.join(there)}"
            elif error.code == context_limits.INVALID_VALUE:
                why = _REFUSED.get(name, "it is more than the device can have; give less")
            else:
                raise
            raise ArgumentValueError(f"{name}={value} cannot be set on device {self._ordinal}: {why}") from error

    @property
    def cache_preference(self) -> CachePreference:
        """Which of shared memory and the first-level cache launches get more of where their kernel does not say.

        "shared", "l1", "equal", or "default" for neither. Asks the driver; does not wait for the device.
        """
        with faults.raised_as(f"asking for the cache preference of device {self._ordinal}", self._ordinal):
            return context_limits.cache_preference(self._ordinal)

    def set_cache_preference(self, cache: CachePreference) -> None:
        """Say which of shared memory and the first-level cache launches get more of where their kernel does not say.

        Parameters
        ----------
        cache
            "shared", "l1", "equal", or "default" for neither.

        Raises
        ------
        ArgumentValueError
            It is none of these.
        DeviceLostError
            The device is lost.

        Notes
        -----
        A hint, for the whole process; devices whose two are of fixed sizes take no notice. A kernel's own
        (``set_attributes(cache=)``) goes first. A launch with another preference than the one before may have to wait
        for that one. Does not block. On the emulated driver it is kept, and changes nothing.
        """
        one_of(cache, "cache", (*CACHE_PREFERENCES[1:], "default"))
        with faults.raised_as(f"setting the cache preference of device {self._ordinal}", self._ordinal):
            context_limits.set_cache_preference(self._ordinal, cache)


def _size(value: int, name: str) -> int:
    if whole_number(value, name) >= 2**64:
        raise ArgumentValueError(f"{name} is less than 2**64; {value} was given")
    return value
