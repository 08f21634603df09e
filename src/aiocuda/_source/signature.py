"""The parameters of a kernel, read from CUDA C++ source or from an explicit signature.

Pure: text in, frozen signatures out. A parameter that the source alone cannot settle is of kind
"unknown" and carries the reason; it becomes an error only when that kernel is used.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from aiocuda._source.cuda_nodes import integer_in, parse, text_of
from aiocuda._source.cuda_source import Declaration, find_declarations, template_argument, without_literals
from aiocuda._source.cuda_types import TypeNames
from aiocuda._source.parameters import Parameter, field_of, read_parameters
from aiocuda._source.type_kinds import Described, Type, Unknown
from aiocuda._source.variables import Variable, find_variables
from aiocuda.errors import SignatureError, UndeclaredKernelError

__all__ = [
    "PASS_SIGNATURE",
    "KernelSignature",
    "Parameter",
    "names_in",
    "parse_kernels",
    "parse_signature",
    "parse_variables",
    "select_kernel",
]


@dataclass(frozen=True, slots=True)
class KernelSignature:
    """The facts of a kernel that are known before it is compiled.

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

    @property
    def is_open(self) -> bool:
        """Whether something is not known that the compiler can tell, and nothing that it cannot."""
        unknown = [each for each in self.parameters if each.kind == "unknown"]
        return bool(self.problem or unknown) and all(each.is_askable for each in unknown)

    def require_known(self) -> KernelSignature:
        """Give this signature back, if every parameter of it is known.

        Raises
        ------
        SignatureError
            It names the parameter, says what stands in the way and how to pass ``signature=``.
        """
        if self.problem:
            raise SignatureError(f"kernel '{self.name}': {self.problem}; {PASS_SIGNATURE}", self.line)
        for index, parameter in enumerate(self.parameters):
            if parameter.kind == "unknown":
                raise SignatureError(
                    f"kernel '{self.name}': the type of parameter {index} ('{parameter.name}') "
                    f"cannot be known from the source: {parameter.reason}; {PASS_SIGNATURE}",
                    self.line,
                )
        return self


PASS_SIGNATURE: Final = (
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
    declarations, names, _ = _read(source, ())
    return [_signature(declaration, names) for declaration in declarations]


def parse_variables(source: str, options: Sequence[str] = ()) -> tuple[Variable, ...]:
    """List the ``__constant__`` and ``__device__`` variables that CUDA C++ source declares, in order."""
    return _read(source, tuple(options))[2]


def names_in(source: str, options: Sequence[str] = ()) -> TypeNames:
    """Give the types and constants that CUDA C++ source defines, where the compiler is given these options."""
    return _read(source, tuple(options))[1]


def select_kernel(
    source: str,
    name: str | None = None,
    structures: Mapping[str, np.dtype[Any]] | None = None,
    *,
    options: Sequence[str] = (),
    may_be_hidden: bool = False,
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
    options
        The compiler's: they may define macros.
    may_be_hidden
        Whether a kernel that the source does not show is one, where a macro or an included file may define it.

    Raises
    ------
    SignatureError
        There is no such kernel, more than one, or a template argument is missing; it lists what
        there is.
    """
    declarations, names, _ = _read(source, tuple(options))
    asked, arguments = _parse_name(name, names) if name is not None else (None, None)
    found = declarations if asked is None else _called(asked, declarations)
    if may_be_hidden and name is not None and not found and names.preprocessing.writes_kernels:
        problem = "a macro or an included file declares it"
        return KernelSignature(_ascii(name).strip().removeprefix("&"), (), name_expression_needed=True, problem=problem)
    problem = _branches(found)
    if problem:
        found = found[:1]
    if len(found) != 1:
        kind = SignatureError if found or asked is None else UndeclaredKernelError
        raise kind(_selection_error(name, found, [_signature(d, names) for d in declarations]))
    (declaration,) = found
    signature = _instantiate(declaration, names, arguments, structures or {})
    return replace(signature, problem=problem) if problem else signature


def _branches(found: Sequence[Declaration]) -> str:
    """Say that several declarations may be one kernel in several builds; empty where they are not."""
    is_one = len({each.name for each in found}) == 1 and not any(each.is_template for each in found)
    if len(found) < 2 or not is_one or not any(each.is_conditional for each in found):
        return ""
    lines = ", ".join(str(each.line) for each in found)
    return f"it is declared at lines {lines}, in different preprocessor branches"


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
    parameters = tuple(read_parameters(without_literals(text), names, (), arguments, 0))
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
def _read(source: str, options: tuple[str, ...]) -> tuple[tuple[Declaration, ...], TypeNames, tuple[Variable, ...]]:
    found = find_declarations(source, options)
    names = TypeNames(found.tree, found.preprocessing, found.obstacles, found.packed_from, found.alignments)
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
        parameters=tuple(
            read_parameters(declaration.parameters, names, declaration.scope, arguments, declaration.line)
        ),
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
        parameters=tuple(read_parameters(declaration.parameters, names, declaration.scope, types, declaration.line)),
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
    target = field_of(parse(text), "type", "type")
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


def _called(asked: str, declarations: Sequence[Declaration]) -> Sequence[Declaration]:
    """Find the kernels of exactly this name, else those whose qualified name ends in it."""
    exact = [d for d in declarations if d.name == asked.removeprefix("::")]
    return exact or [d for d in declarations if d.name.endswith(f"::{asked}")]


def _selection_error(name: str | None, found: Sequence[Declaration], every: list[KernelSignature]) -> str:
    listed = "".join(f"\n  line {s.line}: {s}" + _template_note(s) for s in every)
    if not every:
        return (
            "the source holds no __global__ function that can be read (macros are not expanded); a kernel begins with "
            "`__global__ void`; if a macro writes that, pass name= and signature="
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
