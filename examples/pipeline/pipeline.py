"""A stream of images: decoded on the host, uploaded, three kernels, downloaded and written.

Run: python examples/pipeline/pipeline.py [--images 200] [--height 1080] [--width 1920] [--ahead 8]
All steps of all images overlap. No more than `ahead` images are in memory, however many there are: the next one is
decoded when the oldest one is written.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import images
import numpy as np

import aiocuda as ac

T = TypeVar("T")

SOURCE = (Path(__file__).parent / "kernels.cu").read_text()
luminance = ac.kernel(SOURCE, "luminance")
blur = ac.kernel(SOURCE, "blur")
edges = ac.kernel(SOURCE, "edges")


def edges_of(image: images.Bytes) -> ac.DeviceOp[ac.DeviceArray]:
    """Return an operation that yields an image's edges on the device."""
    height, width, _ = image.shape
    size = height * width
    grey = luminance(ac.to_device(image), ac.empty((height, width)), size, threads=size)
    smooth = blur(grey, ac.empty((height, width)), height, width, threads=size)
    found: ac.DeviceOp[ac.DeviceArray] = edges(smooth, ac.empty((height, width), np.uint8), height, width, threads=size)
    return found


async def one(path: Path, target: Path, decoders: ThreadPoolExecutor) -> Path:
    """Take an image from one file to another."""
    image = await asyncio.get_running_loop().run_in_executor(decoders, images.decode, path)
    await ac.save(target, edges_of(image))
    return target


async def in_order(works: Iterable[Coroutine[Any, Any, T]], ahead: int) -> AsyncIterator[T]:
    """Yield the results of coroutines in their order, with no more than `ahead` of them begun and not yielded."""
    begun: deque[asyncio.Task[T]] = deque()
    try:
        for work in works:
            begun.append(asyncio.create_task(work))
            if len(begun) == ahead:
                yield await begun[0]
                begun.popleft()
        while begun:
            yield await begun[0]
            begun.popleft()
    finally:  # of an error, or of who iterates and stops
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)


async def run(sources: list[Path], folder: Path, ahead: int) -> list[Path]:
    """Find the edges of images, and return the files that have them."""
    with ThreadPoolExecutor(ahead, "decode") as decoders:
        works = (one(path, folder / f"{path.stem}.npy", decoders) for path in sources)
        return [done async for done in ac.progress(in_order(works, ahead), total=len(sources))]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200, help="how many")
    parser.add_argument("--height", type=int, default=1080)
    parser.add_argument("--width", type=int, default=1920)
    parser.add_argument("--ahead", type=int, default=8, help="the most images that are in memory")
    return parser.parse_args()


def measure(process: Callable[[list[Path], Path, int], list[Path]]) -> None:
    """Make images, find their edges, and print how many a second those were and how far they are from NumPy's."""
    asked = arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = images.make(folder / "images", asked.images, asked.height, asked.width)
        start = time.perf_counter()
        targets = process(sources, folder, asked.ahead)
        seconds = time.perf_counter() - start
        print(f"{len(targets)} images in {seconds:.2f} s: {len(targets) / seconds:.1f} images/s")
        apart = np.abs(np.load(targets[-1]) - images.edges_of(images.decode(sources[-1]))).max()
        print(f"the last one is within {apart:.2f} of NumPy's")


async def compile_kernels() -> None:
    """Compile the kernels of all images at once, before the first one comes."""
    await asyncio.gather(*(kernel.compile_async() for kernel in (luminance, blur, edges)))


def main() -> None:
    asyncio.run(compile_kernels())
    measure(lambda sources, folder, ahead: asyncio.run(run(sources, folder, ahead)))


if __name__ == "__main__":
    main()
