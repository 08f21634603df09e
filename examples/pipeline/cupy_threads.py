"""The same stream of images by CuPy and threads, to compare with. It needs a GPU and CuPy.

Run: python examples/pipeline/cupy_threads.py, with the arguments of pipeline.py
Each of `ahead` threads takes an image through all its steps on a stream of its own, and waits there for the device.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cupy
import images
import numpy as np
import pipeline
from tqdm import tqdm

MODULE: Any = cupy.RawModule(code=pipeline.SOURCE)
BLOCK = 256
per_thread = threading.local()


def one(path: Path, target: Path) -> Path:
    """Take an image from one file to another."""
    image = images.decode(path)
    height, width, _ = image.shape
    size = height * width
    if not hasattr(per_thread, "stream"):
        per_thread.stream = cupy.cuda.Stream(non_blocking=True)
    with per_thread.stream:
        grid = ((size + BLOCK - 1) // BLOCK,)
        uploaded = cupy.asarray(image)
        grey, smooth = cupy.empty((height, width), cupy.float32), cupy.empty((height, width), cupy.float32)
        found = cupy.empty((height, width), cupy.uint8)
        MODULE.get_function("luminance")(grid, (BLOCK,), (uploaded, grey, np.uint32(size)))
        MODULE.get_function("blur")(grid, (BLOCK,), (grey, smooth, np.int32(height), np.int32(width)))
        MODULE.get_function("edges")(grid, (BLOCK,), (smooth, found, np.int32(height), np.int32(width)))
        np.save(target, cupy.asnumpy(found, stream=per_thread.stream))
    return target


def run(sources: list[Path], folder: Path, ahead: int) -> list[Path]:
    """Find the edges of images, and return the files that have them."""
    room = threading.Semaphore(ahead)

    def let_in(path: Path) -> Path:
        try:
            return one(path, folder / f"{path.stem}.npy")
        finally:
            room.release()

    with ThreadPoolExecutor(ahead) as threads, tqdm(total=len(sources)) as bar:
        futures = []
        for path in sources:
            room.acquire()
            futures.append(threads.submit(let_in, path))
            futures[-1].add_done_callback(lambda _: bar.update())
        return [future.result() for future in futures]


if __name__ == "__main__":
    MODULE.compile()
    pipeline.measure(run)
