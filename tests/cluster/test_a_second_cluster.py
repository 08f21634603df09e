"""A second cluster of one process: it uses the first one's Ray, and has devices of its own.

It comes before the other files of this folder, whose cluster keeps Ray.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aiocuda as ac
from aiocuda.cluster import start


def test_its_workers_have_devices_behind_those_of_the_first_one(run_once, start_alone: Callable[..., Any]):
    """This process may have fewer emulated devices than Ray counts."""
    if not ac.Device(0).is_emulated:
        pytest.skip("a GPU is hidden from the workers that do not have it, and each has a number 0")
    all_here = len(ac.devices())
    options = {"log_to_driver": False, "num_cpus": 0, "num_gpus": all_here + 2}

    async def device_that_works() -> tuple[int, float]:
        here = ac.current_device().ordinal
        return here, float((await ac.to_host(ac.ones(1)))[0])

    async def main() -> None:
        async with start_alone(workers=1, gpus=all_here, ray_options=options), start(workers=2) as second:
            assert await second.run(device_that_works) == [(all_here, 1.0), (all_here + 1, 1.0)]

    run_once(main)
