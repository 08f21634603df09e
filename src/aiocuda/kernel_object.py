"""What a kernel knows beside how to be called, and what it can be asked; its attributes are the kernel's.

Always true: a kernel is loaded on a device once, and only if what was compiled takes what its signature says.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from aiocuda import _native
from aiocuda._driver.loaded import KernelAttributes, LoadedKernel, LoadedModule
from aiocuda._engine import dtypes
from aiocuda._engine.signature import KernelSignature, Parameter
from aiocuda.device import Device, as_ordinal
from aiocuda.errors import ArgumentTypeError
from aiocuda.ops import LaunchOp

if TYPE_CHECKING:
    from aiocuda.module import Module

__all__ = ["KernelDescription", "make_kernel"]

# The scalars that native code packs.
_SCALARS = frozenset(
    {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    | {"bool", "float16", "bfloat16", "float32", "float64"}
)


class Loads(Protocol):
    """What kernels are loaded from.

    Attributes
    ----------
    memory
        Of its variables, those that are arrays.
    """

    memory: _native.ModuleMemory

    def load(self, ordinal: int) -> LoadedModule:
        """Compile for a device and load there, the first time. Blocks."""


class KernelDescription:
    """What a kernel knows beside how to be called; its attributes are the kernel's."""

    def __init__(self, module: Module, image: Loads, source: str | None, signature: KernelSignature) -> None:
        self.module = module
        self.source = source
        self.options = module.options
        self.signature = signature
        self.image = image
        self._loaded: dict[int, LoadedKernel] = {}
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
        self._on(as_ordinal(device))

    def attributes(self, device: Device | int | None = None) -> KernelAttributes:
        """Return what the compiler made of it: registers a thread, bytes of shared, local and constant memory.

        Parameters
        ----------
        device
            The device; None takes the one in force. The kernel is compiled if need be.
        """
        return self._on(as_ordinal(device)).attributes()

    def _on(self, ordinal: int) -> LoadedKernel:
        with self._lock:
            loaded = self._loaded.get(ordinal)
            if loaded is None:
                loaded = self.image.load(ordinal).kernel(self.signature.name)
                loaded.require_parameters(self.name, [_size_bytes(each) for each in self.signature.parameters])
                self._loaded[ordinal] = loaded
        return loaded

    def _load(self, ordinal: int) -> int:
        return self._on(ordinal).function

    def __repr__(self) -> str:
        return f"<Kernel {self.signature}>"


def make_kernel(description: KernelDescription) -> _native.Kernel:
    """Make the callable kernel of a description."""
    signature = description.signature
    return _native.make_kernel(
        LaunchOp,
        description,
        signature.name,
        [_native_parameter(signature, each) for each in signature.parameters],
        signature.max_threads or 1024,
        description.image.memory,
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


def _size_bytes(parameter: Parameter) -> int:
    """Return how many bytes a parameter has in the compiled kernel."""
    if parameter.kind == "array":
        return 8
    if parameter.rank:  # where, shape and strides; of a partition, also the shape of a tile (aiocuda/tile.cuh)
        return 8 * (1 + (2 if parameter.kind == "view" else 3) * parameter.rank)
    return dtypes.dtype_named(parameter.dtype or "uint8").itemsize * parameter.width
