"""PyTorch: its current stream, its tensors over our memory, and ours over its tensors.

Always true: PyTorch is imported when its first operation is made, and not before.
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
from aiocuda._interop.torch_memory import is_pool_shared
from aiocuda._ops.operation import DeviceOp
from aiocuda._values import dtypes
from aiocuda.errors import ArgumentTypeError, CaptureError

__all__ = ["op"]

_DTYPES = (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
    "float8_e8m0fnu",
)  # fmt: skip


def op(
    function: Callable[..., Any],
    *arguments: Any,
    reads: Sequence[Any] = (),
    writes: Sequence[Any] = (),
    stateless: bool = False,
) -> DeviceOp[Any]:
    """Make an operation of a function of tensors: a whole ``torch.nn.Module``, or what else computes with PyTorch.

    Parameters
    ----------
    function
        Called once, at submission, as ``function(*arguments)``, where PyTorch's current stream is the operation's. It
        must not wait for the device (``.item()``, ``.cpu()``, ``torch.cuda.synchronize()``), nor for another thread
        that submits.
    *arguments
        Anything. In the place of a `DeviceArray`, or of an operation that yields one, the function gets a tensor over
        the same memory, also in tuples, lists and dicts. Such arrays are read, unless `writes` names them.
    reads
        What the function reads besides: arrays that it has by other ways, such as a closure.
    writes
        Arrays, or operations that yield them, that the function writes. A tensor of an array that is not named here
        must not be written in place.
    stateless
        Whether the function keeps nothing from one call to the next. Otherwise calls of one function, or of functions
        of one object, run one after another on the device; a module may have buffers, and a function caches. Functions
        that are written in C, such as ``torch.add``, keep nothing.

    Returns
    -------
    DeviceOp
        What the function returns, with a `DeviceArray` in the place of each tensor on the device, in tuples, lists and
        dicts too; where that is None, what it writes, as for `aiocuda.call`. Tensors are detached from autograd. An
        array keeps its tensor until it is gone and the device has passed all that used it. *Stream*: as for
        `aiocuda.call`; the work comes after all that PyTorch's current stream holds at submission. *Blocks*: for as
        long as the function takes. *On cancel*: what was enqueued goes on.

    Raises
    ------
    MissingPackageError
        PyTorch is not installed.
    ArgumentTypeError
        `function` cannot be called; `reads` or `writes` holds what is no array; when executed: a tensor that is
        returned is sparse, or of a dtype that arrays cannot have, or an argument is page-locked memory.
    ArgumentValueError
        When executed: the function has written in place what `writes` does not name.
    DeviceMismatchError
        When executed: arrays, or tensors that are returned, are on another device.
    CaptureError
        When a graph is made: the function does what no graph can hold, PyTorch is too old, or it takes its memory from
        aiocuda (`share_memory_pool`).

    Notes
    -----
    In a graph (`aiocuda.compile`, `DeviceOp.graph`) the function is called once, and its work captured. PyTorch then
    takes memory from a pool of the graph's own, which each launch writes anew. PyTorch's random numbers, and all that
    waits for the device, are refused by PyTorch or the driver there.
    """
    return operation(_pytorch(), function, arguments, reads, writes, stateless)


@functools.cache
def _pytorch() -> _PyTorch:
    require_installed("torch", "PyTorch", "pip install torch")
    return _PyTorch()


class _PyTorch(Framework):
    name = "PyTorch"

    def __init__(self) -> None:
        super().__init__()
        import torch

        self._torch: Any = torch
        self._inner: Any = torch._C
        # What PyTorch knows a stream by, its identifier, device and kind, by the number that aiocuda gives once.
        self._streams: dict[int, tuple[int, int, int]] = {}
        self._codes = {getattr(torch, name): dtypes.code_named(name) for name in _DTYPES if hasattr(torch, name)}
        if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):  # then native code does what each call needs
            self._use_pytorch(
                tensor=torch.Tensor,
                get_device=self._inner._cuda_getDevice,
                set_device=self._inner._cuda_setDevice,
                get_stream=self._inner._cuda_getCurrentStream,
                set_stream=self._inner._cuda_setStream,
                streams=self._streams,
            )

    # The functions of torch._C are what torch.cuda.current_stream and set_stream call; those take microseconds more.

    def enter(self, stream: Stream, kept: list[Any] | None) -> Entered:
        inner = self._inner
        ordinal = stream.device.ordinal
        ours = self.stream_of(stream, is_kept=kept is None)
        device = inner._cuda_getDevice()
        there = inner._cuda_getCurrentStream(ordinal)
        inside = None if kept is None else self._enter_capture(ordinal, kept)
        try:
            before = inner._cuda_getCurrentRawStream(ordinal)
            inner._cuda_setStream(*ours)  # it makes its device the current one as well
        except BaseException:
            if inside is not None:
                inside.close()
            raise
        return Entered(before, (), (there, device, inside))

    def leave(self, entered: Entered) -> None:
        there, device, inside = entered.back
        self._inner._cuda_setStream(*there)
        if device != there[1]:
            self._inner._cuda_setDevice(device)
        if inside is not None:
            inside.close()

    def stream_of(self, stream: Stream, *, is_kept: bool = True) -> tuple[int, int, int]:
        known = self._streams.get(stream._index)
        if known is None:
            cuda = self._torch.cuda
            cuda.init()
            theirs = cuda.ExternalStream(stream.handle, device=stream.device.ordinal)
            known = (theirs.stream_id, theirs.device_index, theirs.device_type)
            if is_kept:
                self._streams[stream._index] = known
        return known

    def _enter_capture(self, ordinal: int, kept: list[Any]) -> contextlib.ExitStack:
        # Each launch of the graph uses the memory that is given out now. So it comes from a pool of the graph's own.
        torch = self._torch
        if is_pool_shared():
            raise CaptureError(
                "PyTorch takes its memory from aiocuda's memory pool (share_memory_pool), and has none for a graph of "
                "its own; leave this operation out of graphs"
            )
        if not hasattr(torch.cuda, "MemPool") or not hasattr(torch.cuda, "use_mem_pool"):
            raise CaptureError(
                f"PyTorch {torch.__version__} has no torch.cuda.use_mem_pool, which a graph with its work needs; use "
                "PyTorch 2.6 or newer, or leave this operation out of graphs"
            )
        inside = contextlib.ExitStack()
        try:
            # The first use of a library of NVIDIA's takes memory from the driver, which the capture's mode may refuse.
            inside.enter_context(_native.RelaxedCaptures())
            pool = torch.cuda.MemPool()
            kept.append(pool)
            # PyTorch keeps a workspace of cuBLAS's for each stream. That of the capture is the graph's own.
            inside.callback(torch._C._cuda_clearCublasWorkspaces)
            torch._C._cuda_clearCublasWorkspaces()
            inside.enter_context(torch.cuda.use_mem_pool(pool, device=ordinal))
        except BaseException:
            inside.close()
            raise
        return inside

    def lend(self, array: DeviceArray) -> Any:
        return self._torch.from_dlpack(capsule_of(array))

    def was_written(self, lent: Any) -> bool:
        return not lent.is_inference() and bool(lent._version)  # what was written in place has another version

    def found(self, x: Any) -> Made | None:
        torch = self._torch
        if not isinstance(x, torch.Tensor) or not x.is_cuda:
            return None
        if x.layout is not torch.strided:
            raise ArgumentTypeError(f"op: a tensor of layout {x.layout} was returned; return strided ones: .to_dense()")
        code = self._codes.get(x.dtype)
        if code is None:
            raise ArgumentTypeError(f"op: a tensor of {x.dtype} was returned, which arrays cannot have; .view() it")
        if x.requires_grad:
            x = x.detach()
        if x.is_conj():
            x = x.resolve_conj()
        if x.is_neg():
            x = x.resolve_neg()
        strides = None if x.is_contiguous() else tuple(step * x.element_size() for step in x.stride())
        return Made(x.data_ptr(), tuple(x.shape), strides, code, x.get_device(), x)
