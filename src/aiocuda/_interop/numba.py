"""Numba: our stream as one of its own, its arrays over our memory, and ours over its arrays.

Always true: Numba is imported when its first operation is made, and not before.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

from aiocuda._arrays.array import DeviceArray
from aiocuda._devices.device import Stream
from aiocuda._interop.operation import Entered, Made, capsule_of, operation, require_installed
from aiocuda._ops.operation import DeviceOp

__all__ = ["op"]


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


@functools.cache
def _numba() -> _Numba:
    require_installed("numba_cuda", "Numba-CUDA", 'pip install "numba-cuda[cu13]"')
    return _Numba()


class _Numba:
    name = "Numba"

    def __init__(self) -> None:
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
        return Made(theirs.device_ctypes_pointer.value or 0, theirs.shape, strides, theirs.dtype, ordinal, x)
