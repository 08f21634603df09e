"""CUDA C++ types as a kernel's parameters see them: what is read, what is written, which dtype.

Types are built from tree-sitter syntax nodes, with the sizes of LP64 (Linux). A type that the source alone cannot tell
is an `Unknown`, which carries the reason. Nothing here guesses.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from tree_sitter import Node

from aiocuda._source.cuda_nodes import (
    IMPORTING,
    SPECIFIERS,
    declarator_name,
    descendants,
    inner_declarator,
    integer_in,
    outside_functions,
    qualifiers,
    scope_of,
    text_of,
    without_extents,
)
from aiocuda._source.cuda_source import Preprocessing
from aiocuda._source.type_kinds import (
    ANSWERS,
    COMMON_NAMES,
    COMPLEX,
    LIBRARY_NAMESPACES,
    STRIDED,
    VALUES,
    Array,
    Constant,
    Function,
    Opaque,
    Pointer,
    Reference,
    Strided,
    Struct,
    Type,
    Unknown,
    Value,
    as_const,
    integer_type,
)

__all__ = ["TypeNames"]

_WHOLE: Final = re.compile(r"(?:(?:unsigned|signed|long|short|int|char|size_t)\b ?)+")


class _Definition(NamedTuple):
    node: Node  # what holds the type and its qualifiers
    declarator: Node | None
    scope: tuple[str, ...]


class TypeNames:
    """The names of types and constants that a source defines, each with the scope it was defined in.

    Parameters
    ----------
    root
        The source's tree.
    preprocessing
        Where the tree may not be what is compiled: a name that depends on that is unknown.
    obstacles, packed_from, alignments
        As `Declarations` has them.
    """

    def __init__(
        self,
        root: Node,
        preprocessing: Preprocessing | None = None,
        obstacles: Sequence[int] = (),
        packed_from: int | None = None,
        alignments: Mapping[int, int] | None = None,
    ) -> None:
        self.preprocessing = preprocessing or Preprocessing()
        self._obstacles = obstacles
        self._packed_from = packed_from
        self._alignments = alignments or {}
        self._is_answer = False
        self._definitions: dict[tuple[str, ...], list[_Definition]] = {}
        self._constants: dict[tuple[str, ...], int | None] = {}
        self._opened: set[tuple[str, ...]] = set()  # scopes in which names of other namespaces are seen
        self.members: dict[str, tuple[Type, ...]] = {}  # of structs, and the struct's size: as the compiler tells them
        # What aiocuda/tile.cuh defines, by each path that leads there; None for a path that the source itself takes.
        self._strided: dict[tuple[str, ...], Literal["view", "partition"] | None] = {}
        self._strided.update({("aiocuda", name): kind for name, kind in STRIDED.items()})
        for node in outside_functions(root):
            scope = scope_of(node)
            if node.type in IMPORTING:
                self._import(node, scope)
            elif node.type == "template_declaration":
                self._hide(node, scope)
            elif node.type == "declaration":
                self._note_constants(node, scope)
            elif node.type == "namespace_definition":
                if any(child.type == "inline" for child in node.children):
                    self._opened.add(scope)
            elif node.type == "type_definition":
                for declarator in node.children_by_field_name("declarator"):
                    self._add(declarator_name(declarator), node, declarator, scope)
            else:
                self._add(text_of(node.child_by_field_name("name")), node, None, scope)

    def of_answers(self) -> TypeNames:
        """Give the same names for reading what the compiler says: there, aliases and macros are resolved."""
        names = copy.copy(self)
        names._is_answer = True
        names.members = {}
        return names

    def constant(self, name: str, scope: tuple[str, ...]) -> int | None:
        """Give the number that a constant of the source stands for; None where that is not certain."""
        for path in _paths(name, scope):
            if path in self._constants and name not in self.preprocessing.macros:
                return self._constants[path]
            if self._doubt(name, path[:-1]):
                return None
        return None

    def _add(self, name: str, node: Node, declarator: Node | None, scope: tuple[str, ...]) -> None:
        if name:
            definition = _Definition(node, declarator, scope)
            self._definitions.setdefault((*scope, name), []).append(definition)

    def _note_constants(self, node: Node, scope: tuple[str, ...]) -> None:
        """Note ``const int N = 4;``; None for constants that are not so plain."""
        is_const = any(text_of(each) in ("const", "constexpr") for each in qualifiers(node))
        is_whole = _WHOLE.fullmatch(text_of(node.child_by_field_name("type")))
        for declarator in node.children_by_field_name("declarator"):
            path = (*scope, declarator_name(declarator))
            value = integer_in(text_of(declarator.child_by_field_name("value")))
            is_certain = (
                (is_const and is_whole and declarator.type == "init_declarator")
                and path not in self._constants
                and not self.preprocessing.is_conditional(node.start_byte)
                and not self.preprocessing.macros_in(text_of(node))
            )
            self._constants[path] = value if is_certain else None

    def _import(self, node: Node, scope: tuple[str, ...]) -> None:
        """Note what ``using namespace``, ``using a::b;`` and ``namespace a = b;`` bring in."""
        if not node.named_children:
            return
        *named, target = node.named_children
        space, _, last = text_of(target).replace(" ", "").removeprefix("::").rpartition("::")
        if space == "aiocuda" and last in STRIDED:
            self._strided[(*scope, last)] = STRIDED[last]
        elif not space and last == "aiocuda":
            for name, kind in STRIDED.items():
                self._strided[(*scope, *map(text_of, named), name)] = kind
        elif any(child.type == "namespace" for child in node.children):
            self._opened.add(scope)
        else:
            self._add(last, node, None, scope)

    def _hide(self, node: Node, scope: tuple[str, ...]) -> None:
        """Note that a name means the source's own class template."""
        for child in node.named_children:
            name = text_of(child.child_by_field_name("name"))
            if child.type in SPECIFIERS and name in STRIDED and scope != ("aiocuda",):
                self._strided[(*scope, name)] = None

    def hides_layout(self, node: Node) -> bool:
        """Say whether something that the tree does not show decides how the members of a struct lie."""
        return self._is_packed(node) or bool(self._obstacles_in(node))

    def asked_alignment(self, node: Node) -> int | None:
        """Return the alignment in bytes that a struct's attributes ask for, 0 for none; None where it is not known."""
        found = self._obstacles_in(node)
        if self._is_packed(node) or any(at not in self._alignments for at in found):
            return None
        return max((self._alignments[at] for at in found), default=0)

    def _is_packed(self, node: Node) -> bool:
        return self._packed_from is not None and node.end_byte > self._packed_from

    def _obstacles_in(self, node: Node) -> list[int]:
        following = node.next_sibling
        inside = node.parent is not None and node.parent.type in ("type_definition", "declaration", "field_declaration")
        end = node.parent.end_byte if node.parent is not None and inside else (following or node).end_byte
        return [at for at in self._obstacles if node.start_byte <= at < end]

    def type_of(
        self,
        node: Node,
        declarator: Node | None,
        scope: tuple[str, ...] = (),
        template_arguments: Mapping[str, Type] | None = None,
        pending: frozenset[str] = frozenset(),
    ) -> Type:
        """Give the type that a declaration gives its declarator.

        Parameters
        ----------
        node
            A declaration, or a type descriptor: its ``type`` field and its qualifiers are read.
        declarator
            The declarator, abstract or not; None for a bare type.
        scope
            The namespaces in which names are looked up, innermost last.
        template_arguments
            The types that stand for template parameters; these hide all other names.
        pending
            Names being resolved, so that a name defined by itself ends.
        """
        specifier = node.child_by_field_name("type")
        if specifier is None:
            return Unknown(f"'{text_of(node)}' is not a type that can be read here")
        if declarator is not None and (
            macro := self._macro_in(without_extents(text_of(declarator)), declarator_name(declarator))
        ):
            return macro
        kind = self._base(specifier, scope, template_arguments or {}, pending)
        if any(text_of(q) in ("const", "constexpr") for q in (*qualifiers(node), *qualifiers(specifier))):
            kind = as_const(kind)
        while declarator is not None:
            kind = _declared(declarator, kind)
            declarator = inner_declarator(declarator)
        return kind

    def _base(
        self,
        node: Node,
        scope: tuple[str, ...],
        arguments: Mapping[str, Type],
        pending: frozenset[str],
    ) -> Type:
        text = text_of(node)
        if node.type == "sized_type_specifier":
            found = integer_type(text.split())
            return self._macro_in(text) or found or Unknown(f"'{text}' has no NumPy dtype", is_askable=False)
        if node.type == "primitive_type" and text in ("char", "int"):
            return self._macro_in(text) or Value("int8" if text == "char" else "int32")
        if node.type in (
            "struct_specifier",
            "class_specifier",
            "enum_specifier",
            "union_specifier",
        ):
            text = text_of(node.child_by_field_name("name"))
            if node.child_by_field_name("body") is not None:
                if node.type == "enum_specifier":
                    return self._enumeration(node, scope, pending)
                return Struct(text or "struct { ... }", node.start_byte, scope, node)
        name = text.replace(" ", "")
        if macro := self._macro_in(text, *arguments):
            return macro
        if name in arguments:
            found_there = arguments[name]
            return Unknown(f"'{name}' is no type but a number") if isinstance(found_there, Constant) else found_there
        strided = self._strided_of(node, name, scope, arguments, pending)
        if strided is not None:
            return strided
        found_here = None if name in pending else self._defined(name, scope, pending)
        return found_here or self._library(node, name, scope, arguments, pending)

    def _strided_of(
        self,
        node: Node,
        name: str,
        scope: tuple[str, ...],
        arguments: Mapping[str, Type],
        pending: frozenset[str],
    ) -> Type | None:
        """Read a View or a Partition; None for all other types."""
        head, opens, _ = name.removeprefix("::").partition("<")
        paths = _paths(head, () if name.startswith("::") else scope)
        kind = next((self._strided[path] for path in paths if path in self._strided), None)
        if kind is None or not opens:
            return None
        listed = next(descendants(node, "template_argument_list"), None)
        given = [self.argument(a, scope, arguments, pending) for a in listed.named_children] if listed else []
        if len(given) != 2:
            return Unknown(f"'{text_of(node)}' needs two template arguments, the items' type and the rank")
        element, rank = given
        if not isinstance(rank, Constant):
            return Unknown(
                rank.reason if isinstance(rank, Unknown) else f"the rank in '{text_of(node)}' is no integer literal"
            )
        return Strided(kind, element, rank.number)

    def argument(
        self,
        node: Node,
        scope: tuple[str, ...] = (),
        template_arguments: Mapping[str, Type] | None = None,
        pending: frozenset[str] = frozenset(),
    ) -> Type:
        """Give what a template argument stands for: a type, a `Constant`, or unknown."""
        given = template_arguments or {}
        number = integer_in(text_of(node))
        if number is not None:
            return Constant(number)
        if node.type != "type_descriptor":
            return Unknown(f"the template argument '{text_of(node)}' is neither a type nor an integer literal")
        named = given.get(text_of(node))
        if isinstance(named, Constant):
            return named
        return self.type_of(node, node.child_by_field_name("declarator"), scope, given, pending)

    def _enumeration(self, node: Node, scope: tuple[str, ...], pending: frozenset[str]) -> Type:
        base = node.child_by_field_name("base")
        return self._base(base, scope, {}, pending) if base is not None else Value("int32")

    def _macro_in(self, text: str, *but: str) -> Unknown | None:
        """Say that a macro decides, where one is named."""
        found = [] if self._is_answer else self.preprocessing.macros_in(text, *but)
        return Unknown(f"'{found[0]}' is a macro") if found else None

    def _doubt(self, name: str, scope: tuple[str, ...]) -> str:
        """Say why a name that is not defined in a scope may be another's there than that of the scopes around."""
        if scope in self._opened and scope:
            return f"'{name}' may come from a namespace that '{'::'.join(scope)}' opens"
        if self.preprocessing.hides_types and scope:
            return f"an included file or a macro may define '{name}' in '{'::'.join(scope)}'"
        return ""

    def _defined(self, name: str, scope: tuple[str, ...], pending: frozenset[str]) -> Type | None:
        plain = name.removeprefix("::")
        doubt = ""
        for path in _paths(plain, () if name.startswith("::") else scope):
            definitions = self._definitions.get(path)
            if definitions:
                return Unknown(doubt) if doubt else self._meaning(name, definitions, pending)
            if not self._is_answer:
                doubt = doubt or self._doubt(name, path[: len(path) - 1 - plain.count("::")])
        is_elsewhere = any(path[-1] == plain for path in self._definitions)
        if doubt and (plain not in VALUES or plain in COMMON_NAMES):
            return Unknown(doubt)
        if is_elsewhere and self._opened and not self._is_answer:
            return Unknown(f"'{name}' may come from a namespace that is opened")
        return None

    def _meaning(self, name: str, definitions: Sequence[_Definition], pending: frozenset[str]) -> Type:
        kinds = {self._definition(each, pending | {name}) for each in definitions}
        lines = ", ".join(str(each.node.start_point.row + 1) for each in definitions)
        if len(kinds) > 1:
            return Unknown(f"'{name}' is defined differently at lines {lines}")
        is_certain = self._is_answer or not any(
            self.preprocessing.is_conditional(each.node.start_byte) for each in definitions
        )
        return (
            kinds.pop()
            if is_certain
            else Unknown(f"'{name}' is defined under a preprocessor conditional, line {lines}")
        )

    def _definition(self, definition: _Definition, pending: frozenset[str]) -> Type:
        node = definition.node
        if node.type == "enum_specifier":
            return self._enumeration(node, definition.scope, pending)
        if node.type in ("struct_specifier", "class_specifier", "union_specifier"):
            name = text_of(node.child_by_field_name("name"))
            return Struct(name, node.start_byte, definition.scope, node)
        if node.type in IMPORTING:
            return Unknown(f"'{text_of(node)}' brings it in")
        if node.type == "alias_declaration":
            described = node.child_by_field_name("type")
            if described is None:
                return Unknown(f"'{text_of(node)}' cannot be read")
            declarator = described.child_by_field_name("declarator")
            return self.type_of(described, declarator, definition.scope, None, pending)
        return self.type_of(node, definition.declarator, definition.scope, None, pending)

    def _library(
        self,
        node: Node,
        name: str,
        scope: tuple[str, ...],
        arguments: Mapping[str, Type],
        pending: frozenset[str],
    ) -> Type:
        space, _, last = name.removeprefix("::").rpartition("::")
        head, _, _ = name.removeprefix("::").partition("<")
        if self._is_answer:
            if name in ANSWERS:
                return ANSWERS[name]
            head = re.sub(r"::__\w+", "", head)  # the library's inline namespaces
        elif space in LIBRARY_NAMESPACES and last in VALUES:
            if last == "byte" and not space:
                return Unknown("'byte' is not defined in this source")
            if last in COMMON_NAMES and not space and self.preprocessing.includes_files:
                return Unknown(f"an included file may define '{last}'")
            return VALUES[last]
        if head in ("std::complex", "cuda::std::complex", "thrust::complex"):
            for descriptor in descendants(node, "type_descriptor"):
                part = self.type_of(descriptor, None, scope, arguments, pending)
                if isinstance(part, Value) and part.dtype in COMPLEX and part.width == 1:
                    return COMPLEX[part.dtype]
        if self._is_answer:
            return Opaque(name)
        if node.type == "placeholder_type_specifier":
            return Unknown("'auto' says nothing about the type")
        return Unknown(f"'{text_of(node)}' is not defined in this source")


def _paths(name: str, scope: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Say where a name is looked up: in the innermost scope first."""
    for depth in range(len(scope), -1, -1):
        yield (*scope[:depth], *name.split("::"))


def _declared(declarator: Node, kind: Type) -> Type:
    match declarator.type:
        case "pointer_declarator" | "abstract_pointer_declarator" | "pointer_type_declarator":
            return Pointer(kind, any(text_of(q) == "const" for q in qualifiers(declarator)))
        case "array_declarator" | "abstract_array_declarator" | "array_type_declarator":
            return Array(kind, integer_in(text_of(declarator.child_by_field_name("size"))))
        case "reference_declarator" | "abstract_reference_declarator":
            return Reference(kind)
        case "function_declarator" | "abstract_function_declarator":
            return Function()
        case _:
            return kind
