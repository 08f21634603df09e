"""How an operation is executed: awaited, waited for, submitted, or decided where it will be.

Always true: an operation runs at most once, whoever asks.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aiocuda import _native
from aiocuda._devices.device import Stream, as_stream
from aiocuda._devices.placing import placement_for
from aiocuda._engine.execution import checked_timeout, run_within
from aiocuda._engine.futures import DeviceFuture

__all__ = ["Executable", "native_op"]

T_co = TypeVar("T_co", covariant=True)


class Executable(Generic[T_co]):
    """The methods of operations that run them."""

    __slots__ = ()

    if TYPE_CHECKING:  # the native operations have it

        def __await__(self) -> Generator[Any, None, T_co]: ...

    def within(self, seconds: float) -> Coroutine[Any, Any, T_co]:
        """Return an execution like that of ``await op``, that waits for so many seconds at most: await it.

        Parameters
        ----------
        seconds
            0 or more, on the event loop's clock, from when it is awaited. Submission itself is never cut short.

        Returns
        -------
        Coroutine[T]
            Yields the result, complete on the device. Nothing runs before it is awaited.

        Raises
        ------
        DeviceTimeoutError
            When it is awaited: the time passed first. The error says what was still running, and where. The submitted
            work goes on and keeps its memory, and the operation can be awaited again.
        ArgumentValueError
            `seconds` is no number, negative or NaN.

        Notes
        -----
        *Stream*: the one in force when it is awaited. *Blocks*: no. *On cancel*: as for ``await op``.
        """
        return run_within(native_op(self), checked_timeout(seconds))

    @_native.synced_natively
    def sync(self, timeout: float | None = None) -> T_co:
        """Execute on the stream in force and wait for the result.

        Parameters
        ----------
        timeout
            In seconds; None waits as long as it takes.

        Returns
        -------
        T
            The result, complete on the device.

        Raises
        ------
        DeviceTimeoutError
            The time passed first. The error says what was still running, and where. The work goes on; ask again for
            its result.

        Notes
        -----
        Blocks the thread, with the GIL released.
        """
        result: T_co = _native.run_and_wait(self, None, -1.0 if timeout is None else checked_timeout(timeout))
        return result

    def sync_on(self, stream: Stream | Any, timeout: float | None = None) -> T_co:
        """Execute on a stream and wait for the result.

        Parameters
        ----------
        stream
            A `Stream`, or anything with ``__cuda_stream__``. Work of its device goes there, except operations that say
            otherwise with `on`.
        timeout
            In seconds; None waits as long as it takes.

        Returns
        -------
        T
            The result, complete on the device.

        Notes
        -----
        Blocks the thread, with the GIL released.
        """
        limit_s = -1.0 if timeout is None else checked_timeout(timeout)
        result: T_co = _native.run_and_wait(self, placement_for(as_stream(stream)), limit_s)
        return result

    @_native.submitted_natively
    def submit(self) -> DeviceFuture[T_co]:
        """Hand the operation to the device now, on the stream in force; do not wait.

        Returns
        -------
        DeviceFuture[T]
            Its result: await it, ask it, or wait for it.
        """
        future: DeviceFuture[T_co] = _native.submit_future(self)
        return future

    def schedule(self, target: Any) -> DeviceFuture[T_co]:
        """Decide where the operation will run; it is submitted when the future is first asked for its result.

        Parameters
        ----------
        target
            A policy, a `Device`, its ordinal, a `Stream`, or anything with ``__cuda_stream__``.

        Returns
        -------
        DeviceFuture[T]
            Starts when it is first awaited, waited for or asked for its result, or given a callback. If others have
            executed the operation by then, it yields their result.

        Notes
        -----
        *Stream*: as for `aiocuda.use` with the same target. *Blocks*: no. *On cancel*: one that has not started
        submits nothing.
        """
        return DeviceFuture(native_op(self), placement_for(target))


def native_op(op: object) -> _native.Op:
    """Return an operation as native code has it."""
    assert isinstance(op, _native.Op)
    return op
