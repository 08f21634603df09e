"""Arrays cut into tiles, each of which one block of a kernel writes.

Always true: while a partition is in use, the array that it was made from is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

from aiocuda import _native
from aiocuda._arrays.base import ArrayBase, native_of, raise_made_by_operations
from aiocuda._devices.device import Device
from aiocuda._values.given import whole_numbers
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

if TYPE_CHECKING:
    from aiocuda._arrays.array import DeviceArray

__all__ = ["Partition", "Partitionable"]


class Partitionable(ArrayBase):
    """An array that can be cut into tiles, or says why it cannot."""

    __slots__ = ()

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
        partition = cast("Partition", _native.partition_array(Partition, native_of(self), _tile_extents(tile_shape)))
        partition._whole = self
        return partition


class Partition(_native.Array, Partitionable):
    """An array cut into tiles; made by `DeviceArray.partition`.

    For kernels with a parameter ``aiocuda::Partition<T, N>``, whose launch takes its grid from it: a block for each
    tile, which writes that one alone. The result of such a kernel is the partition again. Meanwhile the array it was
    made from, and views of that, cannot be used.

    ``with array.partition(tile_shape) as tiles:`` ends that with the block: the array can be used again, whoever still
    holds the partition, such as a launch's result. A launch that was built in the block is submitted in it.
    """

    __slots__ = ("_whole",)

    if TYPE_CHECKING:
        _whole: ArrayBase | None

    def __init__(self, *_: object, **__: object) -> None:
        raise_made_by_operations()

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

        Returns
        -------
        DeviceArray
            The whole array, to be used as before.

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


def _tile_extents(asked: int | Sequence[int]) -> tuple[int, ...]:
    tile = whole_numbers(asked, "a tile shape")
    if any(abs(extent) >= 2**63 for extent in tile):
        raise ArgumentValueError(f"a tile of shape {tile} is larger than any memory")
    return tile
