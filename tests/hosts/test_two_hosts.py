"""Workers on two hosts: what goes between them, and what comes of a network that is cut, and of a host that fails.

The functions in the tests run in the program on the near host, which has a worker there and one on the far host.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from driving import ANSWERS_WITHIN_S, Program
from two_hosts import ADDRESSES

import aiocuda as ac
from aiocuda._cluster.groups import make_group
from aiocuda.cluster import Cluster, Worker

# Beside other tests a worker is taken for lost that is only slow, as it has two seconds.
pytestmark = pytest.mark.soak

BUSY_S = 2.0  # more, where others use the machine


def near_and_far(cluster: Cluster) -> list[Worker]:
    """Return both workers, of which Ray has put one on each host."""
    return sorted(cluster, key=lambda each: each._process.facts.host != each._driver.host)


def sent_bytes() -> int:
    """How many bytes have gone over the near host's network, in both directions."""
    (line,) = [each for each in Path("/proc/self/net/dev").read_text().splitlines() if "eth0" in each]
    numbers = line.partition(":")[2].split()
    return int(numbers[0]) + int(numbers[8])


@contextlib.contextmanager
def ends_within(at_most_s: float) -> Iterator[None]:
    before = time.monotonic()
    yield
    assert time.monotonic() - before < at_most_s + BUSY_S


async def until_busy(worker: Worker, name: str) -> None:
    while name not in repr(worker):
        await anyio.lowlevel.checkpoint()


async def wait_for_ever() -> None:
    await anyio.sleep_forever()


async def reduced(group: Any, value: float) -> float:
    return float((await ac.to_host(group.all_reduce(await ac.full(4, value * (group.rank + 1)))))[0])


async def doubled(x: Any) -> Any:
    return await ac.algorithms.transform("2 * x", x=x)


def test_workers_on_both_hosts_do_what_those_of_one_host_do(program: Program):
    class Counter:
        def __init__(self, first: int) -> None:
            self.count = first

        async def add(self, more: int) -> int:
            self.count += more
            return self.count

    async def main(cluster: Cluster, outside: Any) -> None:
        import socket

        near, far = near_and_far(cluster)
        assert [await each.run(socket.gethostname) for each in (near, far)] == ["host-1", "host-2"]
        assert sorted(await cluster.run(socket.gethostname)) == ["host-1", "host-2"]
        assert await cluster.map(abs, range(-20, 0)) == list(range(20, 0, -1))
        counter = await far.create(Counter, 5)
        assert [await counter.add(1), await counter.add(2)] == [6, 8]

    program.run(main)


@pytest.mark.parametrize("way", ["nccl", "object store"])
def test_arrays_go_to_the_far_host_and_back(program: Program, way: str):
    async def meet(has_nccl: bool) -> None:
        import gc

        (actor,) = [each for each in gc.get_objects() if type(each).__name__ == "WorkerActor"]
        actor._driver = actor._driver._replace(has_nccl=has_nccl)

    async def main(cluster: Cluster, outside: Any) -> None:
        _, far = near_and_far(cluster)
        process, truth = far._process, far._process.facts
        x = await ac.arange(1 << 20, dtype="float32")
        await far.run(doubled, await ac.ones(1))  # a link begins with the first array
        await far.run(meet, way == "nccl")
        process.facts = truth._replace(has_nccl=way == "nccl")
        before = sent_bytes()
        made = await far.run(doubled, x)
        host = await ac.to_host(made)
        gone = sent_bytes() - before
        process.facts = truth
        await far.run(meet, True)
        assert np.array_equal(host, 2 * np.arange(1 << 20, dtype=np.float32))
        # The emulated NCCL goes by memory. Ray's object store goes over the network, both ways.
        assert gone < x.nbytes / 4 if way == "nccl" else gone > 2 * x.nbytes

    program.run(main)


