"""cuTile: its kernels as operations.

Always true: cuTile is imported when its first kernel is given, and not before.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from aiocuda._arrays.array import DeviceArray
from aiocuda._devices.device import Stream
from aiocuda._driver import frameworks
from aiocuda._interop import kernels, python_source
from aiocuda._interop.operation import Entered, Framework, Made, capsule_of, require_installed
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import given
from aiocuda.errors import ArgumentTypeError

__all__ = ["Kernel", "kernel"]


class Kernel:
    """A kernel of cuTile's whose launches are operations; made by `kernel`."""

    __slots__ = ("_kernel", "_names", "_title", "_written")

    def __init__(self, kernel: Any, title: str, names: Sequence[str], written: python_source.Found) -> None:
        self._kernel = kernel
        self._title = title
        self._names = names  # of its parameters
        self._written = written

    def __getitem__(self, grid: Any) -> Callable[..., DeviceOp[Any]]:
        """Configure a launch: ``kernel[grid]``.

        Parameters
        ----------
        grid
            The blocks along each axis, a tuple of up to three numbers.

        Returns
        -------
        Callable
            It takes the kernel's arguments by position, and makes the operation. That yields what it writes: an array,
            a tuple of several, or None. *Stream*: as for `aiocuda.call`; the work comes after all that the current
            stream of PyTorch holds at submission, if the program uses it, else the default stream. *Blocks*: while
            cuTile launches, which compiles the kernel the first time. *On cancel*: what was enqueued goes on.

        Raises
        ------
        ArgumentTypeError
            It is no grid; when called: there are more arguments, or fewer, than the kernel has parameters, or what it
            writes is no array.
        """
        if not isinstance(grid, tuple) or not 1 <= len(grid) <= 3:
            raise ArgumentTypeError(
                f"kernel[...] takes a grid of one to three numbers, (n,), not {given.shown(grid)}; the stream is the "
                "operation's"
            )
        tile = _cutile()

        def launch(stream: int, *arguments: Any) -> None:
            tile.launch(stream, grid, self._kernel, arguments)

        def make(*arguments: Any) -> DeviceOp[Any]:
            kernels.require_count(arguments, self._names, self._title)
            return kernels.launched(tile, self._title, launch, arguments, self._names, self._written)

        return make


def kernel(kernel: Any, *, writes: Sequence[str] | None = None) -> Kernel:
    """Make operations of the launches of a kernel of cuTile's.

    Parameters
    ----------
    kernel
        What ``cuda.tile.kernel`` made of a function.
    writes
        The names of the parameters whose arrays it writes. None finds them in its source. There a parameter counts as
        written if that is not clear.

    Returns
    -------
    Kernel
        Launched as ``kernel(add)[grid](x, y, 256)``. Arguments are arrays, operations that yield them, tensors and
        numbers.

    Raises
    ------
    MissingPackageError
        cuTile is not installed.
    ArgumentTypeError
        It is no kernel of cuTile's.
    ArgumentValueError
        It has no parameter of such a name; or its source is not there, and `writes` does not say what it writes.
    """
    _cutile()
    import cuda.tile

    if not isinstance(kernel, cuda.tile.kernel):
        raise ArgumentTypeError(f"kernel takes what cuda.tile.kernel has made of a function, not {given.shown(kernel)}")
    function = kernel._pyfunc
    names = kernels.positional(function)
    title = function.__qualname__
    return Kernel(kernel, title, names, kernels.written(writes, function, names, _Language()))


class _Language:
    """cuTile as Python: its functions and methods store, scatter and add atomically into the array they take first."""

    def python_of(self, called: Any) -> types.FunctionType | None:
        return called if isinstance(called, types.FunctionType) and not self.is_own(called) else None

    def is_own(self, called: Any) -> bool:
        return python_source.is_of(called, "cuda.tile")

    def writes(self, called: Any, name: str) -> bool:
        return name.startswith(("store", "scatter", "atomic"))


@functools.cache
def _cutile() -> _CuTile:
    require_installed("cuda.tile", "cuTile", 'pip install "cuda-tile[tileiras]"')
    return _CuTile()


class _Lent:
    """An array as cuTile takes one: it asks for DLPack, and for no order."""

    __slots__ = ("_array",)

    def __init__(self, array: DeviceArray) -> None:
        self._array = array

    def __dlpack__(self, *, stream: int | None = None) -> object:
        return capsule_of(self._array)


class _CuTile(Framework):
    name = "cuTile"

    def __init__(self) -> None:
        super().__init__()
        import cuda.tile

        self.launch: Callable[..., None] = cuda.tile.launch

    def enter(self, stream: Stream, kept: list[Any] | None) -> Entered:
        torch = sys.modules.get("torch")
        ordinal = stream.device.ordinal
        before = frameworks.STREAMS["torch"](torch)(ordinal) if frameworks.has_cuda(torch) else 0
        return Entered(before, (stream.handle,), None)

    def leave(self, entered: Entered) -> None:
        """There is nothing to go back to: cuTile is told the stream of each launch."""

    def lend(self, array: DeviceArray) -> Any:
        return _Lent(array)

    def was_written(self, lent: Any) -> bool:
        return False

    def found(self, x: Any) -> Made | None:
        return None  # a launch returns nothing
