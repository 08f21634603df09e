"""The end of a group: by close(), with ranks that are missing, that leave, or that abort."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import aiocuda as ac
from aiocuda.collective import Group
from aiocuda.errors import CollectiveError

sys.path.insert(0, str(Path(__file__).parent))
from ranks import run_ranks

pytest.importorskip("nccl.bindings")

# The end of a rank that is told by the hub why the group has failed.
IS_TOLD = """
while "failed" not in repr(g):
    time.sleep(0.005)
try:
    g.barrier()
except ac.errors.CollectiveError as error:
    say(told=str(error))
g.close()
"""


def test_close_names_the_rank_that_does_not_come(tmp_path):
    ends = run_ranks(
        """
g = group()
if rank == 1:
    wait_for("closed")
    while "failed" not in repr(g):  # the hub tells it
        time.sleep(0.005)
    try:
        g.barrier()
    except ac.errors.CollectiveError as error:
        say(told=str(error))
else:
    future = g.all_reduce(ac.ones(10)).submit()
    try:
        g.close(0.05)
    except ac.errors.CollectiveError as error:
        say(error=str(error), of_future=str(future.exception()) if future.done() else "")
    try:
        future.sync(60)
    except ac.errors.CollectiveError as error:
        say(awaited=str(error))
    tell("closed")
g.close()
""",
        2,
        tmp_path,
    )
    assert [each.status for each in ends] == [0, 0], ends
    assert "close() waited for 0.05 s" in ends[0]["error"]
    assert "all_reduce of float32(10,), sum: rank 1 has not called it" in ends[0]["error"]
    assert ends[0]["awaited"] == ends[0]["error"]
    assert "close() waited for 0.05 s" in ends[1]["told"]


def test_others_hear_why_where_the_rank_that_aborts_ends_with_the_hub(tmp_path):
    """The hub is in that rank's process, and slow."""
    ends = run_ranks(
        """
from aiocuda._collective.coordinator import Coordinator
hear = Coordinator.hear
def slow(self, of, messages):
    if any(each[0] == "failed" for each in messages):
        time.sleep(0.2)
    return hear(self, of, messages)
Coordinator.hear = slow
g = group()
if rank == 0:
    g.abort()
    os._exit(0)
"""
        + IS_TOLD,
        2,
        tmp_path,
    )
    assert "rank 0 aborted the group" in ends[1]["told"], ends


def test_others_hear_why_where_a_close_overtakes_the_abort_that_ends_it(tmp_path):
    ends = run_ranks(
        """
import threading
from aiocuda._collective.others import Others
from aiocuda._collective.watch import Watch
g = group()
if rank == 0:
    waits, has_waited, wait, tell_others = threading.Event(), threading.Event(), Watch.wait_until_idle, Others.tell
    def noted(*given, **more):
        waits.set()
        is_in_time = wait(*given, **more)
        has_waited.set()
        return is_in_time
    def late(*given):
        has_waited.wait(60)
        time.sleep(0.2)  # in which close() leaves, if it does not wait
        tell_others(*given)
    Watch.wait_until_idle, Others.tell = noted, late
    g.all_reduce(ac.ones(10)).submit()
    aborts = threading.Thread(target=lambda: (waits.wait(60), g.abort()), daemon=True)
    aborts.start()
    g.close()
    os._exit(0)
"""
        + IS_TOLD,
        2,
        tmp_path,
    )
    assert "rank 0 aborted the group" in ends[1]["told"], ends


@pytest.mark.parametrize("aborts", [0, 1])
def test_an_abort_ends_a_close_that_waits(tmp_path, aborts):
    ends = run_ranks(
        """
import threading
g = group()
if rank == 0:
    future = g.all_reduce(ac.ones(10)).submit()
    closes = threading.Thread(target=g.close)
    closes.start()
    while "closed" not in repr(g):
        time.sleep(0.005)
    tell("closing")
wait_for("closing")
if rank == ABORTS:
    g.abort()
if rank == 0:
    closes.join(60)
    say(is_closed=not closes.is_alive())
    try:
        future.sync(60)
    except ac.errors.CollectiveError as error:
        say(error=str(error))
    tell("closed")
wait_for("closed")
g.close()
""".replace("ABORTS", str(aborts)),
        2,
        tmp_path,
    )
    assert [each.status for each in ends] == [0, 0], ends
    assert ends[0]["is_closed"]
    assert f"rank {aborts} aborted the group" in ends[0]["error"]


@pytest.mark.parametrize("is_first", [True, False], ids=["left before", "left after"])
def test_a_rank_that_leaves_ends_the_calls_of_the_others(tmp_path, is_first):
    ends = run_ranks(
        """
g = group()
if rank == 1:
    if not IS_FIRST:
        wait_for("called")
    g.close()
    tell("left")
    wait_for("over")
else:
    if IS_FIRST:
        wait_for("left")
    try:
        future = g.all_reduce(ac.ones(10)).submit()
        tell("called")
        future.sync(60)
    except ac.errors.CollectiveError as error:
        say(error=str(error))
    if rank == 0:
        tell("over")
    g.close()
""".replace("IS_FIRST", str(is_first)),
        2,
        tmp_path,
    )
    assert [each.status for each in ends] == [0, 0], ends
    assert "as call 2, rank 0 calls all_reduce of float32(10,), sum, rank 1 has closed the group" in ends[0]["error"]


def test_a_rank_that_leaves_after_all_calls_is_in_nobody_s_way(tmp_path):
    ends = run_ranks(
        """
g = group()
future = ac.to_host(g.all_reduce(ac.ones(10))).submit()
g.close()
say(sum=future.sync(60).tolist()[0])
""",
        3,
        tmp_path,
    )
    assert [each["sum"] for each in ends] == [3.0] * 3, ends


