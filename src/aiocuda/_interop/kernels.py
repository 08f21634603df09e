"""Kernels of other languages as operations: what `kernel` of each language shares.

Always true: an operation of a launch keeps nothing between calls, and yields what it writes.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiocuda import _native
from aiocuda._interop.operation import Framework, operation
from aiocuda._interop.python_source import Found, Language, written_by
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import given
from aiocuda._verbs.tensors import as_array
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["is_array", "launched", "named", "positional", "require_count", "require_no_host_memory", "written"]


def is_array(x: object) -> bool:
    """Say whether an argument is an array, or an operation that may yield one."""
    return isinstance(x, (_native.Array, _native.Op))


def named(writes: Sequence[str] | None, names: Sequence[str], kernel: str) -> list[str] | None:
    """Return the names that `writes` gives, each a parameter; None if it gives none and they are to be found.

    Raises
    ------
    ArgumentValueError
        A name is not a parameter's.
    """
    if writes is None:
        return None
    unknown = [writes] if isinstance(writes, str) else [name for name in writes if name not in names]
    if unknown:
        raise ArgumentValueError(
            f"kernel: writes= is a list of parameters of {kernel}, which are {', '.join(names)}; "
            f"{', '.join(map(repr, unknown))} was given"
        )
    return list(writes)


def positional(function: types.FunctionType) -> list[str]:
    """Return the names of a kernel's parameters.

    Raises
    ------
    ArgumentTypeError
        Some are of variable number, or given by name alone.
    """
    parameters = inspect.signature(function).parameters
    if any(each.kind not in (each.POSITIONAL_OR_KEYWORD, each.POSITIONAL_ONLY) for each in parameters.values()):
        raise ArgumentTypeError(f"kernel: {function.__qualname__} has parameters that are not given by position alone")
    return list(parameters)


def written(
    writes: Sequence[str] | None,
    function: types.FunctionType,
    names: Sequence[str],
    language: Language,
    ranks: Mapping[str, int] | None = None,
) -> Found:
    """Return what a kernel that is Python writes: what `writes` names, or what its source says.

    Raises
    ------
    ArgumentValueError
        A name is not a parameter's, or the source is not there.
    """
    said = named(writes, names, function.__qualname__)
    if said is not None:
        return Found(frozenset(said))
    try:
        return written_by(function, language, ranks)
    except (OSError, SyntaxError) as error:
        raise ArgumentValueError(
            f"kernel: what {function.__qualname__} writes is not known, as its source is not there ({error}); name it: "
            "kernel(..., writes=[...])"
        ) from error


def require_count(arguments: Sequence[Any], names: Sequence[str], kernel: str) -> None:
    """Raise unless there is an argument for each parameter.

    Raises
    ------
    ArgumentTypeError
        There are more, or fewer.
    """
    if len(arguments) != len(names):
        raise ArgumentTypeError(
            f"{kernel} takes {len(names)} arguments ({', '.join(names)}), and {len(arguments)} were given"
        )


def require_no_host_memory(name: str, value: Any, kernel: str) -> None:
    """Raise if an argument that is none of our arrays is an array after all, as what is on a device has become ours.

    Raises
    ------
    ArgumentTypeError
        It is in memory of the host.
    """
    if not is_array(value) and hasattr(value, "__dlpack__"):
        raise ArgumentTypeError(
            f"{kernel}: '{name}' is memory of the host, which the language would copy, or refuse: give to_device(...) "
            f"in the place of {given.shown(value)}"
        )


def launched(
    framework: Framework,
    kernel: str,
    launch: Callable[..., Any],
    arguments: Sequence[Any],
    names: Sequence[str],
    written: Found,
) -> DeviceOp[Any]:
    """Make the operation of a launch.

    Parameters
    ----------
    kernel
        Its name, for messages.
    launch
        Called at submission with the framework's arrays in the place of ours, behind what the framework leads with.
    arguments
        Those of `launch`: arrays of ours and of other libraries, operations, and anything else.
    names
        Of the parameters that take the arguments.
    written
        Those that the kernel writes; and those that it may write, which count as written if they are arrays.

    Raises
    ------
    ArgumentTypeError
        The launch would write something that is no array, or it takes host memory.
    """
    taken = [each if is_array(each) else as_array(each, kernel) for each in arguments]
    writes = []
    for name, value in zip(names, taken, strict=True):
        if is_array(value):
            if name in written.surely or name in written.unclear:
                writes.append(value)
            continue
        require_no_host_memory(name, value, kernel)
        if name in written.surely:
            raise ArgumentTypeError(
                f"{kernel} writes '{name}', which takes an array on a device, not {given.shown(value)}"
            )
    launch.__qualname__ = kernel  # for messages
    return operation(framework, launch, taken, (), writes, True)
