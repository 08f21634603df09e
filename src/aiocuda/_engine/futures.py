"""Futures of operations that were submitted, or scheduled.

Always true: cancelling a future leaves what was submitted to the device and drops nothing that it uses. A future is
settled once: complete, failed or cancelled; its callbacks are on their way by then. One that nobody waits for has no
lock and no container.
"""

from __future__ import annotations

import concurrent.futures
import contextvars
import functools
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from aiocuda import _forks, _loops, _native
from aiocuda._engine import faults, overdue
from aiocuda._engine.concurrent_future import ConcurrentFuture
from aiocuda._engine.execution import checked_timeout, has_ended
from aiocuda._values.functions import checked_function
from aiocuda.errors import ArgumentValueError, CancelledError

__all__ = ["AS_ITS_OPERATION", "DeviceFuture"]

T_co = TypeVar("T_co", covariant=True)


class _End:
    """How a future ended: with an error of its own, or as its operation did."""

    __slots__ = ("error", "traceback")

    def __init__(self, error: BaseException | None) -> None:
        self.error = error
        self.traceback = None if error is None else error.__traceback__


class _Audience:
    """The callbacks that a future's end calls, and the drive that has it go on for them."""

    __slots__ = ("callbacks", "watching")

    def __init__(self) -> None:
        self.callbacks: list[tuple[_loops.Destination, Callable[[], object]]] = []
        self.watching: dict[_loops.Destination, _Watch] = {}


AS_ITS_OPERATION: Final = _End(None)
# For all futures, and for a few steps at a time: that an audience is made, that callbacks join it, and that a future is
# settled. A finalizer may ask a future at any allocation, also in the middle of what the lock guards.
_lock: Final = _forks.reentrant_lock()


