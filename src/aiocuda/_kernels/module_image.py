"""The image of a module: what it compiles as one, and loads on devices.

Always true: on each device it has one loaded image, with one copy of each variable; what it holds is fixed by then.
Others may have the same image there, where it has no variables and nobody set attributes of its kernels.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from aiocuda import _driver, _native
from aiocuda._driver import runtime

if TYPE_CHECKING:
    from aiocuda._driver.compiler import Image, Source
    from aiocuda._driver.loaded import LoadedModule
    from aiocuda._kernels.kernel import Kernel

__all__ = ["ModuleImage"]


class ModuleImage:
    """The sources that are compiled as one.

    Parameters
    ----------
    code
        Sources, or what was compiled elsewhere.
    options
        Of NVRTC.

    Attributes
    ----------
    memory
        Of its variables, those that are arrays.
    kernels
        That were made of it; several may be of one function.
    shared_limits
        The dynamic shared memory that was set for a kernel, by its name and device.
    """

    def __init__(self, code: tuple[Source, ...] | Image, options: tuple[str, ...]) -> None:
        self._code = code
        self._options = options
        self.memory = _native.ModuleMemory()
        self.kernels: weakref.WeakSet[Kernel] = weakref.WeakSet()
        self.shared_limits: dict[tuple[str, int], int] = {}
        self._expressions: dict[str, int] = {}  # names of mangled kernels, and the source each is in
        self._is_closed = False
        self._taking = threading.Lock()
        self._loaded: dict[int, LoadedModule] = {}
        self._lock = threading.Lock()

    def take(self, index: int, expression: str) -> bool:
        """Hold a kernel from now on; false where it is too late."""
        with self._taking:
            if expression in self._expressions:
                return True
            if not self._is_closed:
                self._expressions[expression] = index
            return not self._is_closed

    def load(self, ordinal: int) -> LoadedModule:
        """Compile for a device and load there, the first time. Blocks."""
        runtime.require_not_forked()
        with self._taking:
            self._is_closed = True
        with self._lock:
            loaded = self._loaded.get(ordinal)
            if loaded is None:
                loaded = self._loaded[ordinal] = _driver.load(self._compile(ordinal), ordinal, self)
        return loaded

    def load_alone(self, ordinal: int) -> LoadedModule:
        """Give an image on a device that nobody else has from now on. Blocks.

        The former image stays loaded as long as kernels use it: the caller gives them their new one.
        """
        with self._lock:
            loaded = self._loaded[ordinal] = _driver.load_alone(self._loaded[ordinal], self)
        return loaded

    def kernels_named(self, name: str) -> Iterator[Kernel]:
        """Give all kernels that were made of one function."""
        return (kernel for kernel in tuple(self.kernels) if kernel.name == name)

    def _compile(self, ordinal: int) -> Image:
        if isinstance(self._code, _driver.Image):
            return self._code
        sources = [
            each._replace(expressions=tuple(key for key, source in self._expressions.items() if source == index))
            for index, each in enumerate(self._code)
        ]
        return _driver.compile_sources(sources, self._options, ordinal)
