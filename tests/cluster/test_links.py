"""Arrays between hosts: by NCCL where both have it, behind their work, and as often as asked.

The hosts are one: the driver and a worker believe that they are on different ones. It is always worker 1:
worker 0 may have the driver's GPU, and NCCL connects no GPU with itself.
"""

from __future__ import annotations

import os
import signal
import warnings
from typing import Any

import anyio
import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native
from aiocuda._cluster import driver_links
from aiocuda._cluster.links import Link
from aiocuda._driver import nccl
from aiocuda.cluster import Cluster, Worker

pytest.importorskip("nccl.bindings")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the driver's ends of links were given, in words."""
    given: list[str] = []
    transfer = Link.transfer

    def noted(self: Link, arrays: Any, words: str) -> None:
        given.append(words)
        transfer(self, arrays, words)

    monkeypatch.setattr(Link, "transfer", noted)
    return given


def links_of(worker: Worker) -> set[Link | None]:
    """Return the driver's ends."""
    return {way._link for way in worker._process.links._ways.values()}


async def read(x: Any) -> Any:
    return await ac.to_host(x)


async def held_up() -> Any:
    """On a worker: return an array behind something that waits until `let_go`."""
    import builtins

    from aiocuda import _native

    word = await ac.empty_host(1, "uint32")
    word.numpy()[0] = 0
    builtins.held_up = word
    x = await ac.zeros(4)
    ac.call(lambda stream, _: _native.wait_for_word(0, stream.handle, word._address, 1), x, writes=[x]).submit()
    return x


async def let_go() -> None:
    import builtins

    builtins.held_up.numpy()[0] = 1


async def add_one(x: Any) -> Any:
    return await ac.algorithms.transform("x + 1", x=x)


def test_arguments_and_results_go_by_nccl_and_nothing_stays_lent(run, cluster: Cluster, apart, sent):
    async def main() -> None:
        async with apart(cluster[1]) as worker:
            x = await ac.arange(1000, dtype="float32")
            for _ in range(3):
                x = await worker.run(add_one, x)
            assert (await read(x)).tolist() == list(range(3, 1003))
            assert x.device.ordinal == 0
            assert len(sent) == 6
            assert worker._process.leases.lent_count == 0

    run(main)


def test_dtypes_shapes_and_views_arrive_in_one_transfer(run_once, cluster: Cluster, apart, sent):
    async def back(given: Any) -> Any:
        return [(each.shape, str(each.dtype)) for each in given], given

    async def main() -> None:
        arrays = [
            await ac.full(shape, 1, dtype)
            for dtype in ("float16", "bfloat16", "bool", "complex64")
            for shape in [(), (0,), (3, 2)]
        ]
        grid = await ac.arange(12, dtype="int32")
        arrays.append(grid.reshape(3, 4)[:, 1:3])
        async with apart(cluster[1]) as worker:
            told, arrived = await worker.run(back, arrays)
        assert told == [(each.shape, str(each.dtype)) for each in arrays]
        assert [np.all(await read(each) == 1) for each in arrived[:-1]] == [True] * 12
        assert (await read(arrived[-1])).tolist() == [[1, 2], [5, 6], [9, 10]]
        assert len(sent) == 2

    run_once(main)


def test_an_array_is_sent_behind_the_work_that_makes_it_and_kept(run, cluster: Cluster, apart, latch):
    """The call is under way while a stream is held; then the array is dropped, and its memory asked for."""

    async def main() -> None:
        async with apart(cluster[1]) as worker:
            await worker.run(read, await ac.zeros(1))  # the link is there
            stream = ac.Device(0).stream()
            x = await ac.empty(1000, "int32")
            latch.hold(stream)
            filled = ac.fill(x, 3).on(stream).submit()
            got: list[Any] = []
            async with anyio.create_task_group() as group:

                async def ask(given: list[Any]) -> None:
                    got.append(await worker.run(read, given.pop()))

                group.start_soon(ask, [x])
                while "read()" not in repr(worker):
                    await anyio.lowlevel.checkpoint()
                del x, filled
                assert got == []
                latch.release()
            assert got[0].tolist() == [3] * 1000

    run(main)


def test_many_calls_at_once_keep_both_ends_in_one_order(run_once, cluster: Cluster, apart):
    async def main() -> None:
        async with apart(cluster[1]) as worker:
            arrays = [await ac.full(100, number, "int32") for number in range(40)]
            results: dict[int, Any] = {}

            async def ask(number: int) -> None:
                results[number] = await read(await worker.run(add_one, arrays[number]))

            async with anyio.create_task_group() as group:
                for number in range(40):
                    group.start_soon(ask, number)
            assert {number: set(each.tolist()) for number, each in results.items()} == {
                number: {number + 1} for number in range(40)
            }

    run_once(main)


async def count_kept() -> int:
    """On a worker: return how many arrays are kept for the driver, or have come and nobody has taken them."""
    import gc

    (actor,) = [each for each in gc.get_objects() if type(each).__name__ == "WorkerActor"]
    return len(actor._leases._arrived) + len(actor._leases._lent)


