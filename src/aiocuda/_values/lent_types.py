"""How DLPack calls the types of items: a code and a number of bits.

Always true: a type of DLPack's is that of one dtype, and a dtype has one such type or none.
"""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

__all__ = ["dtype_lent_as", "type_lent_as"]

# Codes of dtypes, by NumPy's kind; or by name, where ml_dtypes has them.
_CODES_OF_KINDS: Final = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_CODES: Final = {
    "bfloat16": 4,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
_KINDS: Final = {code: kind for kind, code in _CODES_OF_KINDS.items()}
_NAMES: Final = {code: name for name, code in _CODES.items()}


def type_lent_as(dtype: np.dtype[Any]) -> tuple[int, int] | None:
    """Return what DLPack calls a dtype; None if it has no such type."""
    code = _CODES.get(dtype.name)
    if code is None and dtype.isbuiltin == 1:  # one of NumPy's own
        code = _CODES_OF_KINDS.get(dtype.kind)
    return None if code is None else (code, 8 * dtype.itemsize)


def dtype_lent_as(code: int, bits: int, lanes: int) -> np.dtype[Any] | None:
    """Return the dtype that DLPack calls so; None if there is none, such as for items of less than a byte."""
    try:
        found = np.dtype(getattr(ml_dtypes, _NAMES[code]) if code in _NAMES else f"{_KINDS[code]}{bits // 8}")
    except (KeyError, TypeError):
        return None
    return found if lanes == 1 and type_lent_as(found) == (code, bits) else None
