"""Kernels: CUDA C++ that Python calls, checked against its own signature.

Always true: defining a kernel reads its source and touches no device; it is compiled at its first launch
on a device, or when asked.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from aiocuda import _native
from aiocuda._driver.compiler import CompiledKernel, compile_kernel
from aiocuda._engine import dtypes
from aiocuda._engine.signature import KernelSignature, Parameter, parse_signature, select_kernel
from aiocuda.device import Device, as_ordinal
from aiocuda.errors import ArgumentTypeError
from aiocuda.ops import LaunchOp

__all__ = ["kernel"]

# The scalars that native code packs.
_SCALARS = frozenset(
    {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    | {"bool", "float16", "bfloat16", "float32", "float64"}
)


class KernelDescription:
    """What a kernel knows beside how to be called; its attributes are the kernel's."""

    def __init__(self, source: str, signature: KernelSignature, options: tuple[str, ...]) -> None:
        self.source = source
        self.signature = signature
        self.options = options
        self._compiled: dict[int, CompiledKernel] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The kernel's name, with template arguments where it has some."""
        return self.signature.name

    def compile(self, device: Device | int | None = None) -> None:
        """Compile for a device and load there, if that has not been done. Blocks; the result is kept on disk.

        Parameters
        ----------
        device
            The device; None takes the one in force.

        Raises
        ------
        CompilationError
            It does not compile; the log has the source's own line numbers.
        """
        self._load(as_ordinal(device))

    def attributes(self, device: Device | int | None = None) -> dict[str, int]:
        """Return what the compiler made of it: registers a thread, bytes of shared, local and constant memory.

        Parameters
        ----------
        device
            The device; None takes the one in force. The kernel is compiled if need be.
        """
        ordinal = as_ordinal(device)
        self._load(ordinal)
        return self._compiled[ordinal].attributes()

    def _load(self, ordinal: int) -> int:
        with self._lock:
            compiled = self._compiled.get(ordinal)
            if compiled is None:
                compiled = self._compiled[ordinal] = compile_kernel(
                    self.source,
                    self.signature.name,
                    is_name_expression=self.signature.name_expression_needed,
                    source_name=f"{self.signature.name.partition('<')[0].replace('::', '.')}.cu",
                    options=self.options,
                    ordinal=ordinal,
                )
        return compiled.function

    def __repr__(self) -> str:
        return f"<Kernel {self.signature}>"


def kernel(
    source: str,
    name: str | None = None,
    *,
    options: Sequence[str] = (),
    signature: str | None = None,
) -> _native.Kernel:
    """Make a kernel of CUDA C++ source: a callable that builds launches.

    Parameters
    ----------
    source
        CUDA C++ with a ``__global__`` function.
    name
        Which one, where there are several; with template arguments where it is a template
        (``"scale<float, 4>"``).
    options
        Options of NVRTC, such as ``"--use_fast_math"``; the emulated driver takes the same.
    signature
        The parameters spelled out, such as ``"const float* x, float* y, unsigned n"``, where they cannot be
        read from the source (types of headers, macros).

    Returns
    -------
    Kernel
        Call it with an argument for each parameter and a shape: ``threads=`` (one for each element: an
        int or a tuple of up to three) or ``grid=``, with ``block=`` (threads a block), and if wanted
        ``shared_memory=`` (dynamic, in bytes), ``cluster=``, ``cooperative=``. It gives a `DeviceOp` whose
        result is the array that the kernel writes; a tuple, in the order of the parameters, where it writes
        several; None where it writes none.

        Pointers to const are read, other pointers read and written. Arguments are arrays, numbers, and
        operations that yield them. A wrong count, dtype, device or range is an error when the launch is
        built; of what an operation yields, as soon as it is known, and before the launch is submitted.

    Raises
    ------
    ArgumentValueError
        There is no such kernel in the source, or its parameters cannot be known without ``signature=``.

    Notes
    -----
    A launch runs on the device of its arrays, on the stream in force there, and blocks nothing;
    cancelling an await of it leaves it on the device and keeps its memory alive.

    Examples
    --------
    >>> import aiocuda as ac
    >>> double = ac.kernel('extern "C" __global__ void twice(float* x, int n)'
    ...     '{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; }')
    >>> ac.to_host(double(ac.full(3, 21.0), 3, threads=3)).sync()
    array([42., 42., 42.], dtype=float32)
    """
    if not isinstance(source, str):
        raise ArgumentTypeError(f"a kernel's source is a str of CUDA C++, not {type(source).__name__}")
    if isinstance(options, str):
        raise ArgumentTypeError(f"options is a sequence of options; write ({options!r},)")
    found = select_kernel(source, name) if signature is None else _spelled_out(source, name, signature)
    description = KernelDescription(source, found.require_known(), tuple(options))
    return _native.make_kernel(
        LaunchOp,
        description,
        found.name,
        [_native_parameter(found, p) for p in found.parameters],
        found.max_threads or 1024,
    )


def _spelled_out(source: str, name: str | None, signature: str) -> KernelSignature:
    """Take the parameters from the caller, and what else there is to know from the source where it can be read."""
    declared = select_kernel(source, name)
    spelled = parse_signature(signature, name=declared.name)
    return KernelSignature(
        declared.name,
        spelled.parameters,
        name_expression_needed=declared.name_expression_needed,
        max_threads=declared.max_threads,
        line=declared.line,
    )


def _native_parameter(signature: KernelSignature, parameter: Parameter) -> tuple[str, int, bool, str, int, int]:
    if parameter.kind in {"array", "view", "partition"}:
        code = dtypes.code_named(parameter.dtype)
        return parameter.kind, code, parameter.writes, parameter.name, parameter.rank, parameter.width
    if parameter.kind == "scalar" and parameter.dtype in _SCALARS:
        return parameter.dtype, dtypes.ANY, False, parameter.name, 0, 1
    raise ArgumentTypeError(
        f"kernel '{signature.name}': parameter '{parameter.name}' ({parameter}) is passed by value and is "
        "no single number; pass its members one by one, or a pointer to it"
    )
