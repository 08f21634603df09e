"""Which declaration in a module's sources is meant: a kernel's, or a variable's.

Pure: sources in, what they declare out; nothing is compiled, and no compiler asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aiocuda import _source
from aiocuda._values import dtypes, given
from aiocuda._values.dtypes import DTypeLike
from aiocuda.errors import ArgumentValueError, SignatureError, UndeclaredKernelError

if TYPE_CHECKING:
    from aiocuda._driver.compiler import Source
    from aiocuda._source.signature import KernelSignature
    from aiocuda._source.variables import Variable

__all__ = ["find_kernel", "find_variable", "items_of"]


def find_kernel(
    sources: tuple[Source, ...],
    options: tuple[str, ...],
    name: str | None,
    signature: str | None,
    structures: Mapping[str, np.dtype[Any]],
) -> tuple[KernelSignature, int]:
    """Find a kernel's signature, and which source it is in.

    Parameters
    ----------
    sources, options
        Of the module.
    name, signature, structures
        As `Module.kernel` is given them.
    """
    found: list[tuple[KernelSignature, int]] = []
    refused: list[SignatureError] = []
    for index, source in enumerate(sources):
        try:
            found.append(
                (
                    _source.select_kernel(
                        *(source.text, name, structures),
                        options=options,
                        may_be_hidden=signature is None and len(sources) == 1,
                    ),
                    index,
                )
            )
        except SignatureError as error:
            refused.append(error)
    if len(found) > 1:
        names = " and ".join(sources[index].name for _, index in found)
        raise ArgumentValueError(
            f"{names} each hold a kernel {name or ''}: say which one with name=".replace(" :", ":")
        )
    if found:
        (declared, index), *_ = found
        if signature is None:
            return declared, index
        spelled = _source.parse_signature(signature, name=declared.name, structures=structures).parameters
        # The rest is in the source.
        return _source.KernelSignature(
            declared.name, spelled, declared.name_expression_needed, declared.max_threads, declared.line
        ), index
    told = [error for error in refused if not isinstance(error, UndeclaredKernelError)]
    if name is not None and signature is not None and not told:  # a macro writes it
        spelled = _source.parse_signature(signature, name=name, structures=structures).parameters
        return _source.KernelSignature(name, spelled, name_expression_needed="<" in name), 0
    if len(sources) == 1:
        raise refused[0]
    raise ArgumentValueError("\n".join(f"{source.name}: {why}" for source, why in zip(sources, refused, strict=True)))


def find_variable(
    module_name: str,
    sources: tuple[Source, ...],
    options: tuple[str, ...],
    kind: str,
    name: str,
    *,
    is_dtype_given: bool,
) -> Variable | None:
    """Find a variable's declaration in a module's sources; None where a macro has it, and its dtype is given."""
    every = {each.name: each for source in sources for each in _source.parse_variables(source.text, options)}
    names = [each for each in every if each == name] or [each for each in every if each.endswith(f"::{name}")]
    if len(names) == 1:
        found = every[names[0]]
        if found.kind != kind:
            keyword = "__constant__" if found.kind == "constant" else "__device__"
            raise ArgumentValueError(f"'{name}' is a {keyword} variable: module.{found.kind}({name!r}) gives it")
        return found
    if not names and is_dtype_given:
        return None
    listed = "".join(f"\n  {each.kind} {each.name}" for each in every.values()) or " none"
    advice = "" if names else "\nif a macro or an included file declares it, pass dtype="
    what = f"several variables '{name}': qualify the name" if names else f"no variable '{name}'"
    raise ArgumentValueError(f"{module_name} has {what}; found:{listed}{advice}")


def items_of(
    variable: Variable | None, dtype: DTypeLike | None, shape: int | Sequence[int] | None
) -> tuple[np.dtype[Any], tuple[int, ...] | None]:
    """Return the dtype and the shape of a variable as an array, a shape of None for one axis as long as it is."""
    extents = None if shape is None else given.extents(shape, "shape")
    if extents is not None and any(extent < 0 for extent in extents):
        raise ArgumentValueError(f"shape={given.shown(shape)}: a shape has no negative extents")
    if dtype is not None:
        return dtypes.to_dtype(dtype), extents
    if variable is None:
        raise ArgumentValueError("compiled code does not say what its variables are: pass dtype=, and shape=")
    if isinstance(variable.item, str):
        raise ArgumentValueError(
            f"the dtype of '{variable.name}' is not known: {variable.item}; pass dtype=, and shape= where it has "
            "several axes"
        )
    return dtypes.to_dtype(variable.item), variable.extents if extents is None else extents