def test_a_forked_child_leaves_the_group_alone(tmp_path):
    ends = run_ranks(
        """
g = group()
if rank == 0:
    child = os.fork()
    if child == 0:
        g.abort()
        g.close()
        os._exit(0)
    say(child=os.waitpid(child, 0)[1])
say(sum=ac.to_host(g.all_reduce(ac.ones(10))).sync(60).tolist()[0])
g.close()
""",
        2,
        tmp_path,
    )
    assert [each["sum"] for each in ends] == [2.0] * 2, ends
    assert ends[0]["child"] == 0


def test_ranks_that_were_told_different_sizes_do_not_wait_for_each_other(tmp_path):
    ends = run_ranks(
        """
try:
    Group.init(rank, size + rank, shared("id", unique_id), timeout_s=60)
except ac.errors.CollectiveError as error:
    say(error=str(error))
tell(f"over{rank}")
for each in range(size):
    wait_for(f"over{each}")
""".replace("Group.init(rank, size + rank", "Group.init(2 * rank, size + 2 * rank"),
        2,
        tmp_path,
    )
    told = {0: 2, 2: 4}
    either = [
        f"rank {late} has joined, and was told that there are {told[late]} ranks; "
        f"rank {early} was told that there are {told[early]}"
        for early, late in ((0, 2), (2, 0))  # whichever came first
    ]
    assert any(each in ends[0]["error"] for each in either), ends


@pytest.mark.parametrize("aborts", [0, 1], ids=["here", "elsewhere"])
def test_an_aborted_group_that_nobody_has_any_more_is_freed(tmp_path, aborts):
    """It was not closed. An array that it was to write is still there."""
    ends = run_ranks(
        """
import gc, threading, weakref
from aiocuda import _native
def main(x):
    g = group()
    future = g.all_reduce(x, out=x).submit() if rank == 0 else None
    if rank == ABORTS:
        if rank:
            wait_for("called")
        g.abort()
    else:
        tell("called")
    while rank == 1 and "failed" not in repr(g):
        time.sleep(0.005)
    try:
        future.sync(60) if rank == 0 else g.barrier().sync(60)
    except ac.errors.CollectiveError as error:
        say(error=str(error))
    return [weakref.ref(each) for each in (g, g._members, g._members._others, g._members._others._line)]
x = ac.ones(10).sync()
left = main(x)
tell(f"over{rank}")
for each in range(size):
    wait_for(f"over{each}")
for each in threading.enumerate():
    if each.name.startswith("aiocuda-") and each.name != "aiocuda-dropped-groups":  # which is the process'
        each.join(20)
        say(**({"thread": each.name} if each.is_alive() else {}))
ac.Device(0).synchronize().sync(60)
_native.collect()
gc.collect()
say(left=[repr(each()) for each in left])
""".replace("ABORTS", str(aborts)),
        2,
        tmp_path,
    )
    assert [each.status for each in ends] == [0, 0], ends
    for ended in ends:
        assert f"rank {aborts} aborted the group" in ended["error"]
        assert ended["left"] == ["None"] * 4
        assert not any("thread" in each for each in ended.said), ended  # those of the hub have ended, too


@pytest.mark.parametrize("fails", [False, True], ids=["aborted", "not launched"])
def test_streams_never_wait_for_memory_that_is_gone(tmp_path, fails):
    """The wait for an agreement is still in the stream when nobody has the group any more."""
    (ended,) = run_ranks(
        """
import gc, threading, weakref
from aiocuda import _native
from aiocuda._driver import nccl
g = group()
flag = ac.empty_host(1, "uint32").sync()
flag.numpy()[0] = 0
x = ac.ones(10).sync()
stream = ac.Device(0).stream()
_native.wait_for_word(0, stream.handle, flag.numpy().ctypes.data, 1)
ac.fill(x, 1).on(stream).submit()
def refused(*_):
    raise RuntimeError("no")
if FAILS:
    nccl.Communicators.launch = refused
made = g.all_reduce(x, out=x)
try:
    made.submit()
except ac.errors.CollectiveError as error:
    assert FAILS
g.abort()
g.close()
others = weakref.ref(g._members._others)
del g, made
for each in threading.enumerate():  # which have it, too
    if each.name.startswith("aiocuda-collective"):
        each.join(60)
gc.collect()
say(is_there=others() is not None)
flag.numpy()[0] = 1
ac.Device(0).synchronize().sync(60)
""".replace("FAILS", str(fails)),
        1,
        tmp_path,
    )
    assert ended.status == 0, ended
    assert ended["is_there"]


@pytest.mark.needs_devices(2)
def test_close_of_a_local_group_says_what_was_under_way(latches):
    group = Group.local([0, 1])
    x = [ac.full(3, 1, np.int32, device=each).sync() for each in range(2)]
    latch = latches()
    stream = ac.Device(1).stream()
    latch.hold(stream)
    ac.fill(x[1], 1).on(stream).submit()
    future = group.all_reduce(x)[0].submit()
    with pytest.raises(CollectiveError, match=r"close\(\) waited for 0.05 s.*all_reduce of int32\(3,\), sum"):
        group.close(0.05)
    group.close()  # it is closed
    latch.release()
    with pytest.raises(CollectiveError, match="close"):
        future.sync(60)


@pytest.mark.parametrize("timeout_s", [-1, float("nan"), "1"])
def test_the_time_of_close_is_a_time(timeout_s):
    with Group.local([0]) as group:
        with pytest.raises(ac.ArgumentValueError, match="time-out"):
            group.close(timeout_s)
        group.barrier().sync(60)
