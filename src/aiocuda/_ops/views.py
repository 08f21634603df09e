"""The methods that operations share with the arrays that they yield: views, and changes of the right to use the memory.

Always true: each method yields an operation, which does to the result's handle, when it is submitted, what the array's
method of the same name does at once. An error of the array's method is that operation's error.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from aiocuda import _native
from aiocuda._values import dtypes
from aiocuda._values.dtypes import DTypeLike

if TYPE_CHECKING:
    from aiocuda._arrays.array import DeviceArray, HostArray
    from aiocuda._arrays.partition import Partition
    from aiocuda._ops.operation import DeviceOp

__all__ = ["OpViews"]

T_co = TypeVar("T_co", covariant=True)
A = TypeVar("A", bound="DeviceArray | HostArray")


class OpViews(Generic[T_co]):
    """The methods of arrays, on operations that yield them."""

    __slots__ = ()

    def _then(self, function: Callable[[Any], Any], spec: tuple[str, int, int | None], title: str) -> DeviceOp[Any]:
        raise NotImplementedError

    def __getitem__(self, key: Any) -> DeviceOp[Any]:
        """Return an operation for a view of some items of the array, as `DeviceArray.__getitem__`; or of a tuple's."""
        return self._seen(operator.itemgetter(key), "a view by index")

    @property
    def T(self: OpViews[A]) -> DeviceOp[A]:  # noqa: N802 - NumPy's name
        """An operation for the view with the axes in the reverse order.

        *Stream*: none, for a view is no work of the device. *Blocks*: no. *On cancel*: nothing is lost; an operation
        that was submitted goes on.
        """
        return self._seen(lambda array: array.T, "a transpose")

    def transpose(self: OpViews[A], *axes: int | Sequence[int] | None) -> DeviceOp[A]:
        """Return an operation for the view with the axes in another order; as for `DeviceArray.transpose`.

        Parameters
        ----------
        *axes
            The axes in their new order; nothing reverses them.

        Returns
        -------
        DeviceOp[DeviceArray or HostArray]
            The view. *Stream*: none, for a view is no work of the device. *Blocks*: no. *On cancel*: nothing is
            lost; an operation that was submitted goes on.
        """
        return self._seen(lambda array: array.transpose(*axes), "a transpose")

    def reshape(self: OpViews[A], *shape: int | Sequence[int]) -> DeviceOp[A]:
        """Return an operation for the view with another shape; as for `DeviceArray.reshape`.

        Parameters
        ----------
        *shape
            The extents, as several integers or as one tuple; one may be -1.

        Returns
        -------
        DeviceOp[DeviceArray or HostArray]
            The view. *Stream*: none, for a view is no work of the device. *Blocks*: no. *On cancel*: nothing is
            lost; an operation that was submitted goes on.
        """
        return self._seen(lambda array: array.reshape(*shape), "a reshape")

    def view(self: OpViews[A], dtype: DTypeLike) -> DeviceOp[A]:
        """Return an operation for the view of the same bytes as items of another dtype; as for `DeviceArray.view`.

        Parameters
        ----------
        dtype
            The dtype of the new items, or its name.

        Returns
        -------
        DeviceOp[DeviceArray or HostArray]
            The view. *Stream*: none, for a view is no work of the device. *Blocks*: no. *On cancel*: nothing is
            lost; an operation that was submitted goes on.
        """
        kind = dtypes.to_dtype(dtype)
        return self._seen(lambda array: array.view(kind), "a view", dtypes.code_of(kind))

    def share(self: OpViews[A]) -> DeviceOp[A]:
        """Return an operation for a handle for reading; as for `DeviceArray.share`.

        This operation's own result becomes one, too.

        Returns
        -------
        DeviceOp[DeviceArray or HostArray]
            The handle. *Stream*: none, for a view is no work of the device. *Blocks*: no. *On cancel*: nothing is
            lost; an operation that was submitted goes on.
        """
        return self._seen(lambda array: array.share(), "a share")

    def unwrap(self: OpViews[A]) -> DeviceOp[A]:
        """Return an operation for the array, taken back for writing; as for `DeviceArray.unwrap`.

        A handle that another operation still holds counts: drop operations that yielded shares.

        Returns
        -------
        DeviceOp[DeviceArray or HostArray]
            The array. *Stream*: none, for a view is no work of the device. *Blocks*: no. *On cancel*: nothing is
            lost; an operation that was submitted goes on.
        """
        return self._seen(lambda array: array.unwrap(), "an unwrap")

    def partition(self: OpViews[DeviceArray], tile_shape: int | Sequence[int]) -> DeviceOp[Partition]:
        """Return an operation for the array cut into tiles; as for `DeviceArray.partition`.

        Parameters
        ----------
        tile_shape
            The extent of a tile along each axis; one integer for an array of one axis.

        Returns
        -------
        DeviceOp[Partition]
            Kernels take it as an ``aiocuda::Partition``. *Stream*: none, for a view is no work of the device.
            *Blocks*: no. *On cancel*: nothing is lost; an operation that was submitted goes on.
        """
        op = self._seen(lambda array: array.partition(tile_shape), "a partition")
        return cast("DeviceOp[Partition]", op)

    def unpartition(self: OpViews[Partition]) -> DeviceOp[DeviceArray]:
        """Return an operation for the array that a partition was made from; as for `Partition.unpartition`.

        Returns
        -------
        DeviceOp[DeviceArray]
            The array. *Stream*: none, for a view is no work of the device. *Blocks*: no. *On cancel*: nothing is
            lost; an operation that was submitted goes on.
        """
        return cast("DeviceOp[DeviceArray]", self._seen(lambda partition: partition.unpartition(), "an unpartition"))

    def _seen(self, function: Callable[[Any], Any], title: str, code: int | None = None) -> DeviceOp[Any]:
        assert isinstance(self, _native.Op)
        yields, known, device = self._spec
        return self._then(function, (yields, known if code is None or not known else code, device), title)
