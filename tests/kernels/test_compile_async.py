"""Compiling on another thread while the event loop goes on."""

from __future__ import annotations

import threading

import anyio
import numpy as np
import pytest

import aiocuda as ac

SOURCE = 'extern "C" __global__ void {}(int* x) {{ x[0] = {}; }}'


def test_the_loop_goes_on_while_a_kernel_is_compiled_and_all_who_wait_share_it(run, compiler, monkeypatch):
    kernel = ac.kernel(SOURCE.format("shared", 5))
    ended: list[int] = []

    async def wait(index: int) -> None:
        await kernel.compile_async()
        ended.append(index)

    async def program():
        async with anyio.create_task_group() as tasks:
            for index in range(3):
                tasks.start_soon(wait, index)
            await compiler.until_begun()
            for _ in range(100):  # the loop comes round while the compiler is held
                await anyio.lowlevel.checkpoint()
            assert not ended
            compiler.released.set()
        assert sorted(ended) == [0, 1, 2]
        assert len(compiler.threads) == 1
        assert compiler.threads[0] is not threading.current_thread()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", None)  # it is there, and no thread is asked
            await kernel.compile_async(0)
        found = await ac.to_host(kernel(ac.zeros(1, np.int32), grid=1, block=1))
        assert len(compiler.threads) == 1
        return found.tolist()

    assert run(program) == [5]


def test_a_cancelled_await_leaves_the_compilation_to_the_next(run, compiler):
    kernel = ac.kernel(SOURCE.format("left", 6))

    async def program():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kernel.compile_async)
            await compiler.until_begun()
            tasks.cancel_scope.cancel()
        compiler.released.set()
        await kernel.compile_async()
        return len(compiler.threads)

    assert run(program) == 1


def test_an_error_has_the_users_line_and_goes_to_all_who_wait(run):
    broken = ac.kernel('\n\nextern "C" __global__ void broken(int* x) {\n    x[0] = missing;\n}\n')

    async def program():
        told = []

        async def wait() -> None:
            with pytest.raises(ac.CompilationError, match=r"broken\.cu") as caught:
                await broken.compile_async()
            told.append(any("broken.cu" in line and "4" in line for line in caught.value.log.splitlines()))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            tasks.start_soon(wait)
        await wait()  # it is tried again
        return told

    assert run(program) == [True] * 3


@pytest.mark.needs_devices(2)
def test_it_is_compiled_for_the_device_in_force_when_it_was_asked_for(run):
    kernel = ac.kernel(SOURCE.format("there", 7))

    async def program():
        with ac.use(1):
            asked = kernel.compile_async()
        await asked
        return list(kernel._loaded)

    assert run(program) == [1]


def test_what_is_no_device_is_an_error_at_once():
    with pytest.raises(ac.ArgumentTypeError, match="b'x' was given"):
        ac.kernel(SOURCE.format("nowhere", 8)).compile_async(b"x")


def test_where_there_can_be_no_thread_for_it_the_caller_compiles(run, monkeypatch):
    kernel = ac.kernel(SOURCE.format("threadless", 9))

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def program():
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            await kernel.compile_async()
        return list(kernel._loaded)

    assert run(program) == [0]


def test_the_end_of_the_process_waits_for_a_compilation(in_process):
    done = in_process(
        f"""
        import asyncio, aiocuda as ac
        kernel = ac.kernel({SOURCE.format("last", 3)!r})
        async def main():
            task = asyncio.create_task(kernel.compile_async())
            await asyncio.sleep(0)
            task.cancel()
        asyncio.run(main())
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
