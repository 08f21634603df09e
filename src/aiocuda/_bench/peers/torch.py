"""PyTorch: one elementwise operation of its own into an array that is there, as heavy as the kernel."""

from __future__ import annotations

import torch

from aiocuda._bench.work import ITEMS, Work

__all__ = ["connect"]


class _PyTorch:
    name = "PyTorch"

    def __init__(self, work: Work) -> None:
        device = torch.device("cuda", work.device.ordinal)
        self._stream = torch.cuda.Stream(device)
        torch.cuda.set_stream(self._stream)  # PyTorch's own, of this thread
        self._y, self._x, self._g = (torch.zeros(ITEMS, device=device) for _ in range(3))

    def launch(self) -> None:
        torch.mul(self._x, self._g, out=self._y)

    def wait(self) -> None:
        self._stream.synchronize()


def connect(work: Work) -> _PyTorch:
    """Make it ready."""
    return _PyTorch(work)
