"""cuTile: its kernels as operations."""

from aiocuda._interop.cutile import Kernel as Kernel
from aiocuda._interop.cutile import kernel as kernel
from aiocuda._naming import name_publicly as _name_publicly

__all__ = ["Kernel", "kernel"]

_name_publicly(__name__, globals(), __all__)
