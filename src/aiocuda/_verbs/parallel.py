"""Arrays over several devices: copies of one, parts of one, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray, HostArray
from aiocuda._devices.device import DeviceLike, as_ordinal, devices
from aiocuda._devices.placing import place_of
from aiocuda._ops import composing
from aiocuda._ops.operation import DeviceOp
from aiocuda._values.given import between
from aiocuda._values.host_data import as_numpy
from aiocuda._verbs.copies import copy, to_device
from aiocuda._verbs.create import empty
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["gather", "replicate", "shard"]

Parts = tuple[DeviceOp[DeviceArray], ...]


def replicate(x: Any, devices: Sequence[DeviceLike] | None = None) -> Parts:
    """Bring the same data to several devices.

    Parameters
    ----------
    x
        As for `to_device`.
    devices
        Where to; None takes all there are.

    Returns
    -------
    tuple of DeviceOp[DeviceArray]
        One for each device, in their order; as for `to_device`, an array is itself on the device where it is.
    """
    ordinals = _ordinals(devices)
    x = as_array(x, "replicate")
    if not isinstance(x, (_native.Op, _native.Array)):
        x = as_numpy(x)  # once, for all
    return tuple(to_device(x, ordinal) for ordinal in ordinals)


def shard(x: Any, devices: Sequence[DeviceLike] | None = None, axis: int = 0) -> Parts:
    """Divide data among several devices, along an axis.

    Parameters
    ----------
    x
        As for `to_device`.
    devices
        Where to; None takes all there are. The first ones get one more, where they do not divide the axis.
    axis
        Which; from the end where negative.

    Returns
    -------
    tuple of DeviceOp[DeviceArray]
        One part for each device, in their order, C-contiguous; but a part of an array that is on its device already
        is a view of it.

    Raises
    ------
    ArgumentValueError
        The data has no such axis (of what an operation yields: when it is executed).
    """
    ordinals = _ordinals(devices)
    x = as_array(x, "shard")
    if isinstance(x, _native.Op) and isinstance(x, DeviceOp):
        return x.then(lambda array: _shard(array, ordinals, axis)).unzip(len(ordinals))
    return _shard(x if isinstance(x, (DeviceArray, HostArray)) else as_numpy(x), ordinals, axis)


def gather(parts: Sequence[Any], device: DeviceLike | None = None, axis: int = 0) -> DeviceOp[DeviceArray]:
    """Put parts together to one array on one device, along an axis: the counterpart of `shard`.

    Parameters
    ----------
    parts
        Arrays, or operations that yield them, on any devices; of the same dtype, and the same shape but along
        the axis.
    device
        Where to; None takes the device of the `use` in force when the operation is built, else that of its execution:
        see `aiocuda.use`.
    axis
        Which; from the end where negative.

    Returns
    -------
    DeviceOp[DeviceArray]
        A new array. *Stream*: of the device, for each part its own where the policy has several. *Blocks*: no.
        *On cancel*: copies that were submitted go on.

    Raises
    ------
    ArgumentValueError
        There are no parts, or they do not fit together (of operations: when it is executed).
    """
    place = place_of(device)
    parts = tuple(as_array(part, "gather") for part in _items(parts, "gather takes a sequence of arrays"))
    if not parts:
        raise ArgumentValueError("gather puts parts together; none were given")
    if all(isinstance(part, (DeviceArray, HostArray)) for part in parts):
        return _gather(tuple(parts), place, axis)
    return composing.zip(parts).then(lambda arrays: _gather(arrays, place, axis))


def _items(given: Any, takes: str) -> tuple[Any, ...]:
    try:
        if not isinstance(given, (DeviceOp, DeviceArray, HostArray)):
            return tuple(given)
    except TypeError:
        pass
    raise ArgumentTypeError(f"{takes}, such as [x, y]; {given!r:.80} was given")


def _ordinals(chosen: Sequence[DeviceLike] | None) -> list[int]:
    given = devices() if chosen is None else chosen
    ordinals = [as_ordinal(device) for device in _items(given, "devices are given as a sequence of them")]
    if not ordinals:
        raise ArgumentValueError("one device or more is needed; none were given")
    return ordinals


def _axis(axis: int, shape: tuple[int, ...]) -> int:
    number = between(axis, "an axis", -math.inf, math.inf)
    if not -len(shape) <= number < len(shape):
        raise ArgumentValueError(f"an array of shape {shape} has no axis {number}")
    return number % len(shape)


def _shard(x: Any, ordinals: list[int], axis: int) -> Parts:
    if not isinstance(x, (DeviceArray, HostArray, np.ndarray)):
        raise ArgumentTypeError(f"shard divides an array, not {type(x).__name__} {x!r:.80}")
    at = _axis(axis, x.shape)
    share, more = divmod(x.shape[at], len(ordinals))
    begin = 0
    parts = []
    for index, ordinal in enumerate(ordinals):
        end = begin + share + (index < more)
        parts.append(to_device(x[_along(at, begin, end)], ordinal))
        begin = end
    return tuple(parts)


def _gather(parts: tuple[Any, ...], place: int | None, axis: int) -> DeviceOp[DeviceArray]:
    for part in parts:
        if not isinstance(part, (DeviceArray, HostArray)):
            raise ArgumentTypeError(f"gather takes arrays, and operations that yield them, not {part!r:.80}")
    first = parts[0]
    at = _axis(axis, first.shape)

    def rest(part: Any) -> tuple[Any, ...]:
        return part.dtype, len(part.shape), *part.shape[:at], *part.shape[at + 1 :]

    for part in parts:
        if rest(part) != rest(first):
            raise ArgumentValueError(
                f"gather along axis {at}: {part!r} does not fit {first!r}; all parts need the same dtype, and the same "
                "shape but along the axis"
            )
    extents = [part.shape[at] for part in parts]
    shape = (*first.shape[:at], sum(extents), *first.shape[at + 1 :])
    ends = np.cumsum(extents).tolist()

    def fill(whole: DeviceArray) -> DeviceOp[DeviceArray]:
        places = [whole[_along(at, end - extent, end)] for extent, end in zip(extents, ends, strict=True)]
        copies = [copy(place, part) for place, part in zip(places, parts, strict=True)]
        return composing.zip(*copies).then(lambda _: whole)

    return empty(shape, first.dtype, place).then(fill)


def _along(axis: int, begin: int, end: int) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, slice(begin, end))
