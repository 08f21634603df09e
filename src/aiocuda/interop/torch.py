"""PyTorch: its functions as operations, and its memory."""

from aiocuda._interop.torch import op as op
from aiocuda._interop.torch_memory import share_memory_pool as share_memory_pool
from aiocuda._naming import name_publicly as _name_publicly

__all__ = ["op", "share_memory_pool"]

_name_publicly(__name__, globals(), __all__)
