"""Warp: its current stream, its arrays over our memory, and ours over its arrays.

Always true: Warp is imported when its first operation is made, and not before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

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
    """Make an operation of a function that launches kernels of Warp.

    Parameters
    ----------
    function
        Called once, at submission, as ``function(*arguments)``, where the stream and the device of Warp's are the
        operation's. It must not wait for the device (``.numpy()``, ``wp.synchronize()``), nor for another thread that
        submits. All threads share Warp's stream of a device, so no other thread may use Warp meanwhile.
    *arguments, reads, writes, stateless
        As for `aiocuda.interop.torch.op`, with ``wp.array`` in the place of tensors, whose items are scalars. Warp does
        not tell what was written: name all of it in `writes`.

    Returns
    -------
    DeviceOp
        As for `aiocuda.interop.torch.op`; vectors and matrices of an array of Warp's become axes. *Stream*: as for
        `aiocuda.call`; the work comes after all that Warp's stream of the device holds at submission. *Blocks*: for as
        long as the function takes, which compiles modules the first time. *On cancel*: what was enqueued goes on.

    Raises
    ------
    MissingPackageError
        Warp is not installed.
    ArgumentTypeError, ArgumentValueError, DeviceMismatchError, CaptureError
        As for `aiocuda.interop.torch.op`.

    Notes
    -----
    In a graph the function is called once, and its work captured. Load its modules before (``wp.load_module``), and
    give it what it writes.
    """
    return operation(framework(), function, arguments, reads, writes, stateless)


@functools.cache
def framework() -> _Warp:
    """Return Warp as operations use it.

    Raises
    ------
    MissingPackageError
        Warp is not installed.
    """
    require_installed("warp", "Warp", "pip install warp-lang")
    return _Warp()


class _Warp(Framework):
    name = "Warp"

    def __init__(self) -> None:
        super().__init__()
        import warp

        self._warp: Any = warp
        warp.init()
        self._streams: dict[int, Any] = {}  # by the number that aiocuda gives to a stream once

    def enter(self, stream: Stream, kept: list[Any] | None) -> Entered:
        warp = self._warp
        device = warp.get_device(f"cuda:{stream.device.ordinal}")
        before = device.stream
        scope = warp.ScopedStream(self._stream_of(stream, device, is_kept=kept is None), sync_enter=False)
        scope.__enter__()
        return Entered(int(before.cuda_stream or 0), (), scope)

    def leave(self, entered: Entered) -> None:
        entered.back.__exit__(None, None, None)

    def _stream_of(self, stream: Stream, device: Any, *, is_kept: bool) -> Any:
        known = self._streams.get(stream._index)
        if known is None:
            known = self._warp.Stream(device, cuda_stream=stream.handle)
            if is_kept:
                self._streams[stream._index] = known
        return known

    def lend(self, array: DeviceArray) -> Any:
        return self._warp.from_dlpack(capsule_of(array))

    def was_written(self, lent: Any) -> bool:
        return False

    def found(self, x: Any) -> Made | None:
        if not isinstance(x, self._warp.array) or not x.device.is_cuda:
            return None
        interface = x.__cuda_array_interface__
        code = dtypes.code_of(dtypes.to_dtype(interface["typestr"]))
        strides = None if x.is_contiguous else interface["strides"]
        return Made(interface["data"][0] or 0, tuple(interface["shape"]), strides, code, x.device.ordinal, x)
