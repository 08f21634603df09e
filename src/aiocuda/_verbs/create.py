"""Operations that make arrays.

Always true: each returns a lazy `DeviceOp`; memory is allocated when it is executed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray, HostArray
from aiocuda._devices.device import DeviceLike
from aiocuda._devices.placing import place_of
from aiocuda._driver import runtime
from aiocuda._ops.operation import CallOp, CreateOp, DeviceOp
from aiocuda._values import dtypes
from aiocuda._values.dtypes import DTypeLike
from aiocuda._values.given import flag, whole_numbers
from aiocuda._verbs.copies import copy
from aiocuda._verbs.fills import FILLED_ON_DEVICE, pattern_of, repeated
from aiocuda.errors import ArgumentValueError

__all__ = [
    "empty",
    "empty_host",
    "full",
    "ones",
    "zeros",
]

Shape = int | Sequence[int]
NDArray = np.ndarray[Any, Any]
_PITCH_BYTES = 512


def empty(
    shape: Shape,
    dtype: DTypeLike = np.float32,
    device: DeviceLike | None = None,
    *,
    pitched: bool = False,
    managed: bool = False,
    interprocess: bool = False,
) -> DeviceOp[DeviceArray]:
    """Allocate an array in device memory; its contents are whatever was there.

    Parameters
    ----------
    shape
        An extent, or one for each axis. Extents of 0 are fine.
    dtype
        NumPy's or ml_dtypes' dtype of the items, or its name.
    device
        Where; None takes the device of the `use` in force when the operation is built, else that of its execution:
        see `aiocuda.use`.
    pitched
        Whether each row, ``array[i]``, begins at a multiple of 512 bytes, the pitch that CUDA's own allocator gives
        rows, for an array of two axes or more. A row lies in one piece, however many axes it has: float32 of the shape
        ``(height, width)`` has the strides ``(pitch, 4)``, an image of the shape ``(height, width, channels)``
        ``(pitch, 4 * channels, 4)``. Rows of a further axis: the shape ``(n * height, width)``, and a ``reshape`` to
        ``(n, height, width)``, which copies nothing. If the rows are no multiple of the pitch, the array does not lie
        in one piece. Copies take it as it is, by one call, and kernels take it through an ``aiocuda::View``.
    managed
        Whether it is in CUDA's managed memory: the host reaches it in place (`DeviceArray.numpy`), and kernels of all
        devices do. It counts in `MemoryInfo.managed_bytes`, and no memory limit bounds it. Not inside a graph, to which
        it may be an input.
    interprocess
        Whether other processes may open it (`DeviceArray.ipc_handle`). It is device memory of its own, in multiples of
        2 MiB, and is used as any other here. Not inside a graph either.

    Returns
    -------
    DeviceOp[DeviceArray]
        *Stream*: the device's stream in force; the memory is there from that point of the stream on.
        *Blocks*: no; for managed and interprocess memory, as long as the driver takes, where no block is kept from
        before (with the GIL released). *On cancel*: memory that was allocated is freed behind its users; managed and
        interprocess memory is kept, for later arrays, until `Device.trim_memory`.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        The dtype cannot be on a device; the shape is negative or larger than any memory; a device has no managed memory
        that the host may touch while kernels run; an array was to be both managed and interprocess.
    OutOfMemoryError
        When executed: the device has no room.
    CaptureError
        When executed: managed or interprocess memory was asked for inside a graph.
    """
    memory = _memory(managed, interprocess)
    if not flag(pitched, "pitched"):
        return _create(shape, dtype, device, memory)
    extents, kind = extents_of(shape), dtypes.to_dtype(dtype)
    if len(extents) < 2 or min(extents) <= 0:
        return _create(extents, kind, device, memory)
    row = math.prod(extents[1:])
    items = math.lcm(_PITCH_BYTES, kind.itemsize) // kind.itemsize
    padded = _create((extents[0], (row + items - 1) // items * items), kind, device, memory)
    return CallOp(
        "then",
        lambda array: array[:, :row].reshape(extents),
        padded,
        yields="device_array",
        dtype=dtypes.code_of(kind),
        device=None if managed else place_of(device),  # a kernel of another device may take it
        title="the creation of a pitched array",
    )


def zeros(
    shape: Shape,
    dtype: DTypeLike = np.float32,
    device: DeviceLike | None = None,
    *,
    managed: bool = False,
    interprocess: bool = False,
) -> DeviceOp[DeviceArray]:
    """Make an array of zeros in device memory; otherwise as `empty`.

    Parameters
    ----------
    shape, dtype, device, managed, interprocess
        As for `empty`.

    Returns
    -------
    DeviceOp[DeviceArray]
        An array of zeros. Otherwise as `empty`.
    """
    return _create(shape, dtype, device, _memory(managed, interprocess), 0)


def ones(
    shape: Shape,
    dtype: DTypeLike = np.float32,
    device: DeviceLike | None = None,
    *,
    managed: bool = False,
    interprocess: bool = False,
) -> DeviceOp[DeviceArray]:
    """Make an array of ones in device memory; otherwise as `empty`.

    Parameters
    ----------
    shape, dtype, device, managed, interprocess
        As for `empty`.

    Returns
    -------
    DeviceOp[DeviceArray]
        An array of ones. Otherwise as `empty`.
    """
    return _create(shape, dtype, device, _memory(managed, interprocess), 1)


def full(
    shape: Shape,
    value: object,
    dtype: DTypeLike = np.float32,
    device: DeviceLike | None = None,
    *,
    managed: bool = False,
    interprocess: bool = False,
) -> DeviceOp[DeviceArray]:
    """Make an array that is filled with one value in device memory; otherwise as `empty`.

    Parameters
    ----------
    shape
        As for `empty`.
    value
        One number that the dtype can hold.
    dtype, device, managed, interprocess
        As for `empty`.

    Returns
    -------
    DeviceOp[DeviceArray]
        Each item is the value, rounded to the dtype. Otherwise as `empty`.

    Raises
    ------
    ArgumentValueError
        The value is no single number, or the dtype cannot hold it.
    """
    return _create(shape, dtype, device, _memory(managed, interprocess), value)


def empty_host(shape: Shape, dtype: DTypeLike = np.float32) -> DeviceOp[HostArray]:
    """Allocate an array in page-locked host memory; its contents are whatever was there.

    Parameters
    ----------
    shape, dtype
        As for `empty`.

    Returns
    -------
    DeviceOp[HostArray]
        Complete as soon as it is submitted. Allocating may take milliseconds the first time; memory is
        used again. *Blocks*: for the allocation. *On cancel*: nothing is lost.
    """
    kind = dtypes.to_dtype(dtype)
    return cast("DeviceOp[HostArray]", CreateOp(extents_of(shape), dtypes.code_of(kind), _native.HOST))


def _create(
    shape: Shape, dtype: DTypeLike, device: DeviceLike | None, memory: str, *fill: object
) -> DeviceOp[DeviceArray]:
    kind = dtypes.to_dtype(dtype)
    extents, place = extents_of(shape), place_of(device)
    pattern = pattern_of(fill[0], kind) if fill else b""
    if fill and len(pattern) not in FILLED_ON_DEVICE:
        whole = _create(extents, kind, place, memory)
        return cast("DeviceOp[DeviceArray]", copy(whole, repeated(pattern, kind, extents)))
    return CreateOp(extents, dtypes.code_of(kind), place, pattern, fill[0] if fill else None, memory)


def _memory(managed: bool, interprocess: bool) -> str:
    """Return what native code calls the kind of memory."""
    managed, interprocess = flag(managed, "managed"), flag(interprocess, "interprocess")
    if managed and interprocess:
        raise ArgumentValueError("an array is managed or interprocess: no other process can open managed memory")
    if not managed:
        return "interprocess" if interprocess else "ordinary"
    lacking = runtime.lacks_managed_access()
    if lacking is not None:
        raise ArgumentValueError(
            f"managed=True: device {lacking} has no concurrent managed access, so the host must not touch managed "
            "memory while any kernel runs; make ordinary arrays, and bring them over with to_device and to_host"
        )
    return "managed"


def extents_of(shape: Shape) -> tuple[int, ...]:
    """Return the extent along each axis of what a user may give for a shape."""
    extents = whole_numbers(shape, "a shape")
    for extent in extents:
        if not -(2**63) <= extent < 2**63:
            raise ArgumentValueError(f"a shape of {extents} is larger than any memory")
    return extents
