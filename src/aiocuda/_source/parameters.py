"""One parameter of a kernel, read from the C++ that declares it.

Pure: text in, frozen parameters out. A parameter that the source alone cannot settle is of kind "unknown" and
carries the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
from tree_sitter import Node

from aiocuda._source.cuda_nodes import declarator_name, parse, without_extents
from aiocuda._source.cuda_source import joined_lines, split_list
from aiocuda._source.cuda_types import TypeNames
from aiocuda._source.structs import Unsettled, alignment_of, layout_of
from aiocuda._source.type_kinds import (
    Array,
    Described,
    Function,
    Opaque,
    Pointer,
    Reference,
    Strided,
    Struct,
    Type,
    Unknown,
    Value,
)
from aiocuda.errors import SignatureError

__all__ = ["Parameter", "field_of", "parameter_of", "read_parameters"]

Kind = Literal["array", "scalar", "struct", "view", "partition", "unknown"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel.

    Attributes
    ----------
    name
        As declared; ``argument<i>`` where the declaration gives none.
    kind
        "array" (a pointer to device memory), "scalar" (one number by value), "struct" (a struct by value,
        of `layout`; or a built-in vector such as ``float4``: `width` numbers of `dtype`), "view" or "partition" (an
        ``aiocuda::View`` or ``aiocuda::Partition`` by value, of items of `width` numbers of `dtype`),
        or "unknown" (see `reason`).
    dtype
        Name of the NumPy or ml_dtypes dtype of one element; None for ``void*`` and for pointers to
        types that have no dtype, which take arrays of any dtype.
    width
        Elements that the C++ type holds: 4 for ``float4``.
    writes
        Whether the kernel may write to the array: it is a pointer to something not const, a view of
        items that are not const, or a partition.
    const
        Whether the declaration says const: of what is pointed to, of a view's items, or of the value.
    reason
        For an unknown parameter, what stands in the way; else empty.
    is_askable
        Whether the compiler may know an unknown parameter.
    rank
        Dimensions of a view or partition, 1 to 8; else 0.
    layout
        Of a struct that is no built-in vector: the NumPy dtype that says where its members lie.
    alignment
        Of arrays, views and partitions: the bytes of which the address of each item must be a multiple, as far as that
        is known; 16 for ``float4*``, 1 for ``void*``.
    constant
        Of a ``std::integral_constant``: the number that its type says, and that a launch gives.
    struct
        Of an unknown parameter: the struct, as C++ names it, of whose members the compiler can tell the types.
    """

    name: str
    kind: Kind
    dtype: str | None = None
    width: int = 1
    writes: bool = False
    const: bool = False
    reason: str = ""
    rank: int = 0
    layout: np.dtype[Any] | None = None
    is_askable: bool = False
    alignment: int = field(default=1, compare=False)
    constant: int | None = None
    struct: str = ""

    def __str__(self) -> str:
        element = self.dtype or "void" if self.kind == "array" else self.dtype or "?"
        if self.layout is not None:
            element = f"struct of {self.layout.itemsize} bytes"
        element += f"x{self.width}" if self.width > 1 else ""
        if self.rank:
            const = "" if self.writes else "const "
            return f"aiocuda::{self.kind.title()}<{const}{element}, {self.rank}> {self.name}"
        const = "const " if self.kind == "array" and not self.writes else ""
        return f"{const}{element}{'*' if self.kind == 'array' else ''} {self.name}"


def field_of(root: Node, *path: str) -> Node | None:
    """Follow a path of grammar fields from the first declaration under `root`."""
    node = root.named_children[0] if root.named_children else None
    for step in path:
        node = node.child_by_field_name(step) if node is not None else None
    return node


def read_parameters(
    text: str, names: TypeNames, scope: tuple[str, ...], arguments: Mapping[str, Type], line: int
) -> Iterator[Parameter]:
    """Read a parameter list. A parameter of which a macro may be part is unknown, and so is all that follows one."""
    pieces = split_list(joined_lines(text))
    if pieces == ["void"]:
        return
    for index, piece in enumerate(pieces):
        last = _LAST_NAME.search(piece.partition("=")[0])
        spelled_name = last[1] if last is not None else ""
        if macros := names.preprocessing.macros_in(without_extents(piece.partition("=")[0]), spelled_name, *arguments):
            reason = f"'{macros[0]}' in '{piece}' is a macro"
            yield Parameter(spelled_name or f"argument{index}", "unknown", reason=reason, is_askable=True)
            continue
        # One at a time: what one macro does to the grammar stays within its parameter.
        root = parse(f"void kernel({piece}) {{}}")
        listed = field_of(root, "declarator", "parameters")
        node = listed.named_children[0] if listed is not None and listed.named_child_count == 1 else None
        name = f"argument{index}"
        if root.has_error or node is None or node.type not in _PLAIN_PARAMETERS:
            reason = f"'{piece}' cannot be read as one parameter"
            yield Parameter(spelled_name or name, "unknown", reason=reason, is_askable=True)
            continue
        declarator = node.child_by_field_name("declarator")
        name = declarator_name(declarator) or name
        kind = names.type_of(node, declarator, scope, arguments)
        yield parameter_of(name, kind, piece, names, arguments, line)


