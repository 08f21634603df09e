"""Structs of CUDA C++ as NumPy dtypes: where each member lies, by the rules of the C++ compiler.

Pure: what the source alone cannot tell (a base class, an alignment that is asked for) is a reason in words, no guess.
Sizes and alignments are those of LP64 (Linux) and of the CUDA C++ Programming Guide, "Built-in Vector Types".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Self

import ml_dtypes
import numpy as np
from tree_sitter import Node

from aiocuda._source.cuda_nodes import declarator_name, integer_in, text_of, without_extents
from aiocuda._source.cuda_types import TypeNames
from aiocuda._source.type_kinds import Array, Constant, Described, Pointer, Struct, Type, Unknown, Value

__all__ = ["Unsettled", "alignment_of", "array_extents", "layout_of", "leaves", "member_names"]

_HIDES_MEMBERS: Final = {
    "base_class_clause": "has a base class",
    "virtual": "has virtual functions",
    "virtual_function_specifier": "has virtual functions",
    "bitfield_clause": "has bit fields",
}


class Unsettled(str):
    """Why a layout is not known, where the compiler knows it.

    Attributes
    ----------
    struct
        The struct whose members' types are to be asked for, as C++ names it.
    """

    struct: str

    def __new__(cls, reason: str, struct: str) -> Self:
        made = super().__new__(cls, reason)
        made.struct = struct
        return made


def layout_of(kind: Type, names: TypeNames, arguments: Mapping[str, Type] | None = None) -> np.dtype[Any] | str:
    """Return the dtype of a value of this type; where that cannot be known, why."""
    found = _layout(kind, names, arguments or {}, frozenset())
    return found if isinstance(found, str) else found[0]


def alignment_of(kind: Type, names: TypeNames, arguments: Mapping[str, Type] | None = None) -> int:
    """Return the bytes of which the address of such a value must be a multiple, as far as that is known: 1 or more."""
    return _alignment(kind, names, arguments or {}, frozenset())


def _alignment(kind: Type, names: TypeNames, arguments: Mapping[str, Type], pending: frozenset[int]) -> int:
    match kind:
        case Value():
            found = _layout(kind, names, arguments, pending)
            return 1 if isinstance(found, str) else found[1]
        case Described(dtype):
            aligned = [(at, item.itemsize) for at, item in leaves(dtype)]
            is_packed = any(at % size or dtype.itemsize % size for at, size in aligned)
            return 1 if is_packed else max((size for _, size in aligned), default=1)
        case Pointer():
            return 8
        case Array(element):
            return _alignment(element, names, arguments, pending)
        case Struct() if kind.at not in pending:
            asked = names.asked_alignment(kind.node)
            if asked is None:
                return 1
            return max((asked, 1, *_members_alignments(kind, names, arguments, pending | {kind.at})))
        case _:
            return 1


def _members_alignments(
    kind: Struct, names: TypeNames, arguments: Mapping[str, Type], pending: frozenset[int]
) -> Iterator[int]:
    for member, declarator in _fields(kind):
        item = names.type_of(member, declarator, (*kind.scope, kind.name), arguments)
        yield _alignment(item, names, arguments, pending)


def leaves(dtype: np.dtype[Any], offset: int = 0) -> Iterator[tuple[int, np.dtype[Any]]]:
    """List the numbers that a dtype holds, each with its offset in bytes, in the order of the offsets."""
    if dtype.subdtype is not None:
        item, shape = dtype.subdtype
        for index in range(int(np.prod(shape))):
            yield from leaves(item, offset + index * item.itemsize)
    elif dtype.fields is not None:
        for inner, at, *_ in sorted(dtype.fields.values(), key=lambda each: each[1]):
            yield from leaves(inner, offset + at)
    else:
        yield offset, dtype


def array_extents(
    kind: Type, declarator: Node | None, names: TypeNames, scope: tuple[str, ...]
) -> tuple[int, ...] | None:
    """Give the extents of an array type, outermost first; None where one is no literal or plain constant.

    Parameters
    ----------
    kind
        The type, with what its declarator adds to it.
    declarator
        Where a constant may give an extent; None where the compiler told the type.
    names, scope
        In which the constant is looked up.
    """
    extents: list[int] = []
    while declarator is not None and declarator.type == "array_declarator":
        spelled = text_of(declarator.child_by_field_name("size"))
        size = integer_in(spelled)
        if size is None:
            size = names.constant(spelled, scope)
        if size is None:
            return None
        extents.insert(0, size)
        declarator = declarator.child_by_field_name("declarator")
    for _ in extents:
        kind = kind.element if isinstance(kind, Array) else kind
    while isinstance(kind, Array):  # what an alias adds
        if kind.extent is None:
            return None
        extents.append(kind.extent)
        kind = kind.element
    return tuple(extents)


def member_names(struct: Struct) -> list[str]:
    """List the members of a struct that each object has, in order."""
    return [declarator_name(declarator) for _, declarator in _fields(struct)]


def _fields(struct: Struct) -> Iterator[tuple[Node, Node]]:
    body = struct.node.child_by_field_name("body")
    for member in body.named_children if body is not None else []:
        if member.type != "field_declaration" or any(text_of(each) == "static" for each in member.children):
            continue
        for declarator in member.children_by_field_name("declarator"):
            if declarator.type != "function_declarator":
                yield member, declarator


def _hidden_by(nodes: Iterable[Node]) -> str:
    return next((_HIDES_MEMBERS[each.type] for each in nodes if each.type in _HIDES_MEMBERS), "")


_Layout = tuple[np.dtype[Any], int]  # and the alignment


def _layout(kind: Type, names: TypeNames, arguments: Mapping[str, Type], pending: frozenset[int]) -> _Layout | str:
    match kind:
        case Value(dtype, width) if dtype is not None:
            item = np.dtype(getattr(ml_dtypes, dtype) if hasattr(ml_dtypes, dtype) else dtype)
            # Vectors of two and four are aligned as a whole, up to 16 bytes; so are complex numbers.
            size = item.itemsize * width
            alignment = kind.alignment or (item.itemsize if width == 3 else min(size, 16))
            return (np.dtype((item, (width,))) if width > 1 else item), alignment
        case Described(dtype):
            return dtype, dtype.alignment if dtype.isalignedstruct else 1
        case Struct():
            return _members(kind, names, arguments, pending)
        case Pointer():
            return "it holds a pointer, behind which no array is tracked"
        case Unknown(reason):
            return reason
        case _:
            return "it holds something that is no number"


def _members(kind: Struct, names: TypeNames, arguments: Mapping[str, Type], pending: frozenset[int]) -> _Layout | str:
    if kind.node.type == "union_specifier":
        return f"'{kind.name}' is a union"
    if kind.at in pending:
        return f"'{kind.name}' holds itself"
    if names.hides_layout(kind.node):
        return f"'{kind.name}' has an alignment that is asked for, packed members, or preprocessor conditionals"
    if why := _hidden_by(kind.node.children):
        return f"'{kind.name}' {why}"
    body = kind.node.child_by_field_name("body")
    for member in body.named_children if body is not None else []:
        if why := _hidden_by((member, *member.children)):
            return f"'{kind.name}' {why}"
    scope = (*kind.scope, kind.name)
    struct = "::".join(scope)
    *told, told_size = names.members.get(struct, (None,))
    found: dict[str, tuple[np.dtype[Any], int]] = {}
    size = 0
    alignment = 1
    for index, (member, declarator) in enumerate(_fields(kind)):
        name = declarator_name(declarator)
        item: Type = told[index] if told else names.type_of(member, declarator, scope, arguments)
        extents = array_extents(item, None if told else declarator, names, scope)
        spelled = without_extents(text_of(member).partition("=")[0])
        if extents is None or (not told and names.preprocessing.macros_in(spelled, name)):
            why = "the extents of '{}' are no integer literals" if extents is None else "the type of '{}' is a macro's"
            return _unsettled(why.format(f"{kind.name}::{name}"), kind, struct)
        while isinstance(item, Array):
            item = item.element
        layout = _layout(item, names, arguments, pending | {kind.at})
        if isinstance(layout, str):
            why = f"'{kind.name}::{name}': {layout}"
            if isinstance(layout, Unsettled):
                return Unsettled(why, layout.struct)
            return _unsettled(why, kind, struct) if isinstance(item, Unknown) and item.is_askable else why
        dtype, aligned = layout
        if extents:
            dtype = np.dtype((dtype, extents))
        size = -(-size // aligned) * aligned
        found[name] = (dtype, size)
        size += dtype.itemsize
        alignment = max(alignment, aligned)
    if not found:
        return f"'{kind.name}' has no members that can be read"
    if isinstance(told_size, Constant) and told_size.number != -(-size // alignment) * alignment:
        return f"'{kind.name}' has {told_size.number} bytes, and not what its members need"
    described: Any = {
        "names": list(found),
        "formats": [dtype for dtype, _ in found.values()],
        "offsets": [offset for _, offset in found.values()],
        "itemsize": -(-size // alignment) * alignment,
    }
    return np.dtype(described), alignment


def _unsettled(why: str, kind: Struct, struct: str) -> str:
    return Unsettled(why, struct) if kind.name.isidentifier() else why
