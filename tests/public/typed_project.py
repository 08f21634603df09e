"""A project of somebody else's: `test_typing.py` has strict type checkers look at it, and runs it."""

from __future__ import annotations

import asyncio
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import aiocuda as ac

Image = npt.NDArray[np.float32]

# CUDA C++ says what a kernel writes; the annotation says it to type checkers.
blur: ac.Kernel[ac.DeviceArray] = ac.kernel(r"""
extern "C" __global__ void blur(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (x[max(i - 1, 0)] + x[i] + x[min(i + 1, n - 1)]) / 3;
}""")
split: ac.Kernel[tuple[ac.DeviceArray, ac.DeviceArray]] = ac.kernel(r"""
extern "C" __global__ void split(const float* x, float* low, float* high, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { low[i] = fminf(x[i], 0); high[i] = fmaxf(x[i], 0); }
}""")
untyped = ac.kernel('extern "C" __global__ void nothing() {}')


def blurred(image: Image, times: int) -> ac.DeviceOp[ac.DeviceArray]:
    """Describe what is to be done with an image: nothing runs."""
    x = ac.to_device(image)
    for _ in range(times):
        x = blur(x, ac.empty(image.size), image.size, threads=image.size)
    return x


async def process(images: list[Image]) -> list[Image]:
    """Bring images to the device, blur them there, and bring them back."""
    results = await asyncio.gather(*(ac.to_host(blurred(image, 2)) for image in images))
    return [result.astype(np.float32) for result in results]


async def limited(op: ac.DeviceOp[ac.DeviceArray]) -> float | None:
    """Wait half a minute at most."""
    try:
        array = await op.within(30)
    except ac.DeviceTimeoutError as error:
        print(error.story())
        return None
    return float((await ac.to_host(array)).sum())


def types() -> None:
    """What the checkers know."""
    x = ac.ones(8)
    assert_type(x, ac.DeviceOp[ac.DeviceArray])
    assert_type(blur(x, ac.empty(8), 8, threads=8), ac.DeviceOp[ac.DeviceArray])
    assert_type(blur(x, ac.empty(8), 8, threads=8).sync().shape, tuple[int, ...])
    assert_type(split(x, ac.empty(8), ac.empty(8), 8, threads=8).first(), ac.DeviceOp[ac.DeviceArray])
    low, high = split(x, ac.empty(8), ac.empty(8), 8, threads=8).unzip()
    assert_type((low, high), tuple[ac.DeviceOp[ac.DeviceArray], ac.DeviceOp[ac.DeviceArray]])
    assert_type(untyped(grid=1, block=1), ac.DeviceOp[Any])
    host = ac.empty_host(8)
    assert_type(ac.dup(x), ac.DeviceOp[ac.DeviceArray])
    assert_type(ac.dup(host.sync()), ac.DeviceOp[ac.HostArray])
    assert_type(ac.fill(x, 2), ac.DeviceOp[ac.DeviceArray])
    assert_type(ac.copy(host, x), ac.DeviceOp[ac.HostArray])
    assert_type(ac.copy(x.sync(), np.ones(8, np.float32)), ac.DeviceOp[ac.DeviceArray])
    assert_type(x.submit(), ac.DeviceFuture[ac.DeviceArray])
    assert_type(ac.zip(x, host), ac.DeviceOp[tuple[ac.DeviceArray, ac.HostArray]])
    assert_type(x.then(lambda array: array.reshape(2, 4)), ac.DeviceOp[ac.DeviceArray])
    assert_type(ac.algorithms.argsort(x), ac.DeviceOp[ac.DeviceArray])
    assert_type(ac.Device(0).memory_info().used_bytes, int)


@ac.compile
def twice(x: ac.DeviceOp[ac.DeviceArray]) -> ac.DeviceOp[ac.DeviceArray]:
    """Blur twice, as a graph."""
    once = blur(x, ac.empty(8), 8, threads=8)
    return blur(once, ac.empty(8), 8, threads=8)


@ac.batched(max_size=4)
def total(numbers: list[float]) -> ac.DeviceOp[npt.NDArray[Any]]:
    """Add up nothing: one sum for each number."""
    return ac.to_host(ac.to_device(np.array(numbers, np.float32)))


if __name__ == "__main__":
    types()
    print(asyncio.run(process([np.ones(8, np.float32)]))[0].tolist())
    print(asyncio.run(limited(blurred(np.ones(8, np.float32), 1))))