class DeviceFuture(_native.Future, Generic[T_co]):
    """The result of an operation that was submitted or scheduled; made by `DeviceOp.submit` and `DeviceOp.schedule`.

    Await it as often, and from as many tasks, as you like; any thread may ask it anything. Operations that are
    submitted through it go where the placement in force said when it was made. A scheduled one starts when it is first
    awaited, waited for or asked for its result, or given a callback.

    If a `map` stands in the middle of the work, operations after it are submitted when the future is next awaited,
    waited for or asked whether it is done; a future that has callbacks goes on by itself.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # the native future has it

        def __await__(self) -> Generator[Any, None, T_co]: ...

    async def _wait(self, timeout_s: float) -> T_co:
        result: T_co = await _native.await_future(self, timeout_s)
        return result

    def within(self, seconds: float) -> Coroutine[Any, Any, T_co]:
        """Return a wait for the result that ends after so many seconds: await it.

        Parameters
        ----------
        seconds
            0 or more, on the event loop's clock, from when it is awaited.

        Returns
        -------
        Coroutine[T]
            Yields the result. Nothing waits before it is awaited.

        Raises
        ------
        DeviceTimeoutError
            When it is awaited: the time passed first. The error says what was still running, and where. The future
            stays as it is, the work goes on, and both can be waited for again.
        ArgumentValueError
            `seconds` is no number, negative or NaN.
        """
        return self._wait(checked_timeout(seconds))

    def sync(self, timeout: float | None = None) -> T_co:
        """Wait for the result, blocking the thread with the GIL released.

        Parameters
        ----------
        timeout
            In seconds; None waits as long as it takes.

        Returns
        -------
        T
            The operation's result, complete on the device.

        Raises
        ------
        DeviceTimeoutError
            The time passed first; the work goes on.
        CancelledError
            The future was cancelled, before or meanwhile.
        """
        limit_s = -1.0 if timeout is None else checked_timeout(timeout)
        if not self._wait_until_settled(limit_s):
            raise overdue.overdue(self._op, limit_s)
        return self._outcome()

    def done(self) -> bool:
        """Whether the result or an error is there, or the future was cancelled. Does not block.

        A future that was scheduled and has not started is not done, and asking does not start it.

        Returns
        -------
        bool
            True means that `result` and `exception` have an answer.
        """
        if self._end is None:
            if self._is_started and self._op._state == "pending":
                self._submit()
            if has_ended(self._op):
                self._settle(AS_ITS_OPERATION)
        return self._end is not None

    def cancelled(self) -> bool:
        """Whether `cancel` came before the result. Does not block.

        Returns
        -------
        bool
            True after a `cancel` that returned True.
        """
        return self._end is not None and isinstance(self._end.error, CancelledError)

    def cancel(self) -> bool:
        """Give the future up, not the operation.

        The future submits nothing more. Work on the device goes on, and keeps its memory. All who wait for this future,
        in tasks and threads, are woken at once with `CancelledError`. The operation stays as it is: it may be executed,
        or awaited, by others and again.

        Returns
        -------
        bool
            Whether the future is cancelled; False where the result, or an error, was there already.

        Notes
        -----
        *Thread-safe*: yes. A submission that another thread is in the middle of comes to its end, and so do functions
        of `map` that are being called, whose results stay; what follows them is not submitted.
        """
        if self._end is None:
            self._op._is_asked = True  # and given up, on purpose
            self._settle(AS_ITS_OPERATION if has_ended(self._op) else _End(self._cancelled_error()))
        return self.cancelled()

    def result(self) -> T_co:
        """Return the result, if it is there. Does not block.

        Returns
        -------
        T
            The operation's result, complete on the device.

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

        Returns
        -------
        BaseException or None
            The error that an await would raise.

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
        return self._own_error or failed

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
        will. An exception of a callback goes where its loop reports such things (`threading.excepthook` under trio and
        on the thread) and disturbs nobody. The thread keeps no process alive: what is not complete when the process
        ends is not called.
        """
        checked_function(function, "add_done_callback() takes a function of the future")
        self._call_when_done(function, _loops.current_destination())

    def as_concurrent(self) -> concurrent.futures.Future[T_co]:
        """Return a future of `concurrent.futures` that ends as this one does.

        It is for what knows no other futures: `concurrent.futures.wait` and `concurrent.futures.as_completed`,
        `asyncio.wrap_future`, an executor's futures beside it.

        Returns
        -------
        concurrent.futures.Future
            A new one at each call. Cancelling it cancels this future, and so every wait for it; cancelling this future
            cancels it. Its callbacks are called by the thread of the library that serves callbacks. A cancelled one
            raises `concurrent.futures.CancelledError`; the error of an operation is the operation's.

        Notes
        -----
        The future starts and goes on by itself, as one that has callbacks does: the function of a `map` runs on the
        thread of the library. *Thread-safe*: yes. *Blocks*: no.
        """
        concurrent_future = ConcurrentFuture(self)
        self._call_when_done(concurrent_future.told, _loops.ThreadDestination())
        return concurrent_future

    def _call_when_done(
        self, function: Callable[[DeviceFuture[T_co]], object], destination: _loops.Destination
    ) -> None:
        call = functools.partial(contextvars.copy_context().run, function, self)
        entry = (destination, call)
        watch = _Watch(self, destination)
        with _lock:
            audience = self._made_audience()
            callbacks, is_watched = audience.callbacks, destination in audience.watching
            is_settled = self._end is not None
            if not is_settled:
                callbacks.append(entry)  # no call and no allocation since the question: a finalizer would come in there
            audience.watching.setdefault(destination, watch)
        if is_settled:
            destination.post(call)
            return
        if not self._is_started:
            watch.start()
        if not is_watched:
            destination.post(watch.advance)

    def _require_done(self) -> None:
        if self._end is None and not self._is_started:
            self._submit()
        if not self.done():
            raise ArgumentValueError(f"{self._op._title} is not complete; await the future, or wait with .sync()")

    def _submit(self) -> None:
        """Submit what can be without waiting, as long as the future is not settled; a failure is not raised."""
        self._is_started = True
        try:
            while self._end is None and self._submit_more():
                pass  # a function was called, and what follows it may not be wanted any more
        except BaseException as error:
            if self._op._state != "failed":
                raise
            self._settle(AS_ITS_OPERATION)
            if not isinstance(error, Exception):
                raise

    def _made_audience(self) -> _Audience:
        """Return the audience, which is there from now on. Called with the lock held."""
        audience: _Audience | None = self._audience
        if audience is None:
            audience = _Audience()
            # Making it may have called a finalizer, which may have made another.
            audience = self._audience = self._audience or audience
        return audience

    def _fail(self, error: Exception) -> None:
        """End the future with an error that is not its operation's, such as a closed stream."""
        self._settle(_End(error))

    def _settle(self, end: _End) -> None:
        """End the future, unless it has ended, and tell everybody."""
        with _lock:
            if not self._end_with(end):
                return
            audience, self._audience = self._audience, None
        self._wake_awaits()
        if audience is None:
            return
        for watch in audience.watching.values():
            self._leave(watch)
        for destination, call in audience.callbacks:
            destination.post(call)

    def _outcome(self) -> T_co:
        if self._end is not None and self._end.error is not None:
            raise self._end.error.with_traceback(self._end.traceback)  # as it was: raising it again would make it grow
        failed = self._op._state == "failed"
        result: T_co = _native.run_and_wait(self._op, self._where, 0) if failed else self._op._outcome
        return result

    @property
    def _own_error(self) -> BaseException | None:
        """The future's error, where that is not its operation's."""
        return None if self._end is None else self._end.error

    def _cancelled_error(self) -> CancelledError:
        return CancelledError(self._op._title, faults.origin_text(self._op))

    def __repr__(self) -> str:
        if self._own_error is not None:
            state = "cancelled" if self.cancelled() else "failed"
        elif has_ended(self._op):
            state = "failed" if self._op._state == "failed" else "done"
        else:
            state = "pending" if self._is_started else "scheduled"
        return f"<DeviceFuture of {self._op._title}, {state}>"


class _Watch:
    """Drives a future on where its callbacks will be called, until it is settled."""

    __slots__ = ("_destination", "_future")

    def __init__(self, future: DeviceFuture[Any], destination: _loops.Destination) -> None:
        self._future = future
        self._destination = destination

    def start(self) -> None:
        """Submit a scheduled operation; what goes wrong is the future's to tell."""
        try:
            self._future._submit()
        except Exception as error:  # noqa: BLE001 - such as a closed stream
            self._future._fail(error)

    def advance(self) -> None:
        """Go on as far as nothing must be waited for. Called where the callbacks will be."""
        try:
            self._future._go_on(_loops.thread_port(), self)
        except Exception as error:  # noqa: BLE001 - such as a closed stream: the future's error, told by its callbacks
            self._future._fail(error)
        except BaseException:
            self._destination.post(self.advance)  # an interruption of this loop is not the end of the future
            raise

    def wake(self, _: int) -> None:
        """Go on: what was waited for has passed. Called by the library's thread."""
        self._destination.post(self.advance)
