"""Random lives of arrays against a model in sets of items: who may do what, and what NumPy says is in memory."""

from __future__ import annotations

import gc
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import aiocuda as ac

ITEMS = 12
KERNELS = r"""
#include <aiocuda/tile.cuh>
extern "C" __global__ void fill(int value, aiocuda::View<int, 1> x) {
    for (long long i = 0; i < x.extent(0); ++i) x(i) = value;
}
extern "C" __global__ void add(int value, aiocuda::Partition<int, 1> x) {
    auto tile = x.tile();
    for (long long i = 0; i < tile.extent(0); ++i) tile(i) += value;
}
"""
fill = ac.kernel(KERNELS, "fill")
add = ac.kernel(KERNELS, "add")
STREAMS: list[Any] = []


@dataclass(eq=False)
class Claim:
    """The change of some items at one transition; the handles that it gave belong to it."""

    kind: str  # "shared", "partitioned" or "moved"
    data: np.ndarray
    items: frozenset[int]
    parent: Claim | None


@dataclass(eq=False)
class Handle:
    array: Any
    data: np.ndarray  # of the whole memory
    items: np.ndarray  # which of it
    claim: Claim | None = None
    whole: Handle | None = None  # of a partition
    is_ended: bool = False
    is_named: bool = True  # the program has it
    used_by: int = 0  # operations that were built and not submitted

    def is_of(self, claim: Claim) -> bool:
        mine = self.claim
        while mine is not None and mine is not claim:
            mine = mine.parent
        return mine is claim


@dataclass
class Model:
    handles: list[Handle] = field(default_factory=list)  # that somebody has: the program, an operation, a partition
    claims: list[Claim] = field(default_factory=list)

    def handles_of(self, claim: Claim) -> int:
        return sum(each.claim is claim and not each.is_ended for each in self.handles)

    def claims_on(self, handle: Handle) -> Iterator[Claim]:
        for claim in self.claims:
            is_there = claim.kind == "moved" or self.handles_of(claim) > 0
            is_met = claim.data is handle.data and not claim.items.isdisjoint(handle.items.tolist())
            if is_there and (is_met or claim is handle.claim):  # its own, even where it has no items
                yield claim

    def may_use(self, handle: Handle, writes: bool) -> bool:
        return not handle.is_ended and all(
            not writes if claim.kind == "shared" else handle.is_of(claim) for claim in self.claims_on(handle)
        )

    def may_share(self, handle: Handle) -> bool:
        return not handle.is_ended and all(
            claim.kind == "shared" or (claim.kind == "moved" and handle.is_of(claim))
            for claim in self.claims_on(handle)
        )

    def may_give(self, handle: Handle) -> bool:
        return not handle.is_ended and all(
            claim.kind == "moved" and handle.is_of(claim) for claim in self.claims_on(handle)
        )

    def add_claim(self, kind: str, handle: Handle) -> Claim:
        claim = Claim(kind, handle.data, frozenset(handle.items.tolist()), handle.claim)
        self.claims.append(claim)
        return claim


REFUSED = object()


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except ac.OwnershipError:
        return REFUSED


numbers = st.integers(0, 999)


