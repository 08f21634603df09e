"""A graph whose kernels are not compiled waits for that as a launch does, and holds up nobody."""

from __future__ import annotations

from typing import Any

import anyio
import numpy as np
import pytest

import aiocuda as ac

STEP = 'extern "C" __global__ void {name}(int* x) {{ x[0] = {factor} * x[0] + {term}; }}'


def step(name: str, factor: int = 1, term: int = 1) -> Any:
    """Make a kernel that nobody has compiled."""
    return ac.kernel(STEP.format(name=name, factor=factor, term=term))


def launch(kernel: Any, x: Any) -> Any:
    return kernel(x, grid=1, block=1)


@pytest.fixture
def x() -> Any:
    return ac.ones(1, np.int32).sync()


async def scoped(x: Any, *kernels: Any) -> Any:
    async with ac.graph_scope() as scope:
        for kernel in kernels:
            scope.record(launch(kernel, x))
    return await scope.graph.launch()


async def made(x: Any, *kernels: Any) -> Any:
    op = x
    for kernel in kernels:
        op = launch(kernel, op)
    return await (await op.graph_async()).launch()


async def compiled(x: Any, *kernels: Any) -> Any:
    @ac.compile
    def function(x: Any) -> Any:
        for kernel in kernels:
            x = launch(kernel, x)
        return x

    await function(x)


async def compiled_behind_an_operation(x: Any, *kernels: Any) -> Any:
    @ac.compile
    def function(x: Any) -> Any:
        for kernel in kernels:
            x = launch(kernel, x)
        return x

    await function(ac.fill(x, 1))


FORMS = [scoped, made, compiled, compiled_behind_an_operation]


@pytest.mark.parametrize("form", FORMS)
def test_the_loop_and_the_operations_of_others_go_on(run, compiler, x, form):
    kernels = step("first_of_graph", 10, 5), step("second_of_graph", 2, 0)
    other, ended = ac.ones(1, np.int32).sync(), []

    async def program():
        async def wait() -> None:
            await form(x, *kernels)
            ended.append(form)

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await compiler.until_begun()
            await compiler.until_begun()  # both are compiled at once
            for _ in range(3):
                await ac.fill(other, 2)
            assert not ended
            compiler.released.set()

    run(program)
    assert ac.to_host(x).sync()[0] == 30
    assert len(compiler.threads) == 2


@pytest.mark.parametrize("form", FORMS)
def test_what_the_compiler_says_is_the_error_of_the_await(run, x, form):
    broken = ac.kernel('extern "C" __global__ void broken_of_graph(int* x) {\n    x[0] = missing;\n}\n')

    async def program():
        with pytest.raises(ac.CompilationError, match=r"missing") as caught:
            await form(x, broken)
        return caught.value

    (note,) = run(program).__notes__
    assert note.startswith("The kernel was needed by the launch of broken_of_graph")
    assert ac.to_host(x).sync()[0] == 1


def test_what_touches_the_same_memory_comes_behind(run_asyncio, compiler, x):
    kernel = step("of_graph_first", 10, 5)

    @ac.compile
    def function(x: Any) -> Any:
        return launch(kernel, x)

    async def program():
        async with anyio.create_task_group() as group:

            async def write() -> None:
                await ac.fill(x, 7)

            async def call() -> None:
                await function(x)

            group.start_soon(call)
            await compiler.until_begun()
            group.start_soon(write)
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
            compiler.released.set()

    run_asyncio(program)
    assert ac.to_host(x).sync()[0] == 7
