"""Copies of pageable memory when a device is lost, memory runs out, or the process ends; each in its own process."""

from __future__ import annotations

import functools

import pytest

PRELUDE = """
import numpy as np
import aiocuda as ac

data = np.arange(3_000_000, dtype=np.int32)
"""


@pytest.fixture
def program(lines_of):
    return functools.partial(lines_of, PRELUDE)


@pytest.mark.emulated_only
@pytest.mark.parametrize("work", [1, 2, 3, 10, 20, 40, 60, 75])
def test_a_device_lost_in_the_middle_ends_the_copy_and_leaves_the_other_devices(program, before_and_after, work):
    """`work`: which piece of a stream's work loses the device; an upload is some forty, a download too."""
    before, after = before_and_after
    lines = program(
        before,
        """
        try:
            op.sync(30)
            print("whole", (out == data).all())
        except ac.DeviceLostError as error:
            print("lost", error.device)
        except ac.AiocudaError as error:
            print("lost", type(error).__name__)
        """,
        after,
        AIOCUDA_EMULATED_DEVICES="2",
        AIOCUDA_EMULATOR_FAULTS=f"lost:{work}@0",
    )
    assert lines[0].startswith("lost"), lines
    assert lines[1:] == ["True", "True"]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
def test_every_await_of_a_copy_ends_when_the_device_is_lost(program, loop):
    lines = program(
        f"""
        import anyio
        illegal = ac.kernel('extern "C" __global__ void illegal(int* x, unsigned long long far) {{ x[far] = 1; }}')
        illegal.compile(0)
        ended = []
        async def expect(op):
            try:
                await op
            except ac.DeviceLostError:
                ended.append(1)
        async def main():
            bad = illegal(ac.zeros(4, np.int32), 1 << 40, grid=1, block=1)
            stream = ac.Device(0).stream()
            out = np.zeros_like(data)
            with ac.use(stream):
                async with anyio.create_task_group() as group:
                    group.start_soon(expect, bad)
                    for _ in range(4):
                        group.start_soon(expect, ac.to_device(data))
                        group.start_soon(expect, ac.to_host(ac.full(data.shape, 3, np.int32), out))
            print(len(ended))
        options = dict(backend="trio") if "{loop}" == "trio" else dict(
            backend="asyncio", backend_options={{"use_uvloop": "{loop}" == "uvloop"}})
        anyio.run(main, **options)
        """
    )
    assert int(lines[0]) >= 1  # a copy may have been through before, or been refused at once


def test_a_process_ends_with_copies_reads_and_writes_under_way(program, tmp_path):
    program(
        """
        path = PATH
        data.tofile(path)
        hold = ac.kernel('extern "C" __global__ void hold(unsigned long long f) { while (*(volatile int*)f == 0) {} }')
        hold.compile(0)
        flag = ac.empty_host(1, np.int32).sync()
        view = flag.numpy()
        view[0] = 0
        with ac.use(ac.Device(0).stream()):
            hold(flag.address, grid=1, block=1).submit()
            there = ac.to_device(np.zeros(40_000_000, np.int32)).submit()
            out = np.zeros_like(data)
            back = ac.to_host(ac.full(data.shape, 3, np.int32), out).submit()
            read = ac.read(path, data.shape, data.dtype).submit()
            written = ac.write(path + "2", ac.full(data.shape, 3, np.int32)).submit()
        view[0] = 1
        """.replace("PATH", repr(str(tmp_path / "data")))
    )


@pytest.mark.emulated_only
@pytest.mark.parametrize("number", range(1, 12))
def test_memory_that_cannot_be_had_fails_the_copy_alone(program, number):
    lines = program(
        """
        failed = 0
        out = np.zeros_like(data)
        for _ in range(6):
            try:
                out[...] = 0
                ac.to_host(ac.to_device(data), out).sync(30)
                assert (out == data).all()
            except ac.OutOfMemoryError as error:
                failed += 1
        print(failed)
        """,
        AIOCUDA_EMULATOR_FAULTS=f"alloc:{number}",
    )
    assert int(lines[0]) <= 1
