"""Arrays put together along an axis: one that they have, or a new one.

Always true: shapes and dtypes are NumPy's, and each part is copied once, to its place in the result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray, HostArray
from aiocuda._ops import composing
from aiocuda._ops.composing import once_known
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import dtypes
from aiocuda._values.dtypes import DTypeLike
from aiocuda._values.host_data import as_numpy
from aiocuda._verbs.conversion import convert
from aiocuda._verbs.copies import copy, dup, to_device
from aiocuda._verbs.create import empty
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, DeviceMismatchError

__all__ = ["concatenate", "stack"]


def concatenate(arrays: Sequence[Any], axis: int | None = 0, *, dtype: DTypeLike = None) -> DeviceOp[DeviceArray]:
    """Put arrays together along an axis that they have, as `numpy.concatenate` does.

    Parameters
    ----------
    arrays
        A sequence of `DeviceArray` of any strides, `HostArray`, NumPy arrays (or what `numpy.asarray` takes) and
        operations that yield arrays. Those on devices are on one device; of the same shape but along the axis.
    axis
        Which; from the end where negative. None takes each array as its items in one row.
    dtype
        Of the result. None takes the one that NumPy promotes theirs to; arrays of another one are converted.

    Returns
    -------
    DeviceOp[DeviceArray]
        A new array on the device of the arrays, or, where all are in host memory, on the one in force. *Stream*: of
        that device, for each part its own where the policy has several. *Blocks*: as `to_device` for parts in host
        memory. *On cancel*: copies that were submitted go on.

    Raises
    ------
    ArgumentTypeError
        Something is no array, or no dtype holds what all dtypes do.
    ArgumentValueError
        There are no arrays, they have no such axis, or their shapes do not fit.
    DeviceMismatchError
        They are on several devices: bring them over with ``.to(device)``.

    Notes
    -----
    All of these are raised when the operation is built; of what operations yield, when it is executed.
    """
    return _joined("concatenate", arrays, axis, dtype, _concatenate)


def stack(arrays: Sequence[Any], axis: int = 0, *, dtype: DTypeLike = None) -> DeviceOp[DeviceArray]:
    """Put arrays of one shape together along a new axis, as `numpy.stack` does; otherwise as `concatenate`.

    Parameters
    ----------
    arrays
        As for `concatenate`; all of one shape.
    axis
        Where the new axis is in the result; from the end where negative.
    dtype
        As for `concatenate`.

    Returns
    -------
    DeviceOp[DeviceArray]
        With one axis more than each of `arrays`. Otherwise as `concatenate`.
    """
    return _joined("stack", arrays, axis, dtype, _stack)


_Join = Callable[[list[Any], Any, np.dtype[Any] | None], DeviceOp[DeviceArray]]


def _joined(asked: str, arrays: Any, axis: Any, dtype: DTypeLike, join: _Join) -> DeviceOp[DeviceArray]:
    kind = None if dtype is None else dtypes.to_dtype(dtype)
    if isinstance(arrays, (_native.Op, _native.Array)):
        raise ArgumentTypeError(f"{asked} takes a sequence of arrays; {arrays!r:.80} was given: write [a, b]")
    try:
        parts = list(arrays)
    except TypeError:
        raise ArgumentTypeError(f"{asked} takes a sequence of arrays; {arrays!r:.80} was given") from None
    if not parts:
        raise ArgumentValueError(f"{asked} puts arrays together; none were given")
    if axis is not None or join is _stack:
        try:
            axis = operator.index(axis)
        except TypeError:
            raise ArgumentTypeError(f"{asked}: an axis is an integer; {axis!r:.80} was given") from None
    parts = [as_array(part, asked) for part in parts]
    parts = [part if isinstance(part, (_native.Op, _native.Array)) else as_numpy(part) for part in parts]
    specs = [part._spec for part in parts if isinstance(part, _native.Op)]
    places = {spec[2] for spec in specs if spec[0] == "device_array" and spec[2] is not None}
    places |= {part._device for part in parts if isinstance(part, DeviceArray)}
    _require_one_device(asked, places)
    if not specs:
        return join(parts, axis, kind)
    code = dtypes.ANY if kind is None else dtypes.code_of(kind)
    return once_known(
        lambda known: join(list(known), axis, kind),
        cast("_native.Op", composing.zip(*parts)),
        dtype=code,
        device=next(iter(places)) if places else None,
        title=f"a {asked}",
    )


def _require_one_device(asked: str, places: set[int]) -> None:
    if len(places) > 1:
        first, *others = sorted(places)
        raise DeviceMismatchError(
            f"{asked} puts arrays on one device together; they are on devices {first} and "
            f"{', '.join(map(str, others))}: bring them over with .to({first}), or take gather()"
        )


def _concatenate(parts: list[Any], axis: int | None, kind: np.dtype[Any] | None) -> DeviceOp[DeviceArray]:
    _check("concatenate", parts)
    if axis is None:
        parts = [_flat(part) for part in parts]
        if any(isinstance(part, _native.Op) for part in parts):
            return concatenate(parts, dtype=kind)
        axis = 0
    rank = len(parts[0].shape)
    if not -rank <= axis < rank:
        raise ArgumentValueError(f"concatenate: an array of shape {parts[0].shape} has no axis {axis}")
    at = axis % rank
    for part in parts:
        if _but(part.shape, at) != _but(parts[0].shape, at) or len(part.shape) != rank:
            raise ArgumentValueError(
                f"concatenate along axis {axis}: shapes {parts[0].shape} and {part.shape} do not fit; all need the "
                "same shape but along the axis"
            )
    return _put_together("concatenate", parts, at, kind)


def _stack(parts: list[Any], axis: int, kind: np.dtype[Any] | None) -> DeviceOp[DeviceArray]:
    _check("stack", parts)
    shape = parts[0].shape
    rank = len(shape) + 1
    for part in parts:
        if part.shape != shape:
            raise ArgumentValueError(f"stack: shapes {shape} and {part.shape} differ; all need the same shape")
    if not -rank <= axis < rank:
        raise ArgumentValueError(f"stack: arrays of shape {shape} have {rank} places for an axis, and none is {axis}")
    at = axis % rank
    thick = (*shape[:at], 1, *shape[at:])
    return _put_together("stack", [part.reshape(thick) for part in parts], at, kind)


def _check(asked: str, parts: list[Any]) -> None:
    for part in parts:
        if not isinstance(part, (DeviceArray, HostArray, np.ndarray)):
            raise ArgumentTypeError(f"{asked} takes arrays, and operations that yield them, not {part!r:.80}")
        if isinstance(part, _native.Array):
            _native.check_usable(part, False, asked)
    _require_one_device(asked, {part._device for part in parts if isinstance(part, DeviceArray)})


def _flat(part: Any) -> Any:
    if isinstance(part, _native.Array) and not part._is_contiguous:
        return dup(part).then(lambda copied: copied.reshape(-1))
    return part.reshape(-1)


def _but(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _put_together(asked: str, parts: list[Any], axis: int, kind: np.dtype[Any] | None) -> DeviceOp[DeviceArray]:
    if kind is None:
        try:
            kind = dtypes.to_dtype(np.result_type(*(part.dtype for part in parts)))
        except TypeError as error:
            names = ", ".join(dict.fromkeys(part.dtype.name for part in parts))
            raise ArgumentTypeError(
                f"{asked}: no dtype holds what {names} do ({error}); say which with dtype="
            ) from error
    wanted = kind
    ends = np.cumsum([part.shape[axis] for part in parts]).tolist()
    places = [
        (*(slice(None),) * axis, slice(end - part.shape[axis], end)) for part, end in zip(parts, ends, strict=True)
    ]
    ordinal = next((part._device for part in parts if isinstance(part, DeviceArray)), None)
    shape = (*parts[0].shape[:axis], ends[-1], *parts[0].shape[axis + 1 :])

    def fill(whole: DeviceArray) -> DeviceOp[DeviceArray]:
        copies = [
            copy(whole[place], part if part.dtype == wanted else _converted(part, wanted, whole))
            for place, part in zip(places, parts, strict=True)
            if 0 not in part.shape
        ]
        return composing.zip(*copies).then(lambda _: whole)

    whole: Any = empty(shape, wanted, ordinal)
    if 0 in shape:
        return cast("DeviceOp[DeviceArray]", whole)
    return once_known(fill, whole, dtype=dtypes.code_of(wanted), device=whole._spec[2], title=f"a {asked}")


def _converted(part: Any, kind: np.dtype[Any], beside: DeviceArray) -> Any:
    here = part if isinstance(part, DeviceArray) else to_device(part, beside.device)
    return convert(here, kind)
