"""The stand-in framework as `aiocuda._interop` takes a framework: it is to PyTorch what `framework.Framework` is.

In a capture it gives out memory of a pool of its own, as PyTorch and CuPy do there.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

from exchange_table import Exchange
from framework import CUDA, DataType, Device, DLTensor, Framework, Free, Tensor

import aiocuda as ac
from aiocuda import _native
from aiocuda._interop import operation as operations
from aiocuda._interop.operation import Entered, Made, capsule_of, operation
from aiocuda._values import dtypes


class Adapter(operations.Framework):
    name = "Stand-in"

    def __init__(self, framework: Framework) -> None:
        super().__init__()
        self.framework = framework
        self.pools: list[Free] = []  # of captures, one each

    def enter(self, stream: ac.Stream, kept: list[Any] | None) -> Entered:
        framework = self.framework
        before = framework.current
        inside = contextlib.ExitStack()
        inside.enter_context(framework.using(stream.handle))
        if kept is not None:
            pool = Free()
            inside.callback(setattr, pool, "is_over", True)
            kept.append(pool)
            self.pools.append(pool)
            inside.enter_context(_native.RelaxedCaptures())
            inside.enter_context(framework.allocating_from(pool))
        return Entered(before, (), inside)

    def leave(self, entered: Entered) -> None:
        entered.back.close()

    def lend(self, array: ac.DeviceArray) -> Any:
        return Tensor.taken(self.framework, capsule_of(array))

    def was_written(self, lent: Any) -> bool:
        return lent.version > 0

    def found(self, x: Any) -> Made | None:
        if not isinstance(x, Tensor):
            return None
        return Made(x.address, (x.items,), x.strides, dtypes.code_named("int32"), x.framework.ordinal, x)

    def op(self, function: Any, *arguments: Any, reads: Any = (), writes: Any = (), stateless: bool = False) -> Any:
        return operation(self, function, arguments, reads, writes, stateless)


class InC(Adapter):
    """The same, as native code takes PyTorch: with DLPack's exchange in C, and the functions that set its stream."""

    def __init__(self, framework: Framework) -> None:
        super().__init__(framework)
        self.device = framework.ordinal  # the framework's current one
        self.streams: dict[int, tuple[int, int, int]] = {}
        Tensor.__dlpack_c_exchange_api__ = Exchange(  # type: ignore[attr-defined]
            _described, lambda lent: Tensor.over(framework, lent), lambda _: framework.current
        ).capsule()
        self._use_pytorch(
            tensor=Tensor,
            get_device=lambda: self.device,
            set_device=self._set_device,
            get_stream=lambda ordinal: (framework.current, ordinal, 1),
            set_stream=self._set_stream,
            streams=self.streams,
        )
        del Tensor.__dlpack_c_exchange_api__  # type: ignore[attr-defined]

    def stream_of(self, stream: ac.Stream) -> tuple[int, int, int]:
        return self.streams.setdefault(stream._index, (stream.handle, stream.device.ordinal, 1))

    def _set_device(self, ordinal: int) -> None:
        self.device = ordinal

    def _set_stream(self, handle: int, ordinal: int, kind: int) -> None:
        assert kind == 1
        self.framework._local.stream, self.device = handle, ordinal


def _described(tensor: Tensor) -> DLTensor:
    steps = (4,) if tensor.strides is None else tensor.strides
    tensor.described = (ctypes.c_int64 * 1)(tensor.items), (ctypes.c_int64 * 1)(steps[0] // 4)  # type: ignore[attr-defined]
    place = Device(CUDA, tensor.framework.ordinal)
    return DLTensor(tensor.address, place, 1, DataType(0, 32, 1), *tensor.described, 0)  # type: ignore[attr-defined]
