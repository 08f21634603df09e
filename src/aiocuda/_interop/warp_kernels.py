"""Kernels of Warp's as operations.

Always true: outputs are written. Warp lets a kernel write its inputs as well; such are found in its source.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, Final

from aiocuda._interop import kernels, python_source
from aiocuda._interop.warp import framework
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import given
from aiocuda.errors import ArgumentTypeError

__all__ = ["Kernel", "kernel"]


class Kernel:
    """A kernel of Warp's whose launches are operations; made by `kernel`."""

    __slots__ = ("_kernel", "_names", "_written")

    def __init__(self, kernel: Any, names: Sequence[str], written: python_source.Found) -> None:
        self._kernel = kernel
        self._names = names  # of its parameters
        self._written = written  # whether they are outputs or not

    def __call__(
        self, dim: Any, inputs: Sequence[Any] = (), outputs: Sequence[Any] = (), *, block_dim: int = 256
    ) -> DeviceOp[Any]:
        """Make an operation of a launch, as ``warp.launch``.

        Parameters
        ----------
        dim
            The threads along each axis, a number or a tuple of up to four.
        inputs, outputs
            The kernel's arguments, first those of `inputs`: arrays, operations that yield them, tensors and numbers.
            Arrays of scalars become such of the vectors or matrices that the kernel takes, which hold the last axes.
        block_dim
            Threads of a block.

        Returns
        -------
        DeviceOp
            Of what it writes: all arrays of `outputs`, and those of `inputs` that the kernel writes. *Stream*,
            *Blocks*, *On cancel*: as for `op`.

        Raises
        ------
        ArgumentTypeError
            There are more arguments, or fewer, than the kernel has parameters; or what it writes is no array.
        """
        for name, group in (("inputs", inputs), ("outputs", outputs)):
            if not isinstance(group, (list, tuple)):
                raise ArgumentTypeError(f"{self._kernel.key}: {name}= takes a list, not {given.shown(group)}")
        arguments = [*inputs, *outputs]
        kernels.require_count(arguments, self._names, self._kernel.key)
        declared = [each.type for each in self._kernel.adj.args]

        def launch(*taken: Any) -> None:
            import warp

            values = [_as_declared(value, kind) for value, kind in zip(taken, declared, strict=True)]
            count = len(inputs)
            warp.launch(
                self._kernel,
                dim,
                inputs=values[:count],
                outputs=values[count:],
                device=warp.get_device(),
                block_dim=block_dim,
                record_tape=False,
            )

        written = self._written.and_(python_source.Found(frozenset(self._names[len(inputs) :])))
        return kernels.launched(framework(), self._kernel.key, launch, arguments, self._names, written)


def kernel(kernel: Any, *, writes: Sequence[str] | None = None) -> Kernel:
    """Make operations of the launches of a kernel of Warp's.

    Parameters
    ----------
    kernel
        What ``warp.kernel`` made of a function.
    writes
        The names of the parameters whose arrays it writes, besides those that are outputs of a launch. None finds them
        in its source. There a parameter counts as written if that is not clear.

    Returns
    -------
    Kernel
        Called as ``warp.launch``, without a device and a stream: ``kernel(add)(n, inputs=[a, x], outputs=[y])``.

    Raises
    ------
    MissingPackageError
        Warp is not installed.
    ArgumentTypeError
        It is no kernel of Warp's, or one with a struct as a parameter, whose arrays would not be ordered.
    ArgumentValueError
        It has no parameter of such a name; or its source is not there, and `writes` does not say what it writes.
    """
    framework()
    import warp

    if not isinstance(kernel, warp.Kernel):
        raise ArgumentTypeError(f"kernel takes what warp.kernel has made of a function, not {given.shown(kernel)}")
    names = [each.label for each in kernel.adj.args]
    for each in kernel.adj.args:
        if hasattr(each.type, "vars") and not isinstance(each.type, warp.array):
            raise ArgumentTypeError(
                f"kernel: '{each.label}' of {kernel.key} is a struct, whose arrays would not be ordered; give them as "
                "arguments, or launch it in a function for op()"
            )
    ranks = {each.label: each.type.ndim for each in kernel.adj.args if isinstance(each.type, warp.array)}
    return Kernel(kernel, names, kernels.written(writes, kernel.func, names, _Language(), ranks))


def _as_declared(value: Any, kind: Any) -> Any:
    import warp

    if not isinstance(value, warp.array) or not isinstance(kind, warp.array) or kind.dtype is Any:
        return value
    if value.dtype == kind.dtype or not hasattr(kind.dtype, "_wp_scalar_type_"):
        return value
    return warp.array(value, dtype=kind.dtype, copy=False)


class _Language:
    """Warp as Python: its functions store, and add atomically, into the array that they take first."""

    def python_of(self, called: Any) -> types.FunctionType | None:
        import warp

        if not isinstance(called, warp.Function) or called.is_builtin():
            return None
        # Of a native function, what is Python is a stub. A function that has overloads is any of them.
        forms = [*called.user_overloads.values(), *called.user_templates.values()]
        if called.native_snippet is not None or any(each.func is not called.func for each in forms):
            return None
        function: types.FunctionType = called.func
        return function

    def is_own(self, called: Any) -> bool:
        import warp

        if isinstance(called, warp.Function) and not called.is_builtin():
            return False
        return python_source.is_of(called, "warp")

    def writes(self, called: Any, name: str) -> bool | None:
        import warp

        if name.startswith(("atomic_", "store", "tile_store", "tile_atomic", "array_store")):
            return True
        if isinstance(called, warp.Function):
            forms = [called, *getattr(called, "overloads", ())]
            return None if called.key not in _READING and any(map(_takes_arrays, forms)) else False
        return None if called is None else False


def _takes_arrays(function: Any) -> bool:
    return any(kind is Any or "array" in type(kind).__name__ for kind in function.input_types.values())


# Functions of Warp's that take arrays, or anything, and write none of it.
_READING: Final = frozenset(
    {
        "address", "array", "cast", "copy", "div", "extract", "len", "load", "lower_bound", "mul", "norm_huber",
        "norm_l1", "norm_l2", "norm_pseudo_huber", "print", "printf", "sample_cdf", "select", "smooth_normalize",
        "static", "tile", "tile_from_thread", "tile_full", "tile_load", "tile_load_indexed", "tuple", "unot", "view",
        "where", "zeros",
    }
)  # fmt: skip
