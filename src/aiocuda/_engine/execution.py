"""Running operations: awaited, waited for, submitted, scheduled; and the futures of what runs.

Always true: an operation runs at most once, whoever asks; cancelling an await, or a future, leaves what
was submitted to the device and drops nothing that it uses. A future is settled once: complete, failed or
cancelled; its callbacks are on their way by then.
"""

from __future__ import annotations

import contextvars
import functools
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from aiocuda import _loops, _native
from aiocuda._engine import faults, placement
from aiocuda._engine.placement import Placement
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, CancelledError

__all__ = ["DeviceFuture", "StreamWait", "run", "run_and_wait", "submit"]

T_co = TypeVar("T_co", covariant=True)


def _target(op: _native.Op, where: Placement) -> tuple[int, int, _native.Policy, int, int]:
    """Return a placement as the native module takes it.

    What has been submitted goes nowhere any more: that its stream was closed since then does not matter.
    """
    device, stream, policy, spin_us, most = where.native
    return device, stream if op._state == "pending" else -1, policy, spin_us, most


async def run(op: _native.Op, where: Placement | None = None) -> Any:
    """Submit an operation and await its result."""
    where = where or placement.current.get()
    port = _loops.current_port()
    while True:
        waiter = port.waiter()
        if _native.drive(op, *_target(op, where), port.native, waiter):
            return op._outcome
        await port.wait(waiter)


def run_and_wait(op: _native.Op, where: Placement | None = None, timeout_s: float | None = None) -> Any:
    """Submit an operation and wait for its result with the GIL released.

    Raises
    ------
    TimeoutError
        The time passed first; the work goes on.
    """
    where = where or placement.current.get()
    _check_timeout(timeout_s)
    if not _native.drive_and_wait(op, *_target(op, where), -1.0 if timeout_s is None else timeout_s):
        raise _time_is_up(op, timeout_s)
    return op._outcome


def submit(op: _native.Op) -> DeviceFuture[Any]:
    """Hand an operation to the device, as far as nothing waits for the host; what fails at once is raised."""
    future: DeviceFuture[Any] = DeviceFuture(op, placement.current.get())
    future._is_started = True
    _native.submit(op, *_target(op, future._where))
    return future


def _check_timeout(timeout_s: float | None) -> None:
    if timeout_s is not None and not timeout_s >= 0:
        raise ArgumentValueError(f"a time-out is a number of seconds, 0 or more; {timeout_s!r} was given")


def _time_is_up(op: _native.Op, timeout_s: float | None) -> TimeoutError:
    return TimeoutError(f"{op._title} was not complete after {timeout_s} s; it goes on, and can be waited for again")


def _has_ended(op: _native.Op) -> bool:
    """Whether an operation's result or error is there; a device that was lost meanwhile is an error that is."""
    try:
        return _native.has_passed(op)
    except Exception:
        if op._state != "failed":
            raise
        return True


