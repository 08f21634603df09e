"""What Triton's compiler tells of a kernel: its launch options, and what it writes.

Always true: nothing here needs a device. Only the front end of the compiler runs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray, HostArray
from aiocuda._interop.pointers import Step, Written, written_of
from aiocuda._values import dtypes

__all__ = ["launch_options", "named_in", "types_of", "written_by", "written_by_compiled"]


@functools.cache
def _any_target() -> Any:
    from triton.backends.compiler import GPUTarget

    return GPUTarget("cuda", 90, 32)  # what a kernel writes is no matter of the device


def _backend_for(target: Any) -> Any:
    from triton.compiler.compiler import make_backend

    return make_backend(target)


@functools.cache
def launch_options() -> frozenset[str]:
    """Return the keywords of a launch that are no parameters of the kernel: ``num_warps`` and the like."""
    return frozenset(vars(_backend_for(_any_target()).parse_options({})))


class _Pointer:
    """As much of an array as Triton's types need."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype

    def data_ptr(self) -> int:
        return 0


# Of an operation's result whose dtype is known only when it runs. A kernel's types rarely decide what it writes, and
# what was compiled in the end is looked at again.
_ASSUMED = ("float32", "int32")


def types_of(values: Mapping[str, Any], constants: frozenset[str]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield what may be the types of a kernel's parameters, as Triton spells them, and the constants among them.

    Parameters
    ----------
    values
        Arguments by parameter, in order.
    constants
        The parameters that are compile-time constants.
    """
    from triton.runtime.jit import mangle_type

    for assumed in _ASSUMED:
        types: dict[str, Any] = {}
        fixed: dict[str, Any] = {}
        is_assumed = False
        for name, value in values.items():
            if name in constants or value is None:
                types[name], fixed[name] = "constexpr", value
            elif isinstance(value, (DeviceArray, HostArray)):
                types[name] = mangle_type(_Pointer(value.dtype))
            elif isinstance(value, _native.Op):
                dtype = dtypes.dtype_of(value._spec[1]) if _has_dtype(value) else np.dtype(assumed)
                is_assumed = is_assumed or not _has_dtype(value)
                types[name] = mangle_type(_Pointer(dtype))
            else:
                types[name] = mangle_type(value)
        yield types, fixed
        if not is_assumed:
            return


def _has_dtype(op: Any) -> bool:
    return bool(op._spec[1])  # 0 is that of none


def written_by(kernel: Any, types: Mapping[str, Any], fixed: Mapping[str, Any]) -> Written:
    """Return what a kernel writes, by the positions of `named_in`, where its parameters have these types."""
    from triton.compiler import ASTSource

    source = getattr(kernel, "ASTSource", ASTSource)(kernel, dict(types), dict(fixed), {})
    return _written(source, _any_target(), {})


def written_by_compiled(compiled: Any) -> Written:
    """Return what a kernel writes as it was compiled for a launch."""
    return _written(compiled.src, compiled.metadata.target, compiled.metadata._asdict())


def named_in(signature: Mapping[str, Any]) -> list[str]:
    """Return the parameters that a compiled kernel has left, in order; those that are tuples once for each item."""
    return [name for name, kind in signature.items() for _ in range(_leaves(kind))]


def _leaves(kind: Any) -> int:
    return sum(map(_leaves, kind)) if isinstance(kind, (tuple, list)) else int(kind != "constexpr")


def _written(source: Any, target: Any, options: Mapping[str, Any]) -> Written:
    from triton._C.libtriton import ir

    backend = _backend_for(target)
    parsed = backend.parse_options(dict(options))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = source.make_ir(
        target, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context
    )
    steps: list[Step] = []
    kernels: list[str] = []

    def take(operation: Any) -> None:
        block = operation.get_block()
        if block is None:
            return  # the module itself
        name = operation.get_name()
        symbol = ""
        if name == "tt.call":
            symbol = operation.get_flat_symbol_ref_attr("callee")
        elif name == "tt.func":
            symbol = operation.get_str_attr("sym_name")
            if operation.get_str_attr("sym_visibility") == "public":
                kernels.append(symbol)
        steps.append(
            Step(
                name,
                tuple(operation.get_operand(i).id() for i in range(operation.get_num_operands())),
                tuple(operation.get_result(i).id() for i in range(operation.get_num_results())),
                tuple(operation.get_region(i).id() for i in range(operation.get_num_regions())),
                block.id(),
                block.get_parent().id(),
                tuple(block.get_argument(i).id() for i in range(block.get_num_arguments())),
                symbol,
            )
        )

    module.walk(take)
    return written_of(steps, kernels[0])
