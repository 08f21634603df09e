"""Many loops, threads and devices at once, for as long as one likes: `make soak`, AIOCUDA_SOAK_S seconds."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import uvloop

import aiocuda as ac

pytestmark = pytest.mark.soak

SECONDS = float(os.environ.get("AIOCUDA_SOAK_S", "60"))
POLICIES = [ac.current_policy(), ac.Dataflow(2), ac.RoundRobin(3), ac.SingleStream(), ac.LeastLoaded(2)]

increment = ac.kernel(r"""
extern "C" __global__ void increment(int* x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1;
}""")


async def program(seed: int) -> None:
    """Move an array about, increment it, drop it, cancel an await of it; it must come out right."""
    rng = random.Random(seed)
    devices = ac.devices()
    device = rng.choice(devices)
    n, increments = rng.randrange(1, 3000), 0
    x = ac.to_device(np.arange(n, dtype=np.int32), device)
    for _ in range(rng.randrange(20)):
        what = rng.choice(["increment", "increment", "move", "then", "await", "dup", "submit"])
        if what == "increment":
            x = increment(x, n, threads=n)
            increments += 1
        elif what == "move":
            device = rng.choice(devices)
            x = ac.to_device(x, device)
        elif what == "then":
            x = ac.value(x).then(lambda array: array)
        elif what == "await":
            x = await ac.value(x)
        elif what == "dup":
            x = ac.dup(x)
        else:
            x = await ac.value(x).submit()
    result = ac.to_host(ac.value(x))
    if rng.random() < 0.2:
        waiting = asyncio.ensure_future(result)
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    np.testing.assert_array_equal(await result, np.arange(n) + increments)


async def programs(seed: int, until: float) -> None:
    rng = random.Random(seed)
    while time.monotonic() < until:
        with ac.use(rng.choice(POLICIES)):
            await asyncio.gather(*[program(rng.getrandbits(32)) for _ in range(rng.randrange(1, 12))])


def in_a_loop(loop_factory: Callable[[], asyncio.AbstractEventLoop] | None, seed: int, until: float) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(programs(seed, until))


def without_a_loop(seed: int, until: float) -> None:
    rng = random.Random(seed)
    while time.monotonic() < until:
        n, increments = rng.randrange(1, 2000), rng.randrange(1, 30)
        with ac.use(rng.choice(ac.devices()).stream() if rng.random() < 0.3 else ac.Device(0)):
            x = ac.zeros(n, np.int32)
            for _ in range(increments):
                x = increment(x, n, threads=n)
            np.testing.assert_array_equal(ac.to_host(x).sync(), np.full(n, increments))
        if rng.random() < 0.1:
            gc.collect()


@pytest.mark.timeout(0)
def test_loops_threads_and_devices_at_once(used_bytes):
    before = used_bytes()
    files = len(list(Path("/proc/self/fd").iterdir()))
    until = time.monotonic() + SECONDS
    failures: list[BaseException] = []

    def guarded(run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - shown below, where pytest sees it
            failures.append(error)

    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    work: list[Callable[[], None]] = [
        *[lambda i=i: in_a_loop(None, seed + i, until) for i in range(2)],
        *[lambda i=i: in_a_loop(uvloop.new_event_loop, seed + i, until) for i in range(2, 4)],
        *[lambda i=i: without_a_loop(seed + i, until) for i in range(4, 6)],
    ]
    threads = [threading.Thread(target=guarded, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    gc.collect()
    assert used_bytes() == before
    assert len(list(Path("/proc/self/fd").iterdir())) <= files + 2
