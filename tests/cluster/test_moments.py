"""A worker is killed at the worst moments: in a collective, a transfer, a restart, and while a group is made.

In each of them all awaits end in the time that docs/reference/cluster.md states, with an error that names the worker;
the other worker goes on; and a restart brings everything back.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import aiocuda as ac
from aiocuda._driver import runtime
from aiocuda.cluster import Cluster, Worker
from aiocuda.errors import CollectiveError, WorkerLostError

ANSWERS_WITHIN_S = 3  # of the cluster
STATED_S = ANSWERS_WITHIN_S + 1


async def reads_a_one() -> float:
    return float((await ac.to_host(ac.ones(1)))[0])


async def reduced(group: Any) -> float:
    return float((await ac.to_host(group.all_reduce(await ac.full(4, group.rank + 1.0))))[0])


def is_named(victim: int, error: BaseException) -> bool:
    """Whether an error names the worker that was killed."""
    return any(name in str(error) for name in (f"worker {victim} is lost", f"rank {victim} is gone"))


async def goes_on(worker: Worker) -> None:
    with anyio.fail_after(STATED_S):
        assert await worker.run(reads_a_one) == 1.0


async def comes_back(cluster: Cluster, victim: int) -> None:
    """Restart the worker, and have both compute together."""
    await cluster.restart(victim)
    pytest.importorskip("nccl.bindings")
    async with await cluster.group() as group:
        assert await cluster.run(reduced, group) == [3.0, 3.0]


# In a collective.


async def held_for_ever() -> Any:
    """On a worker: return an array behind something that waits for ever."""
    import builtins

    from aiocuda import _native

    word = builtins.word = await ac.empty_host(1, "uint32")
    word.numpy()[0] = 0
    x = await ac.zeros(4)

    def wait(stream: ac.Stream, _: Any) -> None:
        _native.wait_for_word(stream.device.ordinal, stream.handle, word._address, 1)

    ac.call(wait, x, writes=[x]).submit()
    return x


async def begin(group: Any, victim: int) -> None:
    """On a worker: submit a collective, which waits on the victim's device."""
    import builtins

    x = await (held_for_ever() if group.rank == victim else ac.zeros(4))
    builtins.under_way = group.all_reduce(x, out=x).submit()


async def end() -> None:
    import builtins

    await builtins.under_way


async def waits(group: Any) -> bool:
    return bool(await anyio.to_thread.run_sync(group.waits_for))


@pytest.mark.parametrize("victim", [0, 1])
def test_in_a_collective(run_once, well: Cluster, victim: int):
    """Worker 0 has the channel's hub; both ranks' halves were submitted."""
    pytest.importorskip("nccl.bindings")

    async def main() -> None:
        other = well[1 - victim]
        group = await well.group()
        await well.run(begin, group, victim)
        while not await other.run(waits, group):
            await anyio.lowlevel.checkpoint()
        errors: dict[int, BaseException] = {}

        async def wait(worker: Worker) -> None:
            try:
                await worker.run(end)
            except ac.AiocudaError as error:
                errors[worker.number] = error

        with anyio.fail_after(STATED_S):
            async with anyio.create_task_group() as tasks:
                for worker in well:
                    tasks.start_soon(wait, worker)
                while any("end()" not in repr(worker) for worker in well):
                    await anyio.lowlevel.checkpoint()
                os.kill(well[victim].process_id, signal.SIGKILL)
        lost, failed = errors[victim], errors[1 - victim]
        assert isinstance(lost, WorkerLostError)
        assert (lost.worker, lost.doing) == (victim, "end()")
        assert lost.reason.startswith("its process has ended")
        assert isinstance(failed, CollectiveError)
        assert is_named(victim, failed)
        await goes_on(other)
        await group.close()
        await comes_back(well, victim)

    run_once(main)


# In a transfer.


async def read(x: Any) -> Any:
    return await ac.to_host(x)


async def held_up() -> Any:
    """On a worker: return an array of sevens, which wait for ever."""
    x = await held_for_ever()
    ac.fill(x, 7).submit()
    return x


def by(way: str, apart: Any, worker: Worker) -> Any:
    """Have arrays go to a worker and back in one of the three ways."""
    if way == "handle":
        return contextlib.nullcontext(worker)
    return apart(worker) if way == "nccl" else apart(worker, has_nccl=False)


@pytest.mark.parametrize("way", ["handle", "nccl", "host"])
def test_in_the_transfer_of_an_argument(run_once, well: Cluster, apart, latch, way: str):
    """The work that makes the array is held here, so it has not arrived there."""
    pytest.importorskip("nccl.bindings")
    its_own = next(each for each in (0, 1) if runtime.uuid(each) in well[1]._process.facts.devices)
    device = its_own if way == "handle" else 1 - its_own

    async def main() -> None:
        stream = ac.Device(device).stream()
        async with by(way, apart, well[1]) as worker:
            await worker.run(read, await ac.zeros(1, device=device))  # the link is there
            x = await ac.empty(1000, "int32", device=device)
            latch.hold(stream)
            ac.fill(x, 3).on(stream).submit()

            async def kill() -> None:
                while "read()" not in repr(worker) and way != "host":
                    await anyio.lowlevel.checkpoint()
                os.kill(worker.process_id, signal.SIGKILL)
                while not worker.lost:
                    await anyio.lowlevel.checkpoint()
                if way == "host":
                    latch.release()

            with anyio.fail_after(STATED_S):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(kill)
                    with pytest.raises(WorkerLostError, match=r"worker 1 is lost \(its process has ended") as caught:
                        await worker.run(read, x)
            assert caught.value.worker == 1
            latch.release()
            assert set((await ac.to_host(x)).tolist()) == {3}  # it is ours
            assert worker._process.leases.lent_count == 0
        await goes_on(well[0])
        await comes_back(well, 1)

    run_once(main)


