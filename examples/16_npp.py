"""A library without bindings: NPP's box filter as an operation, by ctypes, with a context for each stream.

To run it: python examples/16_npp.py

It needs an NVIDIA GPU, and pip install "aiocuda[cu13]" "cuda-toolkit[npp]==13.*".
"""

import asyncio
import ctypes
from typing import Any

import numpy as np
from cuda.bindings import driver

import aiocuda as ac


class Size(ctypes.Structure):
    """NppiSize."""

    _fields_ = [("width", ctypes.c_int), ("height", ctypes.c_int)]


class Point(ctypes.Structure):
    """NppiPoint."""

    _fields_ = [("x", ctypes.c_int), ("y", ctypes.c_int)]


class Context(ctypes.Structure):
    """NppStreamContext: the stream, and what NPP would have to ask its device at each call."""

    _fields_ = [
        ("stream", ctypes.c_void_p),
        ("device", ctypes.c_int),
        ("multiprocessors", ctypes.c_int),
        ("threads_per_multiprocessor", ctypes.c_int),
        ("threads_per_block", ctypes.c_int),
        ("shared_bytes_per_block", ctypes.c_size_t),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("stream_flags", ctypes.c_uint),
        ("reserved", ctypes.c_int),
    ]


# source, bytes of a row, destination, bytes of a row, size of the result, of the box, and where a box has its middle
ARGUMENTS = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, Size, Size, Point, Context]


def load_filters() -> Any:
    """Load NPP's library of filters, wherever pip has put it."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    return ctypes.CDLL(load_nvidia_dynamic_lib("nppif").abs_path)


def asked(result: tuple[Any, ...]) -> int:
    """Return what the driver answered."""
    error, answer = result
    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(error)
    return int(answer)


class Filters:
    """NPP's filters of images, each an operation."""

    def __init__(self) -> None:
        self._box = load_filters().nppiFilterBox_32f_C1R_Ctx
        self._box.argtypes, self._box.restype = ARGUMENTS, ctypes.c_int
        self._contexts: dict[int, Context] = {}

    def _context_of(self, stream: ac.Stream) -> Context:
        """Return a stream's context, made at its first use."""
        if stream.handle not in self._contexts:
            attribute = driver.CUdevice_attribute

            def ask(name: str) -> int:
                which = getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
                return asked(driver.cuDeviceGetAttribute(which, stream.device.ordinal))

            self._contexts[stream.handle] = Context(
                stream.handle,
                stream.device.ordinal,
                stream.device.multiprocessor_count,
                ask("MAX_THREADS_PER_MULTIPROCESSOR"),
                ask("MAX_THREADS_PER_BLOCK"),
                ask("MAX_SHARED_MEMORY_PER_BLOCK"),
                *stream.device.compute_capability,
                asked(driver.cuStreamGetFlags(stream.handle)),
            )
        return self._contexts[stream.handle]

    def box(self, image: ac.DeviceArray, size: int) -> ac.DeviceOp[ac.DeviceArray]:
        """Make each pixel the mean of a box of an odd size, where that is within the image: the result is smaller."""
        height, width = (extent - size + 1 for extent in image.shape)
        out = ac.empty((height, width), np.float32)
        return ac.call(self._filter, image, out, size, reads=[image], writes=[out])

    def _filter(self, stream: ac.Stream, image: ac.DeviceArray, out: ac.DeviceArray, size: int) -> None:
        (height, width), half = out.shape, size // 2
        status = self._box(
            image[half:, half:].address,  # of the middle of the first box
            image.strides[0],
            out.address,
            out.strides[0],
            Size(width, height),
            Size(size, size),
            Point(half, half),
            self._context_of(stream),
        )
        if status < 0:  # 0 is success, and more is a warning
            raise RuntimeError(f"nppiFilterBox_32f_C1R_Ctx returned {status}")


def mean_of_boxes(image: np.ndarray, size: int) -> np.ndarray:
    """Compute the same with NumPy."""
    means: np.ndarray = np.lib.stride_tricks.sliding_window_view(image, (size, size)).mean(axis=(2, 3))
    return means


async def main() -> None:
    """Smooth two images, on streams that aiocuda chooses."""
    filters, random = Filters(), np.random.default_rng(7)
    images = [random.random((480, 640), np.float32) for _ in range(2)]

    async def smooth(image: np.ndarray) -> np.ndarray:
        return await ac.to_host(filters.box(await ac.to_device(image), 5))

    found = await asyncio.gather(*map(smooth, images))
    furthest = max(np.abs(each - mean_of_boxes(image, 5)).max() for each, image in zip(found, images, strict=True))
    print(f"{len(found)} images of {found[0].shape}, as NumPy's: {furthest < 1e-5}")


if __name__ == "__main__":
    if ac.Device(0).is_emulated:
        raise SystemExit("NPP needs an NVIDIA GPU")
    asyncio.run(main())
