"""Numba-CUDA: its functions and its kernels as operations."""

from aiocuda._interop.numba import Kernel as Kernel
from aiocuda._interop.numba import kernel as kernel
from aiocuda._interop.numba import op as op
from aiocuda._naming import name_publicly as _name_publicly

__all__ = ["Kernel", "kernel", "op"]

_name_publicly(__name__, globals(), __all__)
