"""Long chains do not recurse or grow, and operations take part in garbage collection."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest

import aiocuda as ac

LONG = 100_000


def long_chain(kernels: Any, n: int = LONG) -> ac.DeviceOp[ac.DeviceArray]:
    op: ac.DeviceOp[ac.DeviceArray] = ac.zeros(1, np.int32)
    for _ in range(n):
        op = kernels.increment(op, 1, grid=1, block=1)
    return op


def test_a_long_chain_of_launches_runs(kernels):
    assert ac.to_host(long_chain(kernels)).sync()[0] == LONG


def test_a_long_chain_that_never_runs_is_dropped(kernels):
    chain = long_chain(kernels)
    last = weakref.ref(chain)
    del chain
    assert last() is None


@pytest.mark.parametrize("grow", ["then", "map", "inspect", "zip", "pick", "dup", "copy"])
def test_every_kind_of_chain_is_long(grow):
    n = 2_000 if grow in ("dup", "copy") else 20_000
    op: Any = ac.zeros(1, np.int32) if grow in ("dup", "copy") else ac.value(0)
    target = ac.zeros(1, np.int32)
    for _ in range(n):
        match grow:
            case "then":
                op = op.then(lambda value: value + 1)
            case "map":
                op = op.map(lambda value: value + 1)
            case "inspect":
                op = op.inspect(lambda value: None)
            case "zip":
                op = ac.zip(op, 1)
            case "pick":
                op = ac.zip(op, 1).first()
            case "dup":
                op = ac.dup(op)
            case "copy":
                op = ac.copy(target, op)
    result = op.sync()
    del op
    depth = 0
    while isinstance(result, tuple):  # taken apart by hand: a tuple in a tuple is Python's own recursion
        result = result[0]
        depth += 1
    assert depth == (n if grow == "zip" else 0)
    if grow in ("dup", "copy"):
        np.testing.assert_array_equal(ac.to_host(result).sync(), [0])
    else:
        assert result == (n if grow in ("then", "map") else 0)


def test_a_chain_through_closures_is_dropped_without_recursion():
    op = ac.value(0)
    for _ in range(20_000):
        op = ac.value(0).then(lambda _, before=op: before)
    last = weakref.ref(op)
    del op
    gc.collect()
    assert last() is None


def test_a_loop_written_with_then_runs_to_any_depth():
    def step(n: int) -> Any:
        return n if n == 0 else ac.value(n - 1).then(step)

    assert ac.value(20_000).then(step).sync() == 0


def test_what_has_run_lets_go_of_what_it_was_made_of(kernels):
    first = ac.zeros(1, np.int32)
    seen = weakref.ref(first)
    second = kernels.increment(first, 1, threads=1)
    del first
    assert seen() is not None
    second.sync()
    assert seen() is None


def test_a_failed_operation_lets_go_of_its_arguments():
    first = ac.zeros(1, np.int32)
    seen = weakref.ref(first)
    second = first.then(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        second.sync()
    del first
    gc.collect()
    assert seen() is None


def test_a_loop_that_keeps_only_the_last_operation_does_not_grow(kernels, used_bytes):
    x = ac.zeros(256, np.int32).sync()
    op: Any = kernels.increment(x, 256, threads=256)
    op.sync()
    seen = []
    for _ in range(3):
        for _ in range(500):
            op = kernels.increment(op, 256, threads=256)
            op.submit()
        op.sync()
        gc.collect()
        # Only aiocuda's objects: other libraries' threads and the interpreter's caches make and drop their own.
        ours = sum(str(type(each).__module__).startswith("aiocuda") for each in gc.get_objects())
        seen.append((ours, used_bytes()))
    assert seen[1] == seen[2]


class Node:
    """Something of a user's that holds operations."""


def in_a_cycle(state: str) -> weakref.ref[Node]:
    """Make a node that holds an operation whose callback holds the node; only the collector can end it."""
    node = Node()

    def callback(value: int) -> Any:
        assert node is not None
        if state == "failed":
            raise ValueError(value)
        return node if state == "submitted" else value

    node.op = ac.value(1).then(callback)
    if state == "submitted":
        assert node.op.sync() is node
    if state == "failed":
        with pytest.raises(ValueError, match="1"):
            node.op.sync()
    return weakref.ref(node)


@pytest.mark.parametrize("state", ["pending", "submitted", "failed"])
def test_a_cycle_through_a_closure_is_collected(state):
    seen = in_a_cycle(state)
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize(
    "make",
    [
        lambda node: ac.zip(node),
        lambda node: ac.zip(node, 1).first(),
        lambda node: ac.value(node),
        lambda node: ac.value(1).map(node.method),
        lambda node: ac.copy(ac.value(node), ac.ones(1)),
        lambda node: ac.dup(ac.value(node)),
        lambda node: ac.full(1, node.number),
        lambda node: ac.value(1).then(lambda _: node).submit(),
    ],
)
def test_every_kind_of_operation_is_seen_by_the_collector(make):
    class Holder:
        number = 1.0

        def method(self, value: object) -> object:
            return value

    node = Holder()
    node.op = make(node)
    seen = weakref.ref(node)
    del node
    gc.collect()
    assert seen() is None


def test_a_cycle_through_a_launch_is_collected(kernels):
    def launch_in_a_cycle() -> weakref.ref[Node]:
        node = Node()
        node.op = kernels.increment(ac.value(1).then(lambda _: node), 1, threads=1)
        return weakref.ref(node)

    seen = launch_in_a_cycle()
    gc.collect()
    assert seen() is None


def test_reference_counts_of_arguments_are_balanced(kernels):
    array = ac.zeros(4, np.int32).sync()
    number = 12_345
    before = sys.getrefcount(array), sys.getrefcount(number)
    for _ in range(100):
        kernels.accumulate(number, array, array, 4, threads=4).sync()
    with pytest.raises(
        ac.ArgumentTypeError, match=r"accumulate: argument 3 \(y\): a device array of int32 is expected, str was given"
    ):
        kernels.accumulate(number, array, "no", 4, threads=4)
    assert (sys.getrefcount(array), sys.getrefcount(number)) == before
