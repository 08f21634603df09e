"""A Ray that does not answer at its address: `start` ends in time, and holds up nobody.

It comes before the other files of this folder, whose cluster keeps Ray.
"""

from __future__ import annotations

import functools
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

import aiocuda as ac
from aiocuda._cluster import keeper, ray, reaching


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Something that takes connections, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


def named(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def refusing() -> str:
    """The address of a port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return named(listener)


async def until_connected(listener: socket.socket) -> socket.socket:
    while True:
        try:
            return listener.accept()[0]
        except BlockingIOError:
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("kind", ["silent", "refusing"])
def test_a_start_ends_in_time_where_no_ray_answers(
    run, start_alone: Callable[..., Any], request, monkeypatch, kind: str
):
    @functools.wraps(ray.require().init)
    def connect(**_: object) -> None:
        pytest.fail("this would go on for a quarter of an hour")

    monkeypatch.setattr(ray.require(), "init", connect)
    found = request.getfixturevalue(kind)
    address = found if isinstance(found, str) else named(found)

    async def main() -> None:
        told = f"no Ray answered at {address} within 0.3 s; see that it runs there"
        with anyio.fail_after(5), pytest.raises(ac.errors.ClusterError, match=told):
            async with start_alone(workers=1, begins_within_s=0.3, ray_options={"address": address}):
                pytest.fail("there is no Ray")

    run(main)


@pytest.mark.parametrize("options", [{}, {"address": None}, {"address": "auto"}])
def test_the_address_of_the_environment_counts(
    run, start_alone: Callable[..., Any], refusing: str, monkeypatch, options: dict[str, Any]
):
    monkeypatch.setenv("RAY_ADDRESS", refusing)

    async def main() -> None:
        with anyio.fail_after(5), pytest.raises(ac.errors.ClusterError, match=f"no Ray answered at {refusing}"):
            async with start_alone(workers=1, begins_within_s=0.3, ray_options=options):
                pytest.fail("there is no Ray")

    run(main)


@pytest.mark.parametrize("options", [{}, {"address": None}, {"address": "local"}])
def test_a_ray_that_is_to_start_is_no_other_one_of_this_machine(
    start_alone: Callable[..., Any], monkeypatch, options: dict[str, Any]
):
    """If Ray is told no address, it uses one that `ray start` has started here, which takes no number of GPUs."""
    told: dict[str, Any] = {}

    @functools.wraps(ray.require().init)
    def connect(**given: Any) -> None:
        told.update(given)

    monkeypatch.setattr(ray.require(), "init", connect)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert ray.start(2, options, lambda: False)
    assert (told["address"], told["num_gpus"]) == ("local", 2)


def test_a_start_that_is_cancelled_waits_for_nobody(run, start_alone: Callable[..., Any], silent: socket.socket):
    async def main() -> None:
        async def enter() -> None:
            async with start_alone(workers=1, ray_options={"address": named(silent)}):
                pytest.fail("there is no Ray")

        async with anyio.create_task_group() as group:
            group.start_soon(enter)
            connection = await until_connected(silent)
            cancelled = time.monotonic()
            group.cancel_scope.cancel()
        assert time.monotonic() - cancelled < reaching._TRY_S / 2  # it does not wait for what is tried
        connection.close()

    run(main)


class Slow:
    """Ray, as the keeper sees it, which starts once it is let go on."""

    def __init__(self) -> None:
        self.asked, self.goes_on, self.stopped = threading.Event(), threading.Event(), threading.Event()

    def start(self, *_: object) -> bool:
        self.asked.set()
        assert self.goes_on.wait(60)
        return True

    def stop(self) -> None:
        self.stopped.set()


def test_a_ray_that_starts_after_nobody_waits_for_it_is_ended(run, start_alone: Callable[..., Any], monkeypatch):
    async def main() -> None:
        slow = Slow()
        with monkeypatch.context() as patch:
            patch.setattr(keeper, "ray", slow)
            with pytest.raises(ac.errors.ClusterError, match=r"Ray did not start within 0\.1 s"):
                async with start_alone(workers=1, begins_within_s=0.1):
                    pytest.fail("it has not started")
            assert not slow.stopped.is_set()
            slow.goes_on.set()
            assert slow.stopped.wait(60)

    run(main)


def test_a_ray_that_nobody_wants_is_ended_before_the_next_start(monkeypatch):
    slow, unwanted = Slow(), keeper.Keeper()
    unwanted.close()
    slow.goes_on.set()
    monkeypatch.setattr(keeper, "ray", slow)
    unwanted._start(None, {})
    assert slow.stopped.is_set()


def test_what_is_no_address_of_a_host_is_ray_s_to_find_out_about():
    def is_given_up() -> bool:
        pytest.fail("it is asked while somebody is waited for")

    for address in ("", "local", "auto", "ray://127.0.0.1:1"):
        reaching.until_somebody_answers(address, is_given_up)


def test_a_ray_that_runs_answers(start_alone: Callable[..., Any], run_once):
    """Not Ray's own way in, so it is tried on a Ray."""

    async def main() -> None:
        async with start_alone(workers=1):
            address = ray.require().get_runtime_context().gcs_address
            host, _, port = address.rpartition(":")
            assert reaching._answers(host, int(port))

    run_once(main)


def test_a_start_may_take_as_long_as_it_takes(start_alone: Callable[..., Any], run_once):
    async def main() -> None:
        async with start_alone(workers=1, begins_within_s=math.inf) as cluster:
            assert await cluster.run(abs, -1) == [1]

    run_once(main)


@pytest.mark.parametrize(
    ("options", "kind", "told"),
    [
        (5, TypeError, "ray_options is a mapping of arguments of ray.init; 5 was given"),
        ({"nonsense": 1}, TypeError, r"it has none of these: \['nonsense'\]"),
        ({1: 1}, TypeError, r"it has none of these: \[1\]"),
        ({"address": 5}, ValueError, r"Ray refuses one of ray_options \['address'\]"),
        ({"_nonsense": 1}, ac.errors.ClusterError, r"Ray does not start, with ray_options .*: Unknown keyword"),
    ],
)
def test_options_that_ray_refuses_are_errors_of_ours(
    run_once, start_alone: Callable[..., Any], options: Any, kind: type[Exception], told: str
):
    async def main() -> None:
        async with start_alone(workers=1, ray_options=options):
            pytest.fail("there is no such option")

    with pytest.raises(kind, match=told) as caught:
        run_once(main)
    assert isinstance(caught.value, ac.errors.AiocudaError)
