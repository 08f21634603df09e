"""A stand-in for PyTorch: its tensors, as far as aiocuda looks at them, over the strict framework of `framework.py`.

Its stream is current in a thread, its allocator gives out blocks again at once, and versions count what was written. It
runs real work on the driver, and orders nothing by itself.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cuda.bindings import driver
from exchange_table import Exchange
from framework import CUDA, LEGACY, DataType, Device, DLTensor, Framework, Tensor, Versioned, checked

import aiocuda as ac

ITEM_BYTES = 4
CPU = 1


class DType:
    def __init__(self, name: str) -> None:
        self.name, self.is_complex = name, name.startswith("complex")

    def __repr__(self) -> str:
        return f"torch.{self.name}"


class Torch(Framework):
    """One device of it; `module` is what stands in ``sys.modules``.

    Parameters
    ----------
    has_exchange
        Whether its tensors have DLPack's exchange in C, as those of PyTorch have from version 2.10 on.
    """

    def __init__(self, ordinal: int = 0, *, has_exchange: bool = False) -> None:
        super().__init__(ordinal)
        with self.device_current():
            add_into(ordinal)  # to load a kernel waits for the device, which a test may hold later
        self.int32 = DType("int32")
        self.asked_streams = 0
        self.Tensor = type("Tensor", (TensorOf,), {"__module__": "torch", "torch": self})
        self.module: Any = types.ModuleType("torch")
        self.module.Tensor = self.Tensor
        self.module.__version__ = "2.15.0"
        self.module.cuda = types.SimpleNamespace(current_stream=self._current_stream)
        self.module.autograd = types.SimpleNamespace(graph=types.SimpleNamespace(increment_version=self._count))
        self.counted = 0  # how often it was told of writes by the function in C
        if has_exchange:
            self.Tensor.__dlpack_c_exchange_api__ = Exchange(_described, self._taken, self._current_handle).capsule()
            self.module._C = types.SimpleNamespace(_increment_version=self._count_all)

    def _current_handle(self, ordinal: int) -> int:
        assert ordinal == self.ordinal
        self.asked_streams += 1
        return 0 if self.current == LEGACY else self.current

    def _current_stream(self, ordinal: int) -> Any:
        return types.SimpleNamespace(cuda_stream=self._current_handle(ordinal))

    def _taken(self, lent: Versioned) -> Any:
        return self.Tensor.over(self, lent)

    def _count_all(self, tensors: list[Any]) -> None:
        self.counted += 1
        for tensor in tensors:
            if not tensor.inference:
                self._count(tensor)

    def _count(self, tensor: Any) -> None:
        assert not tensor.inference
        tensor._version += 1

    def tensor(self, value: int, items: int) -> Any:
        made = self.Tensor(self, self.allocate(items), items)
        made.stream, made.free = self.current, self._free
        return made.fill_(value)

    def other_stream(self) -> int:
        with self.device_current():
            return self.stream()

    @contextmanager
    def imported(self) -> Iterator[Torch]:
        before = sys.modules.get("torch")
        sys.modules["torch"] = self.module
        try:
            yield self
        finally:
            if before is None:
                del sys.modules["torch"]
            else:
                sys.modules["torch"] = before


def _described(tensor: Any) -> DLTensor | None:
    """Describe what PyTorch's exchange describes: also what requires a gradient, or is to be negated."""
    bits = {"int32": 32, "complex64": 64}.get(tensor.dtype.name)
    if tensor.is_sparse or bits is None:
        return None
    axes = len(tensor.shape)
    tensor.described = (ctypes.c_int64 * axes)(*tensor.shape), (ctypes.c_int64 * axes)(*tensor.steps)
    ordinal = tensor.get_device()
    place = Device(CPU, 0) if ordinal < 0 else Device(CUDA, ordinal)
    kind = DataType(5 if tensor.dtype.is_complex else 0, bits, 1)
    return DLTensor(tensor.data_ptr(), place, axes, kind, *tensor.described, 0)


class TensorOf(Tensor):
    """What aiocuda reads of a tensor; a class of its own for each framework, as that is what aiocuda remembers."""

    __torch_dispatch__ = None
    torch: Torch
    requires_grad = False
    device_ordinal: int | None = None
    _version = 0  # of what it was told

    def __init__(self, framework: Framework, address: int, items: int) -> None:
        super().__init__(framework, address, items)
        self.shape: tuple[int, ...] = (items,)
        self.steps: tuple[int, ...] = (1,)
        self.conj = self.neg = False
        self.dtype = self.torch.int32
        self.is_sparse = False
        self.inference = False
        self.base: Any = None

    def get_device(self) -> int:
        return self.framework.ordinal if self.device_ordinal is None else self.device_ordinal

    def is_inference(self) -> bool:
        return self.inference

    def is_conj(self) -> bool:
        return self.conj

    def is_neg(self) -> bool:
        return self.neg

    def is_contiguous(self) -> bool:
        if self.is_sparse:
            raise RuntimeError("sparse tensors do not have is_contiguous")
        return self.steps == (1,) or self.items <= 1

    def stride(self) -> tuple[int, ...]:
        return self.steps

    def element_size(self) -> int:
        return ITEM_BYTES

    def data_ptr(self) -> int:
        return self.address

    def __getitem__(self, part: slice) -> Any:
        begin, end, step = part.indices(self.items)
        view = type(self)(self.framework, self.address + begin * ITEM_BYTES, len(range(begin, end, step)))
        view.steps, view.base = (step,), self
        return view

    def add_(self, other: Any) -> Any:
        """Add another tensor, by a kernel that aiocuda knows nothing of."""
        with self.framework.device_current():
            launch_add(self.framework, self, other)
        return self


SOURCE = rb"""
extern "C" __global__ void add_into(int* x, const int* y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += y[i];
}
"""


def launch_add(framework: Framework, x: Any, y: Any) -> None:
    import numpy as np

    values = (np.array([x.address], np.uint64), np.array([y.address], np.uint64), np.array([x.items], np.uint32))
    packed = np.array([each.ctypes.data for each in values], np.uint64)
    checked(
        driver.cuLaunchKernel(
            *(add_into(framework.ordinal), (x.items + 63) // 64, 1, 1, 64, 1, 1, 0),
            *(framework.current, packed.ctypes.data, 0),
        )
    )


@functools.cache
def add_into(ordinal: int) -> Any:
    from cuda.core import Device, Program, ProgramOptions

    major, minor = Device(ordinal).compute_capability
    code = Program(SOURCE.decode(), "c++", ProgramOptions(arch=f"sm_{major}{minor}")).compile("cubin").code
    module = checked(driver.cuModuleLoadData(code))
    return checked(driver.cuModuleGetFunction(module, b"add_into"))


def close(framework: Framework) -> None:
    import gc

    for _ in range(2):  # aiocuda lets go of tensors when somebody next submits
        gc.collect()
        ac.Device(framework.ordinal).synchronize().sync()
        ac.zeros(1).sync()
    framework.close()
