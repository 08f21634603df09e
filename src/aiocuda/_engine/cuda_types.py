"""CUDA C++ types as a kernel's parameters see them: what is read, what is written, which dtype.

Types are built from tree-sitter syntax nodes, with the sizes of LP64 (Linux). What the source alone
cannot tell is an `Unknown` that carries the reason; nothing here guesses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, Literal, TypeAlias

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser


@dataclass(frozen=True, slots=True)
class Value:
    """A number, or a short vector of `width` numbers; the dtype of ``void`` is None."""

    dtype: str | None
    width: int = 1
    const: bool = False
    alignment: int = 0  # in bytes; 0: that of its size


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer; `const` says whether the pointer itself, not what it points to, is const."""

    target: Type
    const: bool = False


@dataclass(frozen=True, slots=True)
class Array:
    """A C array; as a parameter it is a pointer to its first element."""

    element: Type


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference, which CUDA forbids as a kernel parameter."""

    target: Type


@dataclass(frozen=True, slots=True)
class Function:
    """A function type; only pointers to it can be parameters."""


@dataclass(frozen=True, slots=True)
class Strided:
    """An ``aiocuda::View`` or ``aiocuda::Partition`` of items of a type, of `rank` dimensions."""

    kind: Literal["view", "partition"]
    element: Type
    rank: int


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct, class or union of the source's own, as it stands there; `aiocuda._engine.structs` reads its members."""

    name: str
    at: int
    scope: tuple[str, ...]
    node: Node = field(compare=False)
    const: bool = False


@dataclass(frozen=True, slots=True)
class Described:
    """A struct that the caller describes, by a NumPy dtype."""

    dtype: Any
    const: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """No type but a number, where a template takes either."""

    number: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """A type of which nothing but constness is known, and why."""

    reason: str
    const: bool = False


Type: TypeAlias = Value | Pointer | Array | Reference | Function | Strided | Struct | Described | Constant | Unknown


def as_const(kind: Type) -> Type:
    """Make a type const."""
    match kind:
        case Value() | Pointer() | Struct() | Described() | Unknown():
            return replace(kind, const=True)
        case Array(element):
            return Array(as_const(element))
        case _:
            return kind


def _value_names() -> dict[str, Value]:
    names = {
        "void": Value(None),
        "bool": Value("bool"),
        "float": Value("float32"),
        "double": Value("float64"),
        "half": Value("float16"),
        "__half": Value("float16"),
        "half2": Value("float16", 2),
        "__half2": Value("float16", 2),
        "_Float16": Value("float16"),
        "nv_bfloat16": Value("bfloat16"),
        "__nv_bfloat16": Value("bfloat16"),
        "nv_bfloat162": Value("bfloat16", 2),
        "__nv_bfloat162": Value("bfloat16", 2),
        "__nv_fp8_e4m3": Value("float8_e4m3fn"),
        "__nv_fp8_e5m2": Value("float8_e5m2"),
        "__nv_fp8_e8m0": Value("float8_e8m0fnu"),
        "cuComplex": Value("complex64"),
        "cuFloatComplex": Value("complex64"),
        "cuDoubleComplex": Value("complex128"),
        "dim3": Value("uint32", 3),
        "byte": Value("uint8"),
        "char8_t": Value("uint8"),
        "char16_t": Value("uint16"),
        "char32_t": Value("uint32"),
        "wchar_t": Value("int32"),
        "size_t": Value("uint64"),
        "ssize_t": Value("int64"),
        "ptrdiff_t": Value("int64"),
        "intptr_t": Value("int64"),
        "uintptr_t": Value("uint64"),
        "intmax_t": Value("int64"),
        "uintmax_t": Value("uint64"),
        "uint": Value("uint32"),
        "ushort": Value("uint16"),
        "ulong": Value("uint64"),
        "cudaTextureObject_t": Value("uint64"),
        "cudaSurfaceObject_t": Value("uint64"),
        "CUtexObject": Value("uint64"),
        "CUsurfObject": Value("uint64"),
        "CUdeviceptr": Value("uint64"),
    }
    for bits in (8, 16, 32, 64):
        fast = 64 if bits in (16, 32) else bits  # glibc's int_fast16_t and int_fast32_t are long
        for sign in ("", "u"):
            names[f"{sign}int{bits}_t"] = Value(f"{sign}int{bits}")
            names[f"{sign}int_least{bits}_t"] = Value(f"{sign}int{bits}")
            names[f"{sign}int_fast{bits}_t"] = Value(f"{sign}int{fast}")
    # The built-in vector types, CUDA C++ Programming Guide, "Built-in Vector Types".
    elements = {
        "char": "int8",
        "uchar": "uint8",
        "short": "int16",
        "ushort": "uint16",
        "int": "int32",
        "uint": "uint32",
        "long": "int64",
        "ulong": "uint64",
        "longlong": "int64",
        "ulonglong": "uint64",
        "float": "float32",
        "double": "float64",
    }
    for element, dtype in elements.items():
        for width in (1, 2, 3, 4):
            # A vector of one is a struct all the same; NumPy sees no difference.
            names[f"{element}{width}"] = Value(dtype, width)
        if dtype in ("int64", "uint64", "float64"):
            names[f"{element}4_16a"] = Value(dtype, 4)
            names[f"{element}4_32a"] = Value(dtype, 4, alignment=32)
    return names


