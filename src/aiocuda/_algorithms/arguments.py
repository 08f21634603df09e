"""What all algorithms ask of their arrays, and where their results go.

Always true: arrays that only an operation yields are checked by the same code, once they are known.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray
from aiocuda._ops import composing
from aiocuda._ops.operation import CallOp, DeviceOp
from aiocuda._values import dtypes, parts
from aiocuda._verbs.copies import copy, dup
from aiocuda._verbs.create import empty
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, DeviceMismatchError

__all__ = [
    "Target",
    "apart",
    "arrays",
    "delivered",
    "delivered_together",
    "keeping",
    "later",
    "lying",
    "one_axis",
    "outs",
    "target",
]


def arrays(asked: str, **given: Any) -> dict[str, Any]:
    """Return arrays and operations as they are, and tensors of frameworks as arrays.

    Raises
    ------
    ArgumentTypeError
        Something else was given.
    """
    found: dict[str, Any] = {}
    for name, x in given.items():
        array = as_array(x, f"{asked}: {name}")
        if not isinstance(array, (DeviceArray, _native.Op)):
            raise ArgumentTypeError(
                f"{asked}: {name} is an array on a device, or an operation that yields one; "
                f"{type(x).__name__} {x!r:.80} was given: to_device() it first"
            )
        found[name] = array
    return found


def later(asked: str, build: Callable[..., DeviceOp[Any]], *given: Any, results: int = 1) -> DeviceOp[Any] | None:
    """Return an operation that goes on when all arrays are known; None where they are.

    Otherwise the arrays are checked: that they can be read, and lie on one device.

    Parameters
    ----------
    asked
        What messages call it.
    build
        Called with `given`, each operation's result in its place.
    *given
        Arrays, operations and None.
    results
        How many arrays the operation yields; several are a tuple, which can be taken apart.

    Raises
    ------
    DeviceMismatchError
        The arrays lie on several devices.
    OwnershipError
        One of them was closed or moved.
    """
    there = [x for x in given if x is not None]
    if any(isinstance(x, _native.Op) for x in there):
        where = (x._spec[2] if isinstance(x, _native.Op) else x._device for x in there)
        device = next((ordinal for ordinal in where if ordinal not in {None, _native.HOST}), None)
        known = cast("_native.Op", composing.zip(*given))
        if results == 1:
            return composing.once_known(lambda x: build(*x), known, dtype=dtypes.ANY, device=device, title=asked)
        return composing.zip(CallOp("then", lambda x: build(*x), known, title=asked).unzip(results))
    for x in there:
        _native.check_usable(x, False, asked)
        if x.device != there[0].device:
            raise DeviceMismatchError(
                f"{asked} takes arrays on one device; they are on {there[0].device.ordinal} and {x.device.ordinal}: "
                "bring one over with .to(device)"
            )
    return None


def one_axis(asked: str, **given: DeviceArray | None) -> None:
    """Check that arrays have one axis, and are equally long.

    Raises
    ------
    ArgumentValueError
        They do not.
    """
    shapes = {name: x.shape for name, x in given.items() if x is not None}
    first = next(iter(shapes.values()))
    for name, shape in shapes.items():
        if len(shape) != 1:
            raise ArgumentValueError(
                f"{asked} takes arrays of one axis; {name} has the shape {shape}; {name}.reshape(-1) has its items in "
                "line"
            )
        if shape != first:
            raise ArgumentValueError(f"{asked} takes arrays of equal length; they have the shapes {shapes}")


def lying(x: DeviceArray) -> Any:
    """Return an array as kernels take it: in one piece. A copy, where it is not."""
    return x if x.is_contiguous and x._is_aligned(x.itemsize) else dup(x)


class Target(NamedTuple):
    """Where a result goes: what kernels write into, and what has the result at the end, if that is another array."""

    into: Any
    out: DeviceArray | None


def outs(asked: str, out: Any, count: int) -> list[Any]:
    """Return ``out=`` of so many results, each an array or an operation; None for each where none was given.

    Raises
    ------
    ArgumentTypeError
        It is no array, or no tuple of so many.
    """
    if out is None:
        return [None] * count
    given = [out] if count == 1 else list(out) if isinstance(out, (tuple, list)) else []
    if len(given) != count:
        raise ArgumentTypeError(f"{asked}: out is a tuple of {count} arrays; {out!r:.80} was given")
    return list(arrays(asked, **{"out" if count == 1 else f"out[{i}]": x for i, x in enumerate(given)}).values())


def apart(asked: str, found: list[DeviceArray | None]) -> None:
    """Check that two results do not go to the same memory.

    Raises
    ------
    ArgumentValueError
        They do.
    """
    for first, second in itertools.combinations([x for x in found if x is not None], 2):
        if parts.share_bytes(_bytes_of(first), _bytes_of(second)):
            raise ArgumentValueError(f"{asked}: two arrays of out share memory; give each result its own")


def target(
    asked: str, out: DeviceArray | None, shape: tuple[int, ...], dtype: np.dtype[Any], inputs: list[DeviceArray]
) -> Target:
    """Return where a result of a shape and dtype goes.

    Parameters
    ----------
    out
        The caller's array. Kernels write into memory of their own, which is copied at the end, where `out` does not
        lie in one piece or shares memory with what is read.
    inputs
        All that is read for any of the results; the result is beside the first.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        `out` is of another dtype or shape, or has several items in one place.
    OwnershipError
        It may not be written.
    """
    device = inputs[0].device
    if out is None:
        return Target(empty(shape, dtype, device), None)
    _native.check_usable(out, True, f"{asked}: out")
    if out.dtype != dtype:
        raise ArgumentTypeError(f"{asked}: out is of dtype {out.dtype}; the result is of {dtype}")
    if out.shape != shape:
        raise ArgumentValueError(f"{asked}: out has the shape {out.shape}; the result has {shape}")
    if any(extent > 1 and step == 0 for extent, step in zip(out.shape, out.strides, strict=True)):
        raise ArgumentValueError(f"{asked}: several items of out, of strides {out.strides}, lie in one place")
    is_direct = out.is_contiguous and out._is_aligned(out.itemsize)
    if is_direct and not any(parts.share_bytes(_bytes_of(out), _bytes_of(x)) for x in inputs):
        return Target(out, None)
    return Target(empty(shape, dtype, device), out)


def delivered(made: Any, to: Target) -> DeviceOp[Any]:
    """Return an operation that yields the result where it is wanted."""
    if to.out is not None:
        return copy(to.out, made)
    return composing.value(made)


def delivered_together(made: Sequence[Any], to: Sequence[Target]) -> DeviceOp[Any]:
    """Return an operation that yields several results where they are wanted.

    All of them are made before the first one is copied: its place may be an input of another.
    """
    if all(each.out is None for each in to):
        return composing.zip(*map(delivered, made, to))
    ready = composing.zip(*made).unzip(len(to))
    return composing.zip(*map(delivered, ready, to))


def keeping(to: Target) -> Target:
    """Return a target for kernels that write some of the items: the others keep what is in the caller's array."""
    return to if to.out is None else Target(dup(to.out), to.out)


def _bytes_of(array: DeviceArray) -> parts.Bytes:
    return parts.Bytes(*array._place, array.shape, array.strides, array.itemsize)