def test_a_group_over_both_hosts_agrees_over_the_network_and_not_in_memory(program: Program):
    async def channel(group: Any) -> Any:
        others = group._members._others
        line = others._line._connection
        ends = line.getsockname()[0], line.getpeername()[0]
        return group.rank, ends, others._board is None, others._is_board_used

    async def main(cluster: Cluster, outside: Any) -> None:
        async with await cluster.group() as group:
            for value in (1.0, 2.0, 3.0):  # the first call of a group never uses the board
                assert await cluster.run(reduced, group, value) == [3 * value] * 2
            zero, one = await cluster.run(channel, group)
        first = near_and_far(cluster).index(cluster[0])  # its rank made the id
        assert zero == (0, (ADDRESSES[first], ADDRESSES[first]), False, False)
        assert one == (1, (ADDRESSES[1 - first], ADDRESSES[first]), True, False)

    program.run(main)


@pytest.mark.parametrize("mended", ["before the restart", "while it begins"])
def test_a_worker_that_is_cut_off_ends_its_awaits_in_time_and_comes_back(program: Program, mended: str):
    async def main(cluster: Cluster, outside: Any) -> None:
        near, far = near_and_far(cluster)
        x = await ac.ones(4)
        await far.run(doubled, x)  # a link is there
        process = far.process_id
        caught: list[ac.errors.WorkerLostError] = []

        async def ends(function: Any, *arguments: Any) -> None:
            with pytest.raises(ac.errors.WorkerLostError, match=r"has not answered for \d\.") as error:
                await far.run(function, *arguments)
            caught.append(error.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ends, wait_for_ever)
            await until_busy(far, "wait_for_ever")
            outside.cut()
            with ends_within(ANSWERS_WITHIN_S + 1):
                async with anyio.create_task_group() as later:
                    later.start_soon(ends, wait_for_ever)
                    later.start_soon(ends, doubled, x)
        assert [each.worker for each in caught] == [far.number] * 3
        assert sorted(each.doing for each in caught) == [
            "doubled(), with its arguments,", "wait_for_ever()", "wait_for_ever()",
        ]  # fmt: skip
        assert np.array_equal(await ac.to_host(await near.run(doubled, x)), [2.0] * 4)
        assert outside.has(process)
        async with anyio.create_task_group() as tasks:
            if mended == "while it begins":
                tasks.start_soon(cluster.restart, far.number)
                while far.lost:  # the old process' reason
                    await anyio.lowlevel.checkpoint()
                outside.mend()
            else:
                outside.mend()
                await cluster.restart(far.number)
        assert np.array_equal(await ac.to_host(await far.run(doubled, x)), [2.0] * 4)
        while outside.has(process):  # it would keep its GPU
            await anyio.lowlevel.checkpoint()

    program.run(main)


@pytest.mark.parametrize("hub", ["near", "far"])
def test_a_group_that_is_cut_fails_in_time_on_the_rank_that_is_left(program: Program, hub: str):
    async def main(cluster: Cluster, outside: Any) -> None:
        workers = near, far = near_and_far(cluster)
        group = await make_group(workers if hub == "near" else workers[::-1], 60.0, ANSWERS_WITHIN_S)
        silent = f"rank {far.number} has said nothing" if hub == "near" else f"rank {near.number} has heard nothing"

        async def fails() -> None:
            with pytest.raises(ac.errors.CollectiveError, match=f"{silent} for 2 s.*all_reduce of float32") as error:
                await near.run(reduced, group, 1.0)
            assert f"raised it on worker {near.number}" in error.value.__notes__[-1]

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fails)
            await until_busy(near, "reduced")
            outside.cut()
            tasks.cancel_scope.deadline = anyio.current_time() + ANSWERS_WITHIN_S * 5 / 4 + BUSY_S
        assert not tasks.cancel_scope.cancelled_caught
        while not far.lost:
            await anyio.lowlevel.checkpoint()
        with pytest.raises(ac.errors.WorkerLostError, match=f"worker {far.number} is lost"):
            await cluster.group()
        outside.mend()
        await cluster.restart(far.number)
        await group.close()
        async with await cluster.group() as again:
            assert await cluster.run(reduced, again, 2.0) == [6.0, 6.0]

    program.run(main)


