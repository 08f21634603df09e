"""Operations that make arrays like others: of their shape and dtype, or of data that may be an array already.

Always true: each returns a lazy `DeviceOp` of a `DeviceArray`, beside the array that it is like unless told elsewhere.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import numpy as np

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray, HostArray
from aiocuda._devices.device import DeviceLike, as_ordinal
from aiocuda._ops.composing import once_known, value
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import dtypes
from aiocuda._values.dtypes import DTypeLike
from aiocuda._values.host_data import as_numpy
from aiocuda._verbs.conversion import convert
from aiocuda._verbs.copies import to_device
from aiocuda._verbs.create import Shape, empty, full
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError

__all__ = ["asarray", "empty_like", "full_like", "ones_like", "zeros_like"]

_NOTHING: Any = object()


def empty_like(
    x: Any, dtype: DTypeLike = None, device: DeviceLike | None = None, *, shape: Shape | None = None
) -> DeviceOp[DeviceArray]:
    """Allocate an array in device memory with the shape and dtype of another; its contents are whatever was there.

    Parameters
    ----------
    x
        A `DeviceArray`, a `HostArray`, a NumPy array or what `numpy.asarray` takes; or an operation that yields an
        array, which is executed for it.
    dtype
        None takes that of `x`.
    device
        Where; None takes the device of `x`, and where that is in host memory, as for `empty`.
    shape
        None takes that of `x`.

    Returns
    -------
    DeviceOp[DeviceArray]
        C-contiguous, whatever the strides of `x`; otherwise as `empty`.

    Raises
    ------
    ArgumentTypeError
        `x` is no array (of what an operation yields: when it is executed), or the dtype cannot be on a device.
    """
    return _like("empty_like", x, dtype, device, shape, _NOTHING)


def zeros_like(
    x: Any, dtype: DTypeLike = None, device: DeviceLike | None = None, *, shape: Shape | None = None
) -> DeviceOp[DeviceArray]:
    """Make an array of zeros with the shape and dtype of another; otherwise as `empty_like`.

    Parameters
    ----------
    x, dtype, device, shape
        As for `empty_like`.

    Returns
    -------
    DeviceOp[DeviceArray]
        An array of zeros. Otherwise as `empty_like`.
    """
    return _like("zeros_like", x, dtype, device, shape, 0)


def ones_like(
    x: Any, dtype: DTypeLike = None, device: DeviceLike | None = None, *, shape: Shape | None = None
) -> DeviceOp[DeviceArray]:
    """Make an array of ones with the shape and dtype of another; otherwise as `empty_like`.

    Parameters
    ----------
    x, dtype, device, shape
        As for `empty_like`.

    Returns
    -------
    DeviceOp[DeviceArray]
        An array of ones. Otherwise as `empty_like`.
    """
    return _like("ones_like", x, dtype, device, shape, 1)


def full_like(
    x: Any,
    fill_value: object,
    dtype: DTypeLike = None,
    device: DeviceLike | None = None,
    *,
    shape: Shape | None = None,
) -> DeviceOp[DeviceArray]:
    """Make an array that is filled with one value, with the shape and dtype of another; otherwise as `empty_like`.

    Parameters
    ----------
    x
        As for `empty_like`.
    fill_value
        One number that the dtype can hold, as for `full`.
    dtype, device, shape
        As for `empty_like`.

    Returns
    -------
    DeviceOp[DeviceArray]
        Each item is the value. Otherwise as `empty_like`.

    Raises
    ------
    ArgumentValueError
        The value is no single number, or the dtype cannot hold it.
    """
    return _like("full_like", x, dtype, device, shape, fill_value)


def asarray(x: Any, dtype: DTypeLike = None, device: DeviceLike | None = None) -> DeviceOp[DeviceArray]:
    """Have data as an array on a device: an array on one is returned as it is, anything else is brought over.

    Parameters
    ----------
    x
        A `DeviceArray`, a `HostArray`, or an operation that yields one; or data in host memory as for `to_device`: a
        NumPy array, nested sequences, a number.
    dtype
        Of the result. None keeps that of `x`; numbers and sequences get NumPy's.
    device
        Where to; None leaves an array on its device, and takes that of `empty` for data in host memory.

    Returns
    -------
    DeviceOp[DeviceArray]
        The array itself where nothing is to be done; else as for `to_device`, and for `convert` where the dtype
        changes.

    Raises
    ------
    ArgumentTypeError
        As for `to_device`; or the dtype changes and one of the two is not a number's.
    """
    kind = None if dtype is None else dtypes.to_dtype(dtype)
    ordinal = None if device is None else as_ordinal(device)
    x = as_array(x, "asarray")
    if isinstance(x, _native.Op):
        _, code, where = x._spec
        code = code if kind is None else dtypes.code_of(kind)
        place = ordinal if ordinal is not None or where == _native.HOST else where
        make = functools.partial(asarray, dtype=kind, device=ordinal)
        return once_known(make, x, dtype=code, device=place, title="an array of data", moves=ordinal is not None)
    if not isinstance(x, _native.Array):
        return to_device(x, ordinal, dtype=kind)
    if isinstance(x, DeviceArray) and ordinal in {None, x._device}:
        _native.check_usable(x, False, "asarray")
        here = value(x)
    else:
        here = to_device(x, ordinal)
    return here if kind is None or kind == cast("DeviceArray", x).dtype else convert(here, kind)


def _like(
    asked: str, x: Any, dtype: DTypeLike, device: DeviceLike | None, shape: Shape | None, fill: object
) -> DeviceOp[DeviceArray]:
    kind = None if dtype is None else dtypes.to_dtype(dtype)
    ordinal = None if device is None else as_ordinal(device)
    x = as_array(x, asked)
    if isinstance(x, _native.Op):
        yields, code, where = x._spec
        code = code if kind is None else dtypes.code_of(kind)
        place = ordinal if ordinal is not None or where == _native.HOST else where
        if yields == "host_value":
            code = dtypes.ANY if kind is None else code
        make = functools.partial(_like, asked, dtype=kind, device=ordinal, shape=shape, fill=fill)
        return once_known(make, x, dtype=code, device=place, title=f"a {asked}", moves=ordinal is not None)
    if not isinstance(x, (DeviceArray, HostArray, np.ndarray)):
        if isinstance(x, _native.Array):
            raise ArgumentTypeError(f"{asked} takes an array; {x!r} was given: unpartition() it first")
        x = as_numpy(x)
    if isinstance(x, DeviceArray) and ordinal is None:
        ordinal = x._device
    extents: Shape = x.shape if shape is None else shape
    if kind is None:
        kind = dtypes.to_dtype(x.dtype)
    if fill is _NOTHING:
        return empty(extents, kind, ordinal)
    return full(extents, fill, kind, ordinal)
