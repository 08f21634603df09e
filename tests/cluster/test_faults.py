"""Workers that are killed, hang or lose their device: what awaits, what goes on, and what comes after a restart."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

import aiocuda as ac
from aiocuda._cluster import ray
from aiocuda._cluster.process import _told, began
from aiocuda._cluster.restarts import restart
from aiocuda.cluster import Cluster, ClusterGroup, start


async def wait_for_ever() -> None:
    await anyio.sleep_forever()


async def reduced(group: Any, value: float) -> float:
    return float((await ac.to_host(group.all_reduce(await ac.full(4, value * (group.rank + 1)))))[0])


async def until_busy(worker: Any, name: str) -> None:
    while name not in repr(worker):
        await anyio.lowlevel.checkpoint()


def test_a_worker_that_ray_does_not_reach_is_not_said_to_have_ended():
    exceptions = pytest.importorskip("ray").exceptions
    assert _told(exceptions.ActorUnavailableError("no route", None)).startswith("it cannot be reached; Ray: ")
    assert _told(exceptions.ActorDiedError()).startswith("its process has ended; Ray: ")


def test_a_killed_worker_ends_its_awaits_and_the_others_go_on(run, well: Cluster):
    async def main() -> None:
        caught: list[ac.errors.WorkerLostError] = []

        async def call() -> None:
            with pytest.raises(ac.errors.WorkerLostError, match="its process has ended") as error:
                await well[0].run(wait_for_ever)
            caught.append(error.value)

        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(call)
                group.start_soon(call)
                while repr(well[0]).count("wait_for_ever") < 2:
                    await anyio.lowlevel.checkpoint()
                os.kill(well[0].process_id, signal.SIGKILL)
        assert [(each.worker, each.doing) for each in caught] == [(0, "wait_for_ever()")] * 2
        assert await well[1].run(lambda: 5) == 5
        assert repr(well) == "<aiocuda.cluster.Cluster of 2 workers with 1 GPUs each, lost: [0]>"
        with pytest.raises(ac.errors.WorkerLostError, match=r"`await cluster.restart\(0\)` gives it a fresh process"):
            await well[0].run(lambda: 5)

    run(main)


@pytest.mark.parametrize("hang", ["stopped", "blocked"])
def test_a_worker_that_does_not_answer_is_lost_in_time_and_ended(run_once, well: Cluster, hang: str):
    """A stopped process is as one that the network was cut from."""

    async def block() -> None:
        signal.pause()

    async def main() -> None:
        process = well[1].process_id
        if hang == "stopped":
            os.kill(process, signal.SIGSTOP)
        before = time.monotonic()
        with pytest.raises(ac.errors.WorkerLostError, match=r"has not answered for 3\.") as caught:
            await well[1].run(block)
        assert caught.value.doing.endswith("block()")
        assert time.monotonic() - before < 10
        await well.restart(1)
        assert well[1].process_id != process
        while began(process) is not None:  # Ray reaps it
            await anyio.lowlevel.checkpoint()

    run_once(main)


def is_running(process: int) -> bool:
    """Whether a process is there, and has not ended: a stopped one has not."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_a_stopped_worker_is_ended_without_ray(run_once, well: Cluster, monkeypatch: pytest.MonkeyPatch):
    """Ray's own ways to end a process may take long, or ask the process itself, which does not hear."""
    monkeypatch.setattr(ray, "kill", lambda actor: None)

    async def main() -> None:
        process = well[1].process_id
        os.kill(process, signal.SIGSTOP)
        with anyio.fail_after(10):
            while not well[1].lost:
                await anyio.lowlevel.checkpoint()
            while is_running(process):
                await anyio.lowlevel.checkpoint()
        monkeypatch.undo()
        await well.restart(1)
        assert await well[1].run(os.getpid) != process

    run_once(main)


def test_restarting_a_worker_ends_its_calls_and_its_objects(run, well: Cluster):
    class Kept:
        async def get(self) -> int:
            return 1

    async def main() -> None:
        kept = await well[0].create(Kept)
        process = well[0].process_id

        async def restart() -> None:
            await until_busy(well[0], "wait_for_ever")
            assert await well.restart(0) is well[0]

        async with anyio.create_task_group() as group:
            group.start_soon(restart)
            with pytest.raises(ac.errors.WorkerLostError, match="it was restarted"):
                await well[0].run(wait_for_ever)
        assert well[0].process_id != process
        with pytest.raises(ac.errors.WorkerLostError, match=r"Kept.get\(\) did not end"):
            await kept.get()
        assert await well[0].run(os.getpid) == well[0].process_id

    run(main)


