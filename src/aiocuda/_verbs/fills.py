"""Operations that set all items of an array to one value, and what a value is in an array's dtype.

Always true: a value is the dtype's to the bit, as NumPy makes it; what the dtype cannot hold is an error.
"""

from __future__ import annotations

import warnings
from typing import Any, Final, overload

import numpy as np

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray, HostArray
from aiocuda._arrays.partition import Partition
from aiocuda._ops.operation import CallOp, DeviceOp, FillOp
from aiocuda._values import dtypes
from aiocuda._values.host_data import NDArray, described
from aiocuda._verbs.copies import Array, copy
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["FILLED_ON_DEVICE", "fill", "pattern_of", "repeated"]

# The item sizes, in bytes, that native code fills with.
FILLED_ON_DEVICE: Final = frozenset({1, 2, 4, 8, 16})


@overload
def fill(destination: Array | DeviceOp[Array], value: object) -> DeviceOp[Array]: ...
@overload
def fill(destination: Any, value: object) -> DeviceOp[Any]: ...
def fill(destination: Any, value: object) -> DeviceOp[Any]:
    """Set all items of an array that is there to one value.

    Parameters
    ----------
    destination
        A `DeviceArray` or a `HostArray`, of any strides, an operation that yields one, or a framework's tensor.
    value
        One number that the array's dtype can hold, as for `full`: negative zeros and the bits of NaNs are kept. An
        integer dtype takes a float without its fraction.

    Returns
    -------
    DeviceOp[DeviceArray or HostArray]
        The destination. *Stream*: in force on the destination's device; on the device in force where it is
        page-locked memory, which a device fills as it does its own. *Blocks*: no. *On cancel*: the fill goes on.

    Raises
    ------
    ArgumentTypeError
        It is no such array.
    ArgumentValueError
        The value is no single number, or the dtype cannot hold it (found when it is executed where the dtype is known
        only then); or items lie partly upon one another, as another library's may.
    OwnershipError
        The array was closed, moved, shared or partitioned, or is read-only.

    Notes
    -----
    The driver fills with 1, 2 or 4 bytes, in rows: values of 8 and 16 bytes that do not repeat within are written a
    4-byte column at a time. If such an array does not lie in one piece and has rows of several items, memory of its
    size is filled on the device, copied from there, and then freed.

    In a graph it is memset nodes, run at each launch.
    """
    destination = as_array(destination, "fill")
    if isinstance(destination, _native.Op):
        yields, code, _ = destination._spec
        if code == dtypes.ANY or yields not in {"device_array", "host_array"}:
            return _once_known(destination, value)
        kind = dtypes.dtype_of(code)
    elif isinstance(destination, (DeviceArray, HostArray)) and not isinstance(destination, Partition):
        _native.check_usable(destination, True, "fill: the destination")
        kind = destination.dtype
    else:
        raise ArgumentTypeError(
            f"fill takes a DeviceArray, a HostArray or an operation that yields one; {described(destination)} was given"
        )
    pattern = pattern_of(value, kind)
    if len(pattern) in FILLED_ON_DEVICE:
        return FillOp(destination, pattern, value)
    if isinstance(destination, _native.Op):
        return _once_known(destination, value)
    return copy(destination, repeated(pattern, kind, destination.shape))


def _once_known(destination: _native.Op, value: object) -> DeviceOp[Any]:
    return CallOp("then", lambda array: fill(array, value), destination, title="a fill")


def pattern_of(value: object, kind: np.dtype[Any]) -> bytes:
    """Return the bytes of a value in a dtype.

    Raises
    ------
    ArgumentValueError
        The value is no single number, or the dtype cannot hold it.
    """
    try:
        # NumPy only warns where a value does not fit; rounding a small one to 0 is fine.
        with np.errstate(all="raise", under="ignore"), warnings.catch_warnings():
            warnings.simplefilter("error")
            item = np.full((), value, kind)
        if kind.kind in "iu" and type(value) is not int:  # NumPy checks these, and keeps the low bits of all others
            given = int(np.asarray(value).item())
            if given != int(item):
                raise OverflowError(f"{given} is out of bounds for {kind}")
        return item.tobytes()
    except (TypeError, ValueError, ArithmeticError, Warning) as error:
        raise ArgumentValueError(f"{value!r} cannot fill an array of dtype {kind}: {error}") from error


def repeated(pattern: bytes, kind: np.dtype[Any], shape: tuple[int, ...]) -> NDArray:
    """Return an item's bytes as an array of a shape that has it everywhere, and takes no memory."""
    return np.broadcast_to(np.frombuffer(pattern, kind).reshape(()), shape)
