"""The same step on PyTorch's tensors and its current stream, by the same kernels: those of kernels.cu, and of cuBLAS.

Kernels are launched through cuda.core, and cuBLAS is called as aiocuda calls it, so that its heuristics choose the same
kernels. That costs some microseconds each, and nothing later: a step is captured once for each bucket, and replayed.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch
from cuda.pathfinder import find_nvidia_header_directory
from model import PICK, READERS, ROW, SOURCE, TIMES, WARP, block_for
from nvmath import CudaDataType
from nvmath.bindings import cublas
from sizes import PAGE, HostWeights, Layer, Sizes, turns

WORKSPACE_BYTES = 32 << 20  # as aiocuda has it on Hopper and newer (documentation of cublasSetWorkspace)
KERNELS = ("embed", "rms_norm", "rms_norm_picked", "rotate_and_keep", "swiglu", "choose")


class TorchDecoder:
    """A transformer on a GPU. `step` enqueues a step on PyTorch's current stream."""

    def __init__(self, sizes: Sizes, weights: HostWeights) -> None:
        self.sizes = sizes
        torch.cuda.init()
        Device(torch.cuda.current_device()).set_current()
        self._embedding, self._gain = on_gpu(weights.embedding), on_gpu(weights.gain)
        self._layers = [Layer(*map(on_gpu, vars(layer).values())) for layer in weights.layers]
        self._turns = torch.from_numpy(turns(sizes)).cuda()
        kept = (sizes.layers, 2, sizes.pages, PAGE, sizes.kv_heads, sizes.head_width)
        self._caches = torch.zeros(kept, dtype=torch.bfloat16, device="cuda")
        self._last = torch.zeros(sizes.slots, dtype=torch.int32, device="cuda")
        self._clock = torch.zeros(2, dtype=torch.int64, device="cuda")
        self._kernels = compiled(f"attend<{sizes.head_width}, {READERS}>")
        self._blas = cublas.create()
        self._workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")

    def step(self, plan: torch.Tensor, chosen: torch.Tensor, bucket: int) -> None:
        """Enqueue a step of so many rows, as `plan` says, which writes its tokens and times to `chosen`."""
        sizes, width = self.sizes, self.sizes.width
        tables = plan
        picks = tables[sizes.slots * sizes.pages_each :]
        rows = picks[PICK * sizes.slots :]
        assert rows.numel() >= ROW * bucket
        assert chosen.numel() >= min(bucket, sizes.slots) + TIMES
        picked, block = min(bucket, sizes.slots), block_for(width)
        x = self._new(bucket, width)
        self._launch("embed", bucket, block, self._embedding, rows, self._last, x, width, self._clock)
        for layer, (keys, values) in zip(self._layers, self._caches, strict=True):
            self._attention(layer, keys, values, x, rows, tables, bucket)
            self._mlp(layer, x, bucket)
        normed = self._new(picked, width)
        self._launch("rms_norm_picked", picked, block, x, self._gain, picks, normed, width)
        logits = self._new(picked, sizes.vocabulary)
        self._times(normed, self._embedding, logits)
        block = block_for(sizes.vocabulary)
        self._launch("choose", picked, block, logits, picks, rows, self._last, chosen, sizes.vocabulary, self._clock)

    def _normal(self, x: torch.Tensor, gain: torch.Tensor, count: int) -> torch.Tensor:
        normed, width = torch.empty_like(x), self.sizes.width
        self._launch("rms_norm", count, block_for(width), x, gain, normed, width)
        return normed

    def _attention(
        self, layer: Any, keys: Any, values: Any, x: torch.Tensor, rows: torch.Tensor, tables: torch.Tensor, count: int
    ) -> None:
        sizes = self.sizes
        shared = sizes.heads, sizes.kv_heads
        projected = self._new(count, sizes.projected)
        self._times(self._normal(x, layer.attention_gain, count), layer.projection, projected)
        grid, block = (sizes.heads + 2 * sizes.kv_heads, count), block_for(sizes.head_width // 2)
        placed = projected, self._turns, rows, tables, keys, values, *shared, sizes.head_width, sizes.pages_each
        self._launch("rotate_and_keep", grid, block, *placed)
        mixed = self._new(count, sizes.heads * sizes.head_width)
        given = projected, rows, tables, keys, values, mixed, *shared, sizes.pages_each
        self._launch("attend", (sizes.heads, count), READERS * WARP, *given)
        self._times(mixed, layer.output, x, is_added=True)

    def _mlp(self, layer: Any, x: torch.Tensor, count: int) -> None:
        hidden, block = self.sizes.hidden, block_for(self.sizes.hidden)
        both = self._new(count, 2 * hidden)
        self._times(self._normal(x, layer.mlp_gain, count), layer.gate_and_up, both)
        through = self._new(count, hidden)
        self._launch("swiglu", (-(-hidden // block), count), block, both, through, hidden)
        self._times(through, layer.down, x, is_added=True)

    def _new(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.bfloat16, device="cuda")

    def _times(self, x: torch.Tensor, matrix: torch.Tensor, out: torch.Tensor, is_added: bool = False) -> None:
        """Enqueue rows times a matrix that has a row for each output, in the terms of cuBLAS, which counts columns."""
        (rows, inner), columns = x.shape, matrix.shape[0]
        alpha, beta = np.ones(1, np.float32), np.full(1, is_added, np.float32)
        kind, operation = CudaDataType.CUDA_R_16BF, cublas.Operation
        cublas.set_stream(self._blas, torch.cuda.current_stream().cuda_stream)  # which takes the workspace away
        cublas.set_workspace(self._blas, self._workspace.data_ptr(), WORKSPACE_BYTES)
        cublas.gemm_strided_batched_ex_64(
            self._blas, operation.T, operation.N, columns, rows, inner,
            alpha.ctypes.data, matrix.data_ptr(), kind, inner, 0, x.data_ptr(), kind, inner, 0,
            beta.ctypes.data, out.data_ptr(), kind, columns, 0, 1,
            cublas.ComputeType.COMPUTE_32F, cublas.GemmAlgo.DEFAULT,
        )  # fmt: skip

    def _launch(self, name: str, grid: int | tuple[int, int], block: int, *arguments: Any) -> None:
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        # cuda.core takes a plain int for an address of 8 bytes, and refuses a c_void_p.
        given = [each.data_ptr() if isinstance(each, torch.Tensor) else ctypes.c_int(each) for each in arguments]
        launch(stream, LaunchConfig(grid=grid, block=block), self._kernels[name], *given)


def on_gpu(array: Any) -> torch.Tensor:
    """Bring bfloat16 numbers of NumPy to the GPU; PyTorch takes them as what it knows."""
    return torch.from_numpy(array.view(np.int16)).cuda().view(torch.bfloat16)


def compiled(attend: str) -> dict[str, Any]:
    """Compile kernels.cu for the GPU, by the kernels' names."""
    found = (find_nvidia_header_directory(name) for name in ("cudart", "cccl"))
    headers = [directory for directory in found if directory]
    options = ProgramOptions(std="c++17", arch=f"sm_{Device().arch}", include_path=headers)
    code = Program(SOURCE, "c++", options).compile("cubin", name_expressions=(*KERNELS, attend))
    return {name.partition("<")[0]: code.get_kernel(name) for name in (*KERNELS, attend)}
