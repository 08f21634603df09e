"""Public names say from where users import them.

Always true: a public class or function has one public name, and its ``__module__`` is the module of that.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Mapping
from types import FunctionType
from typing import Any

__all__ = ["name_publicly"]

_PRIVATE = "aiocuda._"


def name_publicly(module: str, namespace: Mapping[str, Any], names: Iterable[str]) -> None:
    """Have public classes and functions say that they are of the public module, in messages, pickles and the docs.

    Parameters
    ----------
    module, namespace
        The public module's name, and what is in it.
    names
        Which are public there. A name that a public module defines itself keeps that module.
    """
    for name in names:
        each = namespace[name]
        if isinstance(each, (type, FunctionType)) and each.__module__.startswith(_PRIVATE):
            if isinstance(each, type) and (dataclasses.is_dataclass(each) or issubclass(each, tuple)):
                # `typing.get_type_hints` reads the fields' types among the names of the class's module.
                each.__annotations__ = typing.get_type_hints(each)
            each.__module__ = module
            # From CPython 3.13 on, a class has the number of its first line, and `inspect` would look for that line in
            # the public module. Without it, it says that it finds no source.
            if isinstance(each, type) and "__firstlineno__" in vars(each):
                delattr(each, "__firstlineno__")
