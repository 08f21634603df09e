"""Waking a task of trio."""

from __future__ import annotations

import outcome
import trio

from aiocuda import _native

__all__ = ["TrioPort", "current_port", "is_running"]


class _Waiter:
    """A task that sleeps until its token comes out; no task once it was cancelled."""

    __slots__ = ("task",)

    def __init__(self) -> None:
        self.task: trio.lowlevel.Task | None = None


class TrioPort:
    """One run's port: a system task waits for the native port and reschedules who waits."""

    __slots__ = ("native",)

    def __init__(self) -> None:
        self.native = _native.Port()

    def waiter(self) -> _Waiter:
        """Return a waiter that nobody waits on yet."""
        return _Waiter()

    async def wait(self, waiter: object) -> int:
        """Sleep until the waiter's token has come out; return 0, or the driver's error."""
        assert isinstance(waiter, _Waiter)
        waiter.task = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            waiter.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        error: int = await trio.lowlevel.wait_task_rescheduled(abort)
        return error

    async def serve(self) -> None:
        """Reschedule what has completed, until the run ends."""
        while True:
            await trio.lowlevel.wait_readable(self.native.fileno())
            for waiter, error in self.native.take():
                if waiter.task is not None:
                    trio.lowlevel.reschedule(waiter.task, outcome.Value(error))
                    waiter.task = None


_port: trio.lowlevel.RunVar[TrioPort] = trio.lowlevel.RunVar("aiocuda port")


def is_running() -> bool:
    """Whether a task of trio's runs in this thread."""
    return trio.lowlevel.in_trio_task()


def current_port() -> TrioPort:
    """Return this run's port; made the first time."""
    try:
        return _port.get()
    except LookupError:
        port = TrioPort()
        _port.set(port)
        trio.lowlevel.spawn_system_task(port.serve, name="aiocuda completions")
        return port
