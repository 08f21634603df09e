"""Allocating: a program describes arrays first; they are made when somebody asks for them.

To run it: python examples/01_allocate.py
"""

import asyncio

import numpy as np

import aiocuda as ac


async def make_arrays() -> dict[str, np.ndarray]:
    """Make arrays in several ways, and bring what is in them to the host."""
    described = {
        "zeros": ac.zeros(5),  # float32 where nothing else is said
        "full": ac.full((2, 3), 7, np.uint8),
        "arange": ac.arange(5, dtype=np.int64),
        "rand": ac.rand(4, seed=1),  # the same numbers on every device
        "to_device": ac.to_device(np.array([1, 2, 3], np.uint32)),
        "of a list": ac.to_device([[0.5, 1.5], [2.5, 3.5]]),
    }
    # No device has been touched so far. Awaiting makes all of them, and copies them to the host, in one go.
    contents = await ac.zip(*[ac.to_host(array) for array in described.values()])
    return dict(zip(described, contents, strict=True))


async def follow_memory() -> list[int]:
    """Say how many more bytes of the device are in use when an array is described, made, and closed."""
    device = ac.current_device()
    before = device.memory_info().used_bytes

    described = ac.empty((1024, 256))  # its contents are whatever was there: for kernels that write all of it
    held = [device.memory_info().used_bytes - before]

    array = await described
    held.append(device.memory_info().used_bytes - before)

    array.close()  # so does dropping all that holds it; either way, memory outlives its last user on the device
    held.append(device.memory_info().used_bytes - before)
    return held


async def main() -> None:
    for made_by, contents in (await make_arrays()).items():
        print(f"{made_by:10} {contents.dtype} {contents.tolist()}")
    described, made, closed = await follow_memory()
    print(f"bytes in use: {described} when described, {made} when made, {closed} when closed")


if __name__ == "__main__":
    asyncio.run(main())
