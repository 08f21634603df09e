"""Public names whose modules are imported when a program first asks for them: not every program serves or traces.

Always true: a name is one object, whenever it is asked for. The names of a group come together, so all of its classes
say from where they are public, whichever of them a program asks for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from aiocuda import _naming

__all__ = ["names_of"]


def names_of(
    module: str, namespace: dict[str, Any], *groups: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the functions ``__getattr__`` and ``__dir__`` of a module that has more names than it has imported.

    Parameters
    ----------
    module, namespace
        The public module's name, and what is in it.
    *groups
        Names that come together, each with the module that has it, or with the module that it is.
    """
    group_of = {name: group for group in groups for name in group}

    def get(name: str) -> Any:
        group = group_of.get(name)
        if group is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])
        for each, home in group.items():
            found = import_module(home)
            namespace[each] = found if home == f"{module}.{each}" else getattr(found, each)
        _naming.name_publicly(module, namespace, group)
        return namespace[name]

    def names() -> list[str]:
        return sorted({*namespace, *group_of})

    return get, names
