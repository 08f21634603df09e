"""Arrays and events that processes lend one another, by handles that are plain values.

Always true: what is opened here is ordered behind what its owner had submitted when it made the handle. What either
process does afterwards, the other knows only from what it is told.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final, cast, overload

import numpy as np

from aiocuda import _native
from aiocuda._driver import runtime
from aiocuda._engine import dtypes, faults
from aiocuda.array import DeviceArray
from aiocuda.device import Device
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, DeviceMismatchError
from aiocuda.event import Event

__all__ = ["IpcEventHandle", "IpcHandle", "handle_of_array", "handle_of_event", "open_ipc"]

# Process ids are one container's own: this tells processes of several apart.
_TOKEN: Final = os.urandom(16)
_INSTEAD: Final = (
    "this driver opens no memory to other processes (the emulated one never does); send the other process what "
    "`await aiocuda.to_host(array)` yields"
)


@dataclass(frozen=True, slots=True)
class _Owner:
    """Which process has made a handle, and which device it is about."""

    process_id: int
    process_token: bytes
    device_uuid: bytes

    @property
    def is_here(self) -> bool:
        return (self.process_id, self.process_token) == (os.getpid(), _TOKEN)

    def device(self) -> Device:
        """Return the device, as this process knows it."""
        for ordinal in range(runtime.device_count()):
            if runtime.uuid(ordinal) == self.device_uuid:
                return Device(ordinal)
        raise DeviceMismatchError(
            f"open_ipc: what process {self.process_id} lends is on the GPU of UUID {self.device_uuid.hex()}, which is "
            f"none of the {runtime.device_count()} that this process sees; look at CUDA_VISIBLE_DEVICES of both"
        )


@dataclass(frozen=True, slots=True, repr=False)
class IpcHandle:
    """An array that another process may open with `open_ipc`; made by `DeviceArray.ipc_handle`. It can be pickled.

    Attributes
    ----------
    shape, dtype
        The array's.
    strides
        The bytes from an item to the next along each axis; None where it is C-contiguous.
    owner
        The process that made it, and the device.
    memory, event
        The driver's handles of the memory, and of an event behind all that used the array.
    block_bytes, offset_bytes
        How much memory is opened, and where in it the array begins.
    is_read_only
        Whether the array was shared, so that nobody may write it.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...] | None
    owner: _Owner
    memory: bytes
    event: bytes
    block_bytes: int
    offset_bytes: int
    is_read_only: bool

    def __repr__(self) -> str:
        return f"<IpcHandle of {self.dtype}{list(self.shape)} of process {self.owner.process_id}>"


@dataclass(frozen=True, slots=True, repr=False)
class IpcEventHandle:
    """An event that another process may open with `open_ipc`; made by `Event.ipc_handle`. It can be pickled.

    Attributes
    ----------
    owner
        The process that made it, and the device.
    event
        The driver's handle.
    """

    owner: _Owner
    event: bytes

    def __repr__(self) -> str:
        return f"<IpcEventHandle of process {self.owner.process_id}>"


def handle_of_array(array: DeviceArray) -> IpcHandle:
    """Return what other processes open an array with; see `DeviceArray.ipc_handle`."""
    native = cast("_native.Array", array)
    _native.check_usable(native, False, "ipc_handle")
    if not native._is_interprocess:
        raise ArgumentValueError(
            f"ipc_handle: other processes can open arrays that this one has made with interprocess=True, and {array!r} "
            "is none; copy() it into one"
        )
    if native._size_bytes == 0:
        raise ArgumentValueError(f"ipc_handle: {array!r} has no items, and so no memory that could be opened")
    with faults.told_what_instead(_INSTEAD):
        memory, event, block_bytes, offset = _native.export_array(native)
    return IpcHandle(
        array.shape,
        array.dtype,
        None if array.is_contiguous else array.strides,
        _owner_here(array.device),
        memory,
        event,
        block_bytes,
        offset,
        bool(_native.story_of(native)),
    )


def handle_of_event(event: Event) -> IpcEventHandle:
    """Return what other processes open an event with; see `Event.ipc_handle`."""
    if not event._is_interprocess:
        raise ArgumentValueError(
            f"ipc_handle: other processes can open events that this one has recorded with interprocess=True, and "
            f"{event!r} is none"
        )
    return IpcEventHandle(_owner_here(event.device), event._lend())


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
    its own. What is written here is there for the other process once it has been told that the work is complete, or
    has waited for an event that is recorded behind it.
    """
    if not isinstance(handle, (IpcHandle, IpcEventHandle)):
        raise ArgumentTypeError(f"open_ipc takes what ipc_handle() gave in another process; {handle!r:.80} was given")
    if handle.owner.is_here:
        raise ArgumentValueError(
            f"open_ipc: {handle!r} was made by this very process, and only others can open it; use what it was made of"
        )
    device = handle.owner.device()
    with faults.told_what_instead(_INSTEAD):
        if isinstance(handle, IpcEventHandle):
            return Event._opened(device, f"of process {handle.owner.process_id}", handle.event)
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
            ),
        )


def _owner_here(device: Device) -> _Owner:
    return _Owner(os.getpid(), _TOKEN, runtime.uuid(device.ordinal))
