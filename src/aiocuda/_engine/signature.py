"""What a kernel's parameters are, read from CUDA C++ source or from an explicit signature.

Pure: text in, frozen signatures out. A parameter that the source alone cannot settle is of kind
"unknown" and carries the reason; it becomes an error only when that kernel is used.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
from tree_sitter import Node

from aiocuda._engine.cuda_source import (
    Declaration,
    SignatureError,
    find_declarations,
    split_list,
    template_argument,
    without_literals,
)
from aiocuda._engine.cuda_types import (
    Array,
    Described,
    Function,
    Pointer,
    Reference,
    Strided,
    Struct,
    Type,
    TypeNames,
    Unknown,
    Value,
    declarator_name,
    integer_in,
    parse,
    text_of,
)
from aiocuda._engine.structs import alignment_of, layout_of
from aiocuda._engine.variables import Variable, find_variables

__all__ = [
    "KernelSignature",
    "Parameter",
    "SignatureError",
    "UndeclaredKernelError",
    "parse_kernels",
    "parse_signature",
    "parse_variables",
    "select_kernel",
]


class UndeclaredKernelError(SignatureError):
    """The source declares no kernel of the name asked for; a macro may write one."""


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
    rank
        Dimensions of a view or partition, 1 to 8; else 0.
    layout
        Of a struct that is no built-in vector: the NumPy dtype that says where its members lie.
    alignment
        Of arrays, views and partitions: the bytes of which the address of each item must be a multiple, as far as that
        is known; 16 for ``float4*``, 1 for ``void*``.
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
    alignment: int = field(default=1, compare=False)

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


@dataclass(frozen=True, slots=True)
class KernelSignature:
    """What can be known of a kernel before it is compiled.

    Attributes
    ----------
    name
        What to ask the compiled module for: the plain name of an ``extern "C"`` kernel, else the
        name expression, with namespaces and template arguments.
    parameters
        In the order of the declaration.
    name_expression_needed
        Whether the name is mangled, so that the compiler must be given `name` as a name expression.
    max_threads
        First argument of ``__launch_bounds__`` where it is a literal: threads per block at most.
    line
        Line of the declaration in the source, from 1; 0 for an explicit signature.
    template_parameters
        Names of the template parameters still open.
    problem
        Why the parameter list as a whole cannot be read; else empty.
    """

    name: str
    parameters: tuple[Parameter, ...]
    name_expression_needed: bool = False
    max_threads: int | None = None
    line: int = 0
    template_parameters: tuple[str, ...] = ()
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.name}({', '.join(str(p) for p in self.parameters)})"

    def require_known(self) -> KernelSignature:
        """Give this signature back, if every parameter of it is known.

        Raises
        ------
        SignatureError
            It names the parameter, says what stands in the way and how to pass ``signature=``.
        """
        if self.problem:
            raise SignatureError(f"kernel '{self.name}': {self.problem}; {_PASS_SIGNATURE}", self.line)
        for index, parameter in enumerate(self.parameters):
            if parameter.kind == "unknown":
                raise SignatureError(
                    f"kernel '{self.name}': the type of parameter {index} ('{parameter.name}') "
                    f"cannot be known from the source: {parameter.reason}; {_PASS_SIGNATURE}",
                    self.line,
                )
        return self


_PASS_SIGNATURE: Final = (
    'pass signature= with the parameters spelled out, such as signature="const float* x, float* y, int n"'
)


def parse_kernels(source: str) -> list[KernelSignature]:
    """List the ``__global__`` functions in CUDA C++ source, in order of declaration.

    Macros are not expanded: a kernel that a macro writes is not found, and what is under ``#if 0``
    is not there. Template parameters stay open. A declaration and its definition are one kernel.

    Raises
    ------
    SignatureError
        A ``__global__`` function's declaration cannot be read, or has a reference as a parameter.
    """
    declarations, names, _ = _read(source)
    return [_signature(declaration, names) for declaration in declarations]


def parse_variables(source: str) -> tuple[Variable, ...]:
    """List the ``__constant__`` and ``__device__`` variables that CUDA C++ source declares, in order."""
    return _read(source)[2]


def select_kernel(
    source: str, name: str | None = None, structures: Mapping[str, np.dtype[Any]] | None = None
) -> KernelSignature:
    """Find the signature of one kernel in CUDA C++ source.

    Parameters
    ----------
    source
        CUDA C++.
    name
        The kernel's name, qualified or not, with template arguments where it is a template
        (``"ns::scale<float, 4>"``). None takes the only kernel in the source.
    structures
        Types that names stand for, whatever the source says of them.

    Raises
    ------
    SignatureError
        There is no such kernel, more than one, or a template argument is missing; it lists what
        there is.
    """
    declarations, names, _ = _read(source)
    asked, arguments = _parse_name(name, names) if name is not None else (None, None)
    found = declarations if asked is None else _called(asked, declarations)
    if len(found) != 1:
        kind = SignatureError if found or asked is None else UndeclaredKernelError
        raise kind(_selection_error(name, found, [_signature(d, names) for d in declarations]))
    (declaration,) = found
    return _instantiate(declaration, names, arguments, structures or {})


def parse_signature(
    text: str,
    *,
    name: str = "kernel",
    template_arguments: Mapping[str, str] | None = None,
    structures: Mapping[str, np.dtype[Any]] | None = None,
) -> KernelSignature:
    """Read the signature that a parameter list in CUDA C++ spells out.

    Parameters
    ----------
    text
        Such as ``"float a, const float* x, float* y, unsigned n"``; empty for no parameters.
    name
        The kernel's name, for messages.
    template_arguments
        Types and numbers, as C++ spells them, that names in `text` stand for: ``{"T": "float", "N": "2"}``.
    structures
        Structs that names in `text` stand for.

    Raises
    ------
    SignatureError
        A parameter cannot be read or its type is not known.
    """
    names = TypeNames(parse(""))
    arguments: dict[str, Type] = {each: Described(dtype) for each, dtype in (structures or {}).items()}
    for stand_in, spelled in (template_arguments or {}).items():
        argument = template_argument(_ascii(spelled))
        arguments[stand_in] = names.argument(argument, (), arguments) if argument is not None else Unknown("is empty")
    parameters = tuple(_parameters(without_literals(text), names, (), arguments, 0))
    for parameter in parameters:
        if parameter.kind == "unknown":
            raise SignatureError(
                f"signature= of kernel '{name}': parameter '{parameter.name}' in {text!r} is not "
                f"known: {parameter.reason}; use the built-in types of C++ and CUDA, pointers to "
                "them, void*, aiocuda::View or aiocuda::Partition, or structs named in structures="
            )
    return KernelSignature(name, parameters)


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode()


@functools.lru_cache(maxsize=32)  # a source of many kernels is asked for each of them
def _read(source: str) -> tuple[tuple[Declaration, ...], TypeNames, tuple[Variable, ...]]:
    found = find_declarations(source)
    names = TypeNames(found.tree, found.obstacles, found.packed_from, found.alignments)
    kept: dict[object, Declaration] = {}
    for declaration in found.declarations:
        # Parameter names may differ between a declaration and its definition; types may not.
        types = tuple((p.kind, p.dtype, p.width, p.writes, p.rank) for p in _signature(declaration, names).parameters)
        key = (declaration.name, types, declaration.is_template)
        if key not in kept or declaration.has_body:
            kept[key] = declaration
    return tuple(kept.values()), names, tuple(find_variables(found.tree, names))


def _signature(declaration: Declaration, names: TypeNames) -> KernelSignature:
    opened = [t.name for t in declaration.template_parameters]
    arguments: dict[str, Type] = {t: Unknown(f"'{t}' is a template parameter") for t in opened}
    return KernelSignature(
        name=declaration.name,
        parameters=tuple(_parameters(declaration.parameters, names, declaration.scope, arguments, declaration.line)),
        name_expression_needed=not declaration.extern_c,
        max_threads=_literal(declaration.launch_bounds, {}),
        line=declaration.line,
        template_parameters=tuple(opened),
        problem=declaration.problem,
    )


def _instantiate(
    declaration: Declaration,
    names: TypeNames,
    given: list[tuple[str, Type]] | None,
    structures: Mapping[str, np.dtype[Any]],
) -> KernelSignature:
    """Replace the template parameters by the arguments given and by defaults."""
    expected = declaration.template_parameters
    given = given or []
    if len(given) > len(expected) and not any(t.is_pack for t in expected):
        raise SignatureError(
            f"kernel '{declaration.name}' takes {len(expected)} template arguments, {len(given)} were given",
            declaration.line,
        )
    types: dict[str, Type] = {name: Described(dtype) for name, dtype in structures.items()}
    texts: dict[str, str] = {}
    for index, parameter in enumerate(expected):
        if index < len(given):
            texts[parameter.name], types[parameter.name] = given[index]
        elif parameter.is_pack:
            break
        elif parameter.default is not None:
            texts[parameter.name] = text_of(parameter.default)
            types[parameter.name] = names.argument(parameter.default, declaration.scope, types)
        else:
            spelled = ", ".join(t.name for t in expected)
            raise SignatureError(
                f"kernel '{declaration.name}' is a template of <{spelled}> and "
                f"'{parameter.name}' was not given: "
                f'name it with its arguments, such as name="{declaration.name}<...>"',
                declaration.line,
            )
    name = declaration.name
    if declaration.is_template:
        name += f"<{', '.join(text for text, _ in given)}>"
    return KernelSignature(
        name=name,
        parameters=tuple(_parameters(declaration.parameters, names, declaration.scope, types, declaration.line)),
        name_expression_needed=not declaration.extern_c,
        max_threads=_literal(declaration.launch_bounds, texts),
        line=declaration.line,
        problem=declaration.problem,
    )


def _parse_name(name: str, names: TypeNames) -> tuple[str, list[tuple[str, Type]] | None]:
    """Split a name expression: qualified name; text and type of each template argument.

    NVRTC looks names up outside all namespaces, and so do the arguments' types here.
    """
    spelled = _ascii(name).strip().removeprefix("&").strip()
    text = f"using asked = {spelled};"
    target = _field(parse(text), "type", "type")
    while target is not None and target.type == "qualified_identifier":
        target = target.child_by_field_name("name")
    if target is None or target.has_error or target.end_byte != len(text) - 1:
        raise SignatureError(f"{name!r} is not a kernel's name: expected such as 'saxpy' or 'ns::scale<float, 4>'")
    listed = target.child_by_field_name("arguments")
    if listed is None:
        return _plain_name(spelled), None
    head = text[len("using asked = ") : listed.start_byte]
    return _plain_name(head), [(text_of(argument), names.argument(argument)) for argument in listed.named_children]


def _plain_name(name: str) -> str:
    return "".join(name.split())


def _field(root: Node, *path: str) -> Node | None:
    """Follow a path of grammar fields from the first declaration under `root`."""
    node = root.named_children[0] if root.named_children else None
    for step in path:
        node = node.child_by_field_name(step) if node is not None else None
    return node


def _called(asked: str, declarations: Sequence[Declaration]) -> Sequence[Declaration]:
    """Find the kernels of exactly this name, else those whose qualified name ends in it."""
    exact = [d for d in declarations if d.name == asked.removeprefix("::")]
    return exact or [d for d in declarations if d.name.endswith(f"::{asked}")]


def _selection_error(name: str | None, found: Sequence[Declaration], every: list[KernelSignature]) -> str:
    listed = "".join(f"\n  line {s.line}: {s}" + _template_note(s) for s in every)
    if not every:
        return (
            "the source holds no __global__ function that can be read (macros are not expanded); "
            "if a macro writes it, pass name= and signature="
        )
    if name is None:
        return f"the source holds {len(every)} kernels: say which one with name=; found:{listed}"
    if not found:
        return f"the source holds no kernel '{name}'; found:{listed}\nif a macro writes it, pass signature= too"
    return (
        f"'{name}' names {len(found)} kernels: qualify the name, or pass signature= if they are "
        f"overloads or stand in different preprocessor branches; found:{listed}"
    )


def _template_note(signature: KernelSignature) -> str:
    opened = signature.template_parameters
    return f", a template of <{', '.join(opened)}>" if opened else ""


def _literal(text: str, arguments: Mapping[str, str]) -> int | None:
    """Read an integer literal, or a template parameter that stands for one."""
    return integer_in(arguments.get(text, text))


def _parameters(
    text: str, names: TypeNames, scope: tuple[str, ...], arguments: Mapping[str, Type], line: int
) -> Iterator[Parameter]:
    pieces = split_list(text)
    if pieces == ["void"]:
        return
    for index, piece in enumerate(pieces):
        # One at a time: what one macro does to the grammar stays within its parameter.
        root = parse(f"void kernel({piece}) {{}}")
        listed = _field(root, "declarator", "parameters")
        node = listed.named_children[0] if listed is not None and listed.named_child_count == 1 else None
        name = f"argument{index}"
        if root.has_error or node is None or node.type not in _PLAIN_PARAMETERS:
            yield Parameter(name, "unknown", reason=f"'{piece}' cannot be read as one parameter")
            continue
        declarator = node.child_by_field_name("declarator")
        name = declarator_name(declarator) or name
        kind = names.type_of(node, declarator, scope, arguments)
        if isinstance(kind, Struct | Described):
            layout = layout_of(kind, names, arguments)
            if isinstance(layout, str):
                yield Parameter(name, "unknown", const=kind.const, reason=f"{layout} ('{piece}'); {_PASS_STRUCTURES}")
            else:
                yield Parameter(name, "struct", const=kind.const, layout=layout)
            continue
        parameter = _parameter(name, kind, piece, line)
        if (item := _item_of(kind)) is not None:
            parameter = replace(parameter, alignment=alignment_of(item, names, arguments))
        yield parameter


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


_PASS_STRUCTURES: Final = "say how it lies with structures={name: a NumPy dtype or a ctypes.Structure}"
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
        case Unknown(reason, const):
            return Parameter(name, "unknown", const=const, reason=f"{reason} ('{spelled}')")
        case _:
            return Parameter(name, "unknown", reason=f"'{spelled}' is not a value or a pointer")


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
        case Unknown(reason):
            return Parameter(name, "unknown", reason=f"{reason} ('{spelled}')")
        case _:
            return Parameter(name, "unknown", reason=f"the items of '{spelled}' are no numbers")


def _pointer(name: str, target: Type, spelled: str) -> Parameter:
    while isinstance(target, Array):
        target = target.element
    match target:
        case Value(dtype, width, const):
            return Parameter(name, "array", dtype, width, writes=not const, const=const)
        case Unknown(const=const) | Struct(const=const) | Described(const=const):
            return Parameter(name, "array", writes=not const, const=const)
        case Function():
            return Parameter(name, "unknown", reason=f"'{spelled}' is a pointer to a function")
        case _:
            return Parameter(
                name,
                "unknown",
                reason=f"'{spelled}' is a pointer to pointers, behind which no array is tracked",
            )
