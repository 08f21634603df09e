"""Random programs of aiocuda and other libraries: a stand-in, and PyTorch and CuPy themselves on a GPU."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from framework_ops import Adapter, InC
from library_programs import N, run_tasks
from real import QUIET
from torch_like import Torch, close, launch_add

import aiocuda as ac


class Like:
    """A stand-in for PyTorch."""

    def __init__(self, framework: Torch, adapter: Adapter) -> None:
        self.framework, self.adapter = framework, adapter

    def streams(self, count: int) -> list[int]:
        return [self.framework.default_stream, *(self.framework.other_stream() for _ in range(count - 1))]

    def using(self, stream: int) -> contextlib.AbstractContextManager[Any]:
        return self.framework.using(stream)

    def order(self, later: int, earlier: int) -> None:
        self.framework.order(later, earlier)

    def full(self, value: int) -> Any:
        return self.framework.tensor(value, N)

    def add(self, x: Any, y: Any) -> None:
        with self.framework.device_current():
            launch_add(self.framework, x, y)

    def fill(self, x: Any, value: int) -> None:
        x.fill_(value)

    def take(self, x: ac.DeviceArray) -> Any:
        return self.framework.from_dlpack(x)

    def op(self, function: Any, *arguments: Any, writes: Sequence[Any]) -> Any:
        return self.adapter.op(function, *arguments, writes=writes)

    def host(self, x: Any) -> np.ndarray:
        return np.array(x.tolist(), np.int32)


class PyTorch:
    """PyTorch itself."""

    def __init__(self) -> None:
        import torch

        from aiocuda.interop.torch import op

        self.torch: Any = torch
        self.op = op

    def streams(self, count: int) -> list[Any]:
        return [self.torch.cuda.default_stream(), *(self.torch.cuda.Stream() for _ in range(count - 1))]

    def using(self, stream: Any) -> contextlib.AbstractContextManager[Any]:
        found: contextlib.AbstractContextManager[Any] = self.torch.cuda.stream(stream)
        return found

    def order(self, later: Any, earlier: Any) -> None:
        later.wait_stream(earlier)

    def full(self, value: int) -> Any:
        return self.torch.full((N,), value, dtype=self.torch.int32, device="cuda")

    def add(self, x: Any, y: Any) -> None:
        x.add_(y)

    def fill(self, x: Any, value: int) -> None:
        x.fill_(value)

    def take(self, x: ac.DeviceArray) -> Any:
        return self.torch.from_dlpack(x)

    def host(self, x: Any) -> np.ndarray:
        found: np.ndarray = x.cpu().numpy()
        return found


class CuPy:
    """CuPy itself."""

    def __init__(self) -> None:
        import cupy

        from aiocuda.interop.cupy import op

        self.cupy: Any = cupy
        self.op = op

    def streams(self, count: int) -> list[Any]:
        return [self.cupy.cuda.Stream.null, *(self.cupy.cuda.Stream(non_blocking=True) for _ in range(count - 1))]

    def using(self, stream: Any) -> contextlib.AbstractContextManager[Any]:
        found: contextlib.AbstractContextManager[Any] = stream
        return found

    def order(self, later: Any, earlier: Any) -> None:
        later.wait_event(earlier.record())

    def full(self, value: int) -> Any:
        return self.cupy.full(N, value, self.cupy.int32)

    def add(self, x: Any, y: Any) -> None:
        x += y

    def fill(self, x: Any, value: int) -> None:
        x.fill(value)

    def take(self, x: ac.DeviceArray) -> Any:
        return self.cupy.from_dlpack(x)

    def host(self, x: Any) -> np.ndarray:
        found: np.ndarray = self.cupy.asnumpy(x)
        return found


@pytest.fixture(scope="module", params=[InC, Adapter], ids=["exchange", "python"])
def stand_in(request: pytest.FixtureRequest) -> Iterator[Like]:
    """Give a stand-in for a PyTorch with DLPack's exchange in C, and for one before."""
    made = Torch(has_exchange=request.param is InC)
    with made.imported():
        library = Like(made, request.param(made))
    yield library
    close(made)


@pytest.mark.parametrize("seed", range(8))
def test_programs_of_a_stand_in_give_what_numpy_gives(stand_in, kernels, seed):
    with stand_in.framework.imported():  # not longer: beside it, tests import PyTorch itself
        asyncio.run(run_tasks(seed, [stand_in], kernels))


@QUIET
@pytest.mark.parametrize("seed", range(30))
def test_programs_of_pytorch_and_cupy_give_what_numpy_gives(kernels, seed):
    if ac.Device(0).is_emulated:
        pytest.skip("needs a GPU")
    for name in ("torch", "cupy"):
        pytest.importorskip(name)
    asyncio.run(run_tasks(seed, [PyTorch(), CuPy()], kernels))
