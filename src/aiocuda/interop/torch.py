"""PyTorch: its functions as operations."""

from aiocuda._interop.torch import op as op
from aiocuda._naming import name_publicly as _name_publicly

__all__ = ["op"]

_name_publicly(__name__, globals(), __all__)
