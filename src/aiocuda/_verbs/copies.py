"""Operations that move and copy arrays, between host and devices and among devices.

Always true: each returns a lazy `DeviceOp`, and host memory is touched when it is executed. Devices copy from and to
page-locked memory themselves; for other memory, native threads carry the bytes, in chunks, while the device copies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast, overload

import numpy as np

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray, HostArray
from aiocuda._arrays.partition import Partition
from aiocuda._devices.device import DeviceLike
from aiocuda._devices.placing import place_of
from aiocuda._ops import composing
from aiocuda._ops.composing import once_known, value
from aiocuda._ops.operation import CallOp, CopyOp, CreateOp, DeviceOp
from aiocuda._values import dtypes
from aiocuda._values.dtypes import DTypeLike
from aiocuda._values.given import flag
from aiocuda._values.host_data import NDArray, as_numpy, as_target, cut, described
from aiocuda._values.host_views import view_of
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["copy", "dup", "to_device", "to_host"]

Out = TypeVar("Out", bound=NDArray | HostArray)
Array = TypeVar("Array", bound=DeviceArray | HostArray)
Made = TypeVar("Made", bound=DeviceArray | HostArray | NDArray)
# A stream gets a copy as chunks, of 8 MiB at most, and the driver's queues have room for some 160 of them: see
# native/driver/staging.cpp. A larger copy is several.
_MOST_BYTES = 1 << 30


def to_device(x: object, device: DeviceLike | None = None, *, dtype: DTypeLike = None) -> DeviceOp[DeviceArray]:
    """Bring data to a device.

    Parameters
    ----------
    x
        A NumPy array (of any strides, read-only ones too) or what `numpy.asarray` takes, bytes (as uint8), a tensor in
        host memory that DLPack lends; a `HostArray`; a `DeviceArray` (of another device: a peer copy; of this one:
        itself); or an operation that yields one of the last two.
    device
        Where to; None takes the device of the `use` in force when the operation is built, else that of its execution:
        see `aiocuda.use`.
    dtype
        For data that is not an array yet.

    Returns
    -------
    DeviceOp[DeviceArray]
        A new array, C-contiguous. *Stream*: the device's stream in force; what follows there waits for the copy.
        *Blocks*: no; up to 256 KiB are read by the submitting thread, which takes up to some 25 us, more by native
        threads. Their page-locked memory, 64 MiB at most for a stream with such a copy and 256 MiB for a device, is
        allocated at first use, which takes milliseconds. *On cancel*: the transfer goes on and the memory is freed
        behind it.

    Raises
    ------
    ArgumentTypeError
        `x` is no array data, or of a dtype that a device cannot hold: Python objects, a foreign byte order.
    ArgumentValueError
        `x` is bytes that are no whole number of items.

    Notes
    -----
    Host data is read at some time between the operation's submission and its completion, and must not be written
    meanwhile. The library keeps it alive. In a graph it is read when the graph is made.
    """
    place = place_of(device)
    x = as_array(x, "to_device")
    if dtype is not None and isinstance(x, (_native.Op, _native.Array)):
        raise ArgumentTypeError("to_device moves arrays as they are; dtype= is for host data that is not an array yet")
    if isinstance(x, _native.Op):
        yields, code, where = x._spec
        if yields not in {"device_array", "host_array"}:
            move = functools.partial(to_device, device=place)
            return once_known(move, x, dtype=code, device=place, title="a copy to a device", moves=True)
        return cast("DeviceOp[DeviceArray]", x) if place is not None and where == place else _moved(x, place)
    if isinstance(x, _native.Array):
        _native.check_usable(x, False, "to_device")
        return value(cast("DeviceArray", x)) if x._device == place else _moved(x, place)
    data = as_numpy(x, dtype)
    created = CreateOp(data.shape, dtypes.code_of(data.dtype), place)
    if data.nbytes <= _MOST_BYTES:
        return cast("DeviceOp[DeviceArray]", CopyOp(created, _pageable(data)))
    return cast("DeviceOp[DeviceArray]", created.then(lambda array: _in_parts(array, array, data)))


@overload
def to_host(x: object, out: None = None, *, reclaim: bool = False) -> DeviceOp[NDArray]: ...
@overload
def to_host(x: object, out: Out, *, reclaim: bool = False) -> DeviceOp[Out]: ...
def to_host(x: object, out: Any = None, *, reclaim: bool = False) -> DeviceOp[Any]:
    """Bring an array to the host.

    Parameters
    ----------
    x
        A `DeviceArray`, a `HostArray`, or an operation that yields one.
    out
        The destination: a NumPy array that can be written, of any strides, or a `HostArray`; of the array's shape and
        dtype. None: new page-locked memory.
    reclaim
        Whether the use of `x` ends with the copy, as with its ``close()``: its memory is freed behind it, unless other
        handles are left. Not inside a graph, whose launches would need it again.

    Returns
    -------
    DeviceOp[numpy.ndarray]
        `out`; else a new NumPy array in page-locked memory that nobody else writes. *Stream*: the device's stream in
        force. *Blocks*: no, except to allocate page-locked memory, which takes milliseconds if none is kept from
        before; a NumPy array is written by native threads, as for `to_device`. *On cancel*: the copy goes on; its
        memory is used again behind it, and `out` is written.

    Raises
    ------
    ArgumentTypeError
        One of them is no array, or not of a kind that can be written.
    ArgumentValueError
        `out` is read-only, has several items in one place, or differs in shape or dtype (found when it is executed
        where `x` is an operation).
    OwnershipError
        `x` was closed, moved or partitioned; or `out` cannot be written.

    Notes
    -----
    `out` must be neither read nor written until the operation is complete; the library keeps it alive.
    """
    x = as_array(x, "to_host")
    if isinstance(x, _native.Array):
        _native.check_usable(x, False, "to_host")
    if not isinstance(x, (_native.Op, DeviceArray, HostArray)):
        raise ArgumentTypeError(
            f"to_host takes an array on a device, or an operation that yields one; {described(x)} was given"
        )
    if out is not None and not isinstance(out, (np.ndarray, HostArray)):
        raise ArgumentTypeError(f"to_host writes to a NumPy array or a HostArray; out={described(out)} was given")
    reclaim = flag(reclaim, "reclaim")
    if reclaim and isinstance(x, _native.Op):
        return _then(lambda array: to_host(array, out, reclaim=True), x, "a copy to the host")
    landed = CopyOp(CreateOp(like=x, device=_native.HOST), x) if out is None else copy(out, x)
    if reclaim:
        landed = CallOp("inspect", lambda _: cast("DeviceArray", x).close(), landed, title="a copy to the host")
    return landed if out is not None else CallOp("map", HostArray.numpy, landed, title="a copy to the host")


@overload
def copy(destination: Made | DeviceOp[Made], source: Any) -> DeviceOp[Made]: ...
@overload
def copy(destination: Any, source: Any) -> DeviceOp[Any]: ...
def copy(destination: Any, source: Any) -> DeviceOp[Any]:
    """Copy between arrays that exist: device, peer device, page-locked, NumPy's, in any pair but of two of NumPy's.

    Parameters
    ----------
    destination
        A `DeviceArray`, a `HostArray`, or an operation that yields one; or a NumPy array that can be written.
    source
        The same, or host data as `to_device` takes it; of the destination's shape and dtype. Any strides will do.

    Returns
    -------
    DeviceOp[DeviceArray, HostArray or numpy.ndarray]
        The destination. *Stream*: in force on the destination's device, or on the source's where the
        destination is host memory. *Blocks*: as `to_device`; host data for a destination that does not lie in one piece
        takes memory on the device as well. *On cancel*: the copy goes on.

    Raises
    ------
    ArgumentTypeError
        One of them is no array, or none of them is on a device or page-locked.
    ArgumentValueError
        Shapes or dtypes differ; or both are parts of one array and overlap (found when it is executed); or the
        destination is a NumPy array that is read-only, or has several items in one place.

    Notes
    -----
    NumPy's memory must not be touched until the operation is complete; the library keeps it alive. More than 1 GiB of
    it are copied as several operations of 1 GiB each: what others do with the destination may come between them.
    """
    source = as_array(source, "copy: the source")
    if isinstance(destination, np.ndarray):
        return _to_numpy(destination, source)
    destination = as_array(destination, "copy: the destination")
    if not isinstance(destination, (_native.Op, _native.Array)):
        raise ArgumentTypeError(
            "copy writes to a DeviceArray, a HostArray, an operation that yields one or a NumPy array; "
            f"{described(destination)} was given"
        )
    if isinstance(destination, _native.Array):
        _native.check_usable(destination, True, "copy: the destination")
    if not isinstance(source, (_native.Op, _native.Array)):
        return _from_numpy(destination, as_numpy(source))
    if isinstance(source, _native.Array):
        _native.check_usable(source, False, "copy: the source")
        if isinstance(destination, _native.Array) and not _native.are_alike(destination, source):
            raise _unlike(destination, source)
    return CopyOp(destination, source)


@overload
def dup(x: Array | DeviceOp[Array]) -> DeviceOp[Array]: ...
@overload
def dup(x: Any) -> DeviceOp[Any]: ...
def dup(x: Any) -> DeviceOp[Any]:
    """Copy an array to a new one beside it: same device (or page-locked memory), shape and dtype.

    Parameters
    ----------
    x
        A `DeviceArray`, a `HostArray`, or an operation that yields one.

    Returns
    -------
    DeviceOp[DeviceArray or HostArray]
        The new array, C-contiguous; otherwise as `copy`.

    Raises
    ------
    ArgumentTypeError
        It is no array, and no operation that yields one.
    """
    x = as_array(x, "dup")
    if not isinstance(x, (_native.Op, _native.Array)):
        raise ArgumentTypeError(f"dup takes an array, or an operation that yields one; {described(x)} was given")
    if isinstance(x, _native.Array):
        _native.check_usable(x, False, "dup")
    return CopyOp(CreateOp(like=x, is_beside=True), x)


def _from_numpy(destination: Any, data: NDArray) -> DeviceOp[Any]:
    if isinstance(destination, _native.Op):
        if isinstance(destination, CreateOp) and data.nbytes <= _MOST_BYTES:
            return CopyOp(destination, _pageable(data))
        return _then(lambda array: copy(array, data), destination, "a copy")
    memory = _pageable(data)
    if isinstance(destination, (DeviceArray, HostArray)):
        if not _native.are_alike(destination, memory):
            raise _unlike(destination, data)
        if isinstance(destination, DeviceArray) and not destination.is_contiguous:
            return CopyOp(destination, to_device(data, destination.device))
        if isinstance(destination, DeviceArray) and data.nbytes > _MOST_BYTES:
            return _in_parts(destination, destination, data)
    return CopyOp(destination, memory)


def _to_numpy(destination: NDArray, source: Any) -> DeviceOp[Any]:
    if isinstance(source, _native.Op):
        return _then(lambda array: copy(destination, array), source, "a copy")
    if isinstance(source, Partition) or not isinstance(source, (DeviceArray, HostArray)):
        raise ArgumentTypeError(
            f"copy to a NumPy array takes an array on a device or in page-locked memory; {described(source)} was given"
        )
    _native.check_usable(source, False, "copy: the source")
    target = _pageable(as_target(destination, "copy"))
    if target.repeats:
        raise ArgumentValueError(
            f"copy: several items of the NumPy array of shape {destination.shape} and strides {destination.strides} "
            "lie in one place; give one whose items are apart"
        )
    if not _native.are_alike(source, target):
        raise _unlike(destination, source)
    if isinstance(source, DeviceArray) and source.is_contiguous and source.nbytes > _MOST_BYTES:
        return _in_parts(destination, destination, source)
    return CopyOp(target, source if source.is_contiguous else dup(source))


def _in_parts(whole: Any, destination: Any, source: Any) -> DeviceOp[Any]:
    parts = cut(source.shape, source.nbytes, _MOST_BYTES)
    return composing.zip(*(copy(destination[part], source[part]) for part in parts)).then(lambda _: whole)


def _then(function: Callable[[Any], Any], op: Any, title: str) -> DeviceOp[Any]:
    return CallOp("then", function, op, title=title)


def _pageable(data: NDArray) -> _native.Pageable:
    return _native.Pageable(data, dtypes.code_of(data.dtype), view_of(data))


def _moved(x: Any, place: int | None) -> DeviceOp[Any]:
    return CopyOp(CreateOp(like=x, device=place), x, moves=True)


def _unlike(destination: Any, source: Any) -> ArgumentValueError:
    return ArgumentValueError(
        f"copy: destination and source differ: {_alike(destination)} and {_alike(source)}; give both the same "
        "shape and dtype"
    )


def _alike(array: Any) -> str:
    return f"NumPy's {array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else repr(array)
