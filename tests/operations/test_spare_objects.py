"""Objects of operations and futures are used again, and nothing of the former one is left in them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native

MANY = 300  # more than are kept
kept = pytest.mark.skipif(not _native.keeps_spares, reason="a build under a sanitizer keeps none")


class Mark:
    """Something that can be referred to weakly."""


def make(kind: str, kernels: Any, x: Any) -> Any:
    match kind:
        case "launch":
            return kernels.increment(x, 4, threads=4)
        case "replay":
            return GRAPHS[0].launch()
        case "call":
            return ac.call(lambda stream, array: None, x, reads=[x])
        case _:
            return kernels.increment(x, 4, threads=4).submit()


def place(op: Any) -> str:
    """Say on which stream it would run."""
    return str(op.explain().splitlines()[-1].split()[1:3])


GRAPHS: list[Any] = []


@pytest.fixture(params=["launch", "replay", "call", "future"])
def made(request, kernels):
    """Make objects of one kind."""
    x = ac.zeros(4, np.int32).sync()
    GRAPHS.append(kernels.increment(x, 4, threads=4).graph())
    make(request.param, kernels, x)
    yield lambda: make(request.param, kernels, x)
    GRAPHS.clear()


@kept
def test_one_that_is_freed_is_the_next(made):
    first = made()
    address = id(first)
    del first
    assert id(made()) == address


def test_weak_references_end_with_what_they_were_made_for(made):
    told: list[str] = []
    first = made()
    seen = weakref.ref(first, lambda _: told.append("gone"))
    del first
    second = made()
    assert told == ["gone"]
    assert seen() is None
    assert weakref.ref(second)() is second


@kept
def test_the_next_has_nothing_of_the_former(made):
    stream = ac.Device(0).stream()
    first = made()
    if isinstance(first, ac.DeviceOp):
        assert place(first.on(stream)) != place(made())
        address = id(first)
        first.sync()
        assert first._state == "submitted"
        del first
        second = made()
        assert id(second) == address
        assert second._state == "pending"
        assert second._outcome is None
        assert second._ready == []
        assert place(second) == place(made())
    else:
        first.sync()
        first.add_done_callback(lambda future: None)
        del first
        assert made()._audience is None


def test_what_it_held_is_let_go_of(kernels):
    array = ac.zeros(4, np.int32).sync()
    mark = Mark()
    op = kernels.increment(array, 4, threads=4).then(lambda value, mark=mark: value)
    seen = weakref.ref(mark)
    held = weakref.ref(array)
    del mark, op
    assert seen() is None
    launch = kernels.increment(array, 4, threads=4)
    del array
    assert held() is not None
    del launch
    assert held() is None


@kept
def test_the_garbage_collector_knows_those_that_live_alone(made):
    first = made()
    address = id(first)
    assert any(each is first for each in gc.get_objects())
    del first
    assert not any(id(each) == address for each in gc.get_objects())
    second = made()
    assert id(second) == address
    assert any(each is second for each in gc.get_objects())


def test_more_than_are_kept(made):
    for _ in range(2):
        several = [made() for _ in range(MANY)]
        seen = [weakref.ref(each) for each in several]
        assert len({id(each) for each in several}) == MANY
        del several
        assert not any(each() for each in seen)


def test_a_cycle_through_one_is_collected(kernels):
    x = ac.zeros(4, np.int32).sync()

    def in_a_cycle() -> weakref.ref[Any]:
        future = kernels.increment(x, 4, threads=4).submit()
        mark = Mark()
        mark.future = future  # type: ignore[attr-defined]
        future._audience = mark
        return weakref.ref(mark)

    for _ in range(2):
        seen = in_a_cycle()
        assert seen() is not None
        gc.collect()
        assert seen() is None


def test_a_class_below_is_freed_as_its_own():
    class Mine(ac.DeviceFuture[Any]):
        pass

    future = ac.value(3).submit()
    mine = Mine(future._op, future._where)
    mine.mark = mark = Mark()  # type: ignore[attr-defined]
    seen, held = weakref.ref(mine), weakref.ref(mark)
    assert mine.sync() == 3
    del mark, mine
    assert seen() is None
    assert held() is None
    assert type(ac.value(3).submit()) is ac.DeviceFuture


@kept
def test_those_that_python_code_makes_are_of_the_same(kernels):
    op = kernels.increment(ac.zeros(4, np.int32).sync(), 4, threads=4)
    addresses = set()
    for _ in range(3):
        future = op.submit()
        addresses.add(id(future))
        del future
        future = ac.DeviceFuture(op, _native.Placement())  # type: ignore[call-arg] # the native one takes these
        addresses.add(id(future))
        del future
    assert len(addresses) == 1


@kept
def test_awaits_are_used_again_and_hold_nothing():
    mark = Mark()
    seen = weakref.ref(mark)
    first = ac.value(mark).__await__()
    address = id(first)
    del mark
    assert seen() is not None
    del first
    assert seen() is None
    second = ac.value(3).__await__()
    assert id(second) == address
    assert any(each is second for each in gc.get_objects())
    assert "a value" in repr(second)
