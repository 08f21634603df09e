"""Memory limits: what is over one fails, or waits its turn until others have let go."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import pickle
import threading
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native

SIZE = 1 << 20
LIMIT_REACHED = r"device \d has no room for .* which is the limit that memory_limit\(\) sets here"


@pytest.fixture
def room(device, used_bytes) -> Any:
    """Return the limit that leaves room for so many arrays of `SIZE` bytes."""
    used_bytes()
    held = device.memory_info().used_bytes
    return lambda arrays: held + arrays * SIZE


@pytest.fixture
def in_line() -> Any:
    """Return how many waits for room there were since the test began."""
    before = ac.statistics().waits_for_room
    return lambda: ac.statistics().waits_for_room - before


def array() -> ac.DeviceOp[ac.DeviceArray]:
    return ac.full(SIZE, 1, np.uint8)


async def until(condition: Any) -> None:
    while not condition():
        await anyio.lowlevel.checkpoint()


def test_what_is_over_the_limit_raises_and_says_that_it_is_a_limit(device, room):
    with ac.memory_limit(room(2)):
        held = [array().sync(), array().sync()]
        with pytest.raises(ac.OutOfMemoryError, match=r"which is the limit that memory_limit\(\) sets here") as caught:
            array().sync()
        error = caught.value
        assert error.is_limit
        assert (error.asked_bytes, error.free_bytes, error.total_bytes) == (SIZE, 0, room(2))
        assert any(size == 2 * SIZE and "test_limits.py" in who for who, size in error.holders)
        assert pickle.loads(pickle.dumps(error)).is_limit
        del held[0]
        held.append(array().sync())
    held.append(array().sync())  # it holds in its block alone
    with ac.memory_limit(room(1)):
        ac.empty(0).sync()  # which needs no memory
        with pytest.raises(ac.OutOfMemoryError, match=LIMIT_REACHED) as caught:
            array().sync()
    assert caught.value.free_bytes == 0


def test_memory_that_an_operation_lets_go_of_makes_room_within_it(room, kernels):
    """A chain of sixteen arrays, two at a time."""
    op: Any = ac.full(SIZE // 4, 0, np.int32)
    for _ in range(16):
        op = ac.dup(op)
    with ac.memory_limit(room(2)):
        assert (ac.to_host(op).sync() == 0).all()


def test_the_smallest_of_nested_limits_holds(room):
    with ac.memory_limit(room(1)), ac.memory_limit(room(8)), pytest.raises(ac.OutOfMemoryError, match=LIMIT_REACHED):
        ac.zip(array(), array()).sync()
    with ac.memory_limit(room(8)), ac.memory_limit(room(1)), pytest.raises(ac.OutOfMemoryError, match=LIMIT_REACHED):
        ac.zip(array(), array()).sync()
    with ac.memory_limit(room(8)):
        with ac.memory_limit(room(1)):
            pass
        ac.zip(array(), array()).sync()


@pytest.mark.needs_devices(2)
def test_a_limit_is_of_one_device(room):
    with ac.memory_limit(room(0)), ac.memory_limit(1 << 40, device=1):
        there = ac.full(SIZE, 1, np.uint8, 1).sync()
        with pytest.raises(ac.OutOfMemoryError, match=LIMIT_REACHED):
            array().sync()
    with ac.use(1), ac.memory_limit(0), pytest.raises(ac.OutOfMemoryError, match="device 1"):
        array().sync()
    del there


def test_copies_to_a_device_count(room):
    with ac.memory_limit(room(1)):
        first = ac.to_device(np.ones(SIZE, np.uint8)).sync()
        with pytest.raises(ac.OutOfMemoryError, match=LIMIT_REACHED):
            ac.to_device(np.ones(SIZE, np.uint8)).sync()
    del first


def test_memory_of_graphs_counts(room, kernels):
    with ac.memory_limit(room(0), wait=True), pytest.raises(ac.OutOfMemoryError, match="limit"):
        kernels.increment(ac.full(SIZE, 1, np.int32), SIZE, threads=SIZE).graph()
    with ac.memory_limit(room(4)):
        kernels.increment(ac.full(SIZE, 1, np.int32), SIZE, threads=SIZE).graph().close()


@pytest.mark.parametrize("wrong", [-1, 1.5, "1G", None])
def test_a_limit_is_a_whole_number_of_bytes(wrong):
    with pytest.raises(ac.ArgumentValueError, match="size_bytes"), ac.memory_limit(wrong):
        pass


def test_what_can_never_fit_fails_at_once(run, room):
    async def main() -> None:
        with (
            ac.memory_limit(room(0) + SIZE - 1, wait=True),
            pytest.raises(ac.OutOfMemoryError, match=LIMIT_REACHED) as caught,
        ):
            await ac.full(room(0) + SIZE, 1, np.uint8)
        assert caught.value.is_limit

    run(main)


def test_an_await_waits_without_blocking_its_loop(run, room, in_line):
    async def main() -> None:
        held = [await array()]
        seen: list[str] = []

        async def wait() -> None:
            with ac.memory_limit(room(1), wait=True):
                await array()
            seen.append("there")

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await until(lambda: in_line() > 0)
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            seen.append("released")
            held.clear()
        assert seen == ["released", "there"]

    run(main)


def test_first_come_first_served(run, room, in_line):
    """Each lets go of what it got before the next gets it; a small one that comes later does not pass."""

    async def main() -> None:
        held = [await array()]
        order: list[int] = []

        async def wait(number: int) -> None:
            got = await ac.full(SIZE if number % 2 == 0 else 16, 1, np.uint8)
            order.append(number)
            del got

        with ac.memory_limit(room(1), wait=True):
            async with anyio.create_task_group() as group:
                for number in range(12):
                    before = in_line()
                    group.start_soon(wait, number)
                    await until(lambda before=before: in_line() > before)
                held.clear()
        assert order == sorted(order)

    run(main)


def test_a_small_allocation_that_would_fit_does_not_pass_those_who_wait(run, room, in_line):
    async def main() -> None:
        held = [await array()]
        order: list[str] = []

        async def wait(name: str, size: int) -> None:
            got = await ac.full(size, 1, np.uint8)
            order.append(name)
            del got

        with ac.memory_limit(room(2), wait=True):
            async with anyio.create_task_group() as group:
                group.start_soon(wait, "large", 2 * SIZE)
                await until(lambda: in_line() == 1)
                group.start_soon(wait, "small", SIZE)
                await until(lambda: in_line() >= 2 or order)
                assert not order
                with ac.memory_limit(room(2)):  # who does not wait stands in no line
                    await ac.full(16, 1, np.uint8)
                held.clear()
        assert order == ["large", "small"]

    run(main)


def test_those_who_wait_never_hold_more_than_the_limit(run, device, room, kernels):
    async def main() -> None:
        async def one(number: int) -> None:
            x = await ac.full(SIZE // 4, number, np.int32)
            x = await kernels.increment(x, SIZE // 4, threads=SIZE // 4)
            assert (await ac.to_host(x) == number + 1).all()

        device.reset_peak_memory()
        with ac.memory_limit(room(3), wait=True):
            async with anyio.create_task_group() as group:
                for number in range(60):
                    group.start_soon(one, number)
        assert room(1) <= device.memory_info().peak_bytes <= room(3)

    run(main)


def test_memory_dropped_at_its_last_submission_wakes_those_who_wait(run, room, device, in_line):
    """Its operation lets go of it, and nobody submits anything afterwards."""

    async def main() -> None:
        held = [await array()]

        async def wait() -> None:
            with ac.memory_limit(room(1), wait=True):
                await array()

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await until(lambda: in_line() > 0)
            stream = device.stream()
            copied = ac.to_host(held.pop()).schedule(stream)
            assert (await copied == 1).all()
            del copied

    run(main)


def test_a_thread_waits_with_the_gil_released(room, in_line):
    held = [array().sync()]
    got: list[Any] = []

    def wait() -> None:
        with ac.memory_limit(room(1), wait=True):
            got.append(array().sync(timeout=30))

    thread = threading.Thread(target=wait)
    thread.start()
    while in_line() == 0:
        assert thread.is_alive()
    assert not got
    held.clear()
    thread.join(30)
    assert len(got) == 1


def test_threads_and_tasks_share_one_line(run, room, in_line):
    async def main() -> None:
        held = [await array()]
        order: list[str] = []

        def in_thread() -> None:
            got = array().sync(timeout=30)
            order.append("thread")
            del got

        async def in_task() -> None:
            got = await array()
            order.append("task")
            del got

        with ac.memory_limit(room(1), wait=True):
            context = contextvars.copy_context()
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.to_thread.run_sync, lambda: context.run(in_thread))
                await until(lambda: in_line() == 1)
                group.start_soon(in_task)
                await until(lambda: in_line() >= 2)
                held.clear()
        assert sorted(order) == ["task", "thread"]

    run(main)


def test_a_wait_ends_with_its_time_and_can_be_taken_up_again(run, room):
    async def main() -> None:
        held = [await array()]
        op = array()
        with ac.memory_limit(room(1), wait=True):
            with pytest.raises(ac.DeviceTimeoutError, match="for memory under a limit"):
                await op.within(0.05)
            with pytest.raises(TimeoutError):
                op.sync(timeout=0.05)
            held.clear()
            got = await op
        assert (await ac.to_host(got) == 1).all()

    run(main)


def test_cancelling_one_who_waits_lets_the_others_go_on(run, room, in_line, used_bytes):
    before = used_bytes()

    async def main() -> None:
        held = [await array()]
        ended: list[str] = []
        scopes = [anyio.CancelScope() for _ in range(4)]

        async def wait(number: int) -> None:
            with scopes[number]:
                await array()
                ended.append(f"{number} got it")

        with ac.memory_limit(room(1), wait=True):
            async with anyio.create_task_group() as group:
                for number in range(4):
                    seen = in_line()
                    group.start_soon(wait, number)
                    await until(lambda seen=seen: in_line() > seen)
                scopes[0].cancel()
                scopes[2].cancel()
                await anyio.lowlevel.checkpoint()
                held.clear()
        assert sorted(ended) == ["1 got it", "3 got it"]

    run(main)
    assert used_bytes() == before
    assert _native.pending_count() == 0


def test_a_callback_does_not_wait(room):
    held = [array().sync()]

    def nested(x: Any) -> Any:
        return array().sync()

    with ac.memory_limit(room(1), wait=True), pytest.raises(ac.OutOfMemoryError, match=LIMIT_REACHED):
        ac.value(1).then(nested).sync()
    held.clear()


def test_a_loop_that_is_left_holds_up_nobody(room, in_line):
    """The first one that is called there never comes, so the next one is called."""
    held = [array().sync()]

    async def leave() -> None:
        task = asyncio.ensure_future(_await(array()))
        seen = in_line()
        while in_line() == seen:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0)
        left.append(task)

    async def _await(op: Any) -> Any:
        return await op

    left: list[Any] = []
    loop = asyncio.new_event_loop()
    with ac.memory_limit(room(1), wait=True):
        loop.run_until_complete(leave())  # and it does not run again
        got: list[Any] = []
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: got.append(context.run(lambda: array().sync(timeout=30))))
        seen = in_line()
        thread.start()
        while in_line() == seen:
            assert thread.is_alive()
        held.clear()
        thread.join(30)
    assert len(got) == 1
    got.clear()
    loop.run_until_complete(left[0])
    loop.close()


@pytest.mark.emulated_only
def test_losing_the_device_ends_the_wait(in_process):
    done = in_process(
        """
        import asyncio, numpy as np, aiocuda as ac
        crash = ac.kernel('extern "C" __global__ void crash(int* x) { *(volatile int*)0 = 1; }')
        async def main():
            held = await ac.full(1 << 20, 1, np.uint8)
            with ac.memory_limit(1 << 20, wait=True):
                task = asyncio.ensure_future(wait())
                while not ac.statistics().waits_for_room:
                    await asyncio.sleep(0)
            try:
                await crash(ac.zeros(1, np.int32), grid=1, block=1)
            except ac.DeviceLostError as error:
                print("lost")
            try:
                await task
            except ac.DeviceLostError as error:
                print(error.operation)
        async def wait():
            await ac.full(1 << 20, 1, np.uint8)
        asyncio.run(main())
        """,
        AIOCUDA_EMULATED_DEVICES="1",
    )
    assert done.stdout == "lost\nthe creation of an array\n", done.stderr


def test_nothing_is_left_when_those_who_wait_hold_what_the_others_need(run, room, used_bytes):
    """They wait for good, and a time ends it."""
    before = used_bytes()

    async def main() -> None:
        ended: list[BaseException | None] = []

        async def one() -> None:
            first = await array()
            both.release()
            try:
                await ac.zip(array(), array()).within(0.2)
            except ac.DeviceTimeoutError as error:
                ended.append(error)
            del first

        both = anyio.Semaphore(0)
        with ac.memory_limit(room(2), wait=True):
            async with anyio.create_task_group() as group:
                group.start_soon(one)
                group.start_soon(one)
        assert 1 <= len(ended) <= 2

    run(main)
    gc.collect()
    assert used_bytes() == before
