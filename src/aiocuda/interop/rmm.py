"""RMM: its memory."""

from aiocuda._interop.rmm_memory import share_memory_pool as share_memory_pool
from aiocuda._naming import name_publicly as _name_publicly

__all__ = ["share_memory_pool"]

_name_publicly(__name__, globals(), __all__)
