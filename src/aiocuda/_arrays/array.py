"""Arrays: memory of devices and page-locked host memory with a dtype and a shape; who may use them; their partitions.

Always true: the memory lives until the last operation that uses it has passed on the device, whatever is
dropped on the host. A use that the array's owner does not allow (see `OwnershipError`) is found when an operation is
built, and again when it is submitted. Arrays have no operators: bring kernels, or expressions.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np

from aiocuda import _arrays, _native
from aiocuda._arrays.base import raise_made_by_operations
from aiocuda._arrays.exchange import DLPack, array_interface
from aiocuda._arrays.managed import Managed
from aiocuda._arrays.partition import Partition, Partitionable
from aiocuda._devices.device import Device, DeviceLike
from aiocuda._later import aiocuda
from aiocuda._ops import above
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import host_views
from aiocuda.errors import ArgumentTypeError

__all__ = ["DeviceArray", "HostArray", "move"]


class DeviceArray(_native.Array, Partitionable, Managed, DLPack):
    """An array in a device's memory; made by operations such as `aiocuda.empty` and `aiocuda.to_device`.

    Pass it to kernels and copies. The handle is there as soon as the operation that makes it has been
    submitted; who reads it is ordered behind who writes it.

    An array is *owned* until it is shared (`share`: to be read by many), partitioned (`partition`: to be written in
    tiles by the blocks of a kernel) or moved (`aiocuda.move`: to another handle in its place).

    In managed memory (`is_managed`, made with ``managed=True``) the host and all devices reach it in place.
    """

    __slots__ = ()

    def __init__(self, *_: object, **__: object) -> None:
        raise_made_by_operations()

    @property
    def device(self) -> Device:
        """The device whose memory it is; of managed memory, the one that it was made for."""
        return Device(self._device)

    def to(self, device: DeviceLike) -> DeviceOp[DeviceArray]:
        """Bring the array to a device; one that is there already is given as it is.

        Parameters
        ----------
        device
            A `Device`, its ordinal, or its name such as ``"cuda:1"``.

        Returns
        -------
        DeviceOp[DeviceArray]
            As for `aiocuda.to_device`.
        """
        return above.to_device(self, device)

    def ipc_handle(self) -> aiocuda.IpcHandle:
        """Return what another process opens the array with, by `aiocuda.open_ipc`.

        For arrays that were made with ``interprocess=True``.

        Returns
        -------
        IpcHandle
            To be pickled, and sent over whatever connects the two. The other process' work with the array waits for
            everything that was submitted here until now. A shared array's is for reading. *Blocks*: for the driver's
            calls, not for what was submitted.

        Raises
        ------
        ArgumentValueError
            The array was made without ``interprocess=True``, or has no items.
        OwnershipError
            The array was closed (a `ClosedError`), moved or partitioned.
        DriverError
            The driver refused: it lends other processes nothing.
        CollectiveError
            A collective was to write the array, and has failed.

        Notes
        -----
        The driver tells neither process what the other does. So this process keeps the array until the other one says
        that it has closed its own: else the memory is used again, by a later array made with ``interprocess=True``.
        This process does not know of the other's work: it waits for a message, or for an event of the other process.
        """
        return _arrays.handle_of(self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The array as libraries take it that do not speak DLPack, such as Numba: version 3 of the interface.

        It names a stream of aiocuda's behind all work on the array, or None if there is none. Who takes the array waits
        for that stream, and keeps this array. aiocuda learns neither what is done with it nor until when. So DLPack,
        which libraries prefer, is better; or put the work into the DAG, with `aiocuda.call`.

        Raises
        ------
        MissingAttributeError
            The interface has no such dtype. So ``hasattr`` says that there is no interface, and libraries go on to
            DLPack.
        OwnershipError
            The array was closed (a `ClosedError`), moved or partitioned.
        CollectiveError
            A collective was to write the array, and has failed.
        """
        return array_interface(self)

    def __repr__(self) -> str:
        return self._described(f"{', managed,' if self.is_managed else ''} on device {self._device}")


class HostArray(_native.Array, Partitionable, DLPack):
    """An array in page-locked host memory, which devices copy from and to at the full rate of the bus.

    Made by `aiocuda.empty_host`. Its memory is used again, by this process, when nobody holds it any more.
    """

    __slots__ = ()

    def __init__(self, *_: object, **__: object) -> None:
        raise_made_by_operations()

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the memory as a NumPy array, without copying.

        The view is live: what is written to it is what the next copy reads. It is yours while no
        operation on the array is going on. That of a shared array is for reading.

        Returns
        -------
        numpy.ndarray
            Of the same shape, dtype and strides, over the same memory, which it keeps.

        Raises
        ------
        ArgumentValueError
            The device is still reading or writing the memory: await the operation first. A library that has borrowed
            the array may do that, too: await `aiocuda.done` of the array.
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
