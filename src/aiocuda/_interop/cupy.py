"""CuPy: its current stream, its arrays over our memory, and ours over its arrays.

Always true: CuPy is imported when its first operation is made, and not before.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray
from aiocuda._devices.device import Stream
from aiocuda._interop.operation import Entered, Framework, Made, capsule_of, operation, require_installed
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import dtypes

__all__ = ["framework", "op"]


def op(
    function: Callable[..., Any],
    *arguments: Any,
    reads: Sequence[Any] = (),
    writes: Sequence[Any] = (),
    stateless: bool = False,
) -> DeviceOp[Any]:
    """Make an operation of a function of CuPy's arrays.

    Parameters
    ----------
    function
        Called once, at submission, as ``function(*arguments)``, where CuPy's current stream is the operation's. It must
        not wait for the device (``.get()``, ``.item()``, ``cupy.asnumpy()``), nor for another thread that submits.
    *arguments, reads, writes, stateless
        As for `aiocuda.interop.torch.op`, with ``cupy.ndarray`` in the place of tensors. CuPy does not tell what was
        written in place: name all of it in `writes`.

    Returns
    -------
    DeviceOp
        As for `aiocuda.interop.torch.op`. *Stream*: as for `aiocuda.call`; the work comes after all that CuPy's current
        stream holds at submission. *Blocks*: for as long as the function takes, which compiles kernels the first time.
        *On cancel*: what was enqueued goes on.

    Raises
    ------
    MissingPackageError
        CuPy is not installed.
    ArgumentTypeError, ArgumentValueError, DeviceMismatchError, CaptureError
        As for `aiocuda.interop.torch.op`; or an array that is returned has negative strides.

    Notes
    -----
    In a graph the function is called once, and its work captured. CuPy then takes memory from a pool of the graph's
    own.
    """
    return operation(framework(), function, arguments, reads, writes, stateless)


@functools.cache
def framework() -> _CuPy:
    """Return CuPy as operations use it.

    Raises
    ------
    MissingPackageError
        CuPy is not installed.
    """
    require_installed("cupy", "CuPy", "pip install cupy-cuda13x")
    return _CuPy()


class _CuPy(Framework):
    name = "CuPy"

    def __init__(self) -> None:
        super().__init__()
        import cupy

        self._cupy: Any = cupy
        self._streams: dict[int, Any] = {}  # by the number that aiocuda gives to a stream once

    def enter(self, stream: Stream, kept: list[Any] | None) -> Entered:
        cuda = self._cupy.cuda
        ordinal = stream.device.ordinal
        before = cuda.get_current_stream(ordinal)
        is_there = cuda.runtime.getDevice() == ordinal
        if is_there and kept is None:
            ours = self._stream_of(stream, is_kept=True)
            ours.__enter__()
            return Entered(before.ptr, (), ours.__exit__)
        inside = contextlib.ExitStack()
        try:
            if not is_there:
                inside.enter_context(cuda.Device(ordinal))
            inside.enter_context(self._stream_of(stream, is_kept=kept is None))
            if kept is not None:  # each launch of the graph uses the memory that is given out now
                pool = cuda.MemoryPool()
                kept.append(pool)
                inside.enter_context(_native.RelaxedCaptures())
                inside.enter_context(cuda.using_allocator(pool.malloc))
        except BaseException:
            inside.close()
            raise
        return Entered(before.ptr, (), inside.close)

    def leave(self, entered: Entered) -> None:
        entered.back()

    def _stream_of(self, stream: Stream, *, is_kept: bool) -> Any:
        known = self._streams.get(stream._index)
        if known is None:
            cuda = self._cupy.cuda
            if hasattr(cuda.Stream, "from_external"):
                known = cuda.Stream.from_external(stream)
            else:
                known = cuda.ExternalStream(stream.handle, stream.device.ordinal)
            if is_kept:
                self._streams[stream._index] = known
        return known

    def lend(self, array: DeviceArray) -> Any:
        cupy = self._cupy
        keeper = capsule_of(array, is_untyped=True)
        end_bytes, strides = array._size_bytes, None
        if not array._is_contiguous:
            strides = array.strides
            steps = zip(array.shape, strides, strict=True)
            end_bytes += sum((extent - 1) * step for extent, step in steps if extent)
        memory = cupy.cuda.UnownedMemory(array._address, end_bytes, keeper, array._device)
        pointer = cupy.cuda.MemoryPointer(memory, 0)
        return cupy.ndarray(array.shape, array.dtype, pointer, strides)

    def was_written(self, lent: Any) -> bool:
        return False

    def found(self, x: Any) -> Made | None:
        if not isinstance(x, self._cupy.ndarray):
            return None
        strides = None if x.flags.c_contiguous else x.strides
        data = x.data
        return Made(data.ptr, x.shape, strides, _code_of(x.dtype), data.device_id, x)


@functools.cache
def _code_of(dtype: Any) -> int:
    return dtypes.code_of(dtypes.to_dtype(dtype))