def test_in_the_transfer_of_a_result(run_once, well: Cluster, apart):
    pytest.importorskip("nccl.bindings")

    async def main() -> None:
        async with by("nccl", apart, well[1]) as worker:
            result = await worker.run(held_up)
            try:
                os.kill(worker.process_id, signal.SIGKILL)
                with anyio.fail_after(STATED_S), pytest.raises(WorkerLostError, match="worker 1 is lost") as caught:
                    await read(result)
                assert (caught.value.worker, caught.value.doing) == (1, "the result of held_up()")
            finally:
                while not worker.lost:
                    await anyio.lowlevel.checkpoint()
        await goes_on(well[0])
        await comes_back(well, 1)

    run_once(main)


def test_before_the_result_that_goes_by_handle_is_there(run_once, well: Cluster, tmp_path: Path):
    """A device takes the events of a process that has died for passed, so the driver must not have the array yet."""
    has_begun = tmp_path / "has begun"

    async def begun(place: str) -> Any:
        await anyio.Path(place).touch()
        return await held_up()

    async def main() -> None:
        worker = well[1]
        x = await worker.run(ac.zeros, 4)  # the way by handle works

        async def kill() -> None:
            while not has_begun.exists():
                await anyio.lowlevel.checkpoint()
            for _ in range(3):
                await worker.run(read, x)  # so that a reply would have come
            os.kill(worker.process_id, signal.SIGKILL)

        with anyio.fail_after(STATED_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(kill)
                with pytest.raises(WorkerLostError, match=r"worker 1 is lost \(its process has ended") as caught:
                    await worker.run(begun, str(has_begun))
        assert caught.value.worker == 1
        await goes_on(well[0])
        await comes_back(well, 1)

    run_once(main)


# In a restart.


class Announced(dict[str, str]):
    """What a fresh process is told of the environment. As it is unpickled, the process says its number, and waits."""

    def __init__(self, environment: dict[str, str], place: Path) -> None:
        super().__init__(environment)
        self._place = place

    def __reduce__(self) -> Any:
        return announced, (dict(self), str(self._place))


def announced(environment: dict[str, str], place: str) -> dict[str, str]:
    Path(place).write_text(f"{os.getpid()}\n", encoding="utf-8")  # a pipe: waits for who reads
    threading.Event().wait()
    return environment


def test_in_a_restart(run, well: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The fresh process has begun, and its worker has not."""
    place = tmp_path / "number"
    os.mkfifo(place)

    async def main() -> None:
        errors: list[BaseException] = []

        async def restart() -> None:
            try:
                await well.restart(1)
            except ac.AiocudaError as error:
                errors.append(error)
            ended.set()

        ended = anyio.Event()
        monkeypatch.setattr(well, "_environment", Announced(well._environment, place))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(restart)
            process = int(await anyio.to_thread.run_sync(place.read_text))
            await goes_on(well[0])
            os.kill(process, signal.SIGKILL)
            with anyio.fail_after(STATED_S):
                await ended.wait()
        (error,) = errors
        assert isinstance(error, WorkerLostError)
        assert (error.worker, error.doing) == (1, "its beginning")
        assert error.reason.startswith("its process has ended")
        with pytest.raises(WorkerLostError, match="worker 1 is lost"):
            await well[1].run(reads_a_one)
        await goes_on(well[0])
        monkeypatch.undo()
        await comes_back(well, 1)

    run(main)


# While a group is made.


async def join_late() -> None:
    """On a worker: from now on, joining a group waits before NCCL connects, until `let_join`."""
    import builtins
    import threading

    from aiocuda._driver import nccl

    builtins.joining, builtins.may_join, join = threading.Event(), threading.Event(), nccl.Communicators.join

    def late(*given: Any) -> None:
        nccl.Communicators.join = join
        builtins.joining.set()
        builtins.may_join.wait()
        join(*given)

    nccl.Communicators.join = late


def has_come() -> None:
    import builtins

    builtins.joining.wait()


def let_join() -> None:
    import builtins

    builtins.may_join.set()


@pytest.mark.parametrize("victim", [0, 1])
def test_while_a_group_is_made(run, well: Cluster, victim: int):
    """Both have come, and the victim does not connect. Worker 0 has the channel's hub."""
    pytest.importorskip("nccl.bindings")

    async def main() -> None:
        other = well[1 - victim]
        for worker in well:
            await worker.run(join_late)
        errors: list[BaseException] = []

        async def make() -> None:
            try:
                await well.group()
            except ac.AiocudaError as error:
                errors.append(error)
            made.set()

        made = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(make)
            with anyio.fail_after(60):  # of the group
                for worker in well:
                    await worker.run(has_come)
            await other.run(let_join)
            await goes_on(other)
            os.kill(well[victim].process_id, signal.SIGKILL)
            with anyio.fail_after(STATED_S):
                await made.wait()
        while not well[victim].lost:
            await anyio.lowlevel.checkpoint()
        (error,) = errors
        assert is_named(victim, error)
        await goes_on(other)
        await comes_back(well, victim)

    run(main)
