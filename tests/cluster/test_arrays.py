"""Arrays as arguments and results: found wherever they are, by handle or by the host, kept until they have passed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio
import numpy as np
import pytest

import aiocuda as ac
from aiocuda._cluster import ray
from aiocuda._cluster.actor import facts_of_this_process
from aiocuda._cluster.leases import Leases
from aiocuda._cluster.messages import Carried, Facts, Lent, Parcel, Reply, Request, Sent, decoded, encoded, way_of
from aiocuda._cluster.parcels import pack
from aiocuda._driver import nccl, runtime
from aiocuda.cluster import Cluster, Worker

HERE = Facts("node", 1, 1, frozenset({b"a", b"b"}), can_open=True, has_nccl=True)


@dataclass
class Nested:
    arrays: dict[str, Any]
    host: Any


async def read(x: Any) -> Any:
    return await ac.to_host(x)


def worker_beside(cluster: Cluster, device: int) -> Worker:
    """The worker that has a device of this process'."""
    return next(each for each in cluster if runtime.uuid(device) in each._process.facts.devices)


async def lent_is_over(worker: Worker) -> None:
    while worker._process.leases.lent_count:
        await anyio.lowlevel.checkpoint()


def test_the_way_depends_on_host_device_and_driver():
    assert way_of(b"a", HERE, HERE) == "handle"
    assert way_of(b"c", HERE, HERE) == "nccl"
    assert way_of(b"a", HERE, HERE._replace(host="another")) == "nccl"
    assert way_of(b"a", HERE, HERE._replace(host="another", has_nccl=False)) == "host"
    assert way_of(b"a", HERE._replace(has_nccl=False), HERE._replace(host="another")) == "host"
    assert way_of(b"a", HERE, HERE._replace(host="another", devices=frozenset())) == "host"
    assert way_of(b"a", HERE._replace(can_open=False), HERE) == "host"
    assert way_of(b"a", HERE, HERE._replace(can_open=False)) == "host"


@pytest.mark.parametrize("is_found", [False, True])
def test_a_process_says_whether_it_finds_nccl(monkeypatch: pytest.MonkeyPatch, is_found: bool):
    """If it does not, no link is tried, and nobody is warned."""
    monkeypatch.setattr(ray, "node_id", lambda: "node")
    monkeypatch.setattr(nccl, "is_installed", lambda: is_found)
    here = facts_of_this_process([0])
    there = here._replace(host="another", has_nccl=True)
    assert (
        way_of(runtime.uuid(0), here, there) == way_of(runtime.uuid(0), there, here) == ("nccl" if is_found else "host")
    )


def test_messages_are_bytes_for_ray_but_for_those_with_host_data_which_it_does_not_copy():
    plain, data = Parcel(b"pickled", [], []), np.ones(3)
    for message in (Request("call 1", "run", 0, plain, ()), Reply(plain, [("call 1", 0)])):
        assert isinstance(encoded(message), bytes)
        assert decoded(encoded(message)) == message
    for parcel in (plain._replace(buffers=[data]), plain._replace(arrays=[Sent(data, b"a")])):
        request = Request("call 1", "run", 0, parcel, ())
        assert encoded(request) is request
        assert decoded(request) is request


def test_arrays_are_found_in_all_that_is_sent_and_host_data_stays_host_data(run, cluster: Cluster):
    async def twice(given: Nested) -> tuple[bool, bool, Nested]:
        a, b = given.arrays["a"], given.arrays["list"][0][0]
        same = a is given.arrays["again"]
        return (
            same,
            isinstance(given.host, np.ndarray),
            Nested({"a": await ac.dup(a), "b": await ac.dup(b)}, given.host),
        )

    async def main() -> None:
        a, b = await ac.zip(ac.arange(6, dtype="float32"), ac.full((2, 3), 7, "int32"))
        for worker in cluster:
            same, is_host, back = await worker.run(twice, Nested({"a": a, "again": a, "list": [(b,)]}, np.arange(3)))
            assert same
            assert is_host
            assert (await read(back.arrays["a"])).tolist() == [0, 1, 2, 3, 4, 5]
            assert (await read(back.arrays["b"])).tolist() == [[7] * 3] * 2
            assert back.host.tolist() == [0, 1, 2]

    run(main)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "bool", "complex64"])
@pytest.mark.parametrize("device", [0, 1])
def test_dtypes_and_shapes_arrive(run_once, cluster: Cluster, dtype: str, device: int):
    async def back(*given: Any) -> Any:
        return [(each.shape, str(each.dtype)) for each in given], given

    async def main() -> None:
        arrays = [await ac.ones(shape, dtype, device=device) for shape in [(), (0,), (3, 2)]]
        told, arrived = await cluster[0].run(back, *arrays)
        assert told == [((), dtype), ((0,), dtype), ((3, 2), dtype)]
        assert [np.all(await read(each) == 1) for each in arrived] == [True, True, True]

    run_once(main)


