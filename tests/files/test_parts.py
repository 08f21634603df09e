"""Files that one operation reads or writes in several copies: all of them or none, and nobody between two of them."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import anyio.lowlevel
import numpy as np
import pytest
import safetensors.numpy

import aiocuda as ac

COUNT = 60  # of tensors: more than the driver's queues take of files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def tensors() -> dict[str, Any]:
    return {str(i): ac.full(350_000, i, np.int32).sync(60) for i in range(COUNT)}


def submitted() -> int:
    return ac.statistics().submitted


async def come_round() -> None:
    for _ in range(50):
        await anyio.lowlevel.checkpoint()


def check(path: Path, name: str = "whole") -> None:
    found = safetensors.numpy.load_file(path)
    assert len(found) == COUNT, name
    assert all((each == int(i)).all() for i, each in found.items()), name


def test_a_read_beside_a_save_of_more_arrays_than_one_turn_submits_comes_behind_all_of_them(run, path, latch):
    count = 400  # small ones: there is room for all, but an await submits 128 operations in a turn
    tensors = {str(i): ac.full(8, i, np.int32).sync(60) for i in range(count)}
    stream = ac.Device(0).stream()

    async def main() -> None:
        await ac.save(path, tensors)
        last = path.stat().st_size - 32
        expected = int(np.fromfile(path, np.int32, offset=last)[0])
        path.unlink()
        latch.hold(stream)  # so the save has not ended when the read is submitted
        before = submitted()

        async def save() -> None:
            await ac.save(path, tensors).on(stream)

        async def read() -> None:
            while submitted() == before:
                await anyio.lowlevel.checkpoint()
            group.start_soon(release)
            found = await ac.to_host(ac.read(path, 8, np.int32, last))
            assert (found == expected).all()

        async def release() -> None:
            await come_round()
            latch.release()

        async with anyio.create_task_group() as group:
            group.start_soon(save)
            group.start_soon(read)

    run(main)


def test_a_save_of_many_tensors_that_is_cancelled_goes_on_to_its_end(run, path, latch, open_files, settle, tensors):
    stream = ac.Device(0).stream()
    latch.hold(stream)

    ended = []

    async def save() -> None:
        await ac.save(path, tensors).on(stream)
        ended.append("save")

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(save)
            await come_round()
            group.cancel_scope.cancel()
        assert not ended

    run(main)
    gc.collect()
    latch.release()
    for _ in range(100):
        stream.synchronize().sync(60)
        settle()
        if path.exists() and not open_files(path) and path.stat().st_size > COUNT * 1_400_000:
            break
    check(path)
    assert open_files(path) == []


def test_a_load_behind_a_save_of_many_tensors_loads_all_of_them(run, path, tensors):
    async def main() -> None:
        saved, loaded = await ac.zip(ac.save(path, tensors), ac.load(path))
        assert saved == COUNT * 1_400_000
        assert len(loaded) == COUNT

        ended = []

        async def save() -> None:
            await ac.save(path, {name: tensors[name] for name in reversed(tensors)})
            ended.append("save")

        async def load() -> None:
            found = await ac.load(path)
            ended.append("load")
            for name, each in found.items():
                assert (await ac.to_host(each) == int(name)).all()

        path.unlink()
        async with anyio.create_task_group() as group:
            group.start_soon(save)
            while not path.exists():
                await anyio.lowlevel.checkpoint()
            group.start_soon(load)
        assert sorted(ended) == ["load", "save"]

    run(main)
    check(path)


def test_a_read_that_comes_while_a_write_in_parts_stands_still_waits_for_all_of_it(run, path, latch, settle, tensors):
    """The load's copies find room before the rest of the save does, if nothing keeps them back."""
    stream = ac.Device(0).stream()
    latch.hold(stream)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            found = []

            async def save() -> None:
                await ac.save(path, tensors).on(stream)

            async def read() -> None:
                whole = await ac.read(path, 1_400_000 * COUNT, np.uint8, 8)
                found.append(await ac.to_host(whole))

            group.start_soon(save)
            await come_round()
            group.start_soon(read)
            await come_round()
            assert found == []
            latch.release()
        expected = path.read_bytes()[8 : 8 + 1_400_000 * COUNT]
        assert found[0].tobytes() == expected

    run(main)
    check(path)
