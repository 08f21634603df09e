"""cuda.core: a launch that nothing tracks, and its stream's own wait, which spins."""

from __future__ import annotations

import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

from aiocuda._bench.work import BLOCK, GRID, ITEMS, SCALE, Work

__all__ = ["CudaCore", "connect"]


class CudaCore:
    """The kernel `scale` on a stream of cuda.core's.

    Parameters
    ----------
    work
        Whose arrays it takes.
    lane
        Whose output.
    """

    name = "cuda.core"

    def __init__(self, work: Work, lane: int = 0) -> None:
        device = Device(work.device.ordinal)
        device.set_current()
        program = Program(SCALE, "c++", options=ProgramOptions(arch=f"sm_{device.arch}"))
        self._kernel = program.compile("cubin").get_kernel("scale")
        self._config = LaunchConfig(grid=GRID, block=BLOCK)
        arrays = (work.outputs[lane], work.x, work.g)
        self._arguments = (*(array.address for array in arrays), np.uint32(ITEMS))
        self._kept = arrays
        self._stream = device.create_stream()

    def launch(self) -> None:
        """Submit the kernel."""
        launch(self._stream, self._config, self._kernel, *self._arguments)

    def wait(self) -> None:
        """Block until the stream has nothing to do."""
        self._stream.sync()


def connect(work: Work) -> CudaCore:
    """Make it ready."""
    return CudaCore(work)