def test_an_array_is_sent_behind_the_work_that_makes_it(run, cluster: Cluster, latch):
    """The call is under way while a stream is held; the worker's work waits on the device."""

    async def main() -> None:
        worker, stream = worker_beside(cluster, 0), ac.Device(0).stream()
        x = await ac.empty(4, "int32", interprocess=True)
        latch.hold(stream)
        filled = ac.fill(x, 3).on(stream).submit()
        got: list[Any] = []
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                got.append(await worker.run(read, x))

            group.start_soon(ask)
            while "read()" not in repr(worker):
                await anyio.lowlevel.checkpoint()
            assert got == []
            latch.release()
        await filled
        assert got[0].tolist() == [3] * 4

    run(main)


def test_memory_of_processes_is_not_copied_but_shared(run, cluster: Cluster):
    """What the worker writes is there; an ordinary array is a copy there."""

    async def write(x: Any) -> None:
        await ac.fill(x, 9)

    async def main() -> None:
        worker = worker_beside(cluster, 0)
        shared, ordinary = await ac.zip(ac.zeros(3, interprocess=True), ac.zeros(3))
        await worker.run(write, shared)
        await worker.run(write, ordinary)
        assert (await read(shared)).tolist() == [9] * 3
        assert (await read(ordinary)).tolist() == [0] * 3

    run(main)


def test_an_array_is_kept_until_the_worker_has_passed_it_and_no_longer(run, cluster: Cluster):
    class Keeps:
        def __init__(self, x: Any) -> None:
            self.x = x

        async def value(self) -> list[float]:
            return (await ac.to_host(self.x)).tolist()

        def drop(self) -> None:
            self.x = None

    async def main() -> None:
        worker = worker_beside(cluster, 0)
        await lent_is_over(worker)
        kept = await worker.create(Keeps, await ac.full(1000, 5.0))
        assert worker._process.leases.lent_count == 1
        await ac.full(1000, 6.0, interprocess=True)  # which may get memory that was let go of
        assert await kept.value() == [5.0] * 1000
        assert worker._process.leases.lent_count == 1
        await kept.drop()
        await lent_is_over(worker)

    run(main)


def test_results_are_kept_by_the_worker_until_they_have_passed_here(run, cluster: Cluster):
    async def make() -> Any:
        return await ac.full(1000, 4.0)

    async def used() -> int:
        return ac.current_device().memory_info().used_bytes

    async def main() -> None:
        worker = cluster[0]
        before = await worker.run(used)
        result = await worker.run(make)
        assert result.device.ordinal == 0
        assert (await read(result[1:3])).tolist() == [4.0, 4.0]
        assert await worker.run(used) > before
        del result
        while await worker.run(used) > before:
            await anyio.lowlevel.checkpoint()

    run(main)


def test_a_call_given_up_before_it_began_leaves_nothing_lent(run, cluster: Cluster):
    async def main() -> None:
        worker = worker_beside(cluster, 0)
        await lent_is_over(worker)
        x = await ac.zeros(3, interprocess=True)
        facts = worker._process.facts
        process = worker._process
        parcel = await pack(x, "given up", process.leases, process.links, worker._driver, facts, "x")
        assert isinstance(parcel.arrays[0], Lent)
        assert worker._process.leases.lent_count == 1
        worker._process._abandoned.append("given up")
        await lent_is_over(worker)

    run(main)


def test_an_array_that_was_moved_is_refused_and_nothing_stays_lent(run_once, cluster: Cluster):
    async def main() -> None:
        worker = worker_beside(cluster, 0)
        await lent_is_over(worker)
        x, y = await ac.zip(ac.zeros(3, interprocess=True), ac.zeros(3, interprocess=True))
        ac.move(y)
        with pytest.raises(ac.errors.OwnershipError, match="moved"):
            await worker.run(read, [x, y])
        assert worker._process.leases.lent_count == 0

    run_once(main)


class Meeting(deque[Any]):
    """Once one thread has seen that there is something, another one asks, too."""

    def __init__(self, ask: Callable[[], object]) -> None:
        super().__init__()
        self._other: threading.Thread | None = threading.Thread(target=ask)

    def __len__(self) -> int:
        found, other, self._other = super().__len__(), self._other, None
        if other is not None:
            other.start()
            other.join(0.2)  # it ends, or waits for the first one
        return found


def test_each_lease_that_has_ended_is_told_once_whichever_threads_ask():
    """The thread that watches asks, and each thread that calls."""
    leases, told = Leases(), []
    leases._closed = Meeting(lambda: told.extend(leases.take_closed()))
    leases.discard([Carried(("a call", 0), (1,), "int8", b"a")])
    told.extend(leases.take_closed())
    assert told == [("a call", 0)]


def test_loops_of_several_threads_ask_at_the_same_time(cluster: Cluster):
    results: dict[int, int] = {}

    async def main(number: int) -> None:
        x = await ac.full(3, number)
        results[number] = int((await cluster[number % 2].run(read, x))[0])

    threads = [threading.Thread(target=anyio.run, args=(main, number)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert results == {0: 0, 1: 1, 2: 2, 3: 3}
