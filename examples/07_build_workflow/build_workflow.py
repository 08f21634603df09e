"""Kernels in files of their own: compiled when the program starts, or, for a GPU, long before.

To run it: python examples/07_build_workflow/build_workflow.py

On a GPU it also takes what nvcc made of the same file, as programs do that are shipped without their sources:

    nvcc --ptx -DGRAVITY=9.81f kernels.cu -o kernels.ptx
    python examples/07_build_workflow/build_workflow.py kernels.ptx
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import numpy as np

import aiocuda as ac

HERE = Path(__file__).parent
GRAVITY = 9.81
Particle = np.dtype([("position", np.float32, 4), ("velocity", np.float32, 4)])


def load(file: Path) -> Any:
    """Give the kernel of a file of CUDA C++, or of one that was compiled."""
    if file.suffix == ".cu":
        # Quoted includes are found beside the file. aiocuda keeps compiled code on disk for the next start, until the
        # source, the header, the options or the compiler change.
        options = ac.CompileOptions(defines={"GRAVITY": f"{GRAVITY}f"})
        return ac.Module.from_file(file, options=options).kernel("move")
    # Compiled code does not say what its kernels take.
    return ac.Module.from_file(file).kernel("move", signature="void* particles, float seconds, unsigned n")


async def simulate(file: Path, particles: np.ndarray, seconds: float, steps: int) -> np.ndarray:
    """Move an array of `Particle`, and return it; `file` has the kernel."""
    move, n = load(file), len(particles)
    move.compile()  # now, and not in the middle of the first step; mistakes are raised with the file's own lines
    state = ac.to_device(particles)
    for _ in range(steps):
        state = move(state, seconds / steps, n, threads=n)  # each launch takes what the one before it wrote
    return await ac.to_host(state)


async def main(file: Path = HERE / "kernels.cu") -> None:
    particles = np.zeros(3, Particle)
    particles["velocity"][:, 0] = 1, 2, 3
    for particle in await simulate(file, particles, seconds=1, steps=100):
        print("at", particle["position"][:3], "with", particle["velocity"][:3])


if __name__ == "__main__":
    asyncio.run(main(*map(Path, sys.argv[1:])))