_VALUES: Final = _value_names()
_COMPLEX: Final = {"float32": Value("complex64"), "float64": Value("complex128")}
_STRIDED: Final[dict[str, Literal["view", "partition"]]] = {"View": "view", "Partition": "partition"}
_LIBRARY_NAMESPACES: Final = frozenset({"", "std", "cuda::std"})


def _integer(words: list[str]) -> Value | None:
    """Name the type of ``unsigned long long int`` and its like, in any order of the words."""
    sign = "u" if "unsigned" in words else ""
    if "double" in words:
        return None  # long double has no meaning on a device
    if "char" in words:
        return Value(f"{sign}int8")
    if "short" in words:
        return Value(f"{sign}int16")
    return Value(f"{sign}int64" if "long" in words else f"{sign}int32")


@cache
def _language() -> Language:
    return Language(tree_sitter_cuda.language())


def parse(text: str) -> Node:
    """Parse ASCII text; the root of its syntax tree."""
    return Parser(_language()).parse(text.encode("ascii")).root_node


def text_of(node: Node | None) -> str:
    """Give the source of a node, its white space made single."""
    return " ".join(node.text.decode().split()) if node is not None and node.text else ""


def integer_in(text: str) -> int | None:
    """Read an integer literal of C++; None where the text is something else."""
    try:
        return int(text.rstrip("uUlL").replace("'", ""), 0)
    except ValueError:
        return None


def scope_of(node: Node) -> tuple[str, ...]:
    """List the named namespaces and classes around a node, outermost first."""
    path: list[str] = []
    parent = node.parent
    while parent is not None:
        if parent.type in ("namespace_definition", "struct_specifier", "class_specifier"):
            name = text_of(parent.child_by_field_name("name"))
            path[:0] = [part.strip() for part in name.split("::") if part.strip()]
        parent = parent.parent
    return tuple(path)


@dataclass(frozen=True, slots=True)
class _Definition:
    node: Node  # what holds the type and its qualifiers
    declarator: Node | None
    scope: tuple[str, ...]


