"""What is left of a cluster whose block has ended: it says so, at once, and starts nothing.

It comes before the other files of this folder, whose cluster keeps Ray.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

import anyio
import anyio.from_thread
import pytest

import aiocuda as ac
from aiocuda.cluster import Cluster, ClusterGroup, Remote


class Left(NamedTuple):
    """What a program may still have."""

    cluster: Cluster
    group: ClusterGroup
    kept: Remote
    of_a_lost_process: Remote
    was_under_way: Future[Any]


@pytest.fixture(scope="module")
def left(start_alone: Callable[..., Any]) -> Left:
    with anyio.from_thread.start_blocking_portal() as portal:
        with portal.wrap_async_context_manager(start_alone(workers=1)) as cluster:
            lost = portal.call(cluster[0].create, list)
            portal.call(cluster.restart, 0)
            kept, group = portal.call(cluster[0].create, list), portal.call(cluster.group)
            waits = portal.start_task_soon(cluster[0].run, signal.pause)
            while "pause" not in repr(cluster[0]):
                portal.call(anyio.lowlevel.checkpoint)
        waits.exception()
    return Left(cluster, group, kept, lost, waits)


ASKED: dict[str, Callable[[Left], Awaitable[Any]]] = {
    "restart": lambda left: left.cluster.restart(0),
    "run": lambda left: left.cluster.run(len, "a"),
    "map": lambda left: left.cluster.map(len, ["a"]),
    "group": lambda left: left.cluster.group(),
    "run on one": lambda left: left.cluster[0].run(len, "a"),
    "create": lambda left: left.cluster[0].create(list),
    "a method": lambda left: left.kept.copy(),
    "a method of what was lost before": lambda left: left.of_a_lost_process.copy(),
}
ENDED = "the cluster has ended, with the block of `start`; start a new one"


@pytest.mark.parametrize("asked", ASKED)
def test_what_is_asked_of_a_cluster_that_has_ended_is_an_error_that_says_so(run, left: Left, asked: str):
    async def main() -> None:
        with anyio.fail_after(5), pytest.raises(ac.errors.ClusterError, match=ENDED) as caught:
            await ASKED[asked](left)
        assert "restart(" not in str(caught.value)

    import ray

    run(main)
    assert not ray.is_initialized()


def test_a_call_that_the_end_interrupts_is_told_that_the_cluster_has_ended(left: Left):
    with pytest.raises(ac.errors.ClusterError, match=rf"pause\(\) did not end on worker 0: {ENDED}"):
        left.was_under_way.result()


def test_a_group_whose_cluster_has_ended_is_closed_without_an_error(run, left: Left):
    async def main() -> None:
        await left.group.abort()
        await left.group.close()

    run(main)


def test_a_call_that_is_cancelled_as_the_block_ends_starts_no_ray(run_once, start_alone: Callable[..., Any]):
    """Most of Ray's functions start one where there is none."""
    import ray

    async def main() -> None:
        async with anyio.create_task_group() as group:
            async with start_alone(workers=1) as cluster:
                group.start_soon(cluster[0].run, signal.pause)
                while "pause" not in repr(cluster[0]):
                    await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    run_once(main)
    assert not ray.is_initialized()


def test_a_cluster_whose_ray_the_program_has_ended_says_so_and_starts_none(run_once, start_alone: Callable[..., Any]):
    import ray

    async def main() -> None:
        async with start_alone(workers=1) as cluster:
            ray.shutdown()
            with anyio.fail_after(5):
                with pytest.raises(ac.AiocudaError, match="has ended"):  # Ray, or the worker's process with it
                    await cluster[0].run(len, "a")
                while not cluster[0].lost:
                    await anyio.lowlevel.checkpoint()
                with pytest.raises(ac.errors.ClusterError, match="Ray has ended in this process"):
                    await cluster.restart(0)
        assert not ray.is_initialized()

    run_once(main)
    assert not ray.is_initialized()


FORKING = """
import asyncio, os, signal
import aiocuda as ac
from aiocuda.cluster import start

async def main():
    block = start(workers=1, ray_options={"log_to_driver": False, "num_cpus": 0})
    cluster = await block.__aenter__()
    child = os.fork()
    if not child:
        signal.alarm(20)  # ends it
        refused = 0
        for ask in (lambda: cluster[0].run(abs, -1), lambda: cluster.map(abs, [-1]), lambda: cluster.restart(0)):
            try:
                asyncio.run(ask())  # a loop of its own
            except ac.errors.ForkedProcessError:
                refused += 1
        asyncio.run(block.__aexit__(None, None, None))
        os._exit(refused)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), await cluster[0].run(abs, -1))
    await block.__aexit__(None, None, None)

asyncio.run(main())
"""


def test_a_forked_child_is_refused_at_once_and_leaves_the_cluster_alone():
    pytest.importorskip("ray")
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}  # Python 3.12 warns of a fork
    done = subprocess.run(
        [sys.executable, "-c", FORKING], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "3 1\n", done.stderr
