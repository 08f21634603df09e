"""Futures behind a latch: a stream of the test's own is held, and in force."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import aiocuda as ac


@pytest.fixture
def stream(device) -> ac.Stream:
    return device.stream()


@pytest.fixture
def held(latch, stream) -> Iterator[Any]:
    """Put all that the test executes behind a latch, on a stream that is in force in its tasks too."""
    latch.hold(stream)
    with ac.use(stream):
        yield latch


@pytest.fixture
def in_threads() -> Callable[..., list[Any]]:
    """Call functions in a thread each, at once; give what they returned, or raised."""

    def call(*functions: Callable[[], Any]) -> list[Any]:
        found: list[Any] = [None] * len(functions)
        barrier = threading.Barrier(len(functions))

        def run(index: int) -> None:
            barrier.wait(60)
            try:
                found[index] = functions[index]()
            except Exception as error:  # noqa: BLE001 - given to the test
                found[index] = error

        threads = [threading.Thread(target=run, args=(index,)) for index in range(len(functions))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        return found

    return call
