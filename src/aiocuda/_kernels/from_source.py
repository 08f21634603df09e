"""Kernels of source: the short way to them.

Always true: defining a kernel reads its source and touches no device; it is compiled at its first launch
on a device, or when asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiocuda import _source
from aiocuda._kernels.kernel import Kernel
from aiocuda._kernels.module import Module
from aiocuda._later import aiocuda
from aiocuda._values import given
from aiocuda.errors import ArgumentValueError, SignatureError

__all__ = ["kernel"]


def kernel(
    source: str,
    name: str | None = None,
    *,
    options: aiocuda.CompileOptions | Sequence[str] = (),
    signature: str | None = None,
    structures: Mapping[str, Any] | None = None,
) -> Kernel:
    """Make a kernel of CUDA C++ source: a callable that builds launches. The short way to a `Module` of one kernel.

    Parameters
    ----------
    source
        CUDA C++ with a ``__global__`` function.
    name
        Which one, where there are several; with template arguments where it is a template
        (``"scale<float, 4>"``).
    options
        `CompileOptions`, or options of NVRTC, such as ``("--use_fast_math",)``; the emulated driver takes the same.
    signature
        The parameters spelled out, such as ``"const float* x, float* y, unsigned n"``, where neither the source nor
        the compiler says them. If a macro, a header or a conditional decides a type, aiocuda asks the compiler at the
        first launch, or in ``compile()``.
    structures
        How structs lie that the source does not show: a NumPy dtype or a ctypes.Structure for each name.

    Returns
    -------
    Kernel
        Call it with an argument for each parameter and a shape, such as ``threads=``.

    Raises
    ------
    ArgumentValueError
        There is no such kernel in the source, or its parameters cannot be known without ``signature=``; where the
        compiler is asked for them, the first launch raises this. Or a text is empty or holds a NUL character, or the
        source is the name of a file.
    ArgumentTypeError
        An argument is of another type than it says.

    Examples
    --------
    >>> import aiocuda as ac
    >>> double = ac.kernel('extern "C" __global__ void twice(float* x, int n)'
    ...     '{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; }')
    >>> ac.to_host(double(ac.full(3, 21.0), 3, threads=3)).sync()
    array([42., 42., 42.], dtype=float32)
    """
    given.text(source, "a kernel's source", "a str of CUDA C++")
    if "\n" not in source and source.endswith((".cu", ".cuh", ".ptx", ".cubin")):
        raise ArgumentValueError(
            f"a kernel's source is a str of CUDA C++; {source!r} is the name of a file: "
            "`ac.Module.from_file(path).kernel(name)` takes files"
        )
    if name is not None:
        given.text(name, "name=", "a kernel's name or None")
    try:
        called = _source.select_kernel(source, name).name
    except SignatureError:  # the module tells it better, or its signature= does
        called = name or "module"
    plain = called.partition("<")[0].replace("::", ".")
    return Module.from_source(source, name=f"{plain}.cu", options=options).kernel(
        name, signature=signature, structures=structures
    )
