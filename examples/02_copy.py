"""Copying: to a device, on it, and back; into new arrays and into those that exist.

To run it: python examples/02_copy.py
"""

import asyncio

import numpy as np

import aiocuda as ac


async def copy_around(data: np.ndarray) -> dict[str, np.ndarray]:
    """Copy a matrix of float32 in every direction, and return what arrived on the host."""
    array = await ac.to_device(data)
    twin = await ac.dup(array)  # a new array beside it

    # Into arrays that exist. Rows, columns and steps are views: a copy takes them as they are, on either side.
    await ac.copy(twin, data[:, ::-1])
    await ac.copy(twin[0], array[1])

    out = np.empty_like(data)
    await ac.to_host(twin, out)  # into NumPy's memory; without `out`, into new page-locked memory

    # Memory that is filled again and again should be page-locked: devices copy from it by themselves, at full speed.
    staging = await ac.empty_host(data.shape, data.dtype)
    staging.numpy()[:] = data + 1
    await ac.copy(array, staging)

    # Each of these is an operation, so none has to be awaited by itself: this is one submission and one wait.
    column, last = await ac.zip(ac.to_host(array[:, 1]), ac.to_host(array, reclaim=True))  # which closes the array
    return {"twin": out, "a column": column, "the whole": last}


async def main() -> None:
    for name, contents in (await copy_around(np.arange(6, dtype=np.float32).reshape(2, 3))).items():
        print(f"{name:10}", contents.tolist())


if __name__ == "__main__":
    asyncio.run(main())
