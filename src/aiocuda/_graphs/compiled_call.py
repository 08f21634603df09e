"""The arguments of a call of a compiled function: what decides about its graph, and what that is launched with.

Always true: calls whose keys are equal are one graph's, where the numbers that the function looks at are equal too. A
key holds an array's layout and which of the arrays it is, a number's type, and all else as it is.
"""

from __future__ import annotations

import copy as copying
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from aiocuda import _native
from aiocuda._devices.device import current_ordinal
from aiocuda._values import dtypes
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError

__all__ = ["Call", "described", "is_number", "is_plain", "mapped"]


class Call:
    """The arguments of a call: what decides about the graph, and what it is launched with."""

    __slots__ = ("distinct", "has_tensors", "key", "numbers", "ops", "which")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.ops: list[Any] = []
        self.distinct: list[_native.Array] = []  # the arrays, each once
        self.which: list[int] = []  # for each array argument, which of them
        self.numbers: list[Any] = []
        self.has_tensors = False  # of other libraries, which are to be given as arrays
        key: list[Any] = [current_ordinal()]
        places: dict[Any, int] = {}
        self._take(args, key, places)
        if kwargs:
            key.append(tuple(kwargs))
            self._take(kwargs.values(), key, places)
        self.key = tuple(key)
        if not self.ops:
            try:
                hash(self.key)
            except TypeError as error:
                raise ArgumentTypeError(
                    "a compiled function takes arrays, operations, numbers, tuples, lists, dicts and dataclasses of "
                    f"them, and what is hashable: {error}"
                ) from None

    def _take(self, structure: Iterable[Any], key: list[Any], places: dict[Any, int]) -> None:
        for item in structure:
            kind = type(item)
            if isinstance(item, _native.Array):
                layout = item._layout
                index = places.setdefault((item._place, layout), len(places))
                if index == len(self.distinct):
                    self.distinct.append(item)
                self.which.append(index)
                key.append((layout, index))
            elif isinstance(item, _native.Op):
                self.ops.append(item)
            elif isinstance(item, (tuple, list)):
                key.append((kind, len(item)))
                self._take(item, key, places)
            elif kind is dict:
                key.append((dict, tuple(item)))
                self._take(item.values(), key, places)
            elif dataclasses.is_dataclass(kind):
                key.append(kind)
                self._take((getattr(item, field.name) for field in dataclasses.fields(item)), key, places)
            elif is_number(item):
                self.numbers.append(item)
                key.append(kind)
            elif as_array(item, "a call of a compiled function") is not item:
                self.has_tensors = True
            else:
                key.append((kind, item))


def is_number(leaf: Any) -> bool:
    """Whether an argument is a number, which launches may replace."""
    return isinstance(leaf, (int, float, np.integer, np.floating)) and not isinstance(leaf, bool)


def is_plain(argument: Any) -> bool:
    """Whether an argument is an array, a number of Python's, or what is compared as it is."""
    if isinstance(argument, _native.Array) or type(argument) in (int, float):
        return True
    is_structure = isinstance(argument, (tuple, list)) or type(argument) is dict or dataclasses.is_dataclass(argument)
    return not (is_structure or isinstance(argument, _native.Op) or is_number(argument))


def mapped(structure: Any, at: Callable[[Any], Any]) -> Any:
    """Return a structure with what a function makes of each leaf in its place."""
    kind = type(structure)
    if isinstance(structure, (tuple, list)):
        items = (mapped(item, at) for item in structure)
        return kind(*items) if hasattr(kind, "_fields") else kind(items)
    if kind is dict:
        return {key: mapped(item, at) for key, item in structure.items()}
    if dataclasses.is_dataclass(kind):
        other = copying.copy(structure)
        for field in dataclasses.fields(structure):
            object.__setattr__(other, field.name, mapped(getattr(structure, field.name), at))  # frozen ones too
        return other
    return at(structure)


def described(part: Any) -> str:
    """Return a part of a key in words."""
    match part:
        case ((type() as kind, code, device, shape, *_), int()):
            where = "" if device < 0 else f" on device {device}"
            return f"a {kind.__name__} of {dtypes.dtype_of(code)}{shape}{where}"
        case type():
            return f"a {part.__name__}" if dataclasses.is_dataclass(part) else f"a number ({part.__name__})"
        case (type() as kind, int(size)) if issubclass(kind, (tuple, list)):
            return f"a {kind.__name__} of {size}"
        case (type() as kind, keys) if kind is dict:
            return f"a dict of {keys}"
        case (type(), argument):
            return repr(argument)
    return f"arguments by the names {part}"
