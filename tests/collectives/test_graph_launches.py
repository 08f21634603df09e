"""Launches of graphs that have collectives, and the end of their group."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native
from aiocuda._collective.watch import Flight
from aiocuda.collective import Group
from aiocuda.errors import ClosedError, CollectiveError

pytestmark = pytest.mark.needs_devices(2)

N = 4
SIZES = pytest.mark.parametrize("size", [1, 2])


def arrays(size: int) -> list[ac.DeviceArray]:
    return [ac.full(N, each + 1, np.int32, device=each).sync() for each in range(size)]


def graph_of(group: Group, xs: list[ac.DeviceArray]) -> ac.Graph:
    """Return a graph that adds up the arrays of a group in place."""
    return ac.zip(*group.all_reduce(xs, out=xs)).graph()


def held(latches: Callable[[], Any], array: ac.DeviceArray) -> Any:
    """Hold whatever comes behind a write of this array; return what releases it."""
    latch = latches()
    stream = array.device.stream()
    latch.hold(stream)
    ac.fill(array, 1).on(stream).submit()
    return latch


def on_host(array: ac.DeviceArray) -> list[int]:
    return ac.to_host(array).sync(60).tolist()


@SIZES
@pytest.mark.parametrize("is_part", [False, True], ids=["itself", "part of another"])
def test_a_launch_that_an_abort_meets_fails_with_all_that_was_made_of_it(run, latches, size, is_part):
    async def main() -> None:
        group = Group.local(range(size))
        xs = arrays(size)
        graph = graph_of(group, xs)
        if is_part:
            graph = ac.zip(graph.launch(), ac.fill(xs[0], 5)).graph()
        beside = await ac.ones(N)
        latch = held(latches, xs[-1])
        launch = graph.launch()
        made_of_it = ac.to_host(xs[0])
        futures = [launch.submit(), made_of_it.submit()]
        group.abort()
        latch.release()
        for late in (*futures, launch, made_of_it, *map(ac.to_host, xs), graph.launch()):
            with pytest.raises(CollectiveError, match="rank 0 aborted the group"):
                await late
        assert (await ac.to_host(beside)).tolist() == [1] * N

    run(main)


@SIZES
def test_a_launch_fails_whose_first_nodes_ran_when_the_abort_came(run, size):
    async def main() -> None:
        group = Group.local(range(size))
        xs = arrays(size)
        flag = await ac.empty_host(1, np.int32)
        flag.numpy()[0] = 0

        def hold(stream: ac.Stream, _: ac.DeviceArray) -> None:
            _native.wait_for_word(0, stream.handle, flag.address, 1)

        graph = ac.zip(ac.call(hold, xs[0], writes=[xs[0]]), *group.all_reduce(xs, out=xs)).graph()
        launch = graph.launch().submit()
        group.abort()
        flag.numpy()[0] = 1
        with pytest.raises(CollectiveError, match="rank 0 aborted the group"):
            await launch

    run(main)


@SIZES
def test_of_several_launches_those_that_had_passed_are_well(latches, size):
    group = Group.local(range(size))
    xs, ys, zs = arrays(size), arrays(size), arrays(size)
    graphs = [graph_of(group, each) for each in (xs, ys, zs)]
    first, second = held(latches, xs[-1]), held(latches, ys[-1])
    launches = [graph.launch() for graph in graphs]
    futures = [each.submit() for each in launches]
    first.release()
    futures[0].sync(60)
    group.abort()
    second.release()
    for late in futures[1:]:
        with pytest.raises(CollectiveError, match="aborted"):
            late.sync(60)
    assert futures[0].exception() is None
    assert on_host(xs[0]) == [1 if size == 1 else 2] * N
    for array in (ys[0], zs[0]):
        with pytest.raises(CollectiveError, match="aborted"):
            on_host(array)


def test_launches_and_calls_by_turns_are_of_one_order(latches):
    group = Group.local([0, 1])
    xs, ys = arrays(2), arrays(2)
    graph = graph_of(group, xs)
    latch = held(latches, ys[1])
    futures = [graph.launch().submit(), group.all_reduce(ys)[0].submit(), graph.launch().submit()]
    futures[0].sync(60)
    group.abort()
    latch.release()
    assert futures[0].exception() is None
    for late in futures[1:]:
        with pytest.raises(CollectiveError, match="aborted"):
            late.sync(60)


@SIZES
def test_close_waits_for_a_launch_that_is_under_way(latches, size):
    group = Group.local(range(size))
    xs = arrays(size)
    graph = graph_of(group, xs)
    latch = held(latches, xs[-1])
    future = graph.launch().submit()
    closing = threading.Thread(target=group.close)
    closing.start()
    while "closed" not in repr(group):
        threading.Event().wait(0.001)
    with pytest.raises(ClosedError, match="the group was closed"):
        graph.launch().sync(60)
    assert "a launch of the graph made at " in group.waits_for()
    latch.release()
    closing.join(60)
    assert not closing.is_alive()
    future.sync(60)
    assert on_host(xs[0]) == [1 if size == 1 else 2] * N


@SIZES
def test_close_ends_a_launch_that_takes_longer(latches, size):
    group = Group.local(range(size))
    xs = arrays(size)
    graph = graph_of(group, xs)
    latch = held(latches, xs[-1])
    future = graph.launch().submit()
    words = r"close\(\) waited for 0.01 s.* under way: a launch of the graph made at .*test_graph_launches"
    with pytest.raises(CollectiveError, match=words):
        group.close(0.01)
    latch.release()
    with pytest.raises(CollectiveError, match=words):
        future.sync(60)


def test_a_failure_of_nccl_fails_a_launch(latches, monkeypatch):
    group = Group.local([0, 1])
    xs = arrays(2)
    graph = graph_of(group, xs)
    latch = held(latches, xs[1])
    monkeypatch.setattr(group._members._communicators, "state", lambda: "it is broken")
    future = graph.launch().submit()
    while "failed" not in repr(group):  # the thread looks
        threading.Event().wait(0.001)
    latch.release()
    with pytest.raises(CollectiveError, match="NCCL: it is broken"):
        future.sync(60)


def test_a_graph_of_two_groups_fails_with_each_of_them(latches):
    with Group.local([0, 1]) as stays:
        ends = Group.local([1, 0])
        xs, ys = arrays(2), arrays(2)
        graph = ac.zip(graph_of(stays, xs).launch(), graph_of(ends, ys[::-1]).launch()).graph()
        latch = held(latches, ys[0])
        future = graph.launch().submit()
        ends.abort()
        latch.release()
        with pytest.raises(CollectiveError, match="aborted"):
            future.sync(60)
        zs = arrays(2)
        graph_of(stays, zs).launch().sync(60)
        assert on_host(zs[0]) == [3] * N


def test_a_launch_that_is_refused_leaves_nothing_under_way(monkeypatch):
    """The second group of the graph's is no more, and the first one has been asked."""
    with Group.local([0, 1]) as stays:
        ends = Group.local([0, 1])
        xs, ys = arrays(2), arrays(2)
        graph = ac.zip(graph_of(stays, xs).launch(), graph_of(ends, ys).launch()).graph()
        graph.launch().sync(60)

        def refuse() -> None:
            raise CollectiveError("no launch any more")

        for each in (stays, ends):
            members = each._members
            asked = members.require_usable
            monkeypatch.setattr(members, "require_usable", refuse)
            with pytest.raises(CollectiveError, match="no launch any more"):
                graph.launch().sync(60)
            monkeypatch.setattr(members, "require_usable", asked)
        for each in (stays, ends):
            each.close(60)  # which would raise that a launch is under way
        assert on_host(xs[0]) == [3] * N


def test_a_launch_that_cannot_be_looked_after_fails_its_group(monkeypatch):
    """It was submitted, so an error of the launch itself would be too late."""
    group = Group.local([0, 1])
    xs = arrays(2)
    graph = graph_of(group, xs)

    def refuse(flight: Any, stream: int) -> None:
        raise RuntimeError("no event")

    monkeypatch.setattr(Flight, "note_submitted", refuse)
    with pytest.raises(CollectiveError, match=r"a launch of the graph made at .* could not be looked after: no event"):
        graph.launch().sync(60)
    assert "failed" in repr(group)
