"""Operations that make, move and copy arrays.

Always true: each returns a lazy `DeviceOp`; memory is allocated, and host data read, when it is executed.
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from aiocuda import _native
from aiocuda._driver import runtime
from aiocuda._engine import dtypes, faults
from aiocuda._engine.dtypes import DTypeLike
from aiocuda.array import DeviceArray, HostArray
from aiocuda.device import Device, _stream_known, as_ordinal
from aiocuda.errors import ArgumentTypeError, ArgumentValueError
from aiocuda.ops import CallOp, CopyOp, CreateOp, DeviceOp, lift, value
from aiocuda.policies import _lanes

__all__ = [
    "copy",
    "dup",
    "empty",
    "empty_host",
    "full",
    "ones",
    "to_device",
    "to_host",
    "zeros",
]

Shape = int | Sequence[int]
NDArray = np.ndarray[Any, Any]
_HOST = -1
_UNKNOWN = -2


def empty(shape: Shape, dtype: DTypeLike = np.float32, device: Device | int | None = None) -> DeviceOp[DeviceArray]:
    """Allocate an array in device memory; its contents are whatever was there.

    Parameters
    ----------
    shape
        An extent, or one for each axis. Extents of 0 are fine.
    dtype
        NumPy's or ml_dtypes' dtype of the items, or its name.
    device
        Where; None takes the device in force when the operation is built.

    Returns
    -------
    DeviceOp[DeviceArray]
        *Stream*: the device's stream in force; the memory is there from that point of the stream on.
        *Blocks*: no. *On cancel*: memory that was allocated is freed behind its users.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        The dtype cannot be on a device; the shape is negative or larger than any memory.
    OutOfMemoryError
        When executed: the device has no room.
    """
    return _create(shape, dtype, device)


def zeros(shape: Shape, dtype: DTypeLike = np.float32, device: Device | int | None = None) -> DeviceOp[DeviceArray]:
    """Make an array of zeros in device memory; otherwise as `empty`."""
    return _create(shape, dtype, device, 0)


def ones(shape: Shape, dtype: DTypeLike = np.float32, device: Device | int | None = None) -> DeviceOp[DeviceArray]:
    """Make an array of ones in device memory; otherwise as `empty`."""
    return _create(shape, dtype, device, 1)


def full(
    shape: Shape, value: object, dtype: DTypeLike = np.float32, device: Device | int | None = None
) -> DeviceOp[DeviceArray]:
    """Make an array that is filled with one value in device memory; otherwise as `empty`.

    Parameters
    ----------
    shape
        As for `empty`.
    value
        One number that the dtype can hold.
    dtype, device
        As for `empty`.

    Raises
    ------
    ArgumentValueError
        The value is no single number, or the dtype cannot hold it.
    """
    return _create(shape, dtype, device, value)


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
    return cast("DeviceOp[HostArray]", CreateOp(extents_of(shape), dtypes.code_of(kind), _HOST))


def to_device(x: object, device: Device | int | None = None, *, dtype: DTypeLike = None) -> DeviceOp[DeviceArray]:
    """Bring data to a device.

    Parameters
    ----------
    x
        A NumPy array or what `numpy.asarray` takes, a `HostArray`, a `DeviceArray` (of another device: a peer
        copy; of this one: itself), or an operation that yields one of them.
    device
        Where to; None takes the device in force when the operation is built.
    dtype
        For data that is not an array yet.

    Returns
    -------
    DeviceOp[DeviceArray]
        A new array, C-contiguous. *Stream*: the device's stream in force. *Blocks*: host data that is not
        page-locked is copied to page-locked memory at submission, which takes as long as a memcpy; the
        transfer itself blocks nothing. *On cancel*: the transfer goes on and the memory is freed behind it.

    Notes
    -----
    NumPy data is read when the operation is executed, not when it is built; a `HostArray` is read by the
    device: it must not be written until the operation is complete.
    """
    ordinal = as_ordinal(device)
    if dtype is not None and isinstance(x, (_native.Op, _native.Array)):
        raise ArgumentTypeError("to_device moves arrays as they are; dtype= is for host data that is not an array yet")
    if isinstance(x, _native.Op):
        yields, code, where = x._spec
        if yields not in {"device_array", "host_array"} or where == _UNKNOWN:
            return cast(
                "DeviceOp[DeviceArray]",
                CallOp(
                    "then",
                    functools.partial(to_device, device=ordinal),
                    x,
                    yields="device_array",
                    dtype=code,
                    device=ordinal,
                    title="a copy to a device",
                ),
            )
        return cast("DeviceOp[DeviceArray]", x) if where == ordinal else _copy_of(x, ordinal)
    if isinstance(x, _native.Array):
        _native.check_usable(x, False, "to_device")
        return value(cast("DeviceArray", x)) if x._device == ordinal else _copy_of(x, ordinal)
    data = host_data(x, dtype)
    return cast(
        "DeviceOp[DeviceArray]",
        CopyOp(CreateOp(data.shape, dtypes.code_of(data.dtype), ordinal), staged(data)),
    )


def to_host(x: object) -> DeviceOp[NDArray]:
    """Bring an array to the host.

    Parameters
    ----------
    x
        A `DeviceArray`, a `HostArray`, or an operation that yields one.

    Returns
    -------
    DeviceOp[numpy.ndarray]
        A new NumPy array in page-locked memory that nobody else writes. *Stream*: the device's stream in
        force. *Blocks*: no. *On cancel*: the copy goes on, and its memory is used again behind it.
    """
    if isinstance(x, _native.Array):
        _native.check_usable(x, False, "to_host")
    if not isinstance(x, (_native.Op, DeviceArray, HostArray)):
        raise ArgumentTypeError(
            f"to_host takes an array on a device, or an operation that yields one; {_described(x)} was given"
        )
    landed = _copy_of(x, _HOST)
    return cast("DeviceOp[NDArray]", CallOp("map", HostArray.numpy, landed, title="a copy to the host"))


def copy(destination: Any, source: Any) -> DeviceOp[Any]:
    """Copy between arrays that exist: device, peer device, page-locked, in any pair.

    Parameters
    ----------
    destination
        A `DeviceArray`, a `HostArray`, or an operation that yields one.
    source
        The same, or host data as `to_device` takes it; of the destination's shape and dtype.

    Returns
    -------
    DeviceOp[DeviceArray or HostArray]
        The destination. *Stream*: in force on the destination's device, or on the source's where the
        destination is host memory; where both are, on the device in force, by way of as much of its memory.
        *Blocks*: as `to_device`. *On cancel*: the copy goes on.

    Raises
    ------
    ArgumentValueError
        Shapes or dtypes differ; or both are parts of one array and overlap (found when it is executed).
    """
    if not isinstance(destination, (_native.Op, _native.Array)):
        raise ArgumentTypeError(
            "copy writes to a DeviceArray, a HostArray or an operation that yields one; "
            f"{_described(destination)} was given"
        )
    if not isinstance(source, (_native.Op, _native.Array)):
        source = staged(host_data(source, None))
    for array, writes, where in ((destination, True, "copy: the destination"), (source, False, "copy: the source")):
        if isinstance(array, _native.Array):
            _native.check_usable(array, writes, where)
    if isinstance(destination, _native.Array) and isinstance(source, _native.Array):
        _require_alike(destination, source)
    return CopyOp(destination, source)


def dup(x: Any) -> DeviceOp[Any]:
    """Copy an array to a new one beside it: same device (or page-locked memory), shape and dtype.

    Parameters
    ----------
    x
        A `DeviceArray`, a `HostArray`, or an operation that yields one.

    Returns
    -------
    DeviceOp[DeviceArray or HostArray]
        The new array; otherwise as `copy`.
    """
    if not isinstance(x, (_native.Op, _native.Array)):
        raise ArgumentTypeError(f"dup takes an array, or an operation that yields one; {_described(x)} was given")
    if isinstance(x, _native.Array):
        _native.check_usable(x, False, "dup")
    return _copy_of(x, _UNKNOWN)


def _create(shape: Shape, dtype: DTypeLike, device: Device | int | None, *fill: object) -> DeviceOp[DeviceArray]:
    kind = dtypes.to_dtype(dtype)
    extents, ordinal = extents_of(shape), as_ordinal(device)
    pattern = _pattern(fill[0], kind) if fill else b""
    if len(pattern) not in _FILLED_ON_DEVICE:
        whole = empty(extents, kind, ordinal)  # which looks at the shape
        item = np.frombuffer(pattern, kind).reshape(())
        return cast("DeviceOp[DeviceArray]", CopyOp(whole, staged(np.broadcast_to(item, extents))))
    create = CreateOp(extents, dtypes.code_of(kind), ordinal, pattern, *fill)
    return cast("DeviceOp[DeviceArray]", create)


# The item sizes, in bytes, that native code fills with; 0 is none asked for.
_FILLED_ON_DEVICE = frozenset({0, 1, 2, 4, 8, 16})


def _pattern(fill: object, kind: np.dtype[Any]) -> bytes:
    try:
        # NumPy only warns where a value does not fit; rounding a small one to 0 is fine.
        with np.errstate(all="raise", under="ignore"), warnings.catch_warnings():
            warnings.simplefilter("error")
            return np.full((), fill, kind).tobytes()
    except (TypeError, ValueError, ArithmeticError, Warning) as error:
        raise ArgumentValueError(f"{fill!r} cannot fill an array of dtype {kind}: {error}") from error


def extents_of(shape: Shape) -> tuple[int, ...]:
    """Return the extent along each axis of what a user may give for a shape."""
    try:
        # An array has __index__ too, and is an integer only where it has no axis.
        is_one = hasattr(shape, "__index__") and getattr(shape, "ndim", 0) == 0
        extents = (operator.index(cast("int", shape)),) if is_one else tuple(map(operator.index, cast("Any", shape)))
    except (TypeError, AttributeError):
        raise ArgumentTypeError(f"a shape is an int or a sequence of ints; {shape!r} was given") from None
    if any(not -(2**63) <= extent < 2**63 for extent in extents):
        raise ArgumentValueError(f"a shape of {extents} is larger than any memory")
    return extents


def host_data(x: object, dtype: DTypeLike = None) -> NDArray:
    """Return host data as a NumPy array of a dtype that a device can hold."""
    try:
        data = np.asarray(x, None if dtype is None else dtypes.to_dtype(dtype))
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(f"{_described(x)} is no array data: {error}") from error
    dtypes.to_dtype(data.dtype)
    return data


def _described(x: object) -> str:
    return f"{type(x).__name__} {x!r:.80}"


def staged(data: NDArray) -> CreateOp:
    """Make an operation of page-locked memory that host data is copied to at submission, by the submitting thread."""

    def fill(staged: HostArray) -> None:
        np.copyto(staged.numpy(), data)

    return CreateOp(data.shape, dtypes.code_of(data.dtype), _HOST, fill=fill)


def _copy_of(x: Any, device: int) -> DeviceOp[Any]:
    return CopyOp(CreateOp(like=x, device=device), x)


def _require_alike(destination: Any, source: Any) -> None:
    if destination.shape != source.shape or destination.dtype != source.dtype:
        raise ArgumentValueError(
            f"copy: destination and source differ: {destination!r} and {source!r}; give both the same shape and dtype"
        )


_native.set_hooks(faults.refused, faults.lost, lift, runtime.open_device, _stream_known, _lanes)