def parameter_of(
    name: str, kind: Type, spelled: str, names: TypeNames, arguments: Mapping[str, Type], line: int
) -> Parameter:
    """Make a parameter of its type; `spelled` is what messages quote."""
    if not isinstance(kind, Struct | Described):
        parameter = _parameter(name, kind, spelled, line)
        item = _item_of(kind)
        return parameter if item is None else replace(parameter, alignment=alignment_of(item, names, arguments))
    layout = layout_of(kind, names, arguments)
    if not isinstance(layout, str):
        return Parameter(name, "struct", const=kind.const, layout=layout)
    struct = layout.struct if isinstance(layout, Unsettled) else ""
    reason = f"{layout} ('{spelled}'); {_PASS_STRUCTURES}"
    return Parameter(name, "unknown", const=kind.const, reason=reason, is_askable=bool(struct), struct=struct)


_PASS_STRUCTURES: Final = "say how it lies with structures={name: a NumPy dtype or a ctypes.Structure}"
_LAST_NAME: Final = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^]]*\]\s*)*$")
# std::bool_constant and its like, whose type is the value.
_TAG: Final = re.compile(r"(?:cuda::)?std::(?:__\w+::)?integral_constant<[^,]*,\(?[a-z]*\)?(-?\d+|true|false)[ul]*>")
_MAX_RANK: Final = 8  # as aiocuda/tile.cuh has it
_PLAIN_PARAMETERS: Final = ("parameter_declaration", "optional_parameter_declaration")


def _parameter(name: str, kind: Type, spelled: str, line: int) -> Parameter:
    match kind:
        case Reference(Strided()) | Pointer(Strided()) | Array(Strided()):
            raise SignatureError(
                f"parameter '{spelled}' is a reference or a pointer, and a View or a Partition is made for the launch: "
                "pass it by value, without & or *",
                line,
            )
        case Reference():
            raise SignatureError(
                f"parameter '{spelled}' is a reference, and CUDA passes kernels only values and "
                "pointers: make it a pointer or a value",
                line,
            )
        case Array(element):
            return _pointer(name, element, spelled)
        case Pointer(target):
            return _pointer(name, target, spelled)
        case Value(dtype, width, const) if dtype is not None:
            return Parameter(name, "scalar" if width == 1 else "struct", dtype, width, const=const)
        case Strided():
            return _strided(name, kind, spelled, line)
        case Unknown(reason, const, is_askable):
            return Parameter(name, "unknown", const=const, reason=f"{reason} ('{spelled}')", is_askable=is_askable)
        case Opaque(type_name, const):
            number = _TAG.fullmatch(type_name)
            if number is not None:
                value = {"true": 1, "false": 0}.get(number[1]) if number[1].isalpha() else int(number[1])
                return Parameter(name, "struct", const=const, layout=np.dtype("V1"), constant=value)
            reason = f"'{type_name}' is a class that the source does not define ('{spelled}'); {_PASS_STRUCTURES}"
            return Parameter(name, "unknown", const=const, reason=reason)
        case _:
            return Parameter(name, "unknown", reason=f"'{spelled}' is not a value or a pointer")


def _item_of(kind: Type) -> Type | None:
    """Return the type of the items of a pointer, a view or a partition."""
    match kind:
        case Pointer(item) | Array(item):
            while isinstance(item, Array):
                item = item.element
            return item
        case Strided():
            return kind.element
        case _:
            return None


def _strided(name: str, kind: Strided, spelled: str, line: int) -> Parameter:
    if not 1 <= kind.rank <= _MAX_RANK:
        raise SignatureError(f"parameter '{spelled}' has rank {kind.rank}: give it 1 to {_MAX_RANK} dimensions", line)
    match kind.element:
        case Value(dtype, width, const) if dtype is not None:
            if const and kind.kind == "partition":
                raise SignatureError(
                    f"parameter '{spelled}' is a Partition of const items, and a Partition is there to be written: "
                    "read through an aiocuda::View",
                    line,
                )
            return Parameter(name, kind.kind, dtype, width, writes=not const, const=const, rank=kind.rank)
        case Unknown(reason, _, is_askable):
            return Parameter(name, "unknown", reason=f"{reason} ('{spelled}')", is_askable=is_askable)
        case _:
            return Parameter(name, "unknown", reason=f"the items of '{spelled}' are no numbers")


def _pointer(name: str, target: Type, spelled: str) -> Parameter:
    while isinstance(target, Array):
        target = target.element
    match target:
        case Value(dtype, width, const):
            return Parameter(name, "array", dtype, width, writes=not const, const=const)
        case Unknown(reason, const, is_askable):
            return Parameter(name, "unknown", const=const, reason=f"{reason} ('{spelled}')", is_askable=is_askable)
        case Struct(const=const) | Described(const=const) | Opaque(const=const):
            return Parameter(name, "array", writes=not const, const=const)
        case Function():
            return Parameter(name, "unknown", reason=f"'{spelled}' is a pointer to a function")
        case _:
            return Parameter(
                name,
                "unknown",
                reason=f"'{spelled}' is a pointer to pointers, behind which no array is tracked",
            )