class DeviceFuture(Generic[T_co]):
    """The result of an operation that was submitted or scheduled; made by `DeviceOp.submit` and `DeviceOp.schedule`.

    Await it as often, and from as many tasks, as you like; any thread may ask it anything. What is submitted
    through it goes where the placement in force said when it was made. A scheduled one starts when it is
    first awaited, waited for or asked for its result, or given a callback.

    Where a `map` stands in the middle of the work, what comes after it is submitted when the future is
    next awaited, waited for or asked whether it is done; a future that has callbacks goes on by itself.
    """

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "_error",
        "_is_settled",
        "_is_started",
        "_lock",
        "_op",
        "_traceback",
        "_waiting",
        "_watching",
        "_where",
    )

    def __init__(self, op: _native.Op, where: Placement) -> None:
        self._op = op
        self._where = where
        self._is_started = False
        self._is_settled = False
        self._error: BaseException | None = None  # the future's own, which is not the operation's
        self._traceback: Any = None
        # A finalizer may ask this very future at any allocation, also in the middle of what the lock guards.
        self._lock = threading.RLock()
        self._waiting: dict[object, _native.Port] = {}
        self._callbacks: list[tuple[_loops.Destination, Callable[[], object]]] = []
        self._watching: set[_loops.Destination] = set()

    def __await__(self) -> Generator[Any, None, T_co]:
        return self._wait().__await__()

    async def _wait(self) -> T_co:
        port = _loops.current_port()
        while not self._ask(port.native, waiter := port.waiter()):
            try:
                await port.wait(waiter)
            finally:
                self._waiting.pop(waiter, None)
        return self._outcome()

    def sync(self, timeout: float | None = None) -> T_co:
        """Wait for the result, blocking the thread with the GIL released.

        Parameters
        ----------
        timeout
            In seconds; None waits as long as it takes.

        Raises
        ------
        TimeoutError
            The time passed first; the work goes on.
        CancelledError
            The future was cancelled, before or meanwhile.
        """
        _check_timeout(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        # A short wait is spun, as an operation's is. A longer one must hear of a cancellation too: so it is a port's.
        if not self._drive(_native.drive_and_wait, 0.0):
            port = _loops.ThreadPort()
            while not self._ask(port.native, waiter := port.waiter()):
                try:
                    if not port.wait(waiter, until):
                        raise _time_is_up(self._op, timeout)
                finally:
                    self._waiting.pop(waiter, None)
        return self._outcome()

    def done(self) -> bool:
        """Whether the result or an error is there, or the future was cancelled. Does not block.

        A future that was scheduled and has not started is not done, and asking does not start it.
        """
        if not self._is_settled:
            if self._is_started and self._op._state == "pending":
                self._drive(_native.submit)
            if _has_ended(self._op):
                self._settle()
        return self._is_settled

    def cancelled(self) -> bool:
        """Whether `cancel` came before the result. Does not block."""
        return isinstance(self._error, CancelledError)

    def cancel(self) -> bool:
        """Give the future up, not the operation.

        What has not been submitted is not submitted through this future any more; what is on the device goes
        on, and keeps its memory. All who wait for this future, in tasks and threads, are woken at once with
        `CancelledError`. The operation stays as it is: it may be executed, or awaited, by others and again.

        Returns
        -------
        bool
            Whether the future is cancelled; False where the result, or an error, was there already.

        Notes
        -----
        *Thread-safe*: yes. A submission that another thread is in the middle of comes to its end, and so
        does a `map` whose function is being called, with what follows it up to the next wait.
        """
        with self._lock:
            if not self._is_settled:
                self._settle(None if _has_ended(self._op) else self._cancelled_error())
        return self.cancelled()

    def result(self) -> T_co:
        """Return the result, if it is there. Does not block.

        Raises
        ------
        AiocudaError
            The operation failed; its own error.
        ArgumentValueError
            It is not complete yet: await the future, or wait with `sync`.
        CancelledError
            The future was cancelled.
        """
        self._require_done()
        return self._outcome()

    def exception(self) -> BaseException | None:
        """Return the error of an operation that failed, None of one that is complete. Does not block.

        Raises
        ------
        ArgumentValueError
            It is not complete yet: await the future, or wait with `sync`.
        CancelledError
            The future was cancelled.
        """
        self._require_done()
        if self.cancelled():
            self._outcome()
        failed: BaseException | None = self._op._outcome if self._op._state == "failed" else None
        return self._error or failed

    def add_done_callback(self, function: Callable[[DeviceFuture[T_co]], object]) -> None:
        """Have a function called, once, when the future is done, failed or cancelled.

        Parameters
        ----------
        function
            Called with this future, never from within this method. Added where an event loop runs, it is called
            by that loop; else, and where the loop has closed before, by a thread of the library that serves all
            such callbacks, one after another. Those of one loop, and those of the thread, are called in the order
            in which they were added, each in a copy of the context (`contextvars`) in which it was added.

        Notes
        -----
        The future starts and goes on by itself, also behind a `map`, whose function then runs where the callback
        will. What a callback raises ends up where its loop reports such things (`threading.excepthook` under trio
        and on the thread) and disturbs nobody. The thread keeps no process alive: what is not complete when the
        process ends is not called.
        """
        if not callable(function):
            raise ArgumentTypeError(f"add_done_callback() takes a function of the future, not {function!r}")
        destination = _loops.current_destination()
        call = functools.partial(contextvars.copy_context().run, function, self)
        with self._lock:
            is_settled = self._is_settled
            is_watched = destination in self._watching
            if not is_settled:
                self._callbacks.append((destination, call))
                self._watching.add(destination)
        if is_settled:
            destination.post(call)
            return
        watch = _Watch(self, destination)
        if not self._is_started:
            watch.start()
        if not is_watched:
            destination.post(watch.advance)

    def _require_done(self) -> None:
        if not self._is_settled and not self._is_started:
            self._drive(_native.submit)
        if not self.done():
            raise ArgumentValueError(f"{self._op._title} is not complete; await the future, or wait with .sync()")

    def _drive(self, drive: Callable[..., object], *arguments: object) -> bool:
        """Have the operation go on, unless the future is settled; whether it is then. Its failure is not raised."""
        with self._lock:
            if self._is_settled:
                return True
            self._is_started = True
        try:
            if not drive(self._op, *_target(self._op, self._where), *arguments):
                return False
        except BaseException:
            if self._op._state != "failed":
                raise
        self._settle()
        return True

    def _ask(self, port: _native.Port, waiter: object) -> bool:
        """Have the operation go on. False: it is worth asking again when `waiter` comes out of the port."""
        self._waiting[waiter] = port  # first: a cancellation from now on tells this waiter
        is_settled = True
        try:
            is_settled = self._drive(_native.drive, port, waiter)
        finally:
            if is_settled:
                self._waiting.pop(waiter, None)
        return is_settled

    def _settle(self, error: BaseException | None = None) -> None:
        """End the future, with an error of its own or as its operation ended, and tell everybody."""
        with self._lock:
            if self._is_settled:
                return
            if error is not None:
                self._error, self._traceback = error, error.__traceback__
            self._is_settled = True
            waiting = self._waiting.copy()  # in one step: others come and go without the lock
            callbacks, self._callbacks = self._callbacks, []
            self._watching.clear()
        for waiter, port in waiting.items():
            port.put(waiter)
        for destination, call in callbacks:
            destination.post(call)

    def _outcome(self) -> T_co:
        if self._error is not None:
            raise self._error.with_traceback(self._traceback)  # as it was: raising it again would make it grow
        result: T_co = run_and_wait(self._op, self._where, 0) if self._op._state == "failed" else self._op._outcome
        return result

    def _cancelled_error(self) -> CancelledError:
        return CancelledError(self._op._title, faults.origin_text(self._op))

    def __repr__(self) -> str:
        if self._error is not None:
            state = "cancelled" if self.cancelled() else "failed"
        elif _has_ended(self._op):
            state = "failed" if self._op._state == "failed" else "done"
        else:
            state = "pending" if self._is_started else "scheduled"
        return f"<DeviceFuture of {self._op._title}, {state}>"


class _Watch:
    """What drives a future on where its callbacks will be called, until it is settled."""

    __slots__ = ("_destination", "_future")

    def __init__(self, future: DeviceFuture[Any], destination: _loops.Destination) -> None:
        self._future = future
        self._destination = destination

    def start(self) -> None:
        """Submit a scheduled operation; what goes wrong is the future's to tell."""
        self._drive(_native.submit)

    def advance(self) -> None:
        """Go on as far as nothing must be waited for. Called where the callbacks will be."""
        try:
            self._drive(_native.drive, _loops.thread_port(), self)
        except BaseException:
            self._destination.post(self.advance)  # an interruption of this loop is not the end of the future
            raise

    def wake(self, _: int) -> None:
        """Go on: what was waited for has passed. Called by the library's thread."""
        self._destination.post(self.advance)

    def _drive(self, drive: Callable[..., object], *arguments: object) -> None:
        try:
            self._future._drive(drive, *arguments)
        except Exception as error:  # noqa: BLE001 - such as a closed stream: the future's error, told by its callbacks
            self._future._settle(error)


class StreamWait:
    """A wait for everything that some streams hold now, whoever submitted it: await it, or `sync` it."""

    __slots__ = ("_keepalive", "_streams")

    def __init__(self, streams: list[int], keepalive: object = None) -> None:
        self._streams = streams
        self._keepalive = keepalive

    def __await__(self) -> Generator[Any, None, None]:
        return self._wait().__await__()

    async def _wait(self) -> None:
        port = _loops.current_port()
        waiter = port.waiter()
        if _native.tell_when_streams_pass(self._streams, port.native, waiter):
            error = await port.wait(waiter)
            if error:
                raise faults.refused(error, "cuStreamQuery", None, 0, _native.stream_device(self._streams[0]))

    def sync(self) -> None:
        """Wait, blocking the thread with the GIL released."""
        _native.wait_for_streams(self._streams)
