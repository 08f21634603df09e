"""The server's model on PyTorch, as far as it can be held without PyTorch and a GPU: what its launches are given."""

from __future__ import annotations

import ctypes
import importlib
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import model
import numpy as np
import pytest
from cuda.core._kernel_arg_handler import ParamHolder  # what `launch` packs arguments with
from sizes import TINY, draw_weights


class Tensor:
    """As much of a tensor as the model uses; its memory is NumPy's."""

    def __init__(self, data: np.ndarray) -> None:
        self.data, self.shape = data, data.shape

    def __getitem__(self, key: Any) -> Tensor:
        return Tensor(self.data[key])

    def __iter__(self) -> Iterator[Tensor]:
        return (Tensor(each) for each in self.data)

    def cuda(self) -> Tensor:
        return self

    def view(self, dtype: Any) -> Tensor:
        return Tensor(self.data.view(dtype))

    def numel(self) -> int:
        return int(self.data.size)

    def data_ptr(self) -> int:
        return self.data.ctypes.data


def zeros(*shape: Any, dtype: Any, device: str) -> Tensor:
    assert device == "cuda"
    return Tensor(np.zeros(shape[0] if isinstance(shape[0], tuple) else shape, dtype))


@pytest.fixture
def torch_model(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, with stand-ins for PyTorch, for cuBLAS, and for the device."""
    stream = types.SimpleNamespace(cuda_stream=0x5712EA)
    torch = types.SimpleNamespace(
        Tensor=Tensor, bfloat16=np.uint16, int32=np.int32, int64=np.int64, uint8=np.uint8,
        zeros=zeros, empty=zeros, empty_like=lambda x: Tensor(np.zeros_like(x.data)), from_numpy=Tensor,
        cuda=types.SimpleNamespace(init=lambda: None, current_device=lambda: 0, current_stream=lambda: stream),
    )  # fmt: skip
    blas = types.SimpleNamespace(
        create=lambda: 1, set_stream=lambda *_: None, set_workspace=lambda *_: None,
        gemm_strided_batched_ex_64=lambda *_: None, Operation=types.SimpleNamespace(T=1, N=0),
        ComputeType=types.SimpleNamespace(COMPUTE_32F=68), GemmAlgo=types.SimpleNamespace(DEFAULT=-1),
    )  # fmt: skip
    nvmath = types.SimpleNamespace(CudaDataType=types.SimpleNamespace(CUDA_R_16BF=14))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "nvmath", nvmath)
    monkeypatch.setitem(sys.modules, "nvmath.bindings", types.SimpleNamespace(cublas=blas))
    monkeypatch.delitem(sys.modules, "torch_model", raising=False)
    module: Any = importlib.import_module("torch_model")
    monkeypatch.setattr(module, "Device", lambda _: types.SimpleNamespace(set_current=lambda: None))
    monkeypatch.setattr(module, "Stream", types.SimpleNamespace(from_handle=lambda handle: handle))
    monkeypatch.setattr(module, "compiled", lambda attend: {name: name for name in (*module.KERNELS, "attend")})
    yield module
    sys.modules.pop("torch_model", None)


def parameters_of(kernel: str) -> list[type[Any]]:
    """The types of a kernel's parameters, as kernels.cu declares them: addresses and ints."""
    (declared,) = re.findall(
        rf"__global__ void [^;{{]*?\b{kernel}\(([^)]*)\) {{", model.SOURCE.replace("(READERS * WARP)", "")
    )
    return [ctypes.c_void_p if "*" in each else ctypes.c_int for each in declared.split(",")]


def test_launches_give_kernels_what_they_declare(torch_model, monkeypatch):
    launched: list[str] = []

    def launch(stream: int, config: Any, kernel: str, *given: Any) -> None:
        packed = ParamHolder(given)
        assert stream == 0x5712EA
        kinds = parameters_of(kernel)
        assert len(given) == len(kinds), kernel
        places = (ctypes.c_void_p * len(given)).from_address(packed.ptr)
        for place, kind, each in zip(places, kinds, given, strict=True):
            assert isinstance(each, int) == (kind is ctypes.c_void_p), kernel
            assert kind.from_address(place).value == getattr(each, "value", each)
        launched.append(kernel)

    monkeypatch.setattr(torch_model, "launch", launch)
    decoder = torch_model.TorchDecoder(TINY, draw_weights(TINY))
    for bucket in TINY.buckets:
        plan = zeros(TINY.slots * (TINY.pages_each + model.PICK) + model.ROW * bucket, dtype=np.int32, device="cuda")
        decoder.step(plan, zeros(TINY.slots + model.TIMES, dtype=np.int32, device="cuda"), bucket)
    assert set(launched) == {*torch_model.KERNELS, "attend"}
    assert len(launched) == len(TINY.buckets) * (3 + 5 * TINY.layers)
