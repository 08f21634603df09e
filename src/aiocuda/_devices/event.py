"""Events: points in streams that are waited for, asked about and measured between.

Always true: an event is recorded once, and may be used from any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiocuda import _devices, _native
from aiocuda._devices.lending import Owner
from aiocuda._engine.timed_waits import TimedWaits
from aiocuda._later import aiocuda
from aiocuda.errors import AiocudaError, ArgumentTypeError, ArgumentValueError, DeviceMismatchError

if TYPE_CHECKING:
    from aiocuda._devices.device import Device

__all__ = ["Event"]


class Event(TimedWaits, _native.Event):
    """A point in a stream: made by `Stream.record`, passed when all before it has run. Await it, or ``.sync()`` it.

    One of another process is had from its handle, with `aiocuda.open_ipc`.
    """

    __slots__ = ("_device",)

    _device: Device

    @classmethod
    def _recorded(cls, device: Device, where: str, stream: int, *, timing: bool, interprocess: bool) -> Event:
        """Record one behind all that a stream, given by its native index, holds now."""
        event = cls(where, stream, timing, interprocess)
        event._device = device
        return event

    @classmethod
    def _opened(cls, device: Device, where: str, lent: bytes) -> Event:
        """Open another process' event."""
        event = cls(where, device.ordinal, lent)
        event._device = device
        return event

    @property
    def device(self) -> Device:
        """The device of the stream it was recorded in."""
        return self._device

    def done(self) -> bool:
        """Whether it has passed. Does not block.

        Returns
        -------
        bool
            Once True, it stays so.
        """
        return self._has_passed()

    def elapsed(self, other: Event) -> float:
        """Return the device's time from this event to a later one, in milliseconds.

        Parameters
        ----------
        other
            The later event, of the same device.

        Returns
        -------
        float
            In milliseconds. CUDA resolves about half a microsecond.

        Raises
        ------
        ArgumentTypeError
            The other one is no event.
        ArgumentValueError
            One of them has not passed yet, or was recorded without timing.
        DeviceMismatchError
            They were recorded on different devices.
        """
        if not isinstance(other, Event):
            raise ArgumentTypeError(f"elapsed() takes an Event, such as Stream.record() gives; {other!r:.80} was given")
        if self.device != other.device:
            raise DeviceMismatchError(
                f"events of device {self.device.ordinal} and device {other.device.ordinal} have no common clock"
            )
        for event in (self, other):
            if not event._has_timing:
                raise ArgumentValueError(
                    "an event was recorded without timing, as those for other processes are; record(timing=True) can "
                    "be measured"
                )
            if not event.done():
                raise ArgumentValueError("an event has not passed yet; await both before measuring between them")
        return self._time_to(other)

    def ipc_handle(self) -> aiocuda.IpcEventHandle:
        """Return what another process opens the event with, by `aiocuda.open_ipc`.

        Returns
        -------
        IpcEventHandle
            To be pickled, and sent over whatever connects the two. Keep this event for as long as the other process
            uses what it has opened.

        Raises
        ------
        ArgumentValueError
            The event was recorded without ``interprocess=True``, or is another process' itself.
        DriverError
            The driver refused.
        """
        if not self._is_interprocess:
            raise ArgumentValueError(
                f"ipc_handle: other processes can open events that this one has recorded with interprocess=True, and "
                f"{self!r} is none"
            )
        return _devices.IpcEventHandle(Owner.here(self.device.ordinal), self._lend())

    def __repr__(self) -> str:
        try:
            state = "passed" if self.done() else "pending"
        except AiocudaError:
            state = "lost"
        return f"<Event {self._where}, {state}>"
