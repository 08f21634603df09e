"""The help that Python shows of a kernel: how to call it, and its parameters.

Pure: a signature in, text and an `inspect.Signature` out.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiocuda._source.signature import KernelSignature, Parameter

__all__ = ["signature_of", "text_of"]

# The parameters that native code takes beside the kernel's own, each with its default, as Python shows it.
_KEYWORDS: Final = {
    "threads": None, "grid": None, "block": None, "shared_memory": 0, "cluster": None, "cooperative": False,
}  # fmt: skip
_SHAPE: Final = {
    "threads": "int | Sequence[int] | None",
    "grid": "int | Sequence[int] | None",
    "block": "int | Sequence[int] | None",
    "shared_memory": "int",
    "cluster": "int | Sequence[int] | None",
    "cooperative": "bool",
}


def signature_of(known: KernelSignature | None) -> inspect.Signature:
    """Return how a kernel is called.

    Parameters
    ----------
    known
        Its signature; None where the compiler is still to be asked: then any arguments, as far as one can tell.
    """
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_SHAPE[name])
        for name, default in _KEYWORDS.items()
    ]
    arguments: Iterable[inspect.Parameter]
    if known is None:
        named = [inspect.Parameter("named", inspect.Parameter.VAR_KEYWORD)]
        arguments = [inspect.Parameter("arguments", inspect.Parameter.VAR_POSITIONAL)]
        return inspect.Signature([*arguments, *keywords, *named], return_annotation="DeviceOp")
    # An argument is given by its parameter's name, unless that means something else: those before it are then given by
    # position as well.
    by_position = max((i for i, each in enumerate(known.parameters) if not _can_be_named(each)), default=-1)
    taken = {*_KEYWORDS, *(each.name for each in known.parameters)}
    arguments = [
        inspect.Parameter(
            _shown_name(each, index, taken),
            inspect.Parameter.POSITIONAL_ONLY if index <= by_position else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            annotation=type_of(each),
        )
        for index, each in enumerate(known.parameters)
    ]
    return inspect.Signature([*arguments, *keywords], return_annotation="DeviceOp")


def text_of(name: str, known: KernelSignature | None) -> str:
    """Return what ``help`` says of a kernel."""
    if known is None:
        return (
            f"The kernel ``{name}``. Its source does not say what its parameters are; the first launch asks the "
            "compiler, and so does ``kernel.signature``."
        )
    lines = [f"The kernel ``{known}``; a call builds a launch.", "", "Parameters", "----------"]
    for each in known.parameters:
        lines += [f"{each.name} : {type_of(each)}", f"    {_role(each)}"]
    lines += [
        "threads, grid, block : int or sequence of up to three, optional",
        "    The shape: threads, one for each element; or blocks, and threads in each.",
        "shared_memory : int, optional",
        "    Dynamic shared memory of a block, in bytes.",
        "cluster, cooperative : optional",
        "    Blocks of a cluster; whether all blocks run together.",
        "",
        "Returns",
        "-------",
        "DeviceOp",
        f"    {_result(known)}",
    ]
    return "\n".join(lines)


def type_of(parameter: Parameter) -> str:
    """Return a parameter's type in the words of its declaration, with the dtype for the name of a number's type."""
    return str(parameter).removesuffix(f" {parameter.name}")


def _role(parameter: Parameter) -> str:
    if parameter.constant is not None:
        return f"The constant {parameter.constant}, which its type says."
    if parameter.kind in {"array", "view", "partition"}:
        what = {"array": "An array", "view": "An array of any strides", "partition": "A Partition"}[parameter.kind]
        return f"{what}, which is {'read and written' if parameter.writes else 'read'}."
    return "A struct." if parameter.layout is not None else "A number." if parameter.width == 1 else "A vector."


def _result(known: KernelSignature) -> str:
    written = [each.name for each in known.parameters if each.writes]
    if not written:
        return "It yields None: the kernel writes no array."
    return f"It yields {written[0]}." if len(written) == 1 else f"It yields ({', '.join(written)})."


def _can_be_named(parameter: Parameter) -> bool:
    return parameter.name not in _KEYWORDS and parameter.name.isidentifier() and not keyword.iskeyword(parameter.name)


def _shown_name(parameter: Parameter, index: int, taken: set[str]) -> str:
    """Return a name that Python allows: C++ has others, such as ``x$``."""
    name = parameter.name if parameter.name.isidentifier() else f"argument{index}"
    if name == parameter.name and name not in _KEYWORDS:
        return name
    while name in taken:
        name += "_"
    return name
