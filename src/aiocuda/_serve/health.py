"""Is this process fit to serve? A value that says why not, for health checks.

Always true: looking waits for no device, opens none, takes no lock of a submission for long, and raises nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiocuda import _native
from aiocuda._driver import runtime
from aiocuda._engine.execution import checked_timeout
from aiocuda.errors import DriverError, ForkedProcessError

__all__ = ["DeviceHealth", "Health", "healthy"]


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """One device, as `healthy` finds it. It is truthy where the device is well.

    Attributes
    ----------
    device
        Its ordinal.
    reason
        Why it is not well, in words; empty where it is.
    error
        The driver's error that the device answers with since a fault; else None.
    longest_wait_s
        How many seconds ago the longest wait for its work began that the device has not answered; 0 where there is
        none. A wait that was given up counts, too.
    """

    device: int
    reason: str
    error: DriverError | None
    longest_wait_s: float

    def __bool__(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class Health:
    """The answer of `healthy`. It is truthy where all is well, so ``if not ac.healthy():`` reads as it should.

    Attributes
    ----------
    reason
        Why the process is not fit to serve, in words; empty where it is.
    devices
        Each device that the process has used, in the order of their ordinals.
    """

    reason: str
    devices: tuple[DeviceHealth, ...]

    def __bool__(self) -> bool:
        return not self.reason

    def __str__(self) -> str:
        return self.reason or "healthy"


def healthy(*, stuck_s: float | None = None) -> Health:
    """Say whether this process can serve with its devices, for the health check of a service.

    Parameters
    ----------
    stuck_s
        The longest that a wait for work of a device may take, in seconds. A device counts as stuck when it has not
        answered one for longer. Choose more than your longest work takes, with all that may stand before it on the
        device. None: no wait is too long.

    Returns
    -------
    Health
        It is truthy where all is well, and says why where it is not.

    Raises
    ------
    ArgumentValueError
        `stuck_s` is no number of seconds.

    Notes
    -----
    *Stream*: none. *Blocks*: no. It asks the driver once for each device that is open, and waits for none. A device
    that nobody has used is not asked, and not opened. Any thread may call it, with an event loop or without.

    These make it red, for good: a fault on a device (an illegal access, a failed assertion, a lost device), and a
    fork of a process that had started the driver. Start a new process then. A device that is stuck makes it red as
    long as it has not answered the wait. A wait counts from its beginning until the device has done the work. A
    caller that was cancelled or late does not end it, so no time-out hides a device that hangs. Work that was submitted
    and that nobody has awaited is not seen.

    Memory that ran out, a launch that was refused, and other failures are errors of operations alone, and the process
    is well.

    Examples
    --------
    >>> import aiocuda as ac
    >>> health = ac.healthy(stuck_s=30)
    >>> bool(health), str(health)
    (True, 'healthy')
    """
    limit_s = None if stuck_s is None else checked_timeout(stuck_s)
    if parent := _native.forked_from():
        return Health(str(ForkedProcessError(parent)), ())
    devices = tuple(_health_of(ordinal, limit_s) for ordinal in runtime.open_devices())
    return Health("; ".join(each.reason for each in devices if not each), devices)


def _health_of(ordinal: int, limit_s: float | None) -> DeviceHealth:
    code, waited_s = _native.state_of_device(ordinal)
    error, reason = None, ""
    if code:
        error = DriverError(*runtime.error_text(code))
        reason = f"device {ordinal} was lost: {error}. It takes no more work from this process: start a new one"
    elif limit_s is not None and waited_s > limit_s:
        reason = (
            f"device {ordinal} is stuck: a wait for its work began {waited_s:.3g} s ago and has no answer, which is "
            f"more than stuck_s={limit_s:g}"
        )
    return DeviceHealth(ordinal, reason, error, waited_s)
