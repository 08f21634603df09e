"""Parts of a C-contiguous array: which shape they have, and at which item they begin.

Pure: shapes in, shapes out.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["reshape", "select", "with_item_size"]


def select(shape: tuple[int, ...], key: Any) -> tuple[tuple[int, ...], int]:
    """Return the shape of what an index picks, and its first item.

    Raises
    ------
    IndexError
        An integer is out of range, or there are more indices than axes.
    ArgumentTypeError
        The index is none that picks by position.
    ArgumentValueError
        What is picked does not lie in one piece.
    """
    keys = _spread(shape, key if isinstance(key, tuple) else (key,))
    picked: list[int] = []
    first = 0
    is_cut = False  # an axis before this one has more than one item: this one must be whole
    for axis, (extent, each) in enumerate(zip(shape, keys, strict=True)):
        stride = math.prod(shape[axis + 1 :])
        start, length = _range(extent, each, axis)
        first += start * stride
        if is_cut and length != extent:
            raise ArgumentValueError(
                f"index {key!r} of an array of shape {shape} picks items that do not lie in one piece; pick a range of "
                "one axis, with single items of the axes before it and all of the axes behind it"
            )
        is_cut = is_cut or length != 1
        if isinstance(each, slice):
            picked.append(length)
    return tuple(picked), 0 if 0 in picked else first


def _spread(shape: tuple[int, ...], keys: tuple[Any, ...]) -> list[Any]:
    """Return an index for each axis: an ellipsis, or the end, stands for whole axes."""
    given = [each for each in keys if each is not Ellipsis]
    if len(given) < len(keys) - 1:
        raise IndexError("an index has at most one ellipsis")
    if len(given) > len(shape):
        raise IndexError(f"{len(given)} indices were given for an array of {len(shape)} axes")
    whole = [slice(None)] * (len(shape) - len(given))
    at = next((i for i, each in enumerate(keys) if each is Ellipsis), len(keys))
    return [*keys[:at], *whole, *keys[at + 1 :]]


def _range(extent: int, key: Any, axis: int) -> tuple[int, int]:
    """Return where an index of one axis begins, and how many items it picks."""
    if isinstance(key, slice):
        start, stop, step = key.indices(extent)
        length = max(0, stop - start) if step > 0 else len(range(start, stop, step))
        if step != 1 and length > 1:
            raise ArgumentValueError(f"a slice of step {step} does not lie in one piece; use a step of 1")
        return (start if length else 0), length
    try:
        if isinstance(key, bool):
            raise TypeError
        index = operator.index(key)
    except TypeError:
        raise ArgumentTypeError(f"an array is indexed by integers, slices and '...'; {key!r} was given") from None
    if not -extent <= index < extent:
        raise IndexError(f"index {index} is out of range for axis {axis}, which has {extent} items")
    return index % extent, 1


def reshape(shape: tuple[int, ...], asked: Sequence[int]) -> tuple[int, ...]:
    """Return a shape of as many items; one extent may be -1, and is computed.

    Raises
    ------
    ArgumentValueError
        The numbers of items differ.
    """
    extents = [operator.index(extent) for extent in asked]
    size = math.prod(shape)
    if extents.count(-1) == 1:
        others = -math.prod(extents)
        if others and size % others == 0:
            extents[extents.index(-1)] = size // others
    if any(extent < 0 for extent in extents) or math.prod(extents) != size:
        raise ArgumentValueError(f"an array of shape {shape} has {size} items, which is not a shape of {tuple(asked)}")
    return tuple(extents)


def with_item_size(shape: tuple[int, ...], item_bytes: int, asked_bytes: int) -> tuple[int, ...]:
    """Return the shape of the same bytes as items of another size: the last axis changes.

    Raises
    ------
    ArgumentValueError
        The last axis has no whole number of them.
    """
    if item_bytes == asked_bytes:
        return shape
    if not shape:
        raise ArgumentValueError(f"an array without axes has one item of {item_bytes} bytes, not of {asked_bytes}")
    row_bytes = shape[-1] * item_bytes
    if row_bytes % asked_bytes:
        raise ArgumentValueError(f"rows of {row_bytes} bytes have no whole number of items of {asked_bytes} bytes")
    return *shape[:-1], row_bytes // asked_bytes
