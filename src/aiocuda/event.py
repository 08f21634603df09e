"""Events: points in streams that are waited for, asked about and measured between.

Always true: an event is recorded once, and may be used from any thread.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any

from aiocuda import _loops
from aiocuda._driver import events
from aiocuda._engine import faults
from aiocuda._engine.execution import checked_timeout
from aiocuda._engine.stream_wait import StreamWait
from aiocuda.errors import AiocudaError, ArgumentTypeError, ArgumentValueError, DeviceMismatchError

if TYPE_CHECKING:
    from aiocuda.device import Device
    from aiocuda.interprocess import IpcEventHandle

__all__ = ["Event"]


class Event:
    """A point in a stream: made by `Stream.record`, passed when all before it has run. Await it, or ``.sync()`` it.

    One of another process is had from its handle, with `aiocuda.open_ipc`.
    """

    __slots__ = ("_device", "_recorded", "_stream", "_where")

    def __init__(self, device: Device, where: str, recorded: events.Recorded, stream: int | None = None) -> None:
        self._device = device
        self._where = where  # such as "on stream 3 of device 0"
        self._stream = stream  # by its native index; None: another process'
        self._recorded = recorded

    @property
    def device(self) -> Device:
        """The device of the stream it was recorded in."""
        return self._device

    def done(self) -> bool:
        """Whether it has passed. Does not block."""
        with faults.raised_as(f"asking whether {self._title} has passed", self.device.ordinal):
            return self._recorded.has_passed()

    def elapsed(self, other: Event) -> float:
        """Return the device's time from this event to a later one, in milliseconds.

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
            if not event._recorded.timing:
                raise ArgumentValueError(
                    "an event was recorded without timing, as those for other processes are; record(timing=True) can "
                    "be measured"
                )
            if not event.done():
                raise ArgumentValueError("an event has not passed yet; await both before measuring between them")
        with faults.raised_as(f"measuring the time from {self._title} to {other._title}", self.device.ordinal):
            return self._recorded.milliseconds_to(other._recorded)

    def ipc_handle(self) -> IpcEventHandle:
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
        from aiocuda.interprocess import handle_of_event  # which is made of events

        return handle_of_event(self)

    def __await__(self) -> Generator[Any, None, None]:
        return self._wait(None).__await__()

    def within(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Return a wait for the event with a time-out, to be awaited.

        Parameters
        ----------
        seconds
            0 or more, on the event loop's clock, from when it is awaited.

        Raises
        ------
        DeviceTimeoutError
            When it is awaited: the time passed first. The work goes on, and the event can be awaited again.
        ArgumentValueError
            `seconds` is no number, negative or NaN.

        Notes
        -----
        *Blocks*: no. *On cancel*: the work goes on.
        """
        return self._wait(checked_timeout(seconds))

    async def _wait(self, timeout_s: float | None) -> None:
        if not self.done():
            passing = self._passing()
            await (passing if timeout_s is None else passing.within(timeout_s))
        elif not (port := _loops.current_port()).admits(None):
            await port.turn()

    def sync(self, timeout: float | None = None) -> None:
        """Wait until it has passed, blocking the thread with the GIL released.

        Parameters
        ----------
        timeout
            In seconds; None waits as long as it takes.

        Raises
        ------
        DeviceTimeoutError
            The time passed first; as for `within`.
        ArgumentValueError
            The time-out is no number of seconds, 0 or more.
        """
        timeout_s = None if timeout is None else checked_timeout(timeout)
        if not self.done():
            self._passing().sync(timeout_s)

    def _passing(self) -> StreamWait:
        # A stream that holds nothing but the wait: what is behind the event in its own stream is no part of it.
        waiting = self.device.stream()
        waiting.wait(self)
        return StreamWait([waiting._index], f"waiting for {self._title}", waiting, self._stream)

    @property
    def _title(self) -> str:
        return f"an event {self._where}"

    def __repr__(self) -> str:
        try:
            state = "passed" if self.done() else "pending"
        except AiocudaError:
            state = "lost"
        return f"<Event {self._where}, {state}>"
