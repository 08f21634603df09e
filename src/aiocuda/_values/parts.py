"""The bytes of an array in another shape, or as items of another size.

Pure: shapes and strides in, shapes and strides out; strides are in bytes. A view here is a view in NumPy.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from aiocuda._values.given import whole_numbers
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["Bytes", "Part", "is_contiguous", "reshape", "share_bytes", "spread", "transpose", "with_item_size"]


class Part(NamedTuple):
    """The items of an array."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


_MOST_STEPS: Any = 1_000_000  # NumPy's stubs know two numbers alone


class Bytes(NamedTuple):
    """The place of an array's items: the memory, how many bytes from its begin, and their layout."""

    memory: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item_bytes: int

    @property
    def __array_interface__(self) -> dict[str, Any]:
        # NumPy compares addresses, and reads nothing: any will do that no array has at a begin.
        return {
            "data": ((1 << 44) + self.offset, True),
            "shape": (*self.shape, self.item_bytes),
            "strides": (*self.strides, 1),
            "typestr": "|u1",
            "version": 3,
        }


def share_bytes(a: Bytes, b: Bytes) -> bool:
    """Return whether two arrays have a byte in common; true where that would take long to find out."""
    if a.memory != b.memory or 0 in a.shape or 0 in b.shape:
        return False
    try:
        return bool(np.shares_memory(np.asarray(a), np.asarray(b), max_work=_MOST_STEPS))
    except np.exceptions.TooHardError:
        return True


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], item_bytes: int) -> bool:
    """Return whether the items lie in one piece, the last axis fastest."""
    runs = _runs(shape, strides)
    return 0 in shape or not runs or (len(runs) == 1 and runs[0][1] == item_bytes)


def reshape(shape: tuple[int, ...], strides: tuple[int, ...], item_bytes: int, asked: Sequence[int]) -> Part:
    """Return the same items in another shape; one extent may be -1, and is computed.

    Raises
    ------
    ArgumentValueError
        The numbers of items differ, or no strides give that shape to the items where they are.
    """
    extents = _extents(shape, asked)
    # From the last axis on: each takes its items from the run of the old axes that is not used up.
    runs = _runs(shape, strides)
    left, step = 0 if 0 in extents else 1, item_bytes
    found: list[int] = []
    for extent in reversed(extents):
        if left == 1 and runs and extent != 1:
            left, step = runs.pop()
        if extent and left % extent:
            raise ArgumentValueError(
                f"an array of shape {shape} and strides {strides} is no array of shape {extents} without moving its "
                "items; dup() it first, and reshape the copy"
            )
        found.append(step)
        step *= max(extent, 1)
        left //= max(extent, 1)
    return Part(extents, tuple(reversed(found)))


def _extents(shape: tuple[int, ...], asked: Sequence[int]) -> tuple[int, ...]:
    extents = list(whole_numbers(asked, "a shape"))
    size = math.prod(shape)
    if extents.count(-1) == 1:
        others = -math.prod(extents)
        if others and size % others == 0:
            extents[extents.index(-1)] = size // others
    if any(extent < 0 for extent in extents) or math.prod(extents) != size:
        raise ArgumentValueError(f"an array of shape {shape} has {size} items; it cannot have the shape {tuple(asked)}")
    return tuple(extents)


def _runs(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the axes, those that are one axis in truth as one: (items, stride)."""
    runs: list[tuple[int, int]] = []
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if runs and runs[-1][1] == extent * stride:
            runs[-1] = runs[-1][0] * extent, stride
        else:
            runs.append((extent, stride))
    return runs


def spread(given: Sequence[Any]) -> Any:
    """Return the numbers that were given as one sequence, or as several arguments."""
    # An array has __index__ too, and is an integer only where it has no axis.
    is_one = len(given) == 1 and not (hasattr(given[0], "__index__") and getattr(given[0], "ndim", 0) == 0)
    return given[0] if is_one else given


def transpose(shape: tuple[int, ...], strides: tuple[int, ...], asked: Sequence[Any]) -> Part:
    """Return the same items with the axes in another order; no axes stand for the reverse order.

    Raises
    ------
    ArgumentTypeError
        An axis is no integer.
    ArgumentValueError
        The axes are not each axis of the array once.
    """
    given = spread(asked)
    rank = len(shape)
    if given is None or len(asked) == 0:
        order = list(reversed(range(rank)))
    else:
        try:
            order = [operator.index(axis) for axis in given]
        except TypeError:
            raise ArgumentTypeError(f"transpose takes axes, which are integers; {given!r:.80} was given") from None
        if sorted(axis % rank if -rank <= axis < rank else axis for axis in order) != list(range(rank)):
            raise ArgumentValueError(
                f"transpose of an array of shape {shape} takes each of its {rank} axes once; "
                f"({', '.join(map(str, order))}) was given"
            )
    return Part(tuple(shape[axis] for axis in order), tuple(strides[axis] for axis in order))


def with_item_size(shape: tuple[int, ...], strides: tuple[int, ...], item_bytes: int, asked_bytes: int) -> Part:
    """Return the same bytes as items of another size: the last axis changes.

    Raises
    ------
    ArgumentValueError
        The last axis has no whole number of them, or does not lie in one piece.
    """
    if item_bytes == asked_bytes:
        return Part(shape, strides)
    if not shape:
        raise ArgumentValueError(
            f"view: an array without axes is one item of {item_bytes} bytes, and cannot be seen as items of "
            f"{asked_bytes}; reshape(1) gives it an axis"
        )
    if shape[-1] != 1 and 0 not in shape and strides[-1] != item_bytes:
        raise ArgumentValueError(
            f"view: items of {item_bytes} bytes lie {strides[-1]} bytes apart along the last axis, and cannot be seen "
            f"as items of {asked_bytes}; dup() the array first, and view the copy"
        )
    row_bytes = shape[-1] * item_bytes
    if row_bytes % asked_bytes:
        raise ArgumentValueError(
            f"view: rows of {row_bytes} bytes hold no whole number of items of {asked_bytes}; take a dtype of another "
            "size, or reshape the array first"
        )
    return Part((*shape[:-1], row_bytes // asked_bytes), (*strides[:-1], asked_bytes))
