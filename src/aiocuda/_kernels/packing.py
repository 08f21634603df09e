"""How native code packs what a launch gives for a parameter.

Always true: numbers and arrays are packed by native code alone; a struct's packer is called for each launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aiocuda import _native
from aiocuda._kernels.struct_values import ConstantPacker, StructPacker
from aiocuda._values import dtypes

if TYPE_CHECKING:
    from aiocuda._source.signature import Parameter

__all__ = ["native_parameter", "size_bytes"]

# The scalars that native code packs.
_SCALARS = frozenset(
    {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    | {"bool", "float16", "bfloat16", "float32", "float64"}
)


def native_parameter(parameter: Parameter) -> _native.Parameter:
    """Return a parameter as native code packs it."""
    if parameter.kind in {"array", "view", "partition"}:
        return _native.Parameter(
            parameter.kind,
            parameter.name,
            dtype=dtypes.code_named(parameter.dtype),
            writes=parameter.writes,
            rank=parameter.rank,
            width=parameter.width,
            alignment=parameter.alignment,
        )
    if parameter.kind == "scalar" and parameter.dtype in _SCALARS:
        return _native.Parameter(parameter.dtype, parameter.name, dtype=dtypes.ANY)
    layout = _layout(parameter)
    if parameter.constant is not None:
        pack: ConstantPacker | StructPacker = ConstantPacker(parameter.constant)
        return _native.Parameter("struct", parameter.name, dtype=dtypes.ANY, size_bytes=1, pack=pack)
    pack = StructPacker(layout)
    return _native.Parameter("struct", parameter.name, dtype=dtypes.ANY, size_bytes=layout.itemsize, pack=pack)


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
