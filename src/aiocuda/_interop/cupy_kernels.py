"""Kernels of CuPy's own as operations.

Always true: what they write is known before they run. Kernels of parameters in and out say it, and those in CUDA C++ by
``const``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aiocuda._interop import kernels
from aiocuda._interop.cupy import framework
from aiocuda._interop.python_source import Found
from aiocuda._ops.operation import DeviceOp
from aiocuda._source.parameters import Parameter
from aiocuda._source.signature import select_kernel
from aiocuda._values import given
from aiocuda.errors import ArgumentTypeError, ArgumentValueError, SignatureError

__all__ = ["Kernel", "kernel"]


class Kernel:
    """A kernel of CuPy's whose launches are operations; made by `kernel`."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., DeviceOp[Any]]) -> None:
        self._make = make

    def __call__(self, *arguments: Any, **keywords: Any) -> DeviceOp[Any]:
        """Make an operation of a launch, with the arguments that CuPy's kernel takes.

        Parameters
        ----------
        *arguments
            Of a ``RawKernel``: the blocks of the grid, the threads of a block, both tuples, and a tuple of the kernel's
            arguments. Of the others: what goes in, and, if they are not to be made, the arrays that come out.
        **keywords
            ``shared_mem`` of a ``RawKernel`` (bytes); ``size`` and ``block_size`` of an ``ElementwiseKernel``;
            ``axis``, ``keepdims`` and ``out`` of a ``ReductionKernel``.

        Returns
        -------
        DeviceOp
            Of what it writes: an array, a tuple of several, or None; or of the arrays that CuPy makes for it. *Stream*,
            *Blocks*, *On cancel*: as for `op`.

        Raises
        ------
        ArgumentTypeError
            There are more arguments, or fewer, than the kernel takes; a keyword is none of its; or what it writes is no
            array.
        """
        return self._make(*arguments, **keywords)


def kernel(kernel: Any, *, writes: Sequence[str | int] | None = None) -> Kernel:
    """Make operations of the launches of a kernel of CuPy's.

    Parameters
    ----------
    kernel
        A ``cupy.RawKernel``, ``cupy.ElementwiseKernel`` or ``cupy.ReductionKernel``.
    writes
        Of a ``RawKernel``: the parameters whose arrays it writes, by name, or by position if no source shows
        them. None takes all pointers that are not to something ``const``. The others say themselves what they write.

    Returns
    -------
    Kernel
        Called as CuPy's: ``kernel(raw)((blocks,), (threads,), (x, y, n))``, ``kernel(square)(x)``.

    Raises
    ------
    MissingPackageError
        CuPy is not installed.
    ArgumentTypeError
        It is no such kernel; or `writes` is given to one that says itself what it writes.
    ArgumentValueError
        It has no such parameter; or what it writes is not known, and `writes` does not say it.
    """
    framework()
    import cupy

    if isinstance(kernel, cupy.RawKernel):
        return Kernel(_raw(kernel, writes))
    is_elementwise = isinstance(kernel, cupy.ElementwiseKernel)
    if not is_elementwise and not isinstance(kernel, cupy.ReductionKernel):
        raise ArgumentTypeError(
            "kernel takes a RawKernel, an ElementwiseKernel or a ReductionKernel of CuPy's, not "
            f"{given.shown(kernel)}; a function that launches others is one for op()"
        )
    if writes is not None:
        raise ArgumentTypeError(f"kernel: {kernel.name} says itself what it writes: leave out writes=")
    return Kernel(_shaped(kernel, ("size", "block_size") if is_elementwise else ("axis", "keepdims", "out")))


