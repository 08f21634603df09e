"""A cluster of two workers on the emulated driver, started once for each file.

A thread of its own has the loop of ``start``; tests call the workers from loops of theirs.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio.from_thread
import pytest

import aiocuda as ac
from aiocuda.cluster import Cluster, start

OPTIONS = {"log_to_driver": False, "num_cpus": 0}  # Ray starts a process for each CPU that it may use


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    pytest.importorskip("ray")
    if not ac.Device(0).is_emulated:
        pytest.skip("its workers share a machine's devices, two of them")
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[request.module.__name__])  # workers cannot import tests
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(start(workers=2, answers_within_s=3, ray_options=OPTIONS)) as started,
    ):
        yield started


@pytest.fixture
def well(cluster: Cluster, run_once: Callable[[Callable[[], Awaitable[Any]]], Any]) -> Iterator[Cluster]:
    """The cluster, whose workers are given back as they were found."""
    yield cluster

    async def restart() -> None:
        for worker in cluster:
            if worker.lost:
                await cluster.restart(worker.number)

    run_once(restart)


@pytest.fixture(scope="session")
def run_once() -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    """Run an async function on asyncio's loop, whichever loops the test is run on."""
    return anyio.run
