"""An operation runs at most once, keeps its result or its error, and disturbs nobody else."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import anyio
import numpy as np
import pytest
import trio

import aiocuda as ac


class Boom(Exception):
    """The exception that callbacks raise."""


def counted(op: ac.DeviceOp[Any], calls: list[Any]) -> ac.DeviceOp[Any]:
    return op.inspect(lambda value: calls.append(value))


def test_diamond_runs_its_shared_node_once(kernels):
    calls: list[Any] = []
    top = kernels.increment(counted(ac.zeros(8, np.int32), calls), 8, threads=8)
    left = kernels.accumulate(1, top, ac.zeros(8, np.int32), 8, threads=8)
    right = kernels.accumulate(2, top, ac.zeros(8, np.int32), 8, threads=8)
    a, b = ac.zip(ac.to_host(left), ac.to_host(right)).sync()
    assert len(calls) == 1
    np.testing.assert_array_equal(a, np.full(8, 1))
    np.testing.assert_array_equal(b, np.full(8, 2))


def test_asking_again_gives_the_same_object():
    op = ac.to_host(ac.ones(3))
    assert op.sync() is op.sync()


def test_asking_again_runs_nothing_again(kernels):
    op = kernels.increment(ac.zeros(4, np.int32), 4, threads=4)
    for _ in range(3):
        array = op.sync()
    np.testing.assert_array_equal(ac.to_host(array).sync(), [1, 1, 1, 1])


@pytest.mark.parametrize("combine", ["then", "map", "inspect"])
def test_callback_of_a_shared_operation_is_called_once(combine):
    calls: list[int] = []
    shared = getattr(ac.value(1), combine)(lambda value: calls.append(value) or value)
    ac.zip(shared, shared.map(str), shared.then(lambda value: value), shared).sync()
    shared.sync()
    assert calls == [1]


def test_many_tasks_awaiting_one_operation_run_it_once(run, latch):
    latch.hold()
    calls: list[int] = []
    op = ac.to_host(ac.full(3, 7, np.int32)).map(lambda host: calls.append(1) or host)
    results: list[np.ndarray] = []

    async def wait_for_it() -> None:
        results.append(await op)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(wait_for_it)
            await anyio.lowlevel.checkpoint()
            latch.release()

    run(main)
    assert calls == [1]
    assert len(results) == 50
    assert all(result is results[0] for result in results)


def test_many_threads_asking_at_once_run_it_once(kernels):
    for _ in range(20):
        calls: list[int] = []
        op = kernels.increment(ac.zeros(64, np.int32), 64, threads=64)
        op = ac.to_host(op).map(lambda host, calls=calls: calls.append(1) or host)
        barrier = threading.Barrier(8)
        results: list[Any] = []

        def ask(op=op, barrier=barrier, results=results) -> None:
            barrier.wait()
            results.append(op.sync())

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert calls == [1]
        assert len(results) == 8
        assert all(result is results[0] for result in results)
        np.testing.assert_array_equal(results[0], np.ones(64))


def test_a_slow_callback_is_not_called_by_a_second_thread():
    entered, go_on = threading.Event(), threading.Event()
    calls: list[int] = []

    def slow(value: int) -> int:
        calls.append(value)
        entered.set()
        go_on.wait(60)
        return value + 1

    op = ac.value(1).then(slow)
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(op.sync())) for _ in range(2)]
    threads[0].start()
    entered.wait(60)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert calls == [1]
    assert results == [2, 2]


@pytest.mark.parametrize("combine", ["then", "map", "inspect"])
def test_an_operation_that_failed_keeps_its_error(combine):
    calls: list[int] = []

    def fail(value: int) -> None:
        calls.append(value)
        raise Boom("no")

    op = getattr(ac.value(1), combine)(fail)
    with pytest.raises(Boom) as first:
        op.sync()
    with pytest.raises(Boom) as second:
        op.sync()
    assert first.value is second.value
    assert calls == [1]
    assert "failed" in repr(op)


def test_dependants_fail_with_the_same_error(kernels):
    def fail(_: object) -> Any:
        raise Boom("no")

    failing = ac.value(1).then(fail)
    dependants = [
        failing.map(str),
        ac.zip(ac.value(1), failing),
        failing.unzip(2)[0],
        ac.to_host(failing),
        kernels.increment(failing, 1, threads=1),
    ]
    with pytest.raises(Boom) as caught:
        failing.sync()
    for dependant in dependants:
        with pytest.raises(Boom) as again:
            dependant.sync()
        assert again.value is caught.value


def test_what_does_not_depend_on_a_failure_is_undisturbed(kernels):
    def fail(_: object) -> Any:
        raise Boom("no")

    shared = ac.full(4, 5, np.int32)
    before = kernels.increment(shared, 4, threads=4)
    failing = before.then(fail)
    after = kernels.increment(before, 4, threads=4)
    with pytest.raises(Boom):
        ac.zip(failing, after).sync()
    np.testing.assert_array_equal(ac.to_host(after).sync(), [7, 7, 7, 7])


def test_an_error_asked_for_again_does_not_grow():
    op = ac.value(1).then(lambda _: 1 / 0)

    def depth() -> int:
        with pytest.raises(ZeroDivisionError) as caught:
            op.sync()
        frames, traceback = 0, caught.value.__traceback__
        while traceback:
            frames, traceback = frames + 1, traceback.tb_next
        return frames

    depth()
    early = depth()
    for _ in range(100):
        depth()
    assert depth() == early


def test_waiting_for_oneself_through_a_returned_operation_is_an_error():
    holder: list[ac.DeviceOp[Any]] = []
    holder.append(ac.value(1).then(lambda _: holder[0].map(str)))
    with pytest.raises(ac.ArgumentValueError, match="waits for itself"):
        holder[0].sync()


def test_returning_oneself_is_an_error():
    holder: list[ac.DeviceOp[Any]] = []
    holder.append(ac.value(1).then(lambda _: holder[0]))
    with pytest.raises(ac.ArgumentValueError, match="waits for itself"):
        holder[0].sync()


@pytest.mark.parametrize("combine", ["then", "map", "inspect"])
def test_a_callback_that_runs_its_own_operation_is_an_error(combine):
    holder: list[ac.DeviceOp[Any]] = []
    calls: list[int] = []

    def ask_oneself(value: int) -> Any:
        calls.append(value)
        return holder[0].sync()

    holder.append(getattr(ac.value(1), combine)(ask_oneself))
    with pytest.raises(ac.ArgumentValueError, match="waits for itself"):
        holder[0].sync()
    assert calls == [1]


def test_a_callback_may_run_another_operation():
    other = ac.to_host(ac.full(2, 3, np.int32))
    op = ac.value(1).then(lambda value: value + int(other.sync()[0]))
    assert op.sync() == 4


def test_a_callback_may_build_and_drop_anything(kernels):
    def wild(array: ac.DeviceArray) -> ac.DeviceOp[ac.DeviceArray]:
        for _ in range(10):
            ac.zip(ac.ones(3), ac.value(1)).sync()
        return kernels.increment(array, 4, threads=4)

    np.testing.assert_array_equal(ac.to_host(ac.zeros(4, np.int32).then(wild)).sync(), [1] * 4)


def test_a_map_may_wait_for_the_work_of_another_thread():
    """As a thread pool in a host function does: the other thread must be able to submit."""
    other = ac.to_host(ac.full(2, 3, np.int32))

    def ask_another_thread(value: int) -> int:
        thread = threading.Thread(target=other.sync, daemon=True)
        thread.start()
        thread.join(20)
        return 0 if thread.is_alive() else value

    assert ac.value(1).map(ask_another_thread).sync() == 1


def ask_at_once(askers: list[Callable[[], Any]]) -> list[Any]:
    """Call each in a thread of its own, all at once; what each returned or raised."""
    barrier = threading.Barrier(len(askers))
    found: list[Any] = [None] * len(askers)

    def ask(index: int) -> None:
        barrier.wait(60)
        try:
            found[index] = askers[index]()
        except Exception as error:  # noqa: BLE001 - given to the test
            found[index] = error

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(askers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return found


def every_way_to_ask(op: ac.DeviceOp[Any]) -> list[Callable[[], Any]]:
    async def one() -> Any:
        return await op

    async def many() -> Any:
        results: list[Any] = []

        async def keep() -> None:
            results.append(await op)

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(keep)
        assert all(result is results[0] for result in results)
        return results[0]

    async def future() -> Any:
        return await op.submit()

    return [
        op.sync,
        lambda: op.sync_on(ac.Device(0).stream()),
        lambda: op.submit().sync(),
        lambda: op.schedule(0).sync(),
        lambda: asyncio.run(one()),
        lambda: trio.run(one),
        lambda: trio.run(future),
        lambda: anyio.run(many),
        lambda: ac.zip(ac.value(1), op).sync()[1],
        lambda: op.inspect(str).then(lambda value: value).submit().sync(),
    ]


def test_every_way_to_ask_at_once_runs_it_once(kernels):
    for _ in range(10):
        calls: list[str] = []
        op = kernels.increment(counted(ac.zeros(64, np.int32), calls), 64, threads=64)
        op = ac.to_host(op.then(lambda array, calls=calls: calls.append("then") or array))
        op = op.map(lambda host, calls=calls: calls.append("map") or host)
        results = ask_at_once(every_way_to_ask(op))
        assert calls[1:] == ["then", "map"]
        assert all(result is results[0] for result in results), results
        np.testing.assert_array_equal(results[0], np.ones(64))


@pytest.mark.parametrize("combine", ["then", "map", "inspect"])
def test_a_failure_is_the_same_error_for_every_asker_at_once(combine):
    for _ in range(5):
        calls: list[int] = []

        def fail(value: Any, calls=calls) -> None:
            calls.append(1)
            raise Boom("no")

        op = getattr(ac.to_host(ac.ones(8)), combine)(fail)
        raised = ask_at_once(every_way_to_ask(op)[:-1])
        assert calls == [1]
        # A task group's is an exception group around the same error.
        found = [error.exceptions[0] if isinstance(error, ExceptionGroup) else error for error in raised]
        assert all(error is found[0] for error in found), raised
        assert type(found[0]) is Boom


def test_the_frames_of_a_failure_do_not_grow_with_awaits_and_futures(run):
    op = ac.value(1).map(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        op.sync()
    depths: dict[str, set[int]] = {"op": set(), "submit": set(), "schedule": set()}

    async def main() -> None:
        for _ in range(20):
            for name, asked in [("op", op), ("schedule", op.schedule(0))]:
                with pytest.raises(ZeroDivisionError) as caught:
                    await asked
                depths[name].add(len(caught.traceback))
            with pytest.raises(ZeroDivisionError) as caught:
                op.submit()
            depths["submit"].add(len(caught.traceback))

    run(main)
    assert {name: len(found) for name, found in depths.items()} == {"op": 1, "submit": 1, "schedule": 1}


def test_one_operation_in_many_graphs_at_once_runs_once(kernels):
    """Eight DAGs, each of another thread, meet in one node."""
    for _ in range(10):
        calls: list[Any] = []
        shared = kernels.increment(counted(ac.zeros(16, np.int32), calls), 16, threads=16)
        dags = [kernels.accumulate(k, shared, ac.zeros(16, np.int32), 16, threads=16) for k in range(8)]
        dags = [ac.to_host(dag) for dag in dags]
        found = ask_at_once([dag.sync for dag in dags])
        assert len(calls) == 1
        for k, host in enumerate(found):
            np.testing.assert_array_equal(host, np.full(16, k))


def test_what_one_cancelled_before_it_was_submitted_another_runs(latch, device):
    """The asker that gave up stood in front of a map; what is behind the map is the next asker's to submit."""
    stream = device.stream()
    latch.hold(stream)
    calls: list[str] = []
    op = ac.to_host(ac.ones(4)).map(lambda host: calls.append("map") or host)
    op = ac.to_device(op).then(lambda array: calls.append("then") or array)
    with ac.use(stream):
        future = op.submit()
    future.cancel()
    latch.release()
    assert calls == []
    found = ask_at_once([op.sync, op.sync, op.submit().sync])
    assert calls == ["map", "then"]
    assert all(each is found[0] for each in found)


def test_dropping_operations_everywhere_while_others_ask_disturbs_nobody(kernels):
    stop = threading.Event()

    def litter() -> None:
        while not stop.is_set():
            cycle: list[Any] = [kernels.increment(ac.zeros(16, np.int32), 16, threads=16)]
            cycle.append(cycle)
            cycle[0].submit()
            del cycle
            gc.collect(0)

    thread = threading.Thread(target=litter)
    thread.start()
    try:
        for _ in range(20):
            op = ac.to_host(kernels.increment(ac.zeros(16, np.int32), 16, threads=16))
            for host in ask_at_once([op.sync, op.submit().sync, op.schedule(0).sync]):
                np.testing.assert_array_equal(host, np.ones(16))
    finally:
        stop.set()
        thread.join(60)
