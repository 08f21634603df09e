"""Names whose modules are imported when they are first asked for: not every program traces, or has kernels of its own.

Always true: a name is one object, whenever it is asked for. The names of a group come together, so all of its classes
say from where they are public, whichever of them a program asks for. Nobody sees a class before it says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from aiocuda import _forks, _naming

# The package, which annotations write before a class that comes later: it is imported when somebody evaluates them.
if TYPE_CHECKING:
    import aiocuda
else:  # an import would tie each room to all of the package
    aiocuda = sys.modules["aiocuda"]

__all__ = ["aiocuda", "names_of"]

# Two threads may ask at once; and a finalizer may ask, in the middle of it.
_naming_lock = _forks.reentrant_lock()


def names_of(
    module: str, namespace: dict[str, Any], *groups: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the functions ``__getattr__`` and ``__dir__`` of a module that has more names than it has imported.

    Parameters
    ----------
    module, namespace
        The module's name, and what is in it: a public module; or a room, of which others use a few functions.
    *groups
        Names that come together: by the module that has them, or that one of them is.
    """
    is_public = not module.startswith("aiocuda._")
    group_of = {name: group for group in groups for names in group.values() for name in names}

    def get(name: str) -> Any:
        group = group_of.get(name)
        if group is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])
        found = {}
        for home, names in group.items():
            imported = import_module(home)
            for each in names:
                found[each] = imported if home == f"{module}.{each}" else getattr(imported, each)
        with _naming_lock:
            if is_public:
                _naming.name_publicly(module, found, found)
            namespace.update(found)
        return found[name]

    def all_names() -> list[str]:
        return sorted({*namespace, *group_of})

    return get, all_names