def test_a_call_that_ray_does_not_take_leaves_no_array(run_once, cluster: Cluster, apart, without_room):
    """Its arrays have been sent before."""

    async def main() -> None:
        async with apart(cluster[1]) as worker:
            x = await ac.full(100, 1.0)
            await worker.run(read, x)
            with without_room(worker), pytest.raises(ac.errors.ClusterError, match="no room"):
                await worker.run(add_one, x)
            with anyio.fail_after(10):
                while await worker.run(count_kept) > 0:
                    await anyio.lowlevel.checkpoint()

    run_once(main)


def test_a_cancelled_call_leaves_the_link_and_no_array(run_once, cluster: Cluster, apart):
    """The transfer goes on, and the worker lets go of what nobody takes."""

    async def main() -> None:
        async with apart(cluster[1]) as worker:
            x = await ac.full(100, 1.0)
            await worker.run(read, x)
            for delay in range(30):
                async with anyio.create_task_group() as group:

                    async def ask() -> None:
                        await worker.run(add_one, x)

                    group.start_soon(ask)
                    for _ in range(delay):
                        await anyio.lowlevel.checkpoint()
                    group.cancel_scope.cancel()
            while await worker.run(count_kept) > 0:
                await anyio.lowlevel.checkpoint()
            assert (await read(await worker.run(add_one, x))).tolist() == [2.0] * 100

    run_once(main)


def test_without_nccl_arrays_go_through_the_object_store(run, cluster: Cluster, apart, sent):
    async def main() -> None:
        async with apart(cluster[1], has_nccl=False) as worker:
            x = await ac.arange(3, dtype="float32", device=1)
            result = await worker.run(add_one, x)
            assert (await read(result)).tolist() == [1, 2, 3]
            assert sent == []
            assert worker._process.leases.lent_count == 0

    run(main)


def is_page_locked(data: np.ndarray[Any, Any]) -> bool:
    from cuda.bindings import driver

    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    status, kind = driver.cuPointerGetAttribute(attribute, data.ctypes.data)
    # The driver knows no other memory of the host.
    return bool(status == driver.CUresult.CUDA_SUCCESS and kind == driver.CUmemorytype.CU_MEMORYTYPE_HOST)


def note(noted: list[bool]) -> Any:
    """Note whether host data that leaves this process for the object store is page-locked; return what ends that."""
    from aiocuda._cluster import parcels
    from aiocuda._cluster.worker_links import WorkerLinks

    sent, fetch = parcels.Sent, WorkerLinks.fetch

    def noting_sent(data: Any, device: bytes) -> Any:
        noted.append(is_page_locked(data))
        return sent(data, device)

    async def noting_fetch(self: Any, asked: Any) -> Any:
        found = await fetch(self, asked)
        noted.extend(map(is_page_locked, found))
        return found

    def undo() -> None:
        parcels.Sent, WorkerLinks.fetch = sent, fetch

    parcels.Sent, WorkerLinks.fetch = noting_sent, noting_fetch
    return undo


@pytest.mark.parametrize("has_nccl", [False, True])
def test_through_the_object_store_arguments_and_results_are_copied_to_page_locked_memory(
    run_once, cluster: Cluster, apart, monkeypatch, has_nccl: bool
):
    """Where there is NCCL and no link, the driver asks for results once more."""

    async def note_there() -> None:
        import builtins

        builtins.noted = []
        builtins.undo = note(builtins.noted)

    async def noted_there() -> list[bool]:
        import builtins

        builtins.undo()
        return builtins.noted

    async def no_link(*_: Any) -> bool:
        return False

    async def main() -> None:
        noted: list[bool] = []
        undo = note(noted)
        try:
            async with apart(cluster[1], has_nccl=has_nccl) as worker:
                await worker.run(note_there)
                back = await worker.run(add_one, await ac.full(1 << 16, 3.0))
                assert await worker.run(noted_there) == [True]
        finally:
            undo()
        assert noted == [True]
        assert set((await read(back)).tolist()) == {4.0}

    monkeypatch.setattr(driver_links._Way, "carry", no_link)
    run_once(main)


def test_where_nccl_does_not_connect_arrays_go_through_the_object_store_and_a_warning_says_so(
    run_once, well: Cluster, apart, sent, monkeypatch
):
    def refused(*_: Any) -> Any:
        raise ac.errors.CollectiveError("NCCL: no socket interface found")

    async def main() -> None:
        await well.restart(1)  # which has no links
        monkeypatch.setattr(nccl.Communicators, "join", refused)
        async with apart(well[1]) as worker:
            x = await ac.arange(3, dtype="float32")
            with pytest.warns(RuntimeWarning, match=r"worker 1 go through .* object store.* no socket interface"):
                result = await worker.run(add_one, x)
            assert (await read(result)).tolist() == [1, 2, 3]
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert (await read(await worker.run(add_one, x))).tolist() == [1, 2, 3]
            while "link" in repr(worker):  # its end does not wait for ours until its time is over
                await anyio.lowlevel.checkpoint()
        assert sent == []
        monkeypatch.undo()
        await well.restart(1)  # which connects again
        async with apart(well[1]) as worker:
            assert (await read(await worker.run(add_one, x))).tolist() == [1, 2, 3]
        assert len(worker._process.links._ways) == 2

    run_once(main)


