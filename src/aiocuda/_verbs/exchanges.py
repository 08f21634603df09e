"""What DLPack's exchange in C needs of Python: arrays of tensors that others give, and new ones that they ask for."""

from __future__ import annotations

from typing import Any, Final

from aiocuda._arrays.array import DeviceArray, HostArray
from aiocuda._driver import foreign
from aiocuda._values import lent_types
from aiocuda._verbs.create import empty, empty_host
from aiocuda._verbs.foreign import given
from aiocuda.errors import ArgumentTypeError

__all__ = ["make", "take"]

_WHERE: Final = "__dlpack_c_exchange_api__"
_ON_A_DEVICE: Final = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged


def make(shape: tuple[int, ...], kind: tuple[int, int], lanes: int, ordinal: int | None) -> DeviceArray | HostArray:
    """Make an array for another library, which does not wait for it.

    Parameters
    ----------
    shape
        The extent along each axis.
    kind, lanes
        What DLPack calls the items' type.
    ordinal
        The device; None: page-locked memory.

    Raises
    ------
    ArgumentTypeError
        There is no such dtype.
    CaptureError
        A function of `call` is captured: its graph would use the memory after that was let go of.
    """
    dtype = _dtype(kind, lanes)
    op: Any = empty_host(shape, dtype) if ordinal is None else empty(shape, dtype, device=ordinal)
    op.submit()
    made: DeviceArray | HostArray = op._outcome
    return made


def take(
    address: int,
    shape: tuple[int, ...],
    steps: tuple[int, ...] | None,
    kind: tuple[int, int],
    lanes: int,
    place: tuple[int, int],
    is_read_only: bool,
    owner: object,
    theirs: int | None,
) -> DeviceArray:
    """Make an array of a tensor that another library gives, as `aiocuda.external` would.

    Parameters
    ----------
    address, shape
        Where its first item is, and the extent along each axis.
    steps
        The items from one to the next along each axis; None where it is C-contiguous.
    kind, lanes
        What DLPack calls the items' type.
    place
        DLPack's kind of the memory, and the ordinal of its device.
    is_read_only
        Whether it must not be written.
    owner
        What keeps the memory.
    theirs
        The stream that work on the memory is on. None: it is that of the function of `call` that runs now.

    Raises
    ------
    ArgumentTypeError
        It is in host memory, or there is no such dtype.
    ArgumentValueError
        No array has such strides.
    """
    if place[0] not in _ON_A_DEVICE:
        raise ArgumentTypeError(f"{_WHERE} takes memory on a device; to_device() brings that of the host over")
    dtype = _dtype(kind, lanes)
    strides = None if steps is None else tuple(step * dtype.itemsize for step in steps)
    lent = foreign.Lent(address, shape, strides, dtype, is_read_only, owner, place[1], theirs, None)
    return given(foreign.possible(lent, _WHERE), _WHERE, is_of_call=theirs is None)


def _dtype(kind: tuple[int, int], lanes: int) -> Any:
    dtype = lent_types.dtype_lent_as(*kind, lanes)
    if dtype is None:
        raise ArgumentTypeError(
            f"{_WHERE}: no dtype is what DLPack calls code {kind[0]}, {kind[1]} bits, {lanes} lanes"
        )
    return dtype