def test_joining_a_group_ends_when_the_network_is_cut_in_the_middle(program: Program):
    async def main(cluster: Cluster, outside: Any) -> None:
        _, far = near_and_far(cluster)
        assert await cluster.run(abs, -1) == [1, 1]
        outside.cut()
        with ends_within(ANSWERS_WITHIN_S + 1), pytest.raises(ac.errors.WorkerLostError, match=f"worker {far.number}"):
            await cluster.group()

    program.run(main)


def test_a_worker_that_is_killed_on_the_far_host_ends_its_awaits_and_comes_back(program: Program):
    async def main(cluster: Cluster, outside: Any) -> None:
        near, far = near_and_far(cluster)
        group = await cluster.group()

        async def ends() -> None:
            with pytest.raises(ac.errors.WorkerLostError, match="its process has ended") as error:
                await far.run(wait_for_ever)
            assert (error.value.worker, error.value.doing) == (far.number, "wait_for_ever()")

        async def fails() -> None:
            with pytest.raises(ac.errors.CollectiveError, match="gone"):
                await near.run(reduced, group, 1.0)

        with ends_within(1):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ends)
                tasks.start_soon(fails)
                await until_busy(far, "wait_for_ever")
                await until_busy(near, "reduced")
                outside.kill(far.process_id)
        await group.close()
        await cluster.restart(far.number)
        assert await far.run(abs, -5) == 5

    program.run(main)


async def find_no_place(cluster: Cluster, worker: Worker) -> None:
    """Restart a worker whose node is gone."""
    begins_within_s, cluster._begins_within_s = cluster._begins_within_s, 3.0
    try:
        words = (
            rf"worker {worker.number} cannot begin .* the Ray node that it was on is gone, .* 1 free GPUs; start one"
        )
        with ends_within(3.0 + 1), pytest.raises(ac.errors.ClusterError, match=words):
            await cluster.restart(worker.number)
    finally:
        cluster._begins_within_s = begins_within_s


def test_a_worker_whose_node_is_gone_comes_back_on_a_new_one(program: Program):
    async def main(cluster: Cluster, outside: Any) -> None:
        near, far = near_and_far(cluster)

        async def ends() -> None:
            with pytest.raises(ac.errors.WorkerLostError, match=r"cannot be reached|has ended|not answered") as error:
                await far.run(wait_for_ever)
            assert (error.value.worker, error.value.doing) == (far.number, "wait_for_ever()")

        with ends_within(1):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ends)
                await until_busy(far, "wait_for_ever")
                outside.kill_ray()
        await find_no_place(cluster, far)
        await find_no_place(cluster, far)
        await cluster.restart(near.number)  # its node is well
        assert await near.run(abs, -5) == 5
        outside.start_ray("far")
        await cluster.restart(far.number)
        assert await far.run(abs, -5) == 5

    program.run(main)


def test_the_block_of_a_cluster_ends_though_a_host_is_cut_off_and_leaves_nothing_there(program: Program):
    async def cut(cluster: Cluster, outside: Any) -> int:
        outside.cut()
        return near_and_far(cluster)[1].process_id

    process = program.run(cut)
    with ends_within(5):
        program.end()
    program.hosts.mend()
    program.begin()  # which needs the GPU there
    assert not program.hosts.has(process)


def test_a_host_that_ray_has_given_up_comes_back_as_a_new_node(program: Program):
    async def main(cluster: Cluster, outside: Any) -> None:
        import ray

        _, far = near_and_far(cluster)
        process = far.process_id
        outside.cut()
        while sum(each["Alive"] for each in ray.nodes()) == 2:
            await anyio.lowlevel.checkpoint()
        await find_no_place(cluster, far)
        outside.mend()
        while outside.has(process):  # it hears that its node was given up
            await anyio.lowlevel.checkpoint()
        outside.start_ray("far")
        await cluster.restart(far.number)
        assert await far.run(abs, -5) == 5

    program.run(main)