class Lives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.built: list[tuple[Any, Handle, bool, Callable[[], None]]] = []
        self.readings: list[tuple[Any, np.ndarray]] = []
        self.made = 0

    def named(self, is_partition: bool | None = None) -> list[Handle]:
        return [
            each
            for each in self.model.handles
            if each.is_named and is_partition in {None, isinstance(each.array, ac.Partition)}
        ]

    def pick(
        self,
        number: int,
        is_partition: bool | None = None,
        likely: Callable[[Handle], bool] = lambda each: not each.is_ended,
    ) -> Handle | None:
        """Choose a handle: most often one with which the rule is likely to go through."""
        found = self.named(is_partition)
        if number % 8:
            found = [each for each in found if likely(each)] or found
        return found[number // 8 % len(found)] if found else None

    @initialize()
    def begin(self) -> None:
        self.make()

    @precondition(lambda self: self.made < 3)
    @rule()
    def make(self) -> None:
        self.made += 1
        data = np.arange(ITEMS, dtype=np.int32) * self.made
        self.model.handles.append(Handle(ac.to_device(data).sync(), data, np.arange(ITEMS)))

    @rule(number=numbers, start=st.integers(0, 8), length=st.integers(0, ITEMS), step=st.integers(1, 3))
    def view(self, number: int, start: int, length: int, step: int) -> None:
        of = self.pick(number, is_partition=False)
        if of is None:
            return
        key = slice(start, start + length, step)
        made = Handle(None, of.data, of.items[key], of.claim)
        view = attempt(operator.getitem, of.array, key)
        assert (view is not REFUSED) == (not of.is_ended and self.model.may_use(made, writes=False))
        if view is not REFUSED:
            made.array = view
            self.model.handles.append(made)

    @rule(number=numbers)
    def share(self, number: int) -> None:
        handle = self.pick(number)
        if handle is None:
            return
        may = self.model.may_share(handle)
        shared = attempt(lambda array: array.share(), handle.array)
        assert (shared is not REFUSED) == may
        if may:
            if handle.claim is None or handle.claim.kind != "shared":
                handle.claim = self.model.add_claim("shared", handle)
            self.model.handles.append(Handle(shared, handle.data, handle.items, handle.claim))

    @rule(number=numbers)
    def unwrap(self, number: int) -> None:
        handle = self.pick(number, likely=self.is_last)
        if handle is None:
            return
        claim, may = handle.claim, self.is_last(handle)
        array = attempt(lambda array: array.unwrap(), handle.array)
        assert (array is not REFUSED) == may
        if may:
            assert array is handle.array
            self.model.claims.remove(claim)
            handle.claim = claim.parent

    def is_last(self, handle: Handle) -> bool:
        claim = handle.claim
        is_shared = not handle.is_ended and claim is not None and claim.kind == "shared"
        return is_shared and self.model.handles_of(claim) == 1

    @rule(number=numbers)
    def move(self, number: int) -> None:
        handle = self.pick(number, likely=self.model.may_give)
        if handle is None:
            return
        may = self.model.may_give(handle)
        moved = attempt(ac.move, handle.array)
        assert (moved is not REFUSED) == may
        if may:
            claim = self.model.add_claim("moved", handle)
            handle.is_ended = True
            self.model.handles.append(Handle(moved, handle.data, handle.items, claim))

    @rule(number=numbers, tile=st.integers(1, 5))
    def partition(self, number: int, tile: int) -> None:
        handle = self.pick(number, likely=self.model.may_give)
        if handle is None:
            return
        may = self.model.may_give(handle)
        partition = attempt(lambda array: array.partition(tile), handle.array)
        assert (partition is not REFUSED) == may
        if may:
            claim = self.model.add_claim("partitioned", handle)
            self.model.handles.append(Handle(partition, handle.data, handle.items, claim, whole=handle))

    @rule(number=numbers)
    def unpartition(self, number: int) -> None:
        handle = self.pick(number, is_partition=True)
        if handle is None:
            return
        array = attempt(lambda partition: partition.unpartition(), handle.array)
        assert (array is not REFUSED) == (not handle.is_ended)
        if array is not REFUSED:
            assert array is handle.whole.array
            handle.whole.is_named = True
            handle.is_ended, handle.whole = True, None

    @rule(number=numbers)
    def close(self, number: int) -> None:
        handle = self.pick(number)
        if handle is not None:
            handle.array.close()
            handle.is_ended, handle.whole = True, None

    @rule(number=numbers, closes=st.booleans())
    def end_sharing(self, number: int, closes: bool) -> None:
        """Leave one of the handles of a shared array, for `unwrap` to find."""
        handle = self.pick(number, likely=lambda each: each.claim is not None and each.claim.kind == "shared")
        if handle is None or handle.claim is None or handle.claim.kind != "shared":
            return
        for other in self.named():
            if other is not handle and other.claim is handle.claim:
                if closes:
                    other.array.close()
                    other.is_ended = True
                else:
                    other.is_named = False
        del other
        self.forget()

    @rule(number=numbers)
    def drop_what_has_ended(self, number: int) -> None:
        handle = self.pick(number, likely=lambda each: each.is_ended)
        if handle is not None and handle.is_ended:
            handle.is_named = False
            self.forget()

    @rule(number=numbers)
    def drop(self, number: int) -> None:
        handle = self.pick(number)
        if handle is not None:
            handle.is_named = False
            self.forget()

    def forget(self) -> None:
        """Let go of the arrays that the program, operations and partitions no longer have."""
        kept = [each for each in self.model.handles if each.is_named or each.used_by]
        wholes = {id(each.whole) for each in kept if each.whole is not None}
        self.model.handles = [each for each in self.model.handles if each in kept or id(each) in wholes]

    @rule(number=numbers, value=st.integers(1, 100), stream=st.integers(0, 2), built=st.booleans())
    def write(self, number: int, value: int, stream: int, built: bool) -> None:
        handle = self.pick(number, likely=lambda each: self.model.may_use(each, writes=True))
        if handle is None:
            return
        data, items = handle.data, handle.items

        def change() -> None:
            if is_partition:
                data[items] += value
            else:
                data[items] = value

        is_partition = isinstance(handle.array, ac.Partition)
        launch = (
            (lambda array: add(value, array, block=1))
            if is_partition
            else (lambda array: fill(value, array, grid=1, block=1))
        )
        op = attempt(launch, handle.array)
        assert (op is not REFUSED) == self.model.may_use(handle, writes=True)
        if op is not REFUSED:
            self.put(op.on(STREAMS[stream]), handle, True, change, built)

    @rule(number=numbers, built=st.booleans())
    def read(self, number: int, built: bool) -> None:
        handle = self.pick(number, is_partition=False)
        if handle is None:
            return
        op = attempt(ac.to_host, handle.array)
        assert (op is not REFUSED) == self.model.may_use(handle, writes=False)
        if op is not REFUSED:
            self.put(op, handle, False, lambda: None, built)

    @rule(number=numbers, other=numbers)
    def copy(self, number: int, other: int) -> None:
        to = self.pick(number, is_partition=False, likely=lambda each: self.model.may_use(each, writes=True))
        if to is None:
            return
        alike = [each for each in self.named(is_partition=False) if each.items.shape == to.items.shape]
        source = alike[other % len(alike)]
        if to.data is source.data and not set(to.items.tolist()).isdisjoint(source.items.tolist()):
            return
        op = attempt(ac.copy, to.array, source.array)
        assert (op is not REFUSED) == (self.model.may_use(to, writes=True) and self.model.may_use(source, writes=False))
        if op is not REFUSED:
            op.submit()
            to.data[to.items] = source.data[source.items]

    def put(self, op: Any, handle: Handle, writes: bool, change: Callable[[], None], built: bool) -> None:
        """Keep an operation for later, or submit it now."""
        handle.used_by += 1
        self.built.append((op, handle, writes, change))
        if not built:
            self.submit(len(self.built) - 1)

    @precondition(lambda self: self.built)
    @rule(number=numbers)
    def submit(self, number: int) -> None:
        op, handle, writes, change = self.built.pop(number % len(self.built))
        done = attempt(op.submit)
        is_refused = done is REFUSED
        assert is_refused != self.model.may_use(handle, writes)
        if not is_refused:
            if not writes:
                self.readings.append((done, handle.data[handle.items].copy()))
            change()
        handle.used_by -= 1
        self.forget()
        del op, done, handle
        if is_refused:
            gc.collect()  # the operation stands in a cycle with its error

    def teardown(self) -> None:
        for reading, expected in self.readings:
            np.testing.assert_array_equal(reading.sync(), expected)
        for handle in self.model.handles:
            if not isinstance(handle.array, ac.Partition) and self.model.may_use(handle, writes=False):
                np.testing.assert_array_equal(ac.to_host(handle.array).sync(), handle.data[handle.items])


def test_random_lives_of_arrays(device: ac.Device) -> None:
    STREAMS[:] = [device.default_stream, device.stream(), device.stream()]
    try:
        run_state_machine_as_test(Lives)
    finally:
        STREAMS.clear()
