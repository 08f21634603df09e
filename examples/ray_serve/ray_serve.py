"""A deployment of Ray Serve whose requests share launches, by `ac.batched`.

Ray Serve calls a replica on its event loop, one task for each request. There, `batched` makes a batch of those that
come at about the same time. So Ray places and restarts replicas, and each replica fills its GPU.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import ray
from ray import serve

import aiocuda as ac

SOURCE = r"""
extern "C" __global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}"""


class Doubler:
    """One replica, with a GPU of its own."""

    def __init__(self) -> None:
        self.twice = ac.kernel(SOURCE, "twice")
        self.double = ac.batched(max_size=64, max_wait_ms=2)(self.double_all)  # one queue for each replica

    def double_all(self, values: list[float]) -> Any:
        """Describe a batch: an upload, a launch and a download."""
        x = np.array(values, np.float32)
        return ac.to_host(self.twice(ac.to_device(x), ac.empty(x.shape), x.size, threads=x.size))

    async def __call__(self, value: float) -> float:
        """Answer one request."""
        return float(await self.double(value))

    async def counts(self) -> tuple[int, int]:
        """Return how many requests, and how many batches, there were."""
        statistics = self.double.statistics()
        return statistics.items, statistics.batches


async def ask(handle: Any, requests: int) -> tuple[list[float], tuple[int, int]]:
    """Ask for so many numbers at the same time."""
    answers = await asyncio.gather(*[handle.remote(float(value)) for value in range(requests)])
    return answers, await handle.counts.remote()


def main() -> int:
    gpus = None if not ac.Device(0).is_emulated else 1  # Ray finds no emulated ones
    ray.init(num_gpus=gpus, include_dashboard=False, logging_level="error", log_to_driver=False)
    deployment = serve.deployment(Doubler, ray_actor_options={"num_gpus": 1}, max_ongoing_requests=256)
    try:
        serve.start(http_options={"location": "NoServer"})  # requests come by a handle, and no port is needed
        handle = serve.run(deployment.bind(), route_prefix=None)
        answers, (items, batches) = asyncio.run(ask(handle, 64))
    finally:
        serve.shutdown()
        ray.shutdown()
    print(f"{items} requests in {batches} batches")
    return 0 if answers == [2.0 * value for value in range(64)] and batches < items else 1


if __name__ == "__main__":
    raise SystemExit(main())