def _raw(kernel: Any, writes: Sequence[str | int] | None) -> Callable[..., DeviceOp[Any]]:
    parameters = _parameters(kernel)
    if parameters is None and writes is None:
        raise ArgumentValueError(
            f"kernel: what {kernel.name} writes is not known, as no source shows its parameters; give the positions "
            "of what it writes: writes=[1]"
        )
    names = None if parameters is None else [each.name for each in parameters]
    said = None if writes is None else _positions(kernel.name, names, writes)

    def make(*arguments: Any, **keywords: Any) -> DeviceOp[Any]:
        _require_keywords(kernel.name, keywords, ("shared_mem",))
        if len(arguments) != 3 or not isinstance(arguments[2], (tuple, list)):
            raise ArgumentTypeError(
                f"{kernel.name} takes (grid, block, (its arguments)), and shared_mem= in bytes; {len(arguments)} "
                "arguments were given"
            )
        grid, block, values = arguments
        if names is not None:
            kernels.require_count(values, names, kernel.name)

        def launch(*taken: Any) -> None:
            kernel(grid, block, taken, **keywords)

        if said is None:
            surely = frozenset(each.name for each in parameters or () if each.writes)
            unclear = frozenset(each.name for each in parameters or () if each.kind == "unknown" and not each.const)
            written = Found(surely, unclear)
        else:
            if missing := [at for at in said.values() if at >= len(values)]:
                raise ArgumentTypeError(
                    f"{kernel.name} writes its argument {missing[0]}, and {len(values)} arguments were given"
                )
            written = Found(frozenset(said))
        called = names or [f"argument {at}" for at in range(len(values))]
        return kernels.launched(framework(), kernel.name, launch, values, called, written)

    return make


def _parameters(kernel: Any) -> tuple[Parameter, ...] | None:
    """Return the parameters that a kernel's source gives it; None where that is not there, or cannot be read."""
    if not kernel.code:
        return None
    try:
        return select_kernel(kernel.code, kernel.name, options=kernel.options).parameters
    except SignatureError:  # a macro may write the kernel, and CuPy's compiler says what is wrong
        return None


def _positions(kernel: str, names: Sequence[str] | None, writes: Sequence[str | int]) -> dict[str, int]:
    known = names or ()
    found: dict[str, int] = {}
    for each in [writes] if isinstance(writes, str) else writes:
        if isinstance(each, int) and each >= 0 and (names is None or each < len(known)):
            found[known[each] if known else f"argument {each}"] = each
        elif each in known and not isinstance(writes, str):
            found[str(each)] = known.index(str(each))
        else:
            listed = f"which are {', '.join(known)}" if known else "given by position, as no source shows them"
            raise ArgumentValueError(
                f"kernel: writes= is a list of parameters of {kernel}, {listed}; {each!r} was given"
            )
    return found


def _shaped(kernel: Any, keywords_taken: Sequence[str]) -> Callable[..., DeviceOp[Any]]:
    inputs = [each.name for each in kernel.in_params]
    outputs = [each.name for each in kernel.out_params]

    def make(*arguments: Any, **keywords: Any) -> DeviceOp[Any]:
        _require_keywords(kernel.name, keywords, keywords_taken)
        if len(arguments) not in (len(inputs), len(inputs) + len(outputs)):
            raise ArgumentTypeError(
                f"{kernel.name} takes {len(inputs)} arguments ({', '.join(inputs)}), or besides them "
                f"{len(outputs)} that it writes ({', '.join(outputs)}); {len(arguments)} were given"
            )
        values = [*arguments]
        out = keywords.pop("out", None)
        if out is not None:
            if len(arguments) != len(inputs):
                raise ArgumentTypeError(f"{kernel.name}: out= was given, and what it writes by position as well")
            values.append(out)
        makes = len(values) == len(inputs)

        def launch(*taken: Any) -> Any:
            made = kernel(*taken, **keywords)
            return made if makes else None

        names = [*inputs, *outputs][: len(values)]
        return kernels.launched(framework(), kernel.name, launch, values, names, Found(frozenset(outputs)))

    return make


def _require_keywords(kernel: str, keywords: Iterable[str], taken: Sequence[str]) -> None:
    if unknown := [name for name in keywords if name not in taken]:
        raise ArgumentTypeError(
            f"{kernel}: '{unknown[0]}' is none of its keywords ({', '.join(taken)}); the stream is the operation's"
        )
