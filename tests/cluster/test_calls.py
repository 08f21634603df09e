"""Calls of functions and objects on workers: results, errors, cancelling."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import threading
import weakref
from typing import Any

import anyio
import numpy as np
import pytest

import aiocuda as ac
from aiocuda._cluster.crossing import side_by_side
from aiocuda._cluster.held import Held
from aiocuda.cluster import Cluster


async def place() -> tuple[int, bytes]:
    from aiocuda._driver import runtime

    return os.getpid(), runtime.uuid((await ac.empty(1)).device.ordinal)


async def doubled(x: Any) -> Any:
    return (await ac.to_host(x + x)) if isinstance(x, ac.DeviceArray) else 2 * x


class Memory:
    """What a test keeps on a worker."""

    def __init__(self, *values: Any) -> None:
        self.values = list(values)

    async def add(self, value: Any) -> int:
        self.values.append(value)
        return len(self.values)

    def all(self) -> list[Any]:
        return self.values

    async def wait(self) -> None:
        self.values.append("waits")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.values.append("cancelled")
            raise


class OfTheirOwn(BaseException):
    """What no program should make, and some do."""


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("kept")
        self.lock = threading.Lock()


class NotMadeAgain(Exception):
    """It can be pickled, and what comes of that is an error: a class wants other arguments than it hands on."""

    def __init__(self, code: int, place: str) -> None:
        super().__init__(f"{code} at {place}")


class BecomesText(Exception):
    def __reduce__(self) -> Any:
        return str, ("no exception",)


class WithoutWords(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it has none")

    def __reduce__(self) -> Any:
        raise RuntimeError("nor this")


def of_a_module_that_only_the_worker_has() -> Exception:
    import sys
    import types

    module = sys.modules["only there"] = types.ModuleType("only there")
    module.Here = type("Here", (Exception,), {"__module__": "only there"})
    return module.Here("boom")


def test_each_worker_is_a_process_with_one_device_of_its_own(run, cluster: Cluster):
    found = run(cluster.run, place)
    assert len({process for process, _ in found} | {os.getpid()}) == 3
    assert len({device for _, device in found}) == 2
    assert [each.process_id for each in cluster] == [process for process, _ in found]


def test_functions_run_on_the_loop_and_plain_ones_in_a_thread_beside_it(run, cluster: Cluster):
    async def on_loop() -> str:
        return asyncio.current_task() is not None and threading.current_thread().name

    def beside() -> tuple[str, bool]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return threading.current_thread().name, False
        return threading.current_thread().name, True

    loop_thread = run(cluster[0].run, on_loop)
    name, has_loop = run(cluster[0].run, beside)
    assert not has_loop
    assert name != loop_thread


def test_map_gives_results_in_the_order_of_the_items(run, cluster: Cluster):
    assert run(cluster.map, doubled, range(7)) == [0, 2, 4, 6, 8, 10, 12]
    assert run(cluster.map, doubled, []) == []


def test_an_object_keeps_its_state_on_its_worker(run, cluster: Cluster):
    async def main() -> None:
        kept = await cluster[1].create(Memory, 1, 2)
        assert await kept.add({"x": np.arange(3)}) == 3
        assert [str(each) for each in await kept.all()] == ["1", "2", "{'x': array([0, 1, 2])}"]
        assert repr(kept) == "<aiocuda.cluster.Remote Memory on worker 1>"

        async def same(given: Memory) -> tuple[str, int]:
            return type(given).__name__, len(given.values)

        assert await cluster[1].run(same, kept) == ("Memory", 3)
        with pytest.raises(ac.errors.ClusterError, match="given to worker 0, which does not have it"):
            await cluster[0].run(same, kept)

    run(main)


def test_the_exception_of_a_worker_is_raised_with_its_place(run, cluster: Cluster):
    async def fails(value: int) -> None:
        raise ValueError(f"{value} is too much")

    async def main() -> None:
        with pytest.raises(ValueError, match="7 is too much") as caught:
            await cluster[1].run(fails, 7)
        (note,) = caught.value.__notes__
        assert "fails() raised it on worker 1" in note
        assert 'raise ValueError(f"{value} is too much")' in note

    run(main)


def test_a_stop_iteration_of_a_worker_ends_the_await_as_that_of_a_coroutine_does(run, cluster: Cluster):
    async def main() -> None:
        with anyio.fail_after(5), pytest.raises(RuntimeError, match="raised StopIteration") as caught:
            await cluster[0].run(next, iter(()))
        assert "next() raised it on worker 0" in caught.value.__notes__[-1]
        assert await cluster[0].run(doubled, 1) == 2

    run(main)


@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.parametrize("error", [Unpicklable, SystemExit, KeyboardInterrupt, GeneratorExit, OfTheirOwn])
def test_an_exception_that_cannot_come_is_told_in_words(run, cluster: Cluster, error: type[BaseException], kind: str):
    def fails() -> None:
        raise error

    async def fails_on_the_loop() -> None:
        raise error

    async def main() -> None:
        with pytest.raises(ac.errors.RemoteError, match=rf"failed on worker 0: {error.__name__}") as caught:
            await cluster[0].run(fails if kind == "plain" else fails_on_the_loop)
        assert caught.value.worker == 0
        assert "raise error" in caught.value.traceback
        assert await cluster[0].run(doubled, 1) == 2  # the worker goes on

    run(main)


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        (NotMadeAgain, (7, "x"), "NotMadeAgain: 7 at x"),
        (BecomesText, ("x",), "BecomesText: x"),
        (WithoutWords, (), "WithoutWords"),
    ],
)
def test_an_exception_that_cannot_be_made_again_is_told_in_words(
    run_once, cluster: Cluster, kind: type[Exception], given: tuple[Any, ...], words: str
):
    def fails(*args: Any) -> None:
        raise kind(*args)

    async def main() -> None:
        with pytest.raises(ac.errors.RemoteError, match=rf"failed on worker 0: {words}\n") as caught:
            await cluster[0].run(fails, *given)
        assert "raise kind(*args)" in caught.value.traceback

    run_once(main)


def test_an_exception_whose_class_is_not_here_is_told_in_words(run_once, cluster: Cluster):
    def fails() -> None:
        raise of_a_module_that_only_the_worker_has()

    async def main() -> None:
        with pytest.raises(ac.errors.RemoteError, match="failed on worker 1: Here: boom") as caught:
            await cluster[1].run(fails)
        assert "raise of_a_module" in caught.value.traceback

    run_once(main)


def test_a_result_that_cannot_be_made_here_is_an_error_that_names_the_worker_and_the_call(run_once, cluster: Cluster):
    async def main() -> None:
        with pytest.raises(ModuleNotFoundError, match="only there") as caught:
            await cluster[1].run(of_a_module_that_only_the_worker_has)
        told = "the result of of_a_module_that_only_the_worker_has(), which worker 1 has sent, cannot be made here."
        assert caught.value.__notes__ == [told]

    run_once(main)


def test_an_exception_comes_with_its_host_data(run_once, cluster: Cluster):
    def fails() -> None:
        raise ValueError(np.arange(1000))

    async def main() -> None:
        with pytest.raises(ValueError, match="999") as caught:
            await cluster[0].run(fails)
        assert caught.value.args[0].tolist() == list(range(1000))

    run_once(main)


def test_what_cannot_be_pickled_is_refused_and_nothing_is_lost(run, cluster: Cluster):
    lock = threading.Lock()

    def holds_a_lock() -> bool:
        return lock.locked()

    async def main() -> None:
        with pytest.raises(ac.errors.ArgumentTypeError, match=r"holds_a_lock\(\), with its arguments, cannot be sent"):
            await cluster[0].run(holds_a_lock)
        with pytest.raises(ac.errors.ArgumentTypeError, match="the result of the function cannot be sent"):
            await cluster[0].run(lambda: threading.Lock())
        with pytest.raises(ac.errors.ArgumentTypeError, match="an operation is not pickled"):
            await cluster[0].run(doubled, ac.ones(3))
        assert cluster[0]._process.calls.in_words() == ""

    run(main)


def test_a_call_that_ray_does_not_take_is_an_error_and_not_under_way(run, cluster: Cluster, without_room):
    async def main() -> None:
        with (
            without_room(cluster[0]),
            pytest.raises(ac.errors.ClusterError, match="not take the call: OSError: no room"),
        ):
            await cluster[0].run(doubled, 1)
        assert cluster[0]._process.calls.in_words() == ""
        assert await cluster[0].run(doubled, 1) == 2

    run(main)


def test_cancelling_an_await_cancels_the_function_on_the_worker(run, cluster: Cluster):
    async def main() -> None:
        kept = await cluster[0].create(Memory)
        async with anyio.create_task_group() as group:
            group.start_soon(kept.wait)
            while await kept.all() != ["waits"]:
                await anyio.lowlevel.checkpoint()
            assert "Memory.wait() (for " in repr(cluster[0])
            group.cancel_scope.cancel()
        while await kept.all() != ["waits", "cancelled"]:
            await anyio.lowlevel.checkpoint()

    run(main)


def test_one_call_that_fails_cancels_the_others(run, cluster: Cluster):
    async def main() -> None:
        waits = await cluster[0].create(Memory)

        async def fail_once_it_waits() -> None:
            while await waits.all() != ["waits"]:
                await anyio.lowlevel.checkpoint()
            raise LookupError("the other one")

        with pytest.raises(LookupError, match="the other one"):
            await side_by_side([waits.wait, fail_once_it_waits], "call")
        while await waits.all() != ["waits", "cancelled"]:
            await anyio.lowlevel.checkpoint()

    run(main)


def test_an_object_ends_on_the_worker_when_nobody_has_it(run, cluster: Cluster):
    class Told:
        def __init__(self, told: list[str]) -> None:
            weakref.finalize(self, told.append, "ended")

    async def make(told: Memory) -> Any:
        return Told(told.values)

    async def main() -> None:
        told = await cluster[0].create(Memory)
        kept = await cluster[0].create(make, told)
        assert await told.all() == []
        del kept
        while await told.all() != ["ended"]:
            await anyio.lowlevel.checkpoint()

    run(main)


def test_an_object_whose_making_was_cancelled_does_not_stay(run, cluster: Cluster):
    class Told:
        def __init__(self, told: list[str]) -> None:
            weakref.finalize(self, told.append, "ended")

    async def make_all_the_same(told: Memory) -> Any:
        told.values.append("waits")
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return Told(told.values)

    async def main() -> None:
        told = await cluster[0].create(Memory)
        async with anyio.create_task_group() as group:
            group.start_soon(cluster[0].create, make_all_the_same, told)
            while await told.all() != ["waits"]:
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        with anyio.fail_after(10):
            while await told.all() != ["waits", "ended"]:
                await anyio.lowlevel.checkpoint()

    run(main)


def test_an_object_that_comes_after_it_was_deleted_is_not_kept():
    held = Held("here")
    held.delete(7)
    held.keep(7, "late")
    with pytest.raises(ac.errors.ClusterError, match="here has no object 7"):
        held.get(7, "a test")
    held.keep(8, "wanted")
    assert held.get(8, "a test") == "wanted"


def test_an_object_that_was_deleted_is_an_error_that_says_what_to_do(run, cluster: Cluster):
    async def main() -> None:
        kept = await cluster[1].create(Memory)
        cluster[1]._process.deleted.append(kept._number)  # as if nobody had it any more

        async def call_until_it_is_deleted() -> None:
            while await kept.all() == []:
                await anyio.lowlevel.checkpoint()

        told = rf"worker 1 has no object {kept._number}, which .* method all\(\): it was deleted .* with create\(\)"
        with pytest.raises(ac.errors.ClusterError, match=told):
            await call_until_it_is_deleted()
        with pytest.raises(ac.errors.ClusterError, match="needed for an argument of the call: it was deleted"):
            await cluster[1].run(doubled, kept)

    run(main)


def test_a_group_waits_for_silent_workers_as_long_as_the_cluster(run, cluster: Cluster):
    async def waits(group: Any) -> float:
        return float(group._members._others._line._place.answers_within_s)

    async def main() -> None:
        async with await cluster.group() as group:
            assert await cluster.run(waits, group) == [3.0, 3.0]  # of conftest.py

    run(main)


def test_a_worker_that_is_none_is_an_error_that_counts(cluster: Cluster):
    with pytest.raises(ac.errors.ArgumentIndexError, match="worker 2 was asked for; the cluster has 2"):
        cluster[2]
    for number in ("a", slice(0, 1), 1.0, None):
        with pytest.raises(ac.errors.ArgumentTypeError, match=r"worker=.*: a whole number is wanted"):
            cluster[number]
    assert len(cluster) == 2
    assert cluster[-1] is cluster[1]
    assert repr(cluster) == "<aiocuda.cluster.Cluster of 2 workers with 1 GPUs each, all well>"


def test_results_of_dataclasses_come_as_they_are(run, cluster: Cluster):
    @dataclasses.dataclass
    class Pair:
        one: int
        two: list[str]

    assert run(cluster[0].run, doubled, 21) == 42
    pair = run(cluster[0].run, lambda given: given, Pair(1, ["x"]))
    assert (pair.one, pair.two) == (1, ["x"])
