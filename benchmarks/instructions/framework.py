"""A framework whose functions cost next to nothing: what is left is what its operations cost aiocuda."""

from __future__ import annotations

from typing import Any

from aiocuda._interop import operation as operations
from aiocuda._interop.operation import Entered, Made, capsule_of, operation
from aiocuda._values import dtypes

_BEFORE = 1  # the default stream


class Tensor:
    """What the framework's functions return."""


class Framework(operations.Framework):
    """As `aiocuda._interop` takes a framework.

    Parameters
    ----------
    address
        Of the memory that all its tensors have: 1,024 float32.
    """

    name = "Stand-in"

    def __init__(self, address: int) -> None:
        super().__init__()
        self._made = Made(address, (1024,), None, dtypes.code_named("float32"), 0, self)

    def enter(self, stream: Any, kept: list[Any] | None) -> Entered:
        """Say that the default stream was the current one."""
        return Entered(_BEFORE, (), None)

    def leave(self, entered: Entered) -> None:
        """Do nothing."""

    def lend(self, array: Any) -> Any:
        """Return a capsule, which keeps the array's memory."""
        return capsule_of(array)

    def was_written(self, lent: Any) -> bool:
        """Say no."""
        return False

    def found(self, x: Any) -> Made | None:
        """Return the memory that all tensors have."""
        return self._made if type(x) is Tensor else None

    def op(self, function: Any, x: Any) -> Any:
        """Make an operation of a function of one array."""
        return operation(self, function, (x,), (), (), False)
