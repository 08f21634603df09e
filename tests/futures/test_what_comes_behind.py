"""A future ends when its work has passed, whatever comes behind that on the stream and does not end."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver

import aiocuda as ac

SOON_S = 30.0  # it has passed long before, unless it waits for what is held


@pytest.fixture
def stream(latch) -> ac.Stream:
    """Return a stream on which nothing has been submitted; loading a kernel is over."""
    return ac.Device(0).stream()


@pytest.fixture
def held_stream(latch) -> ac.Stream:
    """Return a stream whose work does not end before the latch is released."""
    held = ac.Device(0).stream()
    latch.hold(held)
    return held


def launch(kernels, stream, latch, held_stream) -> None:
    latch.hold(stream)


def submit_behind_a_held_stream(kernels, stream, latch, held_stream) -> None:
    x = ac.zeros(16).sync()
    with ac.use(held_stream):
        ac.fill(x, 1).submit()
    with ac.use(stream):
        ac.fill(ac.dup(x), 2).submit()


def replay(kernels, stream, latch, held_stream) -> None:
    graph = kernels.hold(latch._flag.address, grid=1, block=1).graph()
    with ac.use(stream):
        latch._held.append(graph.launch().submit())


def wait_for_a_stream(kernels, stream, latch, held_stream) -> None:
    stream.wait(held_stream)


def wait_for_an_event(kernels, stream, latch, held_stream) -> None:
    stream.wait(held_stream.record())


def call_a_function(kernels, stream, latch, held_stream) -> None:
    event = raw_event(held_stream)

    def wait(on: ac.Stream) -> None:
        raise_unless(driver.cuStreamWaitEvent(on.handle, event, 0))

    x = ac.zeros(1).sync()
    with ac.use(stream):
        ac.call(wait, writes=[x]).submit()


LATER = [
    launch,
    submit_behind_a_held_stream,
    replay,
    wait_for_a_stream,
    wait_for_an_event,
    call_a_function,
]


def raise_unless(answer: tuple[Any, ...]) -> Any:
    assert answer[0] == driver.CUresult.CUDA_SUCCESS, answer
    return answer[1] if len(answer) > 1 else None


def raw_event(stream: ac.Stream) -> Any:
    event = raise_unless(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
    raise_unless(driver.cuEventRecord(event, stream.handle))
    return event


def seven(stream: ac.Stream) -> ac.DeviceFuture[Any]:
    with ac.use(stream):
        return ac.fill(ac.empty(4, np.int32), 7).submit()


@pytest.mark.parametrize("later", LATER)
def test_a_future_ends(kernels, latch, stream, held_stream, later: Callable[..., None]):
    future = seven(stream)
    later(kernels, stream, latch, held_stream)
    array = future.sync(SOON_S)
    assert latch.is_holding
    latch.close()
    assert ac.to_host(array).sync().tolist() == [7] * 4


@pytest.mark.parametrize("later", LATER)
def test_its_await_ends(run, kernels, latch, stream, held_stream, later: Callable[..., None]):
    future = seven(stream)
    later(kernels, stream, latch, held_stream)

    async def main() -> None:
        await future.within(SOON_S)

    run(main)
    assert latch.is_holding


@pytest.mark.parametrize("is_given_before", [True, False])
def test_the_handle_is_somebody_elses_too(latch, stream, held_stream, is_given_before):
    """What they put there is the stream's work: it is waited for unless something of ours came before."""
    if is_given_before:
        assert stream.handle
    future = seven(stream)
    between = seven(stream)
    raise_unless(driver.cuStreamWaitEvent(stream.handle, raw_event(held_stream), 0))
    behind = seven(stream)
    future.sync(SOON_S)
    between.sync(SOON_S)
    assert latch.is_holding
    assert not behind.done()


def test_several_that_end_with_the_same_work(latch, stream, held_stream):
    with ac.use(stream):
        x = ac.fill(ac.empty(4, np.int32), 7)
        first = x.submit()
        second = x.then(lambda array: array).submit()
    stream.wait(held_stream)
    assert second.sync(SOON_S) is first.sync(SOON_S)
    assert latch.is_holding


def test_one_that_nobody_has_any_more(latch, stream, held_stream):
    kept = seven(stream)
    dropped = seven(stream)
    del dropped
    gc.collect()
    stream.wait(held_stream)
    kept.sync(SOON_S)
    assert latch.is_holding


def test_a_map_in_the_middle_of_it(latch, stream, held_stream):
    with ac.use(stream):
        future = ac.to_host(ac.full(4, 7, np.int32)).map(lambda host: int(host.sum())).submit()
    stream.wait(held_stream)
    assert future.sync(SOON_S) == 28
    assert latch.is_holding
