"""Host data as copies take it: NumPy arrays of a dtype that a device can hold, whoever owns the memory.

Always true: nothing is copied but what is no array yet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from aiocuda._values import dtypes
from aiocuda._values.dtypes import DTypeLike
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["as_numpy", "as_target", "cut", "described"]

NDArray = np.ndarray[Any, Any]


def as_numpy(x: object, dtype: DTypeLike = None) -> NDArray:
    """Return host data as a NumPy array over the same memory, where it has some.

    Parameters
    ----------
    x
        What `numpy.asarray` takes; bytes (as uint8, or as `dtype`); or a tensor in host memory that DLPack lends.
    dtype
        For data that is not an array yet.

    Raises
    ------
    ArgumentTypeError
        It is no array data, or of a dtype that no device can hold.
    ArgumentValueError
        Bytes that are no whole number of items.
    """
    if type(x) is np.ndarray and dtype is None:
        dtypes.to_dtype(x.dtype)
        return x
    kind = None if dtype is None else dtypes.to_dtype(dtype)
    if isinstance(x, (bytes, bytearray)):
        kind = np.dtype(np.uint8) if kind is None else kind
        if len(x) % kind.itemsize:
            raise ArgumentValueError(
                f"{len(x)} bytes are no whole number of items of {kind}, {kind.itemsize} bytes each"
            )
        return np.frombuffer(x, kind) if x else np.empty(0, kind)
    try:
        is_lent = not isinstance(x, np.ndarray) and hasattr(x, "__dlpack__") and not hasattr(x, "__array__")
        data = np.asarray(np.from_dlpack(x) if is_lent else x, kind)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise ArgumentTypeError(f"{described(x)} is no array data in host memory: {error}") from error
    if data.dtype.hasobject and not isinstance(x, np.ndarray):
        raise ArgumentTypeError(
            f"{described(x)} is no array data in host memory: NumPy makes Python objects of it, which no "
            "device can read"
        )
    dtypes.to_dtype(data.dtype)
    return data


def as_target(x: NDArray, where: str) -> NDArray:
    """Return a NumPy array that a copy can write.

    Raises
    ------
    ArgumentTypeError
        Its dtype is one that no device can hold.
    ArgumentValueError
        It is read-only.
    """
    dtypes.to_dtype(x.dtype)
    if not x.flags.writeable:
        raise ArgumentValueError(
            f"{where}: the NumPy array of shape {x.shape} is read-only; give one that can be written, or take a copy"
        )
    return x


def cut(shape: tuple[int, ...], size_bytes: int, most_bytes: int) -> Iterator[tuple[int | slice, ...]]:
    """Yield the indices of parts of an array, in C order, none larger than `most_bytes` (but for single items)."""
    if size_bytes <= most_bytes or math.prod(shape) <= 1:
        yield ()
        return
    row_bytes = size_bytes // shape[0]
    if row_bytes > most_bytes:
        for row in range(shape[0]):
            for rest in cut(shape[1:], row_bytes, most_bytes):
                yield (row, *rest)
        return
    step = most_bytes // row_bytes
    for begin in range(0, shape[0], step):
        yield (slice(begin, min(begin + step, shape[0])),)


def described(x: object) -> str:
    """Return what errors call a value that is not what was asked for."""
    return f"{type(x).__name__} {x!r:.80}"
