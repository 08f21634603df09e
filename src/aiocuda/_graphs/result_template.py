"""The result of a graph's launch: a structure of arrays, in which each launch may put others, and of late values.

Pure: structures in, structures out. A late value is what a `map` makes of a value that each launch completes anew; one
that stands in several places stays one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from aiocuda import _native

__all__ = ["ResultTemplate", "arrays_in", "complete", "late_arrays_in", "replaced", "without_late"]


class ResultTemplate:
    """What a graph's operation returned, and which of its arrays each launch puts others in the place of.

    Parameters
    ----------
    structure
        What was returned.
    sources
        By the identity of the structure's arrays: what stands in an array's place, and whether the array is all of
        that, not a part. It is one of the launch's arguments, by its index, or of its outputs, by ``~index``. The
        launch leaves an array without a source as it is.
    """

    __slots__ = ("has_late", "sources", "structure")

    def __init__(self, structure: Any, sources: Mapping[int, tuple[int, bool]]) -> None:
        self.structure = structure
        self.sources = sources
        self.has_late = any(isinstance(leaf, _native.Late) for leaf in _leaves(structure))

    def filled(self, arguments: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """Return what a launch yields; its late values are not made yet."""
        if isinstance(self.structure, _native.Array):
            return self._in_place_of(self.structure, arguments, outputs)
        return replaced(self.structure, lambda array: self._in_place_of(array, arguments, outputs))

    def _in_place_of(self, array: _native.Array, arguments: Sequence[Any], outputs: Sequence[Any]) -> Any:
        source = self.sources.get(id(array))
        if source is None:
            return array
        index, is_all = source
        whole = arguments[index] if index >= 0 else outputs[~index]
        return whole if is_all else whole._like_part(array)


def arrays_in(structure: Any) -> Iterator[_native.Array]:
    """Yield a structure's arrays, from left to right, also those that late values are made of."""
    for leaf in _leaves(structure):
        if isinstance(leaf, _native.Late):
            yield from arrays_in(leaf.input)
        elif isinstance(leaf, _native.Array):
            yield leaf


def late_arrays_in(structure: Any) -> Iterator[_native.Array]:
    """Yield the arrays that late values are made of."""
    for leaf in _leaves(structure):
        if isinstance(leaf, _native.Late):
            yield from arrays_in(leaf.input)


def replaced(structure: Any, replace: Callable[[_native.Array], Any]) -> Any:
    """Return a structure with what a function gives in the place of each array, its late values not yet made."""
    return _mapped(
        structure,
        lambda leaf: replace(leaf) if isinstance(leaf, _native.Array) else leaf,
        lambda late, given: _native.Late(late.function, given),
        {},
    )


def complete(structure: Any) -> Any:
    """Return a structure with its late values made; a function is called once for each of them."""
    return _mapped(structure, lambda leaf: leaf, lambda late, given: late.function(given), {})


def without_late(structure: Any) -> Any:
    """Return a structure with what is given to a function in the place of what it makes."""
    return _mapped(structure, lambda leaf: leaf, lambda _, given: given, {})


def _leaves(structure: Any) -> Iterator[Any]:
    if isinstance(structure, (tuple, list)):
        for item in structure:
            yield from _leaves(item)
    elif isinstance(structure, dict):
        for item in structure.values():
            yield from _leaves(item)
    else:
        yield structure


def _mapped(
    part: Any,
    at: Callable[[Any], Any],
    at_late: Callable[[_native.Late, Any], Any],
    made: dict[int, Any],
) -> Any:
    """Put a structure together anew; of a late value, with what became of its input.

    `made` holds the late values that were met, by their identity: {} at first.

    A function inside of this one that called itself would be a cycle, and hold the arrays until they are collected.
    """
    if isinstance(part, (tuple, list)):
        items = (_mapped(item, at, at_late, made) for item in part)
        return type(part)(*items) if hasattr(part, "_fields") else type(part)(items)
    if isinstance(part, dict):
        return {key: _mapped(item, at, at_late, made) for key, item in part.items()}
    if not isinstance(part, _native.Late):
        return at(part)
    if id(part) not in made:
        made[id(part)] = at_late(part, _mapped(part.input, at, at_late, made))
    return made[id(part)]
