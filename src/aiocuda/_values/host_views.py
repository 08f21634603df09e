"""NumPy's views of arrays' memory that the host reaches: page-locked, and managed.

Always true: the memory lives for as long as NumPy holds it, whatever becomes of the array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aiocuda import _native
from aiocuda._values import dtypes, parts
from aiocuda.errors import ArgumentValueError

__all__ = ["as_array_of", "numpy_view", "view_of"]

# NumPy's arrays over memory of up to this size are read as any others: at once, so that they may change.
_COPIED_BYTES = 64 << 10


def numpy_view(array: _native.Array) -> np.ndarray[Any, Any]:
    """Return an array's memory as a NumPy array, without copying; its use was checked.

    Raises
    ------
    ArgumentValueError
        The device is still reading or writing the memory, for an operation or for a library that borrows it.
    """
    written, read = array._in_use()
    if written or read:
        doing, does = ("writing", "writes") if written else ("reading", "reads")
        raise ArgumentValueError(
            f"the device is still {doing} this {type(array).__name__} of shape {array._shape}; await the operation "
            f"that {does} it, or aiocuda.done(array), before touching its memory"
        )
    dtype = dtypes.dtype_of(array._dtype)
    if array._size_bytes == 0:
        return np.empty(array._shape, dtype)
    lent: Any = _native.Lent(array)  # a buffer, as PEP 688 has it
    return np.ndarray(array._shape, dtype, lent, strides=array._strides)


def as_array_of(view: np.ndarray[Any, Any], dtype: Any, copy: bool | None) -> np.ndarray[Any, Any]:
    """Return what NumPy asks ``__array__`` for: a view, or what it is to be copied to."""
    if dtype is not None and view.dtype != dtype:
        return view.astype(dtype)
    return view.copy() if copy else view


def view_of(data: np.ndarray[Any, Any]) -> Any:
    """Return an array over the memory of a NumPy array, where that is an array's that devices reach; else None."""
    if data.nbytes <= _COPIED_BYTES or any(step < 0 for step in data.strides):
        return None
    memory: Any = data
    while isinstance(memory, np.ndarray):
        memory = memory.base
    if not isinstance(memory, _native.Lent):
        return None
    whole = memory.array
    if not whole._is_contiguous:
        return None
    bytes_of = whole._view((whole._size_bytes,), dtypes.code_of(np.dtype(np.uint8)), None)
    begin = data.__array_interface__["data"][0] - whole._address
    end = (
        begin + data.itemsize + sum((extent - 1) * step for extent, step in zip(data.shape, data.strides, strict=True))
    )
    strides = None if parts.is_contiguous(data.shape, data.strides, data.itemsize) else data.strides
    return bytes_of._select(slice(begin, end))._view(data.shape, dtypes.code_of(data.dtype), strides)
