"""Numba: our stream as one of its own, its arrays over our memory, and ours over its arrays.

Always true: Numba is imported when its first operation is made, and not before.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

from aiocuda._arrays.array import DeviceArray
from aiocuda._devices.device import Stream
from aiocuda._interop import kernels, python_source
from aiocuda._interop.operation import Entered, Framework, Made, capsule_of, operation, require_installed
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import dtypes, given
from aiocuda.errors import ArgumentTypeError

__all__ = ["Kernel", "kernel", "op"]


def op(
    function: Callable[..., Any],
    *arguments: Any,
    reads: Sequence[Any] = (),
    writes: Sequence[Any] = (),
    stateless: bool = False,
) -> DeviceOp[Any]:
    """Make an operation of a function that launches kernels of Numba-CUDA.

    Parameters
    ----------
    function
        Called once, at submission, as ``function(stream, *arguments)``. Numba has no current stream: give `stream`,
        which is Numba's, to each launch, ``kernel[grid, block, stream](x)``, and to ``cuda.device_array(stream=...)``.
        The function must not wait for the device, as a launch with an array of NumPy's does, nor for another thread
        that submits.
    *arguments, reads, writes, stateless
        As for `aiocuda.interop.torch.op`, with Numba's device arrays in the place of tensors. Numba does not tell what
        was written: name all of it in `writes`.

    Returns
    -------
    DeviceOp
        As for `aiocuda.interop.torch.op`. *Stream*: as for `aiocuda.call`; the work comes after all that Numba's
        default stream holds at submission. *Blocks*: for as long as the function takes, which compiles kernels the
        first time. *On cancel*: what was enqueued goes on.

    Raises
    ------
    MissingPackageError
        Numba-CUDA is not installed.
    ArgumentTypeError, ArgumentValueError, DeviceMismatchError, CaptureError
        As for `aiocuda.interop.torch.op`.

    Notes
    -----
    In a graph the function is called once, and its work captured. It must make no arrays there, as Numba asks the
    driver for their memory: give it what it writes.
    """
    return operation(_numba(), function, arguments, reads, writes, stateless)


class Kernel:
    """A kernel of Numba's whose launches are operations; made by `kernel`."""

    __slots__ = ("_kernel", "_names", "_written")

    def __init__(self, kernel: Any, names: Sequence[str], written: python_source.Found) -> None:
        self._kernel = kernel
        self._names = names  # of its parameters
        self._written = written

    def __getitem__(self, configuration: Any) -> Callable[..., DeviceOp[Any]]:
        """Configure a launch, as in Numba but without a stream: ``kernel[grid, block]`` or ``[grid, block, shared]``.

        Parameters
        ----------
        configuration
            The blocks of the grid and the threads of a block, as numbers or tuples of up to three; and the bytes of
            dynamic shared memory, if there are any.

        Returns
        -------
        Callable
            It takes the kernel's arguments by position, and makes the operation. That yields what it writes: an array,
            a tuple of several, or None. *Stream*, *Blocks*, *On cancel*: as for `op`.

        Raises
        ------
        ArgumentTypeError
            It is no such tuple; when called: there are more arguments, or fewer, than the kernel has parameters, or
            what it writes is no array.
        """
        if not isinstance(configuration, tuple) or len(configuration) not in (2, 3):
            raise ArgumentTypeError(
                f"kernel[...] takes (grid, block) or (grid, block, shared bytes), not {given.shown(configuration)}; "
                "the stream is the operation's"
            )
        grid, block = configuration[:2]
        shared_bytes = configuration[2] if len(configuration) == 3 else 0

        def launch(stream: Any, *arguments: Any) -> None:
            self._kernel[grid, block, stream, shared_bytes](*arguments)

        title = self._kernel.py_func.__qualname__

        def make(*arguments: Any) -> DeviceOp[Any]:
            kernels.require_count(arguments, self._names, title)
            return kernels.launched(_numba(), title, launch, arguments, self._names, self._written)

        return make


