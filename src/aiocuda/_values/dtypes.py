"""NumPy's dtypes, and the codes under which native code knows them.

Always true: one dtype has one code, for the life of the process; code 0 is "any".
"""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from aiocuda import _native
from aiocuda._values import given, lent_types
from aiocuda.errors import ArgumentTypeError

__all__ = ["ANY", "DTypeLike", "code_named", "code_of", "dtype_named", "dtype_of", "to_dtype"]

DTypeLike = Any
ANY = 0

_by_code: list[np.dtype[Any] | None] = [None]
_by_dtype: dict[np.dtype[Any], int] = {}
_by_type: dict[type, np.dtype[Any]] = {}  # of NumPy's scalars, and ml_dtypes'


def to_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Return the NumPy dtype for what a user may give: a dtype, a type or a name, ml_dtypes' names too.

    Raises
    ------
    ArgumentTypeError
        It is no dtype, or one that a device cannot hold: Python objects, a foreign byte order.
    """
    if isinstance(dtype, np.dtype):
        if dtype in _by_dtype:  # was found good before
            return dtype
    elif isinstance(dtype, type) and (known := _by_type.get(dtype)) is not None:
        return known
    try:
        found = dtype_named(dtype) if isinstance(dtype, str) else np.dtype(dtype)
    except Exception as error:  # NumPy refuses in many ways, and asks the object's own methods
        raise ArgumentTypeError(f"{given.shown(dtype)} is not a dtype: {error}") from error
    if found.hasobject:
        raise ArgumentTypeError(f"dtype {found} holds Python objects, which a device cannot read; use a numeric dtype")
    if not found.isnative:
        raise ArgumentTypeError(
            f"dtype {found} is of a foreign byte order; convert it with .astype(dtype.newbyteorder('='))"
        )
    if found.itemsize == 0:
        raise ArgumentTypeError(f"dtype {found} has items of no bytes; give it a size")
    if found.type is dtype:
        _by_type[dtype] = found
    return found


def dtype_named(name: str) -> np.dtype[Any]:
    """Return the dtype of a name, as NumPy or ml_dtypes has it."""
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


def code_of(dtype: np.dtype[Any]) -> int:
    """Return the code of a dtype; a new one the first time."""
    code = _by_dtype.get(dtype)
    if code is None:
        code = _native.add_dtype(dtype.name, dtype.itemsize, lent_types.type_lent_as(dtype))
        _by_dtype[dtype] = code
        _by_code.append(dtype)
        assert len(_by_code) == code + 1
    return code


@functools.cache
def code_named(name: str | None) -> int:
    """Return the code of a dtype by its name; of None, the code of "any"."""
    return ANY if name is None else code_of(dtype_named(name))


def dtype_of(code: int) -> np.dtype[Any]:
    """Return the dtype of a code."""
    dtype = _by_code[code]
    assert dtype is not None
    return dtype
