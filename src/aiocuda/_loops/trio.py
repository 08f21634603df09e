"""Waking a task of trio, and calling back in its run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import outcome
import trio

from aiocuda import _native
from aiocuda._loops.port import TURN_US
from aiocuda._loops.thread import ThreadDestination, report

__all__ = ["TrioDestination", "TrioPort", "current_destination", "current_name", "current_port", "is_running"]


class TrioPort:
    """One run's port: a system task waits for the native port and reschedules who waits."""

    __slots__ = ("native",)

    def __init__(self) -> None:
        self.native = _native.Port(turn_us=TURN_US)

    def time(self) -> float:
        """Return the time of this run's clock."""
        return trio.current_time()

    async def wait(self, waiter: _native.Await, until: float | None = None) -> int | None:
        """Sleep until the waiter's token has come out; return 0, or the driver's error; None: `until` came first."""
        if until is None:
            return await self.sleep(waiter)
        with trio.CancelScope(deadline=until):
            return await self.sleep(waiter)
        return None

    async def sleep(self, waiter: _native.Await) -> int:
        """Do as `wait` does, for as long as it takes."""
        waiter.task = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            waiter.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        error: int = await trio.lowlevel.wait_task_rescheduled(abort)
        # A cancellation in the same turn of the loop is heard too, whichever of the two came first; and after a pause
        # one that was known of before, by whatever way, which may be in this turn.
        if error == _native.PAUSE:
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        return error

    async def serve(self) -> None:
        """Reschedule what has completed, until the run ends."""
        while True:
            await trio.lowlevel.wait_readable(self.native.fileno())
            self.native.wake_due(True)


@dataclass(frozen=True, slots=True)
class TrioDestination:
    """A run of trio's, for callbacks. It makes every call that it accepts, also at its end."""

    token: trio.lowlevel.TrioToken

    def post(self, call: Callable[[], object]) -> None:
        """Have a call made by the run; by the library's thread where it has finished."""
        try:
            self.token.run_sync_soon(_call, call)
        except trio.RunFinishedError:
            ThreadDestination().post(call)


def _call(call: Callable[[], object]) -> None:
    try:
        call()
    except (KeyboardInterrupt, SystemExit):
        raise  # which are to end the run
    except BaseException:  # noqa: BLE001 - reported; trio would end the whole run with it
        report()


_port: trio.lowlevel.RunVar[TrioPort] = trio.lowlevel.RunVar("aiocuda port")


_native.set_trio(
    trio.lowlevel.in_trio_task,
    _port.get,
    trio.current_effective_deadline,
    trio.lowlevel.checkpoint,
    trio.lowlevel.reschedule,
    outcome.Value,
)


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


def current_destination() -> TrioDestination:
    """Return the run of the current task, for callbacks."""
    return TrioDestination(trio.lowlevel.current_trio_token())


def current_name() -> str:
    """Return the name of the task that runs, as ``"trio: main"``."""
    return f"trio: {trio.lowlevel.current_task().name}"
