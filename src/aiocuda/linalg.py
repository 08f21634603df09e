"""Linear algebra: products of matrices."""

from aiocuda._naming import name_publicly as _name_publicly
from aiocuda._verbs.matrices import matmul as matmul

__all__ = ["matmul"]

_name_publicly(__name__, globals(), __all__)
