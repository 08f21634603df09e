"""Questions for the compiler, where the source alone does not say a type, and how to read its answers.

A question is C++ that stands behind the user's source: a template whose arguments are the types wanted. Its mangled
name, which any compiler of the Itanium ABI gives, holds them with every alias, macro and dependent name resolved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np

from aiocuda._source.cuda_nodes import parse
from aiocuda._source.cuda_source import split_list
from aiocuda._source.cuda_types import TypeNames
from aiocuda._source.parameters import Parameter, field_of, parameter_of
from aiocuda._source.signature import KernelSignature
from aiocuda._source.structs import array_extents, layout_of, member_names
from aiocuda._source.type_kinds import Array, Constant, Described, Opaque, Struct, Type, Unknown
from aiocuda.errors import SignatureError

__all__ = ["EXPRESSION", "NAME", "Ask", "settle", "settle_variable", "with_question", "without_question"]

# Types, as the compiler spells them, that a C++ type lists.
Ask: TypeAlias = Callable[[str], str]

NAME: Final = "aiocuda question"  # of the lines that are not the user's, in the compiler's log
EXPRESSION: Final = "aiocuda_asked::answer<aiocuda_question>"
# Enumerations become the numbers they are, for a mangled name does not say which. The rest is taken apart and put
# together again. The emulated NVRTC makes references of the grid constants of a parameter pack.
_TEMPLATES: Final = """
namespace aiocuda_asked {
template <typename T, bool = __is_enum(T)> struct Plain { using type = T; };
template <typename T> struct Plain<T, true> { using type = __underlying_type(T); };
template <typename T> struct Plain<const T, false> { using type = const typename Plain<T>::type; };
template <typename T> struct Plain<const T, true> { using type = const typename Plain<T>::type; };
template <typename T> struct Plain<volatile T, false> { using type = typename Plain<T>::type; };
template <typename T> struct Plain<volatile T, true> { using type = typename Plain<T>::type; };
template <typename T> struct Plain<const volatile T, false> { using type = const typename Plain<T>::type; };
template <typename T> struct Plain<const volatile T, true> { using type = const typename Plain<T>::type; };
template <typename T> struct Plain<T*, false> { using type = typename Plain<T>::type*; };
template <typename T> struct Plain<T[], false> { using type = typename Plain<T>::type[]; };
template <typename T, decltype(sizeof(0)) N> struct Plain<T[N], false> { using type = typename Plain<T>::type[N]; };
template <typename T, decltype(sizeof(0)) N> struct Plain<const T[N], false> {
  using type = const typename Plain<T>::type[N];
};
template <typename... T> struct List;
template <unsigned long long N> struct Number;
template <typename T> struct Argument : Plain<T> {};
#ifdef AIOCUDA_EMULATED
template <typename T> struct Argument<const T&> : Plain<T> {};
#endif
template <typename T> struct Parameters;
template <typename R, typename... T> struct Parameters<R(T...)> { using type = List<typename Argument<T>::type...>; };
#ifdef __cpp_noexcept_function_type
template <typename R, typename... T> struct Parameters<R(T...) noexcept> : Parameters<R(T...)> {};
#endif
template <typename T> __global__ void answer() {}
}
"""
_LIST: Final = re.compile(r"answer<aiocuda_asked::List<(.*?)\s*>\s*>\(", re.DOTALL)
_NUMBER: Final = re.compile(r"aiocuda_asked::Number<(\d+)u?l*>")
_UNNAMED: Final = re.compile(r"\(anonymous namespace\)::|\baiocuda_unnamed::")


def with_question(source: str, asked: str) -> str:
    """Put a question behind a source: which types does the C++ type `asked` list?."""
    return f'{source}\n#line 1 "{NAME}"\n{_TEMPLATES}using aiocuda_question = {asked};\n'


def without_question(log: str) -> str:
    """Leave out of a compiler's log the lines about the question: what is wrong is the source's."""
    return "\n".join(line for line in log.splitlines() if "aiocuda_question" not in line)


def settle(
    declared: KernelSignature, names: TypeNames, structures: Mapping[str, np.dtype[Any]], ask: Ask
) -> KernelSignature:
    """Complete a signature by what the compiler says.

    Parameters
    ----------
    declared
        As far as the source says it: what the parameters are called, and why some are not known.
    names
        Of the source.
    structures
        Structs that the user describes, by name.
    ask
        Compiles the source with a question, and gives the demangled name that answers it.

    Raises
    ------
    SignatureError
        The compiler cannot say it either, or what it says is nothing that a launch can pass.
    """
    told = names.of_answers()
    name = declared.name.removeprefix("::")
    pieces = _pieces(ask(f"aiocuda_asked::Parameters<decltype(::{name})>::type"))
    called = [each.name for each in declared.parameters]
    if len(called) != len(pieces):
        called = [f"argument{index}" for index in range(len(pieces))]
    asked: set[str] = set()
    while True:
        parameters = tuple(_parameters(pieces, called, told, structures, declared.line))
        struct = next((each.struct for each in parameters if each.struct and each.struct not in asked), None)
        if struct is None:
            return replace(declared, parameters=parameters, problem="").require_known()
        asked.add(struct)
        found = _type_in(struct, told, {})
        if isinstance(found, Struct):
            listed = ", ".join(f"Plain<decltype(::{struct}::{member})>::type" for member in member_names(found))
            answer = _pieces(
                ask(
                    f"aiocuda_asked::List<{listed}, Number<sizeof(::{struct})>>".replace(
                        "Plain<", "aiocuda_asked::Plain<"
                    ).replace("Number<", "aiocuda_asked::Number<")
                )
            )
            told.members[struct] = tuple(_type_in(each, told, structures) for each in answer)


def settle_variable(name: str, names: TypeNames, ask: Ask) -> tuple[np.dtype[Any] | str, tuple[int, ...] | None]:
    """Ask for a variable's type: the dtype of an item, or why there is none, and the extents."""
    told = names.of_answers()
    (piece,) = _pieces(ask(f"aiocuda_asked::List<aiocuda_asked::Plain<decltype(::{name})>::type>"))
    kind = _type_in(piece, told, {})
    extents = array_extents(kind, None, told, ())
    while isinstance(kind, Array):
        kind = kind.element
    if isinstance(kind, Opaque):
        return f"'{kind.name}' is a class that the source does not define", extents
    item = layout_of(kind, told)
    if not isinstance(item, str) and item.subdtype is not None:
        item, vector = item.subdtype
        extents = None if extents is None else extents + vector
    return item, extents


