"""How native code packs what a launch gives for a parameter.

Always true: numbers and arrays are packed by native code alone; a struct's packer is called for each launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from aiocuda._kernels.struct_values import ConstantPacker, StructPacker
from aiocuda._source.signature import Parameter
from aiocuda._values import dtypes

__all__ = ["NativeParameter", "native_parameter", "size_bytes"]

# The scalars that native code packs.
_SCALARS = frozenset(
    {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    | {"bool", "float16", "bfloat16", "float32", "float64"}
)

NativeParameter: TypeAlias = tuple[str, int, bool, str, int, int, int, Callable[[str, object], bytes] | None, int]


def native_parameter(parameter: Parameter) -> NativeParameter:
    """Return what `_native.make_kernel` is told of a parameter."""
    if parameter.kind in {"array", "view", "partition"}:
        code = dtypes.code_named(parameter.dtype)
        size = (parameter.rank, parameter.width, 0)
        return parameter.kind, code, parameter.writes, parameter.name, *size, None, parameter.alignment
    if parameter.kind == "scalar" and parameter.dtype in _SCALARS:
        return parameter.dtype, dtypes.ANY, False, parameter.name, 0, 1, 0, None, 1
    layout = _layout(parameter)
    if parameter.constant is not None:
        return "struct", dtypes.ANY, False, parameter.name, 0, 1, 1, ConstantPacker(parameter.constant), 1
    return "struct", dtypes.ANY, False, parameter.name, 0, 1, layout.itemsize, StructPacker(layout), 1


def _layout(parameter: Parameter) -> np.dtype[Any]:
    """Return how a value lies that is no single number that native code packs."""
    if parameter.layout is not None:
        return parameter.layout
    item = dtypes.dtype_named(parameter.dtype or "")
    return np.dtype((item, (parameter.width,))) if parameter.width > 1 else item


def size_bytes(parameter: Parameter) -> int:
    """Return how many bytes a parameter has in the compiled kernel."""
    if parameter.kind == "array":
        return 8
    if parameter.rank:  # where, shape and strides; of a partition, also the shape of a tile (aiocuda/tile.cuh)
        return 8 * (1 + (2 if parameter.kind == "view" else 3) * parameter.rank)
    return _layout(parameter).itemsize
