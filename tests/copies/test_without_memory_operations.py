"""Copies of pageable memory on a device whose streams cannot write memory and wait for it; each in its own process.

Always true: what holds of other devices' copies holds of these: contents, order, awaits that block nobody, ends.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.emulated_only

NEVER = ",".join(f"no_memory_op:{n}@0" for n in range(1, 300))
PRELUDE = """
import anyio
import gc
import numpy as np
import weakref
import aiocuda as ac

data = np.arange(3_000_000, dtype=np.int32)
hold = ac.kernel('extern "C" __global__ void hold(unsigned long long flag) { while (*(volatile int*)flag == 0) {} }')

class Latch:
    def __init__(self, device=0):
        self.flag = ac.empty_host(1, np.int32).sync()
        self.view = self.flag.numpy()
        self.view[0] = 0
        self.stream = ac.Device(device).stream()
        self.held = hold(self.flag.address, grid=1, block=1).on(self.stream).submit()
    def release(self):
        self.view[0] = 1

def run(loop, main):
    options = {"backend": "trio"} if loop == "trio" else {
        "backend": "asyncio", "backend_options": {"use_uvloop": loop == "uvloop"}}
    anyio.run(main, **options)
"""


@pytest.fixture
def program(lines_of):
    def run_program(*pieces: str, faults: str = NEVER) -> list[str]:
        return lines_of(PRELUDE, *pieces, AIOCUDA_EMULATED_DEVICES="2", AIOCUDA_EMULATOR_FAULTS=faults)

    return run_program


@pytest.mark.parametrize(
    ("loop", "first"),
    [*((loop, "up") for loop in ("asyncio", "uvloop", "trio")), *(("trio", way) for way in ("down", "store", "drain"))],
)
def test_every_pair_is_copied_from_the_first_one_on(program, loop, first):
    """The first copy, whichever it is, finds out that the device cannot."""
    lines = program(
        f"""
        async def up():
            return await ac.copy(ac.empty(data.shape, data.dtype), data)
        async def down():
            out = np.zeros((2, *data.shape), data.dtype)[0]
            assert await ac.copy(out, ac.arange(len(data), dtype=np.int32)) is out
            return out
        async def store():
            return await ac.copy(ac.empty_host(data.shape, data.dtype), data)
        async def drain():
            host = await ac.empty_host(data.shape, data.dtype)
            host.numpy()[:] = data
            return await ac.copy(np.zeros_like(data), host)
        async def strided():
            out = np.zeros((1000, 300), np.int32)
            part = out[::2, 10:200]
            await ac.to_host(ac.to_device(data[: part.size].reshape(part.shape)), part)
            expected = np.zeros_like(out)
            expected[::2, 10:200] = data[: part.size].reshape(part.shape)
            return data if (out == expected).all() else out
        async def small():
            out = np.zeros(10, np.int32)
            await ac.to_host(ac.to_device(data[:10]), out)
            return data if (out == data[:10]).all() else out
        async def main():
            for copy in ({first}, up, down, store, drain, strided, small):
                found = await copy()
                if not isinstance(found, np.ndarray):
                    found = await ac.to_host(found)
                print(np.array_equal(found, data))
        run("{loop}", main)
        """
    )
    assert lines == ["True"] * 7


@pytest.mark.parametrize("number", range(2, 8))
def test_a_device_that_turns_out_so_in_the_middle_of_a_copy_fails_that_one_alone(program, number):
    lines = program(
        """
        out = np.zeros_like(data)
        x = ac.arange(len(data), dtype=np.int32).sync()
        try:
            ac.copy(out, x).sync(30)
            print("whole")
        except ac.DriverError as error:
            print(error.name)
        for _ in range(3):
            other = np.zeros_like(data)
            ac.copy(other, ac.copy(x, data)).sync(30)
            print(np.array_equal(other, data))
        """,
        faults=f"no_memory_op:{number}@0",
    )
    assert lines[0] in {"whole", "CUDA_ERROR_NOT_SUPPORTED"}
    assert lines[1:] == ["True"] * 3


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
@pytest.mark.parametrize("size", [10, 1_000_000])
def test_operations_on_numpys_memory_keep_their_order(program, loop, size):
    """Of this device and of another, whose threads read ahead; and nobody is held up while they wait."""
    lines = program(
        f"""
        async def main():
            source = await ac.to_device(data)
            out = np.zeros_like(data)
            latch = Latch()
            with ac.use(latch.stream):
                down = ac.copy(out, source).submit()
            others = [ac.to_device(out[:{size}], device) for device in (0, 1)]
            back = [ac.to_host(other).submit() for other in others]
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
                await ac.to_host(ac.ones(8, device=1))
            print(down.done(), out.any())
            latch.release()
            for each in back:
                print(np.array_equal(await each, data[:{size}]))
            print(await down is out)
            upwards = Latch()
            with ac.use(upwards.stream):
                up = ac.copy(source, out).submit()
            behind = ac.copy(out, ac.zeros(data.shape, data.dtype, device=1)).submit()
            for _ in range(50):
                await ac.to_host(ac.ones(8, device=1))
            print(behind.done(), np.array_equal(out, data))
            upwards.release()
            await behind
            print(out.any(), np.array_equal(await ac.to_host(source), data))
        run("{loop}", main)
        """
    )
    assert lines == ["False False", "True", "True", "True", "False True", "False True"]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
def test_copies_without_number_wait_for_room(program, loop):
    """The driver takes few host functions that are pending: no thread waits there with the GIL."""
    lines = program(
        f"""
        async def main():
            source = await ac.to_device(data[:50_000])
            latch = Latch()
            outs = [np.zeros(50_000, np.int32) for _ in range(100)]
            async with anyio.create_task_group() as group:
                async def down(out):
                    with ac.use(latch.stream):
                        await ac.copy(out, source)
                for out in outs:
                    group.start_soon(down, out)
                for _ in range(200):
                    await anyio.lowlevel.checkpoint()
                submitted = int(repr(latch.stream).split(", ")[1].split()[0])
                print(sum(out.any() for out in outs), 20 < submitted < 40)
                latch.release()
            print(all(np.array_equal(out, data[:50_000]) for out in outs))
        run("{loop}", main)
        """
    )
    assert lines == ["0 True", "True"]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
def test_a_copy_whose_await_is_cancelled_goes_on_and_lets_its_memory_go(program, loop):
    lines = program(
        f"""
        class Data(np.ndarray): pass
        async def main():
            source = await ac.to_device(data)
            out = np.zeros_like(data).view(Data)
            latch = Latch()
            async with anyio.create_task_group() as group:
                async def down():
                    with ac.use(latch.stream):
                        await ac.copy(out, source)
                group.start_soon(down)
                while ac.statistics().pending == 0:
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
            print(out.any())
            latch.release()
            await ac.Device(0).synchronize()
            await latch.stream.synchronize()
            print(np.array_equal(out, data))
            kept = weakref.ref(out)
            del out, down, group
            await ac.to_host(ac.ones(3))
            gc.collect()
            print(kept() is None, ac.statistics().pending)
        run("{loop}", main)
        """
    )
    assert lines == ["False", "True", "True 0"]


@pytest.mark.parametrize("work", range(1, 12))
def test_a_lost_device_ends_the_copies_and_leaves_the_other_devices(program, before_and_after, work):
    """`work`: which piece of a stream's work loses the device."""
    before, after = before_and_after
    lines = program(
        before,
        """
        try:
            op.sync(30)
            for _ in range(5):
                ac.to_host(ac.to_device(data, 0), out).sync(30)
            print("whole")
        except ac.AiocudaError as error:
            print("lost")
        """,
        after,
        faults=f"{NEVER},lost:{work}@0",
    )
    assert lines == ["lost", "True", "True"]


def test_a_process_ends_with_copies_under_way(program):
    program(
        """
        latch = Latch()
        with ac.use(latch.stream):
            there = ac.to_device(data).submit()
            out = np.zeros_like(data)
            back = ac.to_host(ac.full(data.shape, 3, np.int32), out).submit()
        latch.release()
        """
    )
