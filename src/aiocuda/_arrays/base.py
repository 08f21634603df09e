"""The members of all arrays: their attributes, and views.

Always true: a view shares the memory and copies nothing. No array has state of its own in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, Self, cast

import numpy as np

from aiocuda import _native
from aiocuda._values import dtypes, parts
from aiocuda._values.dtypes import DTypeLike
from aiocuda._values.parts import Part
from aiocuda.errors import ArgumentTypeError

__all__ = ["ArrayBase", "native_of", "raise_made_by_operations"]


def raise_made_by_operations() -> NoReturn:
    raise ArgumentTypeError(
        "arrays are made by operations, such as aiocuda.empty(shape), aiocuda.to_device(data) and "
        "aiocuda.empty_host(shape); partitions by DeviceArray.partition(tile_shape)"
    )


class ArrayBase:
    """The members of both kinds of arrays; no state of its own."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The extent along each axis."""
        return native_of(self)._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The items' type; one of NumPy's or ml_dtypes'."""
        return dtypes.dtype_of(native_of(self)._dtype)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of items."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size

    @property
    def itemsize(self) -> int:
        """The size of an item, in bytes."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The size of all items, in bytes."""
        return native_of(self)._size_bytes

    @property
    def strides(self) -> tuple[int, ...]:
        """The bytes from an item to the next along each axis."""
        return native_of(self)._strides

    @property
    def is_contiguous(self) -> bool:
        """Whether the items lie in one piece, the last axis fastest."""
        return native_of(self)._is_contiguous

    @property
    def address(self) -> int:
        """The address of the first item, as a number; 0 for an array without items.

        Raises
        ------
        OwnershipError
            The array was closed (a `ClosedError`), moved or partitioned.
        """
        self._require_usable("address")
        return native_of(self)._address

    @property
    def is_closed(self) -> bool:
        """Whether its use has ended: it was closed, or moved."""
        return native_of(self)._is_closed

    def close(self) -> None:
        """End the use of this array; its memory is freed when the device has passed its last user.

        Does not wait. Using the array again raises `ClosedError`; closing it again is fine.
        """
        _native.close_array(native_of(self))

    def __getitem__(self, key: Any) -> Self:
        """Return a view of some of the items: shares the memory, copies nothing.

        Parameters
        ----------
        key
            Integers, slices of steps of 1 or more, and ``...``, as for NumPy.

        Returns
        -------
        DeviceArray or HostArray
            Operations on views that do not overlap do not wait for one another. If a view does not lie in one piece
            (see `is_contiguous`), copies take it as it is, and kernels take it through an ``aiocuda::View``.

        Raises
        ------
        IndexError
            An integer is out of range, or there are more indices than axes.
        ArgumentTypeError
            The index is none that picks by position.
        ArgumentValueError
            A slice has a step of 0, or a negative one.
        OwnershipError
            The array was closed (a `ClosedError`), moved or partitioned.
        """
        view: Self = native_of(self)._select(key)
        return view

    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """Return a view with another shape, of as many items; one extent may be -1, and is computed.

        Parameters
        ----------
        *shape
            The extents, as several integers or as one tuple; one may be -1.

        Raises
        ------
        ArgumentValueError
            The shape has another number of items, or needs the items of a strided view to be moved: `aiocuda.dup`
            it first.
        OwnershipError
            The array was closed (a `ClosedError`), moved or partitioned.
        """
        self._require_open("reshape")
        part = parts.reshape(self.shape, self.strides, self.itemsize, parts.spread(shape))
        return self._part("reshape", part)

    @property
    def T(self) -> Self:  # noqa: N802 - NumPy's name
        """A view with the axes in the reverse order; as `transpose` without axes."""
        return self.transpose()

    def transpose(self, *axes: int | Sequence[int] | None) -> Self:
        """Return a view with the axes in another order, as NumPy's: shares the memory, copies nothing.

        Parameters
        ----------
        *axes
            Each axis of the array once, in the new order, as several integers or as one tuple; from the end where
            negative. None, or nothing, reverses the order.

        Raises
        ------
        ArgumentTypeError
            An axis is no integer.
        ArgumentValueError
            The axes are not each axis of the array once.
        OwnershipError
            The array was closed (a `ClosedError`), moved or partitioned.

        Notes
        -----
        The view usually does not lie in one piece: kernels take it through an ``aiocuda::View``, and `aiocuda.dup`
        makes an array of it whose items lie in the new order.
        """
        self._require_open("transpose")
        return self._part("transpose", parts.transpose(self.shape, self.strides, axes))

    def view(self, dtype: DTypeLike) -> Self:
        """Return a view of the same bytes as items of another dtype; the last axis changes with their size.

        Parameters
        ----------
        dtype
            NumPy's or ml_dtypes' dtype of the new items, or its name.

        Raises
        ------
        ArgumentTypeError
            A device cannot hold the dtype.
        ArgumentValueError
            The sizes differ, and the last axis has no whole number of the new items or does not lie in one piece, or
            there is no axis.
        OwnershipError
            The array was closed (a `ClosedError`), moved or partitioned.
        """
        self._require_open("view")
        kind = dtypes.to_dtype(dtype)
        return self._part("view", parts.with_item_size(self.shape, self.strides, self.itemsize, kind.itemsize), kind)

    def split_at(self, index: int) -> tuple[Self, Self]:
        """Return two views: of what is before an index of the first axis, and of the rest.

        Parameters
        ----------
        index
            How many items of the first axis the first view has: 0 to all.

        Returns
        -------
        tuple of two arrays
            Views of the same memory. Neither overlaps the other, so kernels may write both at once.

        Raises
        ------
        IndexError
            The array has no axis, or the index lies outside of 0 to its length.
        ArgumentTypeError
            The index is no integer.
        OwnershipError
            The array was closed (a `ClosedError`), moved or partitioned.
        """
        views: tuple[Self, Self] = native_of(self)._split(index)
        return views

    def share(self) -> Self:
        """Make this a handle for reading, and return another; nobody writes what is shared.

        Returns
        -------
        DeviceArray or HostArray
            Both handles, their views and further shares are read by any number of operations; `unwrap` ends it.

        Raises
        ------
        OwnershipError
            The array was closed (a `ClosedError`), moved or partitioned.
        """
        return cast("Self", _native.share_array(native_of(self)))

    def unwrap(self) -> Self:
        """Take the array back for writing, when this is the only shared handle left; return it.

        Raises
        ------
        OwnershipError
            Other handles are left (views of it, and NumPy's, count too), or the array was not shared.
        """
        _native.unwrap_array(native_of(self))
        return self

    def _part(self, where: str, part: Part, dtype: np.dtype[Any] | None = None) -> Self:
        itemsize, code = self.itemsize, native_of(self)._dtype
        if dtype is not None:
            itemsize, code = dtype.itemsize, dtypes.code_of(dtype)
        strides = None if parts.is_contiguous(part.shape, part.strides, itemsize) else part.strides
        view = cast("Self", native_of(self)._view(part.shape, code, strides))
        view._require_usable(where)  # it, and not the whole: a part of that may be partitioned or moved
        return view

    def _require_open(self, where: str) -> None:
        if self.is_closed:
            self._require_usable(where)

    def _require_usable(self, where: str) -> None:
        _native.check_usable(native_of(self), False, where)

    def _described(self, what: str) -> str:
        story = _native.story_of(native_of(self))
        return f"<{type(self).__name__} {self.dtype.name}{list(self.shape)}{what}{story and f', {story}'}>"

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentTypeError("an array without axes has no length")
        return self.shape[0]

    def __bool__(self) -> bool:
        raise ArgumentTypeError(f"a {type(self).__name__} has no truth value; bring it to the host first")


def native_of(array: ArrayBase) -> _native.Array:
    assert isinstance(array, _native.Array)
    return array