def _pieces(demangled: str) -> list[str]:
    found = _LIST.search(demangled)
    if found is None:
        raise SignatureError(f"the compiler's answer cannot be read: {demangled!r}")
    return split_list(_UNNAMED.sub("", found[1]))


def _parameters(
    pieces: list[str], called: list[str], told: TypeNames, structures: Mapping[str, np.dtype[Any]], line: int
) -> Iterator[Parameter]:
    for piece, name in zip(pieces, called, strict=True):
        yield parameter_of(name, _type_in(piece, told, structures), piece, told, {}, line)


def _type_in(spelled: str, told: TypeNames, structures: Mapping[str, np.dtype[Any]]) -> Type:
    """Read a type as compilers print it."""
    if number := _NUMBER.fullmatch(spelled):
        return Constant(int(number[1]))
    # A struct is described by its name, with its namespaces or without.
    described: dict[str, Type] = {
        each: Described(structures[each.rpartition("::")[2]])
        for each in re.findall(r"[A-Za-z_][\w:]*", spelled)
        if each.rpartition("::")[2] in structures
    }
    root = parse(f"void kernel({spelled}) {{}}")
    listed = field_of(root, "declarator", "parameters")
    node = listed.named_children[0] if listed is not None and listed.named_child_count == 1 else None
    if root.has_error or node is None:
        return Unknown(f"the compiler calls it '{spelled}'", is_askable=False)
    return told.type_of(node, node.child_by_field_name("declarator"), (), described)
