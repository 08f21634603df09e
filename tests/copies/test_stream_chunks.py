"""Uploads ahead of a consumer: in order, as many as asked for, beside its work, whatever is raised or cancelled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import numpy as np
import pytest

import aiocuda as ac

SIZES = [100, 300_000]  # read at submission, and staged


def pieces(count: int, size: int, taken: list[int] | None = None) -> Iterator[np.ndarray]:
    for i in range(count):
        if taken is not None:
            taken.append(i)
        yield np.full(size, i, np.int32)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_chunks_come_in_order_and_complete(run, kernels, size, depth):
    async def main() -> list[int]:
        sums = []
        async for chunk in ac.stream_chunks(pieces(7, size), depth=depth):
            host = await ac.to_host(kernels.increment(chunk, size, threads=size))
            assert (host == host[0]).all()
            sums.append(int(host[0]))
        return sums

    assert run(main) == [i + 1 for i in range(7)]


def test_so_many_are_ahead_and_no_more(run):
    taken: list[int] = []

    async def main() -> None:
        ahead = []
        async for _ in ac.stream_chunks(pieces(6, 10, taken), depth=2):
            ahead.append(len(taken))
        assert ahead == [3, 4, 5, 6, 6, 6]

    run(main)


def test_uploads_go_on_while_the_consumers_work_is_held(run, latch, kernels):
    async def main() -> None:
        chunks = ac.stream_chunks(pieces(4, 300_000))
        first = await anext(chunks)
        latch.hold()
        held = kernels.increment(first, 300_000, threads=300_000).submit()
        with ac.use(free):
            assert [int((await ac.to_host(chunk))[5]) async for chunk in chunks] == [1, 2, 3]
        assert not held.done()
        latch.release()
        await held

    free = ac.Device(0).stream()
    run(main)


@pytest.mark.parametrize("given", [[], [np.empty((0, 3))], [np.ones(3), [1, 2], b"xyz", np.float32(7)]])
def test_items_are_what_to_device_takes(run, given):
    async def main() -> list[tuple[int, ...]]:
        return [chunk.shape async for chunk in ac.stream_chunks(given)]

    assert run(main) == [np.shape(np.frombuffer(x, np.uint8) if isinstance(x, bytes) else x) for x in given]


def test_what_the_source_raises_comes_in_its_turn_and_ends_the_iteration(run):
    def broken() -> Iterator[np.ndarray]:
        yield from pieces(2, 10)
        raise ZeroDivisionError("of the source")

    async def main() -> None:
        chunks = ac.stream_chunks(broken(), depth=4)
        for _ in range(2):
            await anext(chunks)
        with pytest.raises(ZeroDivisionError, match="of the source"):
            await anext(chunks)
        with pytest.raises(StopAsyncIteration):
            await anext(chunks)

    run(main)


def test_what_is_no_data_is_raised_in_its_turn(run):
    async def main() -> None:
        chunks: Any = ac.stream_chunks([np.ones(3), object()])
        await anext(chunks)
        with pytest.raises(ac.ArgumentTypeError, match=r"object .* is no array data in host memory"):
            await anext(chunks)

    run(main)


def test_a_cancelled_wait_loses_no_chunk(run, latches):
    async def main() -> None:
        chunks = ac.stream_chunks(pieces(3, 300_000), 0)
        latch = latches()
        latch.hold(chunks._stream)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(anext, chunks)
                for _ in range(3):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()
        latch.release()
        assert [int((await ac.to_host(chunk))[0]) async for chunk in chunks] == [0, 1, 2]

    run(main)


def test_chunks_that_nobody_holds_are_freed(run, used_bytes):
    before = used_bytes()

    async def main() -> None:
        async for _ in ac.stream_chunks(pieces(20, 300_000)):
            pass
        chunks = ac.stream_chunks(pieces(20, 300_000))
        await anext(chunks)  # and is dropped in the middle

    run(main)
    assert used_bytes() == before


@pytest.mark.needs_devices(2)
def test_chunks_go_to_the_device_that_is_named(run):
    async def main() -> None:
        async for chunk in ac.stream_chunks(pieces(2, 10), 1):
            assert chunk.device == ac.Device(1)
        with ac.use(1):
            chunks = ac.stream_chunks(pieces(2, 10))
        assert (await anext(chunks)).device == ac.Device(1)

    run(main)


@pytest.mark.parametrize(
    ("iterable", "depth", "error", "message"),
    [
        (5, 2, ac.ArgumentTypeError, "takes an iterable of data; int 5 was given"),
        ([], 0, ac.ArgumentValueError, "depth is 1 or more; 0 was given"),
        ([], 1.5, ac.ArgumentTypeError, r"depth is a whole number; 1\.5 was given"),
        ([], True, ac.ArgumentTypeError, "depth is a whole number; True was given"),
    ],
)
def test_what_cannot_be_iterated_is_an_error_at_once(iterable, depth, error, message):
    with pytest.raises(error, match=message):
        ac.stream_chunks(iterable, depth=depth)
