"""A tensor that costs next to nothing to ask, as PyTorch's functions in C++ are none of aiocuda's.

Always true: each answer is one of Python's own functions or attributes in C, so no line of Python is counted for it.
"""

from __future__ import annotations

import sys
import types
from typing import Any

_STREAM, _ADDRESS = 0x5000, 0x6F0000000000


class Tensor:
    """What aiocuda asks of a tensor, as attributes."""

    __slots__ = (
        "data_ptr", "dtype", "get_device", "is_conj", "is_contiguous", "is_inference", "is_neg", "requires_grad",
        "shape",
    )  # fmt: skip
    __torch_dispatch__ = None


class DType(str):
    """Its name, as PyTorch shows it."""

    __slots__ = ()
    is_complex = False


Tensor.__module__ = "torch"


def tensor(items: int = 1024) -> Any:
    """Return a tensor of float32 on device 0, of a PyTorch that this puts into ``sys.modules``."""
    torch: Any = types.ModuleType("torch")
    torch.Tensor = Tensor
    torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream={0: _STREAM}.__getitem__)
    torch.autograd = types.SimpleNamespace(graph=types.SimpleNamespace(increment_version=id))
    sys.modules["torch"] = torch
    made: Any = Tensor()
    made.get_device, made.data_ptr = (0).__index__, _ADDRESS.__index__
    made.is_conj = made.is_neg = made.is_inference = False.__bool__
    made.is_contiguous = True.__bool__
    made.requires_grad, made.dtype, made.shape = False, DType("torch.float32"), (items,)
    return made