def test_a_restart_that_is_cancelled_leaves_the_worker_lost_and_nothing_else(run, well: Cluster):
    from ray import exceptions, get

    async def main() -> None:
        old = well[0]._process

        async def cancel_once_it_begins(scope: anyio.CancelScope) -> None:
            while well[0]._process is old:
                await anyio.lowlevel.checkpoint()
            scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(cancel_once_it_begins, group.cancel_scope)
            await well.restart(0)
            pytest.fail("it was cancelled")
        given_up = well[0]._process
        with pytest.raises(ac.errors.WorkerLostError, match=r"`await cluster.restart\(0\)` gives it a fresh process"):
            await well[0].run(os.getpid)
        await well.restart(0)
        assert await well[0].run(os.getpid) == well[0].process_id
        with pytest.raises(exceptions.RayActorError):
            get(given_up.actor.facts.remote(), timeout=20)

    run(main)


class Held:
    """Starts a process of a worker once it is let go on."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.asked, self.goes_on = threading.Event(), threading.Event()

    def start(self, number: int) -> Any:
        self.asked.set()
        assert self.goes_on.wait(60)
        return self._cluster._started(number)

    async def until_asked(self) -> None:
        while not self.asked.is_set():
            await anyio.lowlevel.checkpoint()


async def until_no_thread_renews() -> None:
    while any("renew" in each.name for each in threading.enumerate()):
        await anyio.lowlevel.checkpoint()


def test_a_process_that_comes_after_its_restart_was_cancelled_is_lost(run, well: Cluster):
    async def main() -> None:
        held, old = Held(well), well[0]._process
        async with anyio.create_task_group() as group:
            group.start_soon(restart, well[0], held.start)
            await held.until_asked()
            group.cancel_scope.cancel()
        assert well[0].lost == "it was restarted"
        held.goes_on.set()
        await until_no_thread_renews()
        assert well[0]._process is not old
        assert well[0].lost == "its restart was cancelled"

    run(main)


def test_a_restart_that_is_cancelled_leaves_the_one_before_it_alone(run, well: Cluster):
    async def main() -> None:
        held = Held(well)
        async with anyio.create_task_group() as group:
            group.start_soon(restart, well[0], held.start)
            await held.until_asked()
            with anyio.move_on_after(0):
                await well.restart(0)  # its thread waits for the other one
            held.goes_on.set()
        await until_no_thread_renews()
        assert await well[0].run(os.getpid) == well[0].process_id

    run(main)


def test_the_later_of_two_restarts_of_a_worker_gives_it_its_process(run, well: Cluster):
    async def main() -> None:
        async def first() -> None:
            with pytest.raises(ac.errors.WorkerLostError, match="it was restarted"):
                await well.restart(0)

        old = well[0]._process
        async with anyio.create_task_group() as group:
            group.start_soon(first)
            while well[0]._process is old:
                await anyio.lowlevel.checkpoint()
            await well.restart(0)
        assert await well[0].run(os.getpid) == well[0].process_id

    run(main)


def test_a_lost_device_is_told_by_the_worker_that_has_it_and_a_restart_gives_it_back(run_once, well: Cluster):
    async def lose_the_device() -> None:
        await ac.kernel('extern "C" __global__ void stop() { __trap(); }', "stop")(grid=1, block=1)

    async def main() -> None:
        with pytest.raises(ac.errors.DeviceLostError, match="stop") as caught:
            await well[0].run(lose_the_device)
        assert "lose_the_device() raised it on worker 0" in caught.value.__notes__[-1]
        assert await well[1].run(reads_a_one) == 1.0
        await well.restart(0)
        assert await well[0].run(reads_a_one) == 1.0

    async def reads_a_one() -> float:
        return float((await ac.to_host(ac.ones(1)))[0])

    run_once(main)


def test_a_group_over_the_workers_computes_and_ends_with_its_block(run, well: Cluster):
    async def main() -> None:
        async with await well.group() as group:
            assert repr(group) == "<aiocuda.cluster.ClusterGroup of 2 workers>"
            assert await well.run(reduced, group, 1.0) == [3.0, 3.0]
        with pytest.raises(ac.errors.ClosedError, match="the group was closed"):
            await well.run(reduced, group, 1.0)

    run(main)


def refuse_one_connection() -> None:
    """On a worker: the next way to another process is not found."""
    import socket

    connect = socket.create_connection

    def refuse(*_: Any, **__: Any) -> None:
        socket.create_connection = connect
        raise OSError("no route")

    socket.create_connection = refuse


def test_a_group_whose_id_a_worker_does_not_reach_names_the_worker_that_made_it(run_once, well: Cluster):
    pytest.importorskip("nccl.bindings")

    async def main() -> None:
        await well[1].run(refuse_one_connection)
        with anyio.fail_after(20), pytest.raises(ac.errors.CollectiveError, match="rank 1 does not reach") as caught:
            await well.group(timeout_s=3)
        assert "Ranks have the numbers of their workers, and worker 0 made the group's id." in caught.value.__notes__
        async with await well.group() as again:
            assert await well.run(reduced, again, 1.0) == [3.0, 3.0]

    run_once(main)


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_group_fails_on_all_workers_when_one_is_lost(run_once, well: Cluster, signal_number: int):
    """The other rank waits in a collective; its await ends with the group."""

    async def main() -> None:
        group = await well.group()

        async def lose_the_other() -> None:
            await until_busy(well[0], "reduced")
            os.kill(well[1].process_id, signal_number)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lose_the_other)
            with anyio.fail_after(20), pytest.raises(ac.errors.CollectiveError, match="rank 1"):
                await well[0].run(reduced, group, 1.0)
        with pytest.raises(ac.errors.WorkerLostError, match="worker 1 is lost"):
            await well[1].run(lambda: 0)
        await well.restart(1)
        with pytest.raises(ac.errors.ClusterError, match=r"worker 1 is no member of .* it was restarted since"):
            await well[1].run(reduced, group, 1.0)
        with pytest.raises(ac.errors.CollectiveError, match="make a new group"):
            await well[0].run(reduced, group, 1.0)
        await group.close()
        async with await well.group() as again:
            assert await well.run(reduced, again, 2.0) == [6.0, 6.0]

    run_once(main)


def test_what_was_lent_to_a_lost_worker_is_let_go_of(run_once, well: Cluster):
    class Keeps:
        def __init__(self, x: Any) -> None:
            self.x = x

    async def main() -> None:
        await well[0].create(Keeps, await ac.ones(8, device=0))
        await well[1].create(Keeps, await ac.ones(8, device=1))
        for worker in well:
            os.kill(worker.process_id, signal.SIGKILL)
            while not worker.lost:
                await anyio.lowlevel.checkpoint()
            assert worker._process.leases.lent_count == 0

    run_once(main)


TRAINING_STEPS, KILLS = 20, 4


async def train(cluster: Cluster, steps: int, kill: Any) -> np.ndarray:
    """Idempotent steps: each takes the weights of the last one that all workers did, and gives those after it."""

    async def step(group: Any, weights: np.ndarray, number: int) -> np.ndarray:
        mine = np.random.default_rng([number, group.rank]).standard_normal(weights.shape, dtype=np.float32)
        gradient = await ac.to_host(group.all_reduce(await ac.to_device(mine)))
        return weights * np.float32(0.9) - np.float32(0.1) * gradient

    weights, group, done = np.ones(64, np.float32), None, 0
    while done < steps:
        try:
            group = group or await cluster.group()
            kill(done)
            results = await cluster.run(step, group, weights, done)
            assert all(np.array_equal(each, results[0]) for each in results)
            weights, done = results[0], done + 1
        except (ac.errors.WorkerLostError, ac.errors.CollectiveError):
            if group is not None:
                await group.abort()
            group = None
            for worker in cluster:
                if worker.lost:
                    await cluster.restart(worker.number)
    assert isinstance(group, ClusterGroup)
    await group.close()
    return weights


def killer(cluster: Cluster, kills: int, seed: int) -> tuple[Any, list[int]]:
    """Kill a random worker before random steps, as often as was said."""
    rng = np.random.default_rng(seed)
    killed: list[int] = []

    def kill(done: int) -> None:
        if len(killed) < kills and (rng.random() < 0.5 or done > TRAINING_STEPS // 2):
            victim = cluster[int(rng.integers(len(cluster)))]
            if not victim.lost:
                killed.append(victim.number)
                os.kill(victim.process_id, signal.SIGKILL)

    return kill, killed


@pytest.mark.parametrize("kills", [KILLS, pytest.param(100, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_a_training_job_ends_with_the_same_weights_whoever_is_killed(run_once, well: Cluster, kills: int):
    async def main() -> None:
        steps = max(TRAINING_STEPS, kills)
        undisturbed = await train(well, steps, lambda _: None)
        kill, killed = killer(well, kills, seed=20)
        assert np.array_equal(await train(well, steps, kill), undisturbed)
        assert len(killed) == kills

    run_once(main)


def test_the_cluster_uses_a_ray_that_is_there_and_says_what_it_lacks(run_once, well: Cluster):
    async def too_many() -> None:
        async with start(workers=9, begins_within_s=0.1):
            pass

    async def with_options() -> None:
        async with start(workers=1, ray_options={"num_cpus": 1}):
            pass

    with pytest.raises(ac.errors.ClusterError, match=r"9 workers with 1 GPUs each .* Ray has 2 GPUs, and 0 are free"):
        run_once(too_many)
    with pytest.raises(ac.errors.ArgumentValueError, match="this process uses a Ray already"):
        run_once(with_options)
    assert run_once(lambda: well[0].run(lambda: 1)) == 1  # Ray goes on


def test_a_start_that_is_cancelled_leaves_nothing_reserved(run, well: Cluster):
    from ray.util import placement_group_table

    async def main() -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            async with start(workers=1):
                pytest.fail("it was cancelled")
        with anyio.CancelScope() as scope:  # one that waits for a GPU
            async with anyio.create_task_group() as group:
                group.start_soon(enter)
                while "PENDING" not in states():
                    await anyio.lowlevel.checkpoint()
                scope.cancel()

    async def enter() -> None:
        async with start(workers=1):
            pytest.fail("there is no GPU for it")

    def states() -> list[str]:
        return [each["state"] for each in placement_group_table().values()]

    run(main)
    while "PENDING" in states():
        pass
    assert states().count("CREATED") == 1  # the cluster's own
