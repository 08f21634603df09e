"""Warp: its functions and its kernels as operations."""

from aiocuda._interop.warp import op as op
from aiocuda._interop.warp_kernels import Kernel as Kernel
from aiocuda._interop.warp_kernels import kernel as kernel
from aiocuda._naming import name_publicly as _name_publicly

__all__ = ["Kernel", "kernel", "op"]

_name_publicly(__name__, globals(), __all__)