def kernel(kernel: Any, *, writes: Sequence[str] | None = None) -> Kernel:
    """Make operations of the launches of a kernel of Numba's.

    Parameters
    ----------
    kernel
        What ``cuda.jit`` made of a function.
    writes
        The names of the parameters whose arrays it writes. It reads all other arrays. None finds them in its source.
        There a parameter counts as written if that is not clear.

    Returns
    -------
    Kernel
        Launched as in Numba, without a stream: ``kernel(add)[grid, block](a, x, y)``. Arguments are arrays, operations
        that yield them, tensors and numbers.

    Raises
    ------
    MissingPackageError
        Numba-CUDA is not installed.
    ArgumentTypeError
        It is no kernel of Numba's, or has parameters of variable number.
    ArgumentValueError
        It has no parameter of such a name; or its source is not there, and `writes` does not say what it writes.
    """
    _numba()
    function = getattr(kernel, "py_func", None)
    if function is None:
        raise ArgumentTypeError(f"kernel takes what cuda.jit has made of a function, not {given.shown(kernel)}")
    names = kernels.positional(function)
    return Kernel(kernel, names, kernels.written(writes, function, names, _Language()))


class _Language:
    """Numba as Python: of its functions, those that store and the atomic ones write the array that they take first."""

    def python_of(self, called: Any) -> types.FunctionType | None:
        function = getattr(called, "py_func", None)
        return function if isinstance(function, types.FunctionType) else None

    def is_own(self, called: Any) -> bool:
        return python_source.is_of(called, "numba")

    def writes(self, called: Any, name: str) -> bool | None:
        from numba import types as of_numba

        if str(getattr(called, "__qualname__", "")).startswith(("atomic.", "stcg", "stcs", "stwb", "stwt")):
            return True
        is_known = isinstance(called, (type, types.FunctionType, types.BuiltinFunctionType, of_numba.Type))
        return False if is_known else None  # a function of another language, which the user has declared


@functools.cache
def _numba() -> _Numba:
    require_installed("numba_cuda", "Numba-CUDA", 'pip install "numba-cuda[cu13]"')
    return _Numba()


class _Numba(Framework):
    name = "Numba"

    def __init__(self) -> None:
        super().__init__()
        from numba import cuda

        self._cuda: Any = cuda

    def enter(self, stream: Stream, kept: list[Any] | None) -> Entered:
        cuda = self._cuda
        inside = contextlib.ExitStack()
        try:
            inside.enter_context(cuda.gpus[stream.device.ordinal])
            if kept is not None:  # to free memory is no work of a stream's, and would end the capture
                inside.enter_context(cuda.defer_cleanup())
            return Entered(int(cuda.default_stream().handle), (cuda.external_stream(stream.handle),), inside)
        except BaseException:
            inside.close()
            raise

    def leave(self, entered: Entered) -> None:
        entered.back.close()

    def lend(self, array: DeviceArray) -> Any:
        interface = {
            "version": 3,
            "shape": array.shape,
            "strides": None if array._is_contiguous else array.strides,
            "typestr": array.dtype.str,
            "data": (array._address, False),
            "stream": None,
        }
        keeper = capsule_of(array, is_untyped=True)
        return self._cuda.from_cuda_array_interface(interface, owner=keeper, sync=False)

    def was_written(self, lent: Any) -> bool:
        return False

    def found(self, x: Any) -> Made | None:
        if not self._cuda.is_cuda_array(x):
            return None
        theirs = self._cuda.as_cuda_array(x, sync=False)
        strides = None if theirs.flags["C_CONTIGUOUS"] else theirs.strides
        ordinal = theirs.gpu_data.context.device.id
        code = dtypes.code_of(dtypes.to_dtype(theirs.dtype))
        return Made(theirs.device_ctypes_pointer.value or 0, theirs.shape, strides, code, ordinal, x)
