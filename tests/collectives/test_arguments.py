"""Arguments of groups and their ids that are none: what the error says, before anything is made."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import aiocuda as ac
from aiocuda.collective import Group, unique_id

pytest.importorskip("nccl.bindings")
pytestmark = pytest.mark.needs_devices(2)

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def alone() -> Iterator[Group]:
    """A group of processes that this one is all of."""
    with Group.init(0, 1, unique_id()) as made:
        yield made


@pytest.fixture(scope="module")
def given() -> bytes:
    return unique_id()


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda _: Group.local(0), ac.ArgumentTypeError, "devices is a sequence of devices; 0 was given"),
        (lambda _: Group.local("01"), ac.ArgumentTypeError, "devices is a sequence of devices"),
        (lambda _: Group.local([]), ac.ArgumentValueError, "at least one; [] were given"),
        (lambda _: Group.local([0, None]), ac.ArgumentValueError, "different devices"),
        (lambda _: Group.local(["0"]), ac.ArgumentValueError, "a device is named"),
        (lambda _: Group.local([0], timeout_s=None), ac.ArgumentValueError, "a time-out is a number of seconds"),
        (lambda _: Group.local([0], timeout_s="3"), ac.ArgumentValueError, "a time-out is a number of seconds"),
        (lambda given: Group.init("0", 2, given), ac.ArgumentTypeError, "a rank is a whole number; '0' was given"),
        (lambda given: Group.init(True, 2, given), ac.ArgumentTypeError, "a rank is a whole number; True was given"),
        (lambda given: Group.init(2, 2, given), ac.ArgumentValueError, "a rank is a whole number from 0 to 1"),
        (lambda given: Group.init(0, 2.0, given), ac.ArgumentTypeError, "the size of a group is a whole number"),
        (lambda _: Group.init(0, 1, "str"), ac.ArgumentTypeError, "unique_id is the bytes that"),
        (lambda _: Group.init(0, 1, None), ac.ArgumentTypeError, "unique_id is the bytes that"),
        (lambda given: Group.init(0, 1, given[:-1]), ac.ArgumentValueError, "pass all of it on, as it is"),
        (lambda given: Group.init(0, 1, given, timeout_s=None), ac.ArgumentValueError, "a time-out is a number"),
        (lambda given: Group.init(0, 1, given, timeout_s=-1), ac.ArgumentValueError, "a time-out is a number"),
        (lambda _: unique_id("198.51.100.1"), ac.ArgumentValueError, "'198.51.100.1' is none"),
        (lambda _: unique_id("é" * 70), ac.ArgumentValueError, "too long"),
        (lambda _: unique_id(None), ac.ArgumentTypeError, "host is the address of this machine; None was given"),
        (lambda _: unique_id(""), ac.ArgumentValueError, "host is the address of this machine; an empty one"),
        (lambda _: unique_id(answers_within_s=None), ac.ArgumentValueError, "a time-out is a number of seconds"),
    ],
)
def test_what_makes_no_group_says_so_and_leaves_nothing(given, make: Callable[[bytes], Any], error, words, recwarn):
    with pytest.raises(error) as caught:
        make(given)
    assert words in str(caught.value)
    del caught
    gc.collect()
    assert not recwarn.list


@pytest.mark.parametrize("peer", [None, "1", True, 1.0, -1, 1])
def test_who_is_no_peer_is_refused(alone, peer):
    for make in (alone.send, alone.recv):
        with pytest.raises((ac.ArgumentTypeError, ac.ArgumentValueError), match="the other rank is a whole number"):
            make(ac.ones(3), peer)
    alone.barrier().sync(TIMEOUT_S)


def test_the_root_alone_needs_room_for_what_is_reduced():
    with Group.local([0, 1]) as group:
        xs = [ac.full(4, each + 1.0, device=each).sync() for each in range(2)]
        y = ac.empty(4, device=1).sync()
        none, there = ac.zip(*group.reduce(xs, 1, out=[None, y])).sync(TIMEOUT_S)
        assert none is None
        assert ac.to_host(y).sync(TIMEOUT_S).tolist() == ac.to_host(there).sync(TIMEOUT_S).tolist() == [3.0] * 4
        for make in (
            lambda: group.reduce(xs, 0, out=[None, y]),
            lambda: group.reduce(xs, 1, out=[y]),
            lambda: group.all_reduce(xs, out=[None, y]),
        ):
            with pytest.raises(ac.ArgumentTypeError, match="out is"):
                make()


def test_a_group_may_be_waited_for_without_end():
    group = Group.init(0, 1, unique_id(), timeout_s=math.inf)
    group.close(math.inf)
