"""Numbers that a function is traced with: what it does with them says whether a launch may replace them.

Always true: one that was looked at, in whatever way, is marked as observed, and gives what the number would give.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aiocuda._ops.operation import GatherOp, PickOp

__all__ = ["TracedNumber"]


class TracedNumber(PickOp):
    """A number that kernels take as an operation, and that everything else computes with as the number that it is."""

    __slots__ = ("_number", "is_observed")
    _number: Any
    is_observed: bool

    @classmethod
    def of(cls, number: Any) -> TracedNumber:
        """Make one of a number."""
        traced = cls(GatherOp((number,)), 0)
        traced._number = number
        traced.is_observed = False
        return traced

    def _observe(self) -> Any:
        self.is_observed = True
        return self._number

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        # A test whether it is an int or a float gets the number's answer; its own type is an operation's.
        return type(self._number)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._observe(), name)  # such as bit_length, or dtype

    def __array__(self, *arguments: Any, **keywords: Any) -> Any:
        return np.asarray(self._observe(), *arguments, **keywords)

    def __copy__(self) -> Any:
        return self._observe()

    def __deepcopy__(self, _: Any) -> Any:
        return self._observe()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._observe().__reduce_ex__(protocol)

    def __bool__(self) -> bool:
        return bool(self._observe())

    def __hash__(self) -> int:
        return hash(self._observe())

    def __repr__(self) -> str:
        return repr(self._observe())

    def __str__(self) -> str:
        return str(self._observe())

    def __format__(self, specification: str) -> str:
        return format(self._observe(), specification)


def _seen(number: Any) -> Any:
    return number._observe() if type(number) is TracedNumber else number


def _computing(name: str) -> Any:
    def method(self: TracedNumber, *others: Any) -> Any:
        return getattr(self._observe(), name)(*(_seen(other) for other in others))

    method.__name__ = name
    return method


_UNARY = ("neg", "pos", "abs", "invert", "int", "float", "complex", "index", "round", "trunc", "floor", "ceil")
_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift", "and", "or", "xor")
_COMPARING = ("lt", "le", "eq", "ne", "gt", "ge")

for _name in (*_UNARY, *_BINARY, *(f"r{name}" for name in _BINARY), *_COMPARING):
    setattr(TracedNumber, f"__{_name}__", _computing(f"__{_name}__"))
