"""Memory of other libraries, by the protocols they share it with: DLPack and the CUDA array interface."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from aiocuda.errors import AiocudaError, ArgumentTypeError, ArgumentValueError

__all__ = ["Lent", "lent_on", "lent_to"]


@dataclass(frozen=True, slots=True)
class Lent:
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
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: np.dtype[Any]
    is_read_only: bool
    owner: Any


def lent_on(x: Any) -> int:
    """Return the ordinal of the device that lent memory is on.

    Raises
    ------
    ArgumentTypeError
        It is not on a device, or has no protocol.
    """
    interface = getattr(x, "__cuda_array_interface__", None)
    if isinstance(interface, dict) and type(interface.get("stream")) is int and not interface["stream"]:
        raise ArgumentValueError(
            f"external: the __cuda_array_interface__ of this {type(x).__name__} names stream 0, which may be either of "
            "CUDA's default streams; its owner is to name 1 (the legacy one), 2 (the thread's), a handle, or None"
        )
    view = _view(x, -1)
    if not view.is_device_accessible or view.device_id < 0:
        raise ArgumentTypeError(
            f"external takes memory on a device; this {type(x).__name__} is in host memory; to_device() brings it over"
        )
    return int(view.device_id)


def lent_to(x: Any, stream: int) -> Lent:
    """Take memory that another library lends, behind that one's work on it.

    Parameters
    ----------
    x
        Anything with DLPack or ``__cuda_array_interface__``.
    stream
        The driver's handle of a stream, all later work of which is ordered behind what the owner says is going on.
    """
    view = _view(x, stream)
    try:
        dtype = np.dtype(view.dtype)
    except TypeError as error:
        raise ArgumentTypeError(
            f"external: the items of this {type(x).__name__} have no dtype of NumPy's: {error}"
        ) from error
    shape = tuple(int(extent) for extent in view.shape)
    strides = None if view.strides is None else tuple(int(step) * dtype.itemsize for step in view.strides)
    steps = strides or (dtype.itemsize,) * len(shape)
    is_possible = len(steps) == len(shape) and all(extent >= 0 for extent in shape)
    reach_bytes = math.prod(shape) * dtype.itemsize + sum(map(operator.mul, map(abs, steps), shape))
    if not is_possible or reach_bytes >= 2**63:
        raise ArgumentValueError(f"external: no memory has shape {shape} and strides of {strides} bytes")
    return Lent(int(view.ptr), shape, strides, dtype, bool(view.readonly), (x, view))


def _view(x: Any, stream: int) -> Any:
    from cuda.core.utils import StridedMemoryView

    try:
        return StridedMemoryView.from_any_interface(x, stream_ptr=stream)
    except AiocudaError:
        raise
    except Exception as error:  # whatever the owner's protocol, or the driver about its pointer, has to say
        raise ArgumentTypeError(
            f"external takes what has __dlpack__ or __cuda_array_interface__; {type(x).__name__} {x!r:.80}: {error}"
        ) from error
