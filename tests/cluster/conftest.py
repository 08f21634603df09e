"""A cluster of two workers with a device each, started once for all files of this folder.

A thread of its own has the loop of ``start``; tests call the workers from loops of theirs.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest

import aiocuda as ac
from aiocuda.cluster import Cluster, Worker, start

OPTIONS = {"log_to_driver": False, "num_cpus": 0}  # Ray starts a process for each CPU that it may use


class Started:
    """The cluster of this process, from the first test that needs it until the last one of this folder."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None
        self._ends = contextlib.ExitStack()

    def get(self) -> Cluster:
        if self._cluster is None:
            portal = self._ends.enter_context(anyio.from_thread.start_blocking_portal())
            cluster = start(workers=2, answers_within_s=3, ray_options=OPTIONS)
            self._cluster = self._ends.enter_context(portal.wrap_async_context_manager(cluster))
        return self._cluster

    def end(self) -> None:
        self._cluster = None
        self._ends.close()


started = Started()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    yield  # first ends what the test has changed
    if nextitem is None or nextitem.path.parent != Path(__file__).parent:
        started.end()


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    pytest.importorskip("ray")
    if not ac.Device(0).is_emulated and len(ac.devices()) < 2:
        pytest.skip("needs a GPU for each of two workers")
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[request.module.__name__])  # workers cannot import tests
    return started.get()


@pytest.fixture(scope="module")
def start_alone() -> Callable[..., Any]:
    """`start`, with a Ray of its own: the cluster of the other tests has ended."""
    pytest.importorskip("ray")
    started.end()
    return functools.partial(start, ray_options=OPTIONS)


@pytest.fixture
def well(cluster: Cluster, run_once: Callable[[Callable[[], Awaitable[Any]]], Any]) -> Iterator[Cluster]:
    """The cluster; workers that the test lost are restarted behind it."""
    yield cluster

    async def restart() -> None:
        for worker in cluster:
            if worker.lost:
                await cluster.restart(worker.number)

    run_once(restart)


async def _meet(driver: Any) -> None:
    """On a worker: believe this of the driver."""
    (actor,) = [each for each in gc.get_objects() if type(each).__name__ == "WorkerActor"]
    actor._driver = driver


@contextlib.asynccontextmanager
async def believing(worker: Worker, **facts: Any) -> AsyncIterator[Worker]:
    """Have a worker and the driver believe something of each other, such as that they are on different hosts."""
    process, driver = worker._process, worker._driver
    truth = process.facts
    await worker.run(_meet, driver._replace(**facts))
    process.facts = truth._replace(**facts)
    try:
        yield worker
    finally:
        process.facts = truth
        if not worker.lost and worker._process is process:
            await worker.run(_meet, driver)


@pytest.fixture
def apart(cluster: Cluster) -> Callable[..., Any]:
    """Give ``async with apart(worker)``, in which the worker is on another host, as it and the driver believe."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return functools.partial(believing, host="elsewhere")


@contextlib.contextmanager
def _without_room(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: Any) -> None:
        raise OSError("no room")

    actor = worker._process.actor
    full = types.SimpleNamespace(ping=actor.ping, transfer=actor.transfer, call=types.SimpleNamespace(remote=refuse))
    with monkeypatch.context() as patch:
        patch.setattr(worker._process, "actor", full)
        yield


@pytest.fixture
def without_room(monkeypatch: pytest.MonkeyPatch) -> Callable[[Worker], contextlib.AbstractContextManager[None]]:
    """Give ``with without_room(worker)``, in which Ray takes no call of the worker's."""
    return lambda worker: _without_room(worker, monkeypatch)


@pytest.fixture(scope="session")
def run_once() -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    """Run an async function on asyncio's loop, once."""
    return anyio.run
