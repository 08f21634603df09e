"""The state of a loop on the device: arrays in a structure, each with a name for messages.

Pure: structures in, structures out. None stands for no array.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from aiocuda._graphs.compiled_call import mapped

__all__ = ["State"]


class State:
    """The leaves of a structure: a tuple, list, dict or dataclass, to any depth, or one array.

    Parameters
    ----------
    structure
        Of arrays, or of operations that yield them.
    name
        Its name in messages.

    Attributes
    ----------
    name
        As given.
    names
        Of the leaves, such as ``"state[0]"``.
    leaves
        From left to right.
    """

    __slots__ = ("_structure", "leaves", "name", "names")

    def __init__(self, structure: Any, name: str) -> None:
        self._structure = structure
        self.name = name
        found = list(_leaves(structure, name))
        self.names = [each for each, _ in found]
        self.leaves = [leaf for _, leaf in found]

    def filled(self, leaves: Iterable[Any]) -> Any:
        """Return the structure with other leaves in it."""
        next_of = iter(leaves).__next__
        return mapped(self._structure, lambda leaf: None if leaf is None else next_of())


def _leaves(part: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(part, (tuple, list)):
        fields = getattr(part, "_fields", None)
        for i, item in enumerate(part):
            yield from _leaves(item, f"{name}.{fields[i]}" if fields else f"{name}[{i}]")
    elif type(part) is dict:
        for key, item in part.items():
            yield from _leaves(item, f"{name}[{key!r}]")
    elif dataclasses.is_dataclass(type(part)):
        for field in dataclasses.fields(part):
            yield from _leaves(getattr(part, field.name), f"{name}.{field.name}")
    elif part is not None:
        yield name, part
