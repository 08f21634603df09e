"""The handle of an array, a plain value, from which another process opens the array.

Always true: making one waits for nothing; it says what must have passed before the memory is used there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from aiocuda import _native
from aiocuda._devices.lending import Owner
from aiocuda._engine import faults
from aiocuda._naming import name_publicly
from aiocuda._values import dtypes
from aiocuda.errors import ArgumentValueError

__all__ = ["INSTEAD", "IpcHandle", "handle_of"]

INSTEAD: Final = (
    "this driver opens no memory to other processes; send the other process what `await aiocuda.to_host(array)` yields"
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
    owner: Owner
    memory: bytes
    event: bytes
    block_bytes: int
    offset_bytes: int
    is_read_only: bool

    def __repr__(self) -> str:
        return f"<IpcHandle of {self.dtype}{list(self.shape)} of process {self.owner.process_id}>"


def handle_of(array: _native.Array) -> IpcHandle:
    """Return what other processes open an array with; see `DeviceArray.ipc_handle`."""
    _native.check_usable(array, False, "ipc_handle")
    _native.require_well(array)
    if not array._is_interprocess:
        raise ArgumentValueError(
            f"ipc_handle: other processes can open arrays that this one has made with interprocess=True, and {array!r} "
            "is none; copy() it into one"
        )
    if array._size_bytes == 0:
        raise ArgumentValueError(f"ipc_handle: {array!r} has no items, and so no memory that could be opened")
    with faults.told_what_instead(INSTEAD):
        memory, event, block_bytes, offset = _native.export_array(array)
    return IpcHandle(
        array._shape,
        dtypes.dtype_of(array._dtype),
        None if array._is_contiguous else array._strides,
        Owner.here(array._device),
        memory,
        event,
        block_bytes,
        offset,
        bool(_native.story_of(array)),
    )


name_publicly("aiocuda", globals(), ("IpcHandle",))