@pytest.mark.parametrize("end", ["killed", "restarted"])
def test_a_transfer_that_a_worker_does_not_end_fails_and_names_it(run_once, well: Cluster, apart, end: str):
    async def main() -> None:
        async with apart(well[1]) as worker:
            result = await worker.run(held_up)
            caught = []

            async def wait() -> None:
                with pytest.raises(ac.errors.WorkerLostError, match="worker 1 is lost") as error:
                    await read(result)
                caught.append(error.value)

            with anyio.fail_after(10):
                async with anyio.create_task_group() as group:
                    group.start_soon(wait)
                    await anyio.lowlevel.checkpoint()
                    if end == "killed":
                        os.kill(worker.process_id, signal.SIGKILL)
                    else:
                        await well.restart(1)
            assert (caught[0].worker, caught[0].doing) == (1, "the result of held_up()")
            assert caught[0].reason.startswith("its process has ended" if end == "killed" else "it was restarted")
        if worker.lost:
            await well.restart(1)
        async with apart(well[1]) as worker:
            assert (await read(await worker.run(add_one, await ac.zeros(4)))).tolist() == [1] * 4

    run_once(main)


def test_a_link_that_fails_fails_what_is_under_way_and_the_next_call_gets_another(run_once, cluster: Cluster, apart):
    async def main() -> None:
        async with apart(cluster[1]) as worker:
            before = await worker.run(add_one, await ac.zeros(4))
            await read(before)
            result = await worker.run(held_up)
            (way,) = [each for each in worker._process.links._ways.values() if not each._is_to_worker]
            way._drop(way._link, way._number, "NCCL: remote process exited")
            words = r"the result of held_up\(\), by NCCL with worker 1, did not end: NCCL: remote process exited; ask"
            with pytest.raises(ac.errors.ClusterError, match=words):
                await read(result)
            assert (await read(before)).tolist() == [1] * 4
            assert (await read(await worker.run(add_one, await ac.zeros(4)))).tolist() == [1] * 4
            await worker.run(let_go)

    run_once(main)


def test_a_worker_without_memory_refuses_the_array_and_the_link_goes_on(run_once, cluster: Cluster, apart, monkeypatch):
    async def refuse(is_refused: bool) -> None:
        from aiocuda._cluster import worker_links
        from aiocuda._verbs.create import empty

        def refused(*_: Any, **__: Any) -> Any:
            raise ac.errors.OutOfMemoryError(16, 8, 1000, "device 1")

        worker_links.empty = refused if is_refused else empty

    async def main() -> None:
        async with apart(cluster[1]) as worker:
            x = await ac.zeros(4)
            await worker.run(add_one, x)
            links = links_of(worker)
            await worker.run(refuse, True)
            try:
                with pytest.raises(ac.errors.OutOfMemoryError, match="device 1") as caught:
                    await worker.run(add_one, x)
                assert "add_one(), with its arguments, raised it on worker 1" in caught.value.__notes__[-1]
            finally:
                await worker.run(refuse, False)
            assert (await read(await worker.run(add_one, x))).tolist() == [1] * 4
            assert links == links_of(worker)

    run_once(main)


def test_an_array_that_was_moved_is_refused_before_the_worker_waits_for_it(run_once, cluster: Cluster, apart):
    async def main() -> None:
        async with apart(cluster[1]) as worker:
            x = await ac.zeros(4)
            await worker.run(add_one, x)
            links = links_of(worker)
            moved = await ac.zeros(4)
            ac.move(moved)
            with pytest.raises(ac.errors.OwnershipError, match="moved"):
                await worker.run(read, [x, moved])
            assert (await read(await worker.run(add_one, x))).tolist() == [1] * 4
            assert links == links_of(worker)

    run_once(main)


def test_an_array_whose_collective_failed_is_refused_before_the_worker_waits_for_it(run_once, cluster: Cluster, apart):
    """Its bytes are in doubt when it is given, and the group fails then."""
    from aiocuda.collective import Group

    async def main() -> None:
        async with apart(cluster[1]) as worker:
            x = await ac.zeros(4)
            await worker.run(add_one, x)
            links = links_of(worker)
            group = Group.local([0])
            word = await ac.empty_host(1, "uint32")
            word.numpy()[0] = 0
            ac.call(lambda stream, _: _native.wait_for_word(0, stream.handle, word._address, 1), x, writes=[x]).submit()
            group.all_reduce([x], out=[x])[0].submit()
            async with anyio.create_task_group() as tasks:

                async def ask() -> None:
                    with pytest.raises(ac.errors.CollectiveError, match="aborted the group"):
                        await worker.run(add_one, x)

                tasks.start_soon(ask)
                await anyio.lowlevel.checkpoint()
                group.abort()
                word.numpy()[0] = 1
            group.close()
            assert (await read(await worker.run(add_one, await ac.zeros(4)))).tolist() == [1] * 4
            assert links == links_of(worker)

    run_once(main)
