"""Waking a task of trio, calling back in its run, and tasks of that."""

from __future__ import annotations

import contextvars
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import outcome
import trio

from aiocuda import _native
from aiocuda._loops.port import TURN_US
from aiocuda._loops.thread import ThreadDestination, report

__all__ = [
    "TrioDestination", "TrioPort", "TrioTasks", "current_destination", "current_name", "current_port", "current_tasks",
    "is_running",
]  # fmt: skip


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


class TrioWaiter:
    """An outcome that one task waits for."""

    __slots__ = ("_event", "_outcome")

    def __init__(self) -> None:
        self._event = trio.Event()
        self._outcome: outcome.Outcome[Any] | None = None

    @property
    def is_done(self) -> bool:
        """Whether it has a value or an error."""
        return self._outcome is not None

    def set_value(self, value: Any) -> None:
        """Wake the task with a value."""
        self._outcome = outcome.Value(value)
        self._event.set()

    def set_error(self, error: BaseException) -> None:
        """Wake the task with an error."""
        self._outcome = outcome.Error(error)
        self._event.set()

    async def wait(self) -> Any:
        """Wait for either."""
        await self._event.wait()
        assert self._outcome is not None
        return self._outcome.unwrap()


_ENDS: Final = (KeyboardInterrupt, SystemExit, trio.Cancelled)  # of a task, or of the run: for trio


class TrioTasks:
    """One run's: system tasks, which end with the run."""

    def __init__(self) -> None:
        self.kept: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.cancelled: type[BaseException] = trio.Cancelled

    def time(self) -> float:
        """Return the time of the run's clock."""
        return trio.current_time()

    def call_at(self, when: float, call: Callable[[], object]) -> trio.CancelScope:
        """Have a call made at a time."""

        async def sleep() -> None:
            await trio.sleep_until(when)
            _call(call)

        return self.spawn(sleep, "aiocuda timer", contextvars.copy_context(), lambda: None)

    def spawn(
        self,
        function: Callable[[], Awaitable[object]],
        name: str,
        context: contextvars.Context,
        ended: Callable[[], object],
    ) -> trio.CancelScope:
        """Run a function as a system task."""
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                try:
                    await function()
                except _ENDS:
                    raise
                except BaseExceptionGroup as group:  # of a nursery within
                    ends, others = group.split(_ENDS)
                    if others is not None:
                        report()
                    if ends is not None:
                        raise ends from None
                except BaseException:  # noqa: BLE001 - reported; trio would end the whole run with it
                    report()
                finally:
                    _call(ended)

        trio.lowlevel.spawn_system_task(run, name=name, context=context)
        return scope

    def make_waiter(self) -> TrioWaiter:
        """Make something to wait for."""
        return TrioWaiter()


_tasks: trio.lowlevel.RunVar[TrioTasks] = trio.lowlevel.RunVar("aiocuda tasks")


def current_tasks() -> TrioTasks:
    """Return this run's tasks."""
    try:
        return _tasks.get()
    except LookupError:
        made = TrioTasks()
        _tasks.set(made)
        return made
