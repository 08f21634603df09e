"""Work of other libraries that is awaited.

Always true: the point that is waited for was recorded when the operation was made.
"""

from __future__ import annotations

from typing import Any, TypeVar

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray, HostArray
from aiocuda._devices.device import Device, DeviceLike, Stream, as_ordinal, device_of_handle, device_of_stream
from aiocuda._devices.event import Event
from aiocuda._driver import foreign, streams
from aiocuda._ops.composing import value
from aiocuda._ops.operation import CallOp, DeviceOp
from aiocuda._values import given
from aiocuda.errors import ArgumentTypeError

__all__ = ["done"]

T = TypeVar("T")


def done(x: T, device: DeviceLike | None = None) -> DeviceOp[T]:
    """Make an operation that is complete when work that another library has enqueued by now is.

    Parameters
    ----------
    x
        A stream: all that it holds now. An event: all that was before it when it was recorded. An array of a
        framework: all that is on the framework's current stream, or on the stream that the array's protocol names.

        Streams are those with ``__cuda_stream__``, or PyTorch's, or a raw handle (a ``CUstream`` as an `int`, with
        `device`). A default stream is that of the device which the object says, else of CUDA's current device. Events
        are those of PyTorch, CuPy, Numba, Warp and ``cuda.core``. Arrays have DLPack or ``__cuda_array_interface__``.
        Streams, events and arrays of aiocuda's work as well; such an array is done when its borrowers are, too.
    device
        The device of a raw handle, as a `Device`, its ordinal or its name.

    Returns
    -------
    DeviceOp
        It yields `x`. The point is recorded now, and not when the operation is awaited: a later await does not wait
        for what the library enqueues in between. The operation counts as submitted. *Stream*: an event is recorded in
        the stream, and nothing else; another stream of aiocuda's waits for it. *Blocks*: no. *On cancel*: the work
        goes on, and can be waited for again.

    Raises
    ------
    ArgumentTypeError
        It is none of these; an operation or a future, which are awaited themselves; host memory; a raw handle
        without a device; or a default stream that does not say its device, where CUDA has no current one.
    ArgumentValueError
        A raw handle is of another device.
    CaptureError
        Somebody captures the stream into a graph; or the event was recorded in a capture, which this ends.
    DriverError
        The driver refused, for example a handle that is no stream's.
    DeviceLostError
        When it is awaited: the work, or other work of the device, has failed.

    Examples
    --------
    ``await ac.done(torch.cuda.current_stream())`` waits for PyTorch's work and leaves the event loop free.
    """
    if isinstance(x, int) and not isinstance(x, bool):
        return _behind_stream(x, x, device_of_handle(x, device), "a stream")
    if device is not None:
        raise ArgumentTypeError(f"done: device= is for raw handles; {given.shown(x)} knows its device")
    if isinstance(x, (DeviceArray, HostArray)):
        op: CallOp = _op("an array")
        _native.finish_behind_array(op, x)
        return op
    if isinstance(x, Stream):
        return _behind_stream(x, x.handle, x.device, x._title)
    handle = streams.stream_handle(x)
    if handle is not None:
        return _behind_stream(x, handle, device_of_stream(handle, x), _of_others(x))
    event = x._handle if isinstance(x, Event) else streams.event_handle(x)
    if event is not None:
        return _behind_event(x, event)
    return _behind_owner(x)


def _op(what: str) -> CallOp:
    # The function is not called: the operation has been submitted.
    return CallOp("inspect", done, None, title=f"the work of {what}")


def _of_others(x: object) -> str:
    return f"a {type(x).__name__} of another library's"


def _behind_stream(x: Any, handle: int, device: Device, what: str) -> CallOp:
    op = _op(what)
    _native.finish_behind_stream(op, x, handle, device.ordinal)
    return op


def _behind_event(x: Any, event: int) -> DeviceOp[Any]:
    if not event:
        return value(x)  # it was never recorded
    ordinal = streams.device_said(x)
    op = _op(_of_others(x))
    _native.finish_behind_event(op, x, event, as_ordinal(None) if ordinal is None else ordinal)
    return op


def _behind_owner(x: Any) -> DeviceOp[Any]:
    if isinstance(x, (DeviceOp, _native.Future)):
        raise ArgumentTypeError(f"done takes work of other libraries; await this {type(x).__name__} itself")
    if not hasattr(x, "__dlpack__") and not hasattr(x, "__cuda_array_interface__"):
        raise ArgumentTypeError(
            f"done takes a stream, an event or an array of another library's, or a raw handle of a stream and its "
            f"device; {given.shown(x)} is none of them"
        )
    lent = foreign.lent_by(x, "done")  # and given back at once
    if lent.theirs is not None:
        return _behind_stream(x, lent.theirs, Device(lent.device), _of_others(x))
    if lent.relay is None:
        return value(x)  # its owner says that nothing is going on
    op = _op(_of_others(x))
    _native.finish_behind_relay(op, x, lent.relay, lent.device)
    return op
