"""Triton: the same kernel in its language, on PyTorch's tensors and stream."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from aiocuda._bench.work import BLOCK, GRID, ITEMS, Work

__all__ = ["connect"]


def _scale(y, x, g, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(g + i, mask=i < n) * tl.load(x + i, mask=i < n), mask=i < n)


class _Triton:
    name = "Triton"

    def __init__(self, work: Work) -> None:
        device = torch.device("cuda", work.device.ordinal)
        self._stream = torch.cuda.Stream(device)
        torch.cuda.set_stream(self._stream)
        self._arrays = [torch.zeros(ITEMS, device=device) for _ in range(3)]
        self._kernel: Any = triton.jit(_scale)[(GRID,)]

    def launch(self) -> None:
        self._kernel(*self._arrays, ITEMS, BLOCK=BLOCK)

    def wait(self) -> None:
        torch.cuda.current_stream().synchronize()


def connect(work: Work) -> _Triton:
    """Make it ready."""
    return _Triton(work)
