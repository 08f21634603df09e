"""Arrays and events of other processes, opened from their handles, which are plain values.

Always true: what is opened here is ordered behind what its owner had submitted when it made the handle. Of later work
of either process, the other knows only what it is told.
"""

from __future__ import annotations

from typing import cast, overload

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray
from aiocuda._arrays.ipc_handle import INSTEAD, IpcHandle
from aiocuda._devices.device import Device
from aiocuda._devices.event import Event
from aiocuda._devices.event_handle import IpcEventHandle
from aiocuda._engine import faults
from aiocuda._values import dtypes
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["open_for", "open_ipc"]


@overload
def open_ipc(handle: IpcHandle) -> DeviceArray: ...
@overload
def open_ipc(handle: IpcEventHandle) -> Event: ...
def open_ipc(handle: IpcHandle | IpcEventHandle) -> DeviceArray | Event:
    """Open an array or an event of another process. Copies nothing.

    Parameters
    ----------
    handle
        What `DeviceArray.ipc_handle` or `Event.ipc_handle` gave in the other process.

    Returns
    -------
    DeviceArray or Event
        The array: the same memory, on the same device, which this process may know by another ordinal. Its first use
        here waits, on the device, for all that the other process had submitted when it made the handle. The memory is
        closed when the array and its views are closed or dropped, and the device has passed all that used them here.
        Arrays of one memory, and one that is opened twice, know of one another.

    Raises
    ------
    ArgumentTypeError
        It is no handle.
    ArgumentValueError
        This process has made the handle itself.
    DeviceMismatchError
        This process does not see the device.
    DriverError
        The driver refused: the other process has ended, or let go of the array or event; or the driver lends nothing.

    Notes
    -----
    *Blocks*: for the driver's calls, which map the memory; not for what the other process had submitted.

    Neither process sees what the other does: the other one keeps its array until it is told that this one has closed
    its own. The other process sees what is written here once it has been told that the work is complete, or has waited
    for an event that is recorded behind it.
    """
    if not isinstance(handle, (IpcHandle, IpcEventHandle)):
        raise ArgumentTypeError(f"open_ipc takes what ipc_handle() gave in another process; {handle!r:.80} was given")
    if handle.owner.is_here:
        raise ArgumentValueError(
            f"open_ipc: {handle!r} was made by this very process, and only others can open it; use what it was made of"
        )
    if isinstance(handle, IpcEventHandle):
        device = Device(handle.owner.ordinal())
        with faults.told_what_instead(INSTEAD):
            return Event._opened(device, f"of process {handle.owner.process_id}", handle.event)
    return open_for(handle, None)


def open_for(handle: IpcHandle, keeper: object) -> DeviceArray:
    """Open an array as `open_ipc` does.

    `keeper` is kept until the array and its views are gone, and the device has passed all that used them here. Then the
    other process may have its memory back.
    """
    device = Device(handle.owner.ordinal())
    with faults.told_what_instead(INSTEAD):
        return cast(
            "DeviceArray",
            _native.open_array(
                DeviceArray,
                handle.memory,
                handle.event,
                handle.block_bytes,
                handle.offset_bytes,
                handle.shape,
                dtypes.code_of(dtypes.to_dtype(handle.dtype)),
                handle.strides,
                device.ordinal,
                handle.is_read_only,
                keeper,
            ),
        )
