"""`as_completed` yields finished futures in the order in which the device completes them, on every loop."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aiocuda as ac


async def turns() -> None:
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


def number(future: ac.DeviceFuture[Any]) -> int:
    return int(ac.to_host(future.result()).sync()[0])


def test_they_come_as_the_device_completes_them(run, lanes):
    held = lanes(3)
    release = [2, 0, 1]

    async def main() -> list[int]:
        found = []
        completed = ac.as_completed([lane.op(index) for index, lane in enumerate(held)])
        held[release[0]].release()
        async for future in completed:
            assert future.done()
            found.append(number(future) - 1)
            if len(found) < 3:
                held[release[len(found)]].release()
        return found

    assert run(main) == release


def test_futures_of_one_stream_come_in_its_order_however_they_are_given(run, lane):
    futures = [lane.op(index).submit() for index in range(6)]

    async def main() -> list[Any]:
        completed = ac.as_completed(futures[::-1])
        lane.release()
        return [future async for future in completed]

    assert run(main) == futures


def test_all_are_submitted_at_the_call(run, lane):
    ops = [lane.op() for _ in range(5)]

    async def main() -> None:
        completed = ac.as_completed(ops)
        assert all("submitted" in repr(op) for op in ops)
        lane.release()
        assert len([future async for future in completed]) == 5

    run(main)


def test_a_given_future_is_yielded_itself_and_starts(run):
    scheduled = ac.to_host(ac.ones(3)).schedule(0)
    done = ac.to_host(ac.ones(3)).submit()
    done.sync()

    async def main() -> set[Any]:
        return {future async for future in ac.as_completed(iter([scheduled, done]))}

    assert run(main) == {scheduled, done}
    assert scheduled.result().sum() == 3


def test_one_that_is_given_twice_is_yielded_twice_and_none_none(run):
    future = ac.value(1).submit()

    async def main() -> list[Any]:
        assert [each async for each in ac.as_completed([])] == []
        return [each async for each in ac.as_completed([future, future])]

    assert run(main) == [future, future]


def test_errors_come_out_when_the_future_is_asked(run, device):
    closed = device.stream()
    ops = [
        ac.to_host(ac.ones(3)).map(lambda _: 1 / 0),
        ac.value(1).then(lambda _: 1 / 0),
        ac.ones(3).schedule(closed),
        ac.to_host(ac.ones(3)),
    ]
    closed.close()

    async def main() -> list[Any]:
        return [future async for future in ac.as_completed(ops)]

    errors = {type(future.exception()) for future in run(main)}
    assert errors == {ZeroDivisionError, ac.ClosedError, type(None)}


def test_what_stands_behind_a_map_goes_on(run, lane):
    op = ac.to_host(lane.op(1)).map(lambda host: host + 1)
    op = ac.to_host(ac.to_device(op)).map(lambda host: host + 1)

    async def main() -> Any:
        completed = ac.as_completed([op])
        lane.release()
        return [future.result() async for future in completed]

    np.testing.assert_array_equal(run(main), [[4, 4, 4, 4]])


def test_a_cancelled_future_is_yielded_at_once(run, lane):
    future = lane.op().submit()

    async def main() -> None:
        completed = ac.as_completed([lane.op(), future])
        future.cancel()
        assert await anext(completed) is future
        assert lane.latch.is_holding
        lane.release()
        assert not (await anext(completed)).cancelled()

    run(main)


def test_several_tasks_share_one_iteration(run, lane):
    found: list[Any] = []

    async def take(completed: Any) -> None:
        async for future in completed:
            found.append(future)
            await anyio.lowlevel.checkpoint()

    async def main() -> None:
        completed = ac.as_completed([lane.op() for _ in range(20)])
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(take, completed)
            await turns()
            lane.release()

    run(main)
    assert len(set(found)) == len(found) == 20


def test_a_cancelled_iteration_goes_on_where_it_was(run, lane):
    async def main() -> int:
        completed = ac.as_completed([lane.op() for _ in range(3)])
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(anext, completed)
                await turns()
                scope.cancel()
        lane.release()
        return len([future async for future in completed])

    assert run(main) == 3


def test_an_iteration_that_is_left_leaves_the_work_and_no_memory(run, lanes, used_bytes):
    before = used_bytes()
    lane, free = lanes(2)
    free.release()
    arrays = [ac.full(1000, 3, np.int32).sync() for _ in range(2)]

    async def main() -> None:
        ops = [
            ac.copy(array, np.full(1000, 4, np.int32)).on(each.stream)
            for array, each in zip(arrays, (lane, free), strict=True)
        ]
        async for future in ac.as_completed(ops):
            assert future.done()
            break
        await turns()

    run(main)
    assert lane.latch.is_holding
    lane.release()
    assert (ac.to_host(arrays[0]).sync() == 4).all()
    arrays.clear()
    assert used_bytes() == before


@pytest.mark.parametrize("thing", [3, None, [], np.ones(3)], ids=repr)
def test_what_cannot_be_waited_for_is_an_error_before_anything_runs(run, thing):
    op = ac.ones(3)

    async def main() -> None:
        with pytest.raises(ac.ArgumentTypeError, match="operations and futures are waited for"):
            ac.as_completed([op, thing])
        with pytest.raises(ac.ArgumentTypeError, match="operations and futures are waited for"):
            await ac.wait([op, thing])

    run(main)
    assert "pending" in repr(op)


def test_it_needs_a_loop_and_stays_with_it(run):
    op = ac.ones(3)
    with pytest.raises(ac.AiocudaError, match="no event loop runs"):
        ac.as_completed([op])
    assert "pending" in repr(op)

    async def make() -> Any:
        return ac.as_completed([op])

    completed = run(make)

    async def iterate() -> None:
        with pytest.raises(ac.AiocudaError, match="in the event loop in which it was called"):
            await anext(completed)

    asyncio.run(iterate())


def test_it_is_not_for_a_plain_for(run):
    async def main() -> None:
        with pytest.raises(TypeError, match="not iterable"):
            iter(ac.as_completed([]))

    run(main)


def test_a_thousand_of_them(run, kernels):
    async def main() -> list[int]:
        ops = [ac.to_host(kernels.increment(ac.full(4, i, np.int32), 4, threads=4)) for i in range(1000)]
        return [int(future.result()[0]) async for future in ac.as_completed(ops)]

    assert sorted(run(main)) == list(range(1, 1001))
