"""CuPy: its functions and its kernels as operations, and its memory."""

from aiocuda._interop.cupy import op as op
from aiocuda._interop.cupy_kernels import Kernel as Kernel
from aiocuda._interop.cupy_kernels import kernel as kernel
from aiocuda._interop.cupy_memory import share_memory_pool as share_memory_pool
from aiocuda._naming import name_publicly as _name_publicly

__all__ = ["Kernel", "kernel", "op", "share_memory_pool"]

_name_publicly(__name__, globals(), __all__)
