"""Arrays: memory of devices and page-locked host memory with a dtype and a shape; who may use them; their partitions.

Always true: the memory lives until the last operation that uses it has passed on the device, whatever is
dropped on the host. What an array's owner does not allow (see `OwnershipError`) is found when an operation is built
from it, and again when that is submitted. Arrays are no math library: bring kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, cast

import numpy as np

from aiocuda import _native
from aiocuda._engine import dtypes, host_views, parts
from aiocuda._engine.dtypes import DTypeLike
from aiocuda._engine.given import whole_numbers
from aiocuda._engine.parts import Part
from aiocuda.device import Device, DeviceLike
from aiocuda.errors import ArgumentTypeError, ArgumentValueError
from aiocuda.managed import Managed

if TYPE_CHECKING:
    from aiocuda.interprocess import IpcHandle
    from aiocuda.ops import DeviceOp

__all__ = ["DeviceArray", "HostArray", "Partition", "move"]


def _raise_made_by_operations() -> NoReturn:
    raise ArgumentTypeError(
        "arrays are made by operations, such as aiocuda.empty(shape), aiocuda.to_device(data) and "
        "aiocuda.empty_host(shape); partitions by DeviceArray.partition(tile_shape)"
    )


class _Array:
    """What both kinds of arrays have; no state of its own."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The extent along each axis."""
        return _native_of(self)._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The items' type; one of NumPy's or ml_dtypes'."""
        return dtypes.dtype_of(_native_of(self)._dtype)

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
        return _native_of(self)._size_bytes

    @property
    def strides(self) -> tuple[int, ...]:
        """The bytes from an item to the next along each axis."""
        return _native_of(self)._strides

    @property
    def is_contiguous(self) -> bool:
        """Whether the items lie in one piece, the last axis fastest."""
        return _native_of(self)._is_contiguous

    @property
    def address(self) -> int:
        """Where the first item is, as a number; 0 for an array without items.

        Raises
        ------
        OwnershipError
            The array was closed (a `ClosedError`), moved or partitioned.
        """
        self._require_usable("address")
        return _native_of(self)._address

    @property
    def is_closed(self) -> bool:
        """Whether its use has ended: it was closed, or moved."""
        return _native_of(self)._is_closed

    def close(self) -> None:
        """End the use of this array; its memory is freed when the device has passed its last user.

        Does not wait. Using the array again raises `ClosedError`; closing it again is fine.
        """
        _native.close_array(_native_of(self))

    def __getitem__(self, key: Any) -> Self:
        """Return a view of some of the items: shares the memory, copies nothing.

        Parameters
        ----------
        key
            Integers, slices of steps of 1 or more, and ``...``, as for NumPy.

        Returns
        -------
        DeviceArray or HostArray
            Operations on views that do not overlap do not wait for one another. Where a view does not lie in one
            piece (see `is_contiguous`), copies take it as it is, and kernels through an ``aiocuda::View``.

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
        view: Self = _native_of(self)._select(key)
        return view

    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """Return a view with another shape, of as many items; one extent may be -1, and is computed.

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

        Raises
        ------
        IndexError
            The array has no axis, or the index lies outside of 0 to its length.
        ArgumentTypeError
            The index is no integer.
        OwnershipError
            The array was closed (a `ClosedError`), moved or partitioned.
        """
        views: tuple[Self, Self] = _native_of(self)._split(index)
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
        return cast("Self", _native.share_array(_native_of(self)))

    def unwrap(self) -> Self:
        """Take the array back for writing, when this is the only shared handle left; return it.

        Raises
        ------
        OwnershipError
            Other handles are left (views of it, and NumPy's, count too), or the array was not shared.
        """
        _native.unwrap_array(_native_of(self))
        return self

    def partition(self, tile_shape: int | Sequence[int]) -> Partition:
        """Cut the array into tiles, each of which one block of a kernel can write; the array rests meanwhile.

        Parameters
        ----------
        tile_shape
            The extent of a tile along each axis, in items; tiles at the end of an axis may be smaller.

        Returns
        -------
        Partition
            For kernels with an ``aiocuda::Partition`` as a parameter. The array can be used again after
            `Partition.unpartition`, or when the partition is closed or dropped.

        Raises
        ------
        ArgumentTypeError
            The array is not on a device, or the tile shape does not consist of integers.
        ArgumentValueError
            A tile has another number of axes than the array, or none, or an extent below 1.
        OwnershipError
            The array was closed (a `ClosedError`), moved, shared or partitioned already.
        """
        partition = cast("Partition", _native.partition_array(Partition, _native_of(self), _tile_extents(tile_shape)))
        partition._whole = self
        return partition

    def _part(self, where: str, part: Part, dtype: np.dtype[Any] | None = None) -> Self:
        itemsize, code = self.itemsize, _native_of(self)._dtype
        if dtype is not None:
            itemsize, code = dtype.itemsize, dtypes.code_of(dtype)
        strides = None if parts.is_contiguous(part.shape, part.strides, itemsize) else part.strides
        view = cast("Self", _native_of(self)._view(part.shape, code, strides))
        view._require_usable(where)  # it, and not the whole, of which a part may be partitioned or moved
        return view

    def _require_open(self, where: str) -> None:
        if self.is_closed:
            self._require_usable(where)

    def _require_usable(self, where: str) -> None:
        _native.check_usable(_native_of(self), False, where)

    def _described(self, what: str) -> str:
        story = _native.story_of(_native_of(self))
        return f"<{type(self).__name__} {self.dtype.name}{list(self.shape)}{what}{story and f', {story}'}>"

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentTypeError("an array without axes has no length")
        return self.shape[0]

    def __bool__(self) -> bool:
        raise ArgumentTypeError(f"a {type(self).__name__} has no truth value; bring it to the host first")


class DeviceArray(_native.Array, _Array, Managed):
    """An array in a device's memory; made by operations such as `aiocuda.empty` and `aiocuda.to_device`.

    Pass it to kernels and copies. The handle is there as soon as the operation that makes it has been
    submitted; who reads it is ordered behind who writes it.

    An array is *owned* until it is shared (`share`: to be read by many), partitioned (`partition`: to be written in
    tiles by the blocks of a kernel) or moved (`aiocuda.move`: to another handle in its place).

    In managed memory (`is_managed`, made with ``managed=True``) the host and all devices reach it in place.
    """

    __slots__ = ()

    def __init__(self, *_: object, **__: object) -> None:
        _raise_made_by_operations()

    @property
    def device(self) -> Device:
        """The device whose memory it is; of managed memory, the one that it was made for."""
        return Device(self._device)

    def to(self, device: DeviceLike) -> DeviceOp[DeviceArray]:
        """Bring the array to a device; one that is there already is given as it is.

        Returns
        -------
        DeviceOp[DeviceArray]
            As for `aiocuda.to_device`.
        """
        from aiocuda.copies import to_device  # the verbs are made of arrays

        return to_device(self, device)

    def ipc_handle(self) -> IpcHandle:
        """Return what another process opens the array with, by `aiocuda.open_ipc`.

        For arrays that were made with ``interprocess=True``.

        Returns
        -------
        IpcHandle
            To be pickled, and sent over whatever connects the two. What the other process does with the array waits for
            all that was submitted here until now. A shared array's is for reading. *Blocks*: for the driver's calls,
            not for what was submitted.

        Raises
        ------
        ArgumentValueError
            The array was made without ``interprocess=True``, or has no items.
        OwnershipError
            The array was closed (a `ClosedError`), moved or partitioned.
        DriverError
            The driver refused: the emulated one lends other processes nothing.

        Notes
        -----
        The driver tells neither process what the other does. So this process keeps the array until the other one says
        that it has closed its own: else the memory is used again, by a later array made with ``interprocess=True``.
        Nor does this process know of the other's work: it waits for a message, or for an event of the other process.
        """
        from aiocuda.interprocess import handle_of_array  # which is made of arrays

        return handle_of_array(self)

    def __repr__(self) -> str:
        return self._described(f"{', managed,' if self.is_managed else ''} on device {self._device}")


class Partition(_native.Array, _Array):
    """An array cut into tiles; made by `DeviceArray.partition`.

    For kernels with a parameter ``aiocuda::Partition<T, N>``, whose launch takes its grid from it: a block for each
    tile, which writes that one alone. What such a kernel yields is the partition again. Meanwhile the array it was
    made from, and views of that, cannot be used.

    ``with array.partition(tile_shape) as tiles:`` ends that with the block: the array can be used again, whoever still
    holds the partition, such as a launch's result. A launch that was built in the block is submitted in it.
    """

    __slots__ = ("_whole",)
    _whole: _Array | None

    def __init__(self, *_: object, **__: object) -> None:
        _raise_made_by_operations()

    @property
    def tile_shape(self) -> tuple[int, ...]:
        """The extent of a tile along each axis, in items."""
        return _native.tile_of(self)

    @property
    def device(self) -> Device:
        """The device whose memory it is."""
        return Device(self._device)

    def unpartition(self) -> DeviceArray:
        """End the use of the partition, and return the array: the handle that it was made from.

        Does not wait; what the partition's kernels write is there for later operations.

        Raises
        ------
        OwnershipError
            That was done already, or the partition was closed (a `ClosedError`).
        """
        _native.unpartition_array(self)
        whole, self._whole = self._whole, None
        return cast("DeviceArray", whole)

    def close(self) -> None:
        """End the use of this partition; the array can be used again. Closing it again is fine."""
        super().close()
        self._whole = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_open(self, where: str) -> None:
        self._require_usable(where)

    def _select(self, key: Any) -> NoReturn:
        self._require_usable("indexing")

    def _split(self, index: Any) -> NoReturn:
        self._require_usable("split_at")

    def _require_usable(self, where: str) -> NoReturn:
        super()._require_usable(where)
        raise ArgumentTypeError(
            f"{where}: a Partition is for kernels that take an aiocuda::Partition; unpartition() gives the array"
        )

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise ArgumentTypeError(
            "a Partition is not in host memory; unpartition() it, and `await aiocuda.to_host(array)`"
        )

    def __repr__(self) -> str:
        return self._described(f" in tiles of {list(self.tile_shape)} on device {self._device}")


class HostArray(_native.Array, _Array):
    """An array in page-locked host memory, which devices copy from and to at the full rate of the bus.

    Made by `aiocuda.empty_host`. Its memory is used again, by this process, when nobody holds it any more.
    """

    __slots__ = ()

    def __init__(self, *_: object, **__: object) -> None:
        _raise_made_by_operations()

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the memory as a NumPy array, without copying.

        The view is live: what is written to it is what the next copy reads. It is yours while no
        operation on the array is going on. That of a shared array is for reading.

        Raises
        ------
        ArgumentValueError
            The device is still reading or writing the memory: await the operation first.
        OwnershipError
            The array was closed (a `ClosedError`) or moved.
        """
        self._require_usable("numpy()")
        return host_views.numpy_view(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return host_views.as_array_of(self.numpy(), dtype, copy)

    def __repr__(self) -> str:
        return self._described(", page-locked")


A = TypeVar("A", DeviceArray, HostArray)


def move(array: A) -> A:
    """Pass an array on: return a handle in the place of this one, whose use ends.

    Parameters
    ----------
    array
        A `DeviceArray` or `HostArray`; or a view, with which its part of the memory goes.

    Returns
    -------
    DeviceArray or HostArray
        The handle to use from here on. Nothing is copied.

    Raises
    ------
    ArgumentTypeError
        It is no array.
    OwnershipError
        The array was closed (a `ClosedError`), moved already, shared or partitioned. Later uses of the array, and of
        views made of it before, raise it too, and say where it was moved.
    """
    if not isinstance(array, (DeviceArray, HostArray, Partition)):
        raise ArgumentTypeError(
            f"move takes an array, not {type(array).__name__}; what an operation yields is moved with "
            "op.then(aiocuda.move)"
        )
    return cast("A", _native.move_array(array))


def _tile_extents(asked: int | Sequence[int]) -> tuple[int, ...]:
    tile = whole_numbers(asked, "a tile shape")
    if any(abs(extent) >= 2**63 for extent in tile):
        raise ArgumentValueError(f"a tile of shape {tile} is larger than any memory")
    return tile


def _native_of(array: _Array) -> _native.Array:
    assert isinstance(array, _native.Array)
    return array


_native.set_array_classes(DeviceArray, HostArray)
