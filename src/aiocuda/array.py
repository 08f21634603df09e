"""Arrays: device memory and page-locked host memory with a dtype and a shape.

Always true: the memory lives until the last operation that uses it has passed on the device, whatever is
dropped on the host. Arrays, and views of them, are C-contiguous. They are no math library: bring kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, Self, cast

import numpy as np

from aiocuda import _native
from aiocuda._engine import dtypes, parts
from aiocuda._engine.dtypes import DTypeLike
from aiocuda.device import Device
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, ClosedError

__all__ = ["DeviceArray", "HostArray"]


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
        strides, step = [], self.itemsize
        for extent in reversed(self.shape):
            strides.append(step)
            step *= max(extent, 1)
        return tuple(reversed(strides))

    @property
    def address(self) -> int:
        """Where the memory begins, as a number; 0 for an array without items.

        Raises
        ------
        ClosedError
            The array was closed.
        """
        self._require_open()
        return _native_of(self)._address

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return _native_of(self)._is_closed

    def close(self) -> None:
        """End the use of this array; its memory is freed when the device has passed its last user.

        Does not wait. Using the array again raises `ClosedError`; closing it again is fine.
        """
        _native_of(self)._close()

    def __getitem__(self, key: Any) -> Self:
        """Return a view of a part that lies in one piece: shares the memory, copies nothing.

        Parameters
        ----------
        key
            Integers, slices of step 1 and ``...``, as for NumPy; what they pick must be contiguous, such
            as ``a[3]``, ``a[2:5]`` and ``a[1, 4:8]``.

        Returns
        -------
        DeviceArray or HostArray
            Operations on views that do not overlap do not wait for one another.

        Raises
        ------
        IndexError
            An integer is out of range, or there are more indices than axes.
        ArgumentValueError
            The part does not lie in one piece.
        """
        return self._part(*parts.select(self.shape, key))

    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """Return a view with another shape, of as many items; one extent may be -1, and is computed.

        Raises
        ------
        ArgumentValueError
            The shape has another number of items.
        """
        asked = shape[0] if len(shape) == 1 and not hasattr(shape[0], "__index__") else shape
        return self._part(parts.reshape(self.shape, cast("Sequence[int]", asked)), 0)

    def view(self, dtype: DTypeLike) -> Self:
        """Return a view of the same bytes as items of another dtype; the last axis changes with their size.

        Raises
        ------
        ArgumentTypeError
            A device cannot hold the dtype.
        ArgumentValueError
            The last axis has no whole number of the new items, or there is no axis and the sizes differ.
        """
        kind = dtypes.to_dtype(dtype)
        shape = parts.with_item_size(self.shape, self.itemsize, kind.itemsize)
        return self._part(shape, 0, kind)

    def split_at(self, index: int) -> tuple[Self, Self]:
        """Return two views: of what is before an index of the first axis, and of the rest.

        Raises
        ------
        IndexError
            The array has no axis, or the index lies outside of 0 to its length.
        """
        length = len(self)
        if not 0 <= index <= length:
            raise IndexError(f"an array of length {length} cannot be split at {index}")
        return self[:index], self[index:]

    def _part(self, shape: tuple[int, ...], first_item: int, dtype: np.dtype[Any] | None = None) -> Self:
        self._require_open()
        code = _native_of(self)._dtype if dtype is None else dtypes.code_of(dtype)
        return cast("Self", _native_of(self)._view(shape, code, first_item * self.itemsize))

    def _require_open(self) -> None:
        if self.is_closed:
            raise ClosedError(f"the {type(self).__name__} of shape {self.shape} was closed before this use of it")

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentTypeError("an array without axes has no length")
        return self.shape[0]

    def __bool__(self) -> bool:
        raise ArgumentTypeError(f"a {type(self).__name__} has no truth value; bring it to the host first")


class DeviceArray(_native.Array, _Array):
    """An array in a device's memory; made by operations such as `aiocuda.empty` and `aiocuda.to_device`.

    Pass it to kernels and copies. The handle is there as soon as the operation that makes it has been
    submitted; who reads it is ordered behind who writes it.
    """

    __slots__ = ()

    @property
    def device(self) -> Device:
        """The device whose memory it is."""
        return Device(self._device)

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise ArgumentTypeError(
            "a DeviceArray is not in host memory; `await aiocuda.to_host(array)` gives a NumPy array"
        )

    def __repr__(self) -> str:
        closed = ", closed" if self.is_closed else ""
        return f"<DeviceArray {self.dtype.name}{list(self.shape)} on device {self._device}{closed}>"


class _View:
    """Lends a host array's memory to NumPy, and keeps it for as long as NumPy holds it, closed or not."""

    __slots__ = ("__array_interface__", "_array")

    def __init__(self, array: HostArray) -> None:
        self._array = array._alias()
        self.__array_interface__ = {
            "data": (array.address, False),
            "shape": (array.nbytes,),
            "typestr": "|u1",
            "version": 3,
        }


class HostArray(_native.Array, _Array):
    """An array in page-locked host memory, which devices copy from and to at the full rate of the bus.

    Made by `aiocuda.empty_host`. Its memory is used again, by this process, when nobody holds it any more.
    """

    __slots__ = ()

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the memory as a NumPy array, without copying.

        The view is live: what is written to it is what the next copy reads. It is yours while no
        operation on the array is going on.

        Raises
        ------
        ArgumentValueError
            The device is still reading or writing the memory: await the operation first.
        ClosedError
            The array was closed.
        """
        self._require_open()
        written, read = self._in_use()
        if written or read:
            doing, does = ("writing", "writes") if written else ("reading", "reads")
            raise ArgumentValueError(
                f"the device is still {doing} this HostArray of shape {self.shape}; await the operation "
                f"that {does} it before touching its memory"
            )
        if self.nbytes == 0:
            return np.empty(self.shape, self.dtype)
        return np.asarray(_View(self)).view(self.dtype).reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        view = self.numpy()
        if dtype is not None and view.dtype != dtype:
            return view.astype(dtype)
        return view.copy() if copy else view

    def __repr__(self) -> str:
        closed = ", closed" if self.is_closed else ""
        return f"<HostArray {self.dtype.name}{list(self.shape)}, page-locked{closed}>"


def _native_of(array: _Array) -> _native.Array:
    assert isinstance(array, _native.Array)
    return array


_native.set_array_classes(DeviceArray, HostArray)