class TypeNames:
    """The type names that a source defines, each with the scope it was defined in."""

    def __init__(
        self,
        root: Node,
        obstacles: Sequence[int] = (),
        packed_from: int | None = None,
        alignments: Mapping[int, int] | None = None,
    ) -> None:
        self._obstacles = obstacles
        self._packed_from = packed_from
        self._alignments = alignments or {}
        self._definitions: dict[tuple[str, ...], list[_Definition]] = {}
        # What aiocuda/tile.cuh defines, by each path that leads there; None for a path that the source itself takes.
        self._strided: dict[tuple[str, ...], Literal["view", "partition"] | None] = {}
        self._strided.update({("aiocuda", name): kind for name, kind in _STRIDED.items()})
        for node in _outside_functions(root):
            scope = scope_of(node)
            if node.type in _IMPORTING:
                self._import(node, scope)
            elif node.type == "template_declaration":
                self._hide(node, scope)
            elif node.type == "type_definition":
                for declarator in node.children_by_field_name("declarator"):
                    self._add(declarator_name(declarator), node, declarator, scope)
            else:
                self._add(text_of(node.child_by_field_name("name")), node, None, scope)

    def _add(self, name: str, node: Node, declarator: Node | None, scope: tuple[str, ...]) -> None:
        if name:
            definition = _Definition(node, declarator, scope)
            self._definitions.setdefault((*scope, name), []).append(definition)

    def _import(self, node: Node, scope: tuple[str, ...]) -> None:
        """Note ``using namespace aiocuda;``, ``using aiocuda::View;`` and ``namespace name = aiocuda;``."""
        if not node.named_children:
            return
        *named, target = node.named_children
        space, _, last = text_of(target).replace(" ", "").removeprefix("::").rpartition("::")
        if space == "aiocuda" and last in _STRIDED:
            self._strided[(*scope, last)] = _STRIDED[last]
        elif not space and last == "aiocuda":
            for name, kind in _STRIDED.items():
                self._strided[(*scope, *map(text_of, named), name)] = kind

    def _hide(self, node: Node, scope: tuple[str, ...]) -> None:
        """Note that a name means the source's own class template."""
        for child in node.named_children:
            name = text_of(child.child_by_field_name("name"))
            if child.type in _SPECIFIERS and name in _STRIDED and scope != ("aiocuda",):
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
        kind = self._base(specifier, scope, template_arguments or {}, pending)
        if any(text_of(q) in ("const", "constexpr") for q in (*_qualifiers(node), *_qualifiers(specifier))):
            kind = as_const(kind)
        while declarator is not None:
            kind = _declared(declarator, kind)
            declarator = _inner(declarator)
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
            found = _integer(text.split())
            return found or Unknown(f"'{text}' has no NumPy dtype")
        if node.type == "primitive_type" and text in ("char", "int"):
            return Value("int8" if text == "char" else "int32")
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
        listed = next(_descendants(node, "template_argument_list"), None)
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

    def _defined(self, name: str, scope: tuple[str, ...], pending: frozenset[str]) -> Type | None:
        for path in _paths(name.removeprefix("::"), () if name.startswith("::") else scope):
            definitions = self._definitions.get(path)
            if definitions:
                kinds = {self._definition(d, pending | {name}) for d in definitions}
                if len(kinds) == 1:
                    return kinds.pop()
                lines = ", ".join(str(d.node.start_point.row + 1) for d in definitions)
                return Unknown(f"'{name}' is defined differently at lines {lines}")
        return None

    def _definition(self, definition: _Definition, pending: frozenset[str]) -> Type:
        node = definition.node
        if node.type == "enum_specifier":
            return self._enumeration(node, definition.scope, pending)
        if node.type in ("struct_specifier", "class_specifier", "union_specifier"):
            name = text_of(node.child_by_field_name("name"))
            return Struct(name, node.start_byte, definition.scope, node)
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
        if space in _LIBRARY_NAMESPACES and last in _VALUES:
            return _VALUES[last]
        head, _, _ = name.removeprefix("::").partition("<")
        if head in ("std::complex", "cuda::std::complex", "thrust::complex"):
            for descriptor in _descendants(node, "type_descriptor"):
                part = self.type_of(descriptor, None, scope, arguments, pending)
                if isinstance(part, Value) and part.dtype in _COMPLEX and part.width == 1:
                    return _COMPLEX[part.dtype]
        if node.type == "placeholder_type_specifier":
            return Unknown("'auto' says nothing about the type")
        return Unknown(f"'{text_of(node)}' is not defined in this source")


def _paths(name: str, scope: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Say where a name is looked up: in the innermost scope first."""
    for depth in range(len(scope), -1, -1):
        yield (*scope[:depth], *name.split("::"))


def declarator_name(declarator: Node | None) -> str:
    """Find the name that a declarator declares, or an empty string."""
    while declarator is not None:
        if declarator.type in ("identifier", "type_identifier", "field_identifier", "primitive_type"):
            return text_of(declarator)
        declarator = _inner(declarator)
    return ""


def _declared(declarator: Node, kind: Type) -> Type:
    match declarator.type:
        case "pointer_declarator" | "abstract_pointer_declarator" | "pointer_type_declarator":
            return Pointer(kind, any(text_of(q) == "const" for q in _qualifiers(declarator)))
        case "array_declarator" | "abstract_array_declarator" | "array_type_declarator":
            return Array(kind)
        case "reference_declarator" | "abstract_reference_declarator":
            return Reference(kind)
        case "function_declarator" | "abstract_function_declarator":
            return Function()
        case _:
            return kind


def _inner(declarator: Node) -> Node | None:
    """Step into the declarator inside this one; references and parentheses name no field."""
    inner = declarator.child_by_field_name("declarator")
    if inner is None:
        for child in declarator.named_children:
            if child.type.endswith("declarator") or child.type in ("identifier", "type_identifier"):
                return child
    return inner


def _qualifiers(node: Node) -> list[Node]:
    return [child for child in node.children if child.type == "type_qualifier"]


def _descendants(node: Node, kind: str) -> Iterator[Node]:
    for child in node.named_children:
        if child.type == kind:
            yield child
        else:
            yield from _descendants(child, kind)


_SPECIFIERS: Final = frozenset({"enum_specifier", "struct_specifier", "class_specifier", "union_specifier"})
_IMPORTING: Final = frozenset({"using_declaration", "namespace_alias_definition"})
_DEFINING: Final = _SPECIFIERS | _IMPORTING | {"type_definition", "alias_declaration"}


def _outside_functions(root: Node) -> Iterator[Node]:
    """Find the nodes that define or import a type name, and templates, but nothing inside functions and templates."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type == "template_declaration":
            yield node
        if node.type in ("compound_statement", "template_declaration", "parameter_list"):
            continue
        if node.type in _DEFINING and (node.type not in _SPECIFIERS or node.child_by_field_name("body")):
            yield node
        waiting.extend(reversed(node.named_children))
