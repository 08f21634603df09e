"""Memory of other libraries, by the protocols they share it with: DLPack and the CUDA array interface."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import numpy as np

from aiocuda import _native
from aiocuda._driver import frameworks
from aiocuda.errors import AiocudaError, ArgumentTypeError, ArgumentValueError

__all__ = ["Lent", "lent_by", "possible"]

_DEVICE_KINDS: Final = (2, 13)  # DLPack's numbers of kDLCUDA and kDLCUDAManaged


class Lent(NamedTuple):
    """Memory that another library lends.

    Attributes
    ----------
    address
        Where its first item is.
    shape
        The extent along each axis.
    strides
        The bytes from an item to the next along each axis; None where it is C-contiguous.
    dtype
        The items' type.
    is_read_only
        Whether it must not be written.
    owner
        What keeps the memory.
    device
        The ordinal of the device that it is on.
    theirs
        The handle of a stream of the owner's that his work on it is on; None where he names none.
    relay
        Or a stream of ours that he has ordered behind his work; else None.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: np.dtype[Any]
    is_read_only: bool
    owner: Any
    device: int
    theirs: int | None
    relay: int | None


class _Shown:
    """An array interface that was read already, for who reads it again."""

    __slots__ = ("__cuda_array_interface__",)

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__cuda_array_interface__ = interface


def lent_by(x: Any, where: str) -> Lent:
    """Take memory on a device that another library lends. Each of its protocols is asked once.

    Parameters
    ----------
    x
        Anything with DLPack or ``__cuda_array_interface__``.
    where
        The function that wants it, for messages.

    Raises
    ------
    ArgumentTypeError
        It is not on a device, has no protocol, or items of a type that NumPy does not know.
    ArgumentValueError
        No memory has such a shape or such strides, or the owner names no one stream.
    """
    with _told_by(x, where):
        view, ordinal, theirs, relay = (
            _by_dlpack(x, where) if hasattr(x, "__dlpack__") else _by_array_interface(x, where)
        )
    try:
        dtype = np.dtype(view.dtype)
    except TypeError as error:
        raise ArgumentTypeError(
            f"{where}: the items of this {type(x).__name__} have no dtype of NumPy's: {error}"
        ) from error
    shape = tuple(int(extent) for extent in view.shape)
    strides = None if view.strides is None else tuple(int(step) * dtype.itemsize for step in view.strides)
    lent = Lent(int(view.ptr), shape, strides, dtype, bool(view.readonly), (x, view), ordinal, theirs, relay)
    return possible(lent, where)


def possible(lent: Lent, where: str) -> Lent:
    """Return memory that is lent, if there can be such memory.

    Raises
    ------
    ArgumentValueError
        No memory has such a shape or such strides.
    """
    shape, strides, dtype = lent.shape, lent.strides, lent.dtype
    steps = strides or (dtype.itemsize,) * len(shape)
    is_possible = len(steps) == len(shape) and all(extent >= 0 for extent in shape)
    reach_bytes = math.prod(shape) * dtype.itemsize + sum(map(operator.mul, map(abs, steps), shape))
    if not is_possible or reach_bytes >= 2**63:
        raise ArgumentValueError(f"{where}: no memory has shape {shape} and strides of {strides} bytes")
    return lent


@contextmanager
def _told_by(x: Any, where: str) -> Iterator[None]:
    try:
        yield
    except AiocudaError:
        raise
    except Exception as error:  # whatever the owner's protocol, or the driver about its pointer, has to say
        raise ArgumentTypeError(
            f"{where} takes what has __dlpack__ or __cuda_array_interface__; {type(x).__name__} {x!r:.80}: {error}"
        ) from error


def _by_dlpack(x: Any, where: str) -> tuple[Any, int, int | None, int | None]:
    from cuda.core.utils import StridedMemoryView

    kind, ordinal = x.__dlpack_device__()
    if kind not in _DEVICE_KINDS:
        raise _not_on_a_device(x, where)
    # PyTorch lends what is on its current device alone.
    theirs = _native.in_context(ordinal, lambda: frameworks.current_stream(x, ordinal))
    if theirs is not None:
        return _native.in_context(ordinal, lambda: StridedMemoryView.from_dlpack(x, -1)), ordinal, theirs, None
    relay, handle = _native.unnamed_relay(ordinal)
    return _native.in_context(ordinal, lambda: StridedMemoryView.from_dlpack(x, handle)), ordinal, None, relay


def _by_array_interface(x: Any, where: str) -> tuple[Any, int, int | None, int | None]:
    from cuda.core.utils import StridedMemoryView

    interface = x.__cuda_array_interface__
    theirs = interface.get("stream")
    if theirs is not None and (type(theirs) is not int or theirs <= 0):
        raise ArgumentValueError(
            f"{where}: the __cuda_array_interface__ of this {type(x).__name__} names stream {theirs!r:.40}; its owner "
            "is to name 1 (CUDA's legacy default stream), 2 (the thread's; 0 may be either), a handle, or None"
        )
    view = StridedMemoryView.from_cuda_array_interface(_Shown(interface), -1)
    if not view.is_device_accessible or view.device_id < 0:
        raise _not_on_a_device(x, where)
    return view, int(view.device_id), theirs, None


def _not_on_a_device(x: Any, where: str) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"{where} takes memory on a device; this {type(x).__name__} is in host memory; to_device() brings it over"
    )
