"""Local groups whose end comes in the middle of something, and the order of what is left."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native
from aiocuda._collective import order
from aiocuda._collective.watch import Watch
from aiocuda._driver import nccl
from aiocuda.collective import Group, unique_id
from aiocuda.errors import CollectiveError

pytest.importorskip("nccl.bindings")
pytestmark = pytest.mark.needs_devices(2)

TIMEOUT_S = 60


@pytest.fixture
def group() -> Iterator[Group]:
    with Group.local([0, 1]) as made:
        yield made


def arrays(value: float) -> list[Any]:
    return [ac.full(4, value, device=each).sync() for each in range(2)]


def test_a_call_that_an_abort_overtakes_is_not_well(group, monkeypatch):
    """The group fails when the call has been let through, and NCCL is told when the call is on the stream."""
    has_failed, is_submitted = threading.Event(), threading.Event()
    add, abort, launch = Watch.add, nccl.Communicators.abort, nccl.Communicators.launch

    def overtaken(self: Watch, flight: Any) -> Any:
        threading.Thread(target=group.abort, daemon=True).start()
        assert has_failed.wait(TIMEOUT_S)
        return add(self, flight)

    def late(self: nccl.Communicators) -> None:
        has_failed.set()
        assert is_submitted.wait(TIMEOUT_S)
        abort(self)

    def launched(*arguments: Any) -> None:
        launch(*arguments)
        is_submitted.set()

    monkeypatch.setattr(Watch, "add", overtaken)
    monkeypatch.setattr(nccl.Communicators, "abort", late)
    monkeypatch.setattr(nccl.Communicators, "launch", launched)
    x = arrays(1)
    try:
        with pytest.raises(CollectiveError, match="abort"):
            group.all_reduce(x, out=x)[0].sync(TIMEOUT_S)
    finally:
        is_submitted.set()
    assert ac.to_host(x[0]).sync(TIMEOUT_S).tolist() == [1.0] * 4  # nobody has touched it


def test_a_call_that_a_close_overtakes_is_refused(monkeypatch):
    """The group is closed when the call has been let through, and NCCL lets go of it when the call would be made."""
    group = Group.init(0, 1, unique_id())
    members, is_idle, is_added = group._members, threading.Event(), threading.Event()
    wait, prepare, closes = Watch.wait_until_idle, members._prepared, threading.Thread(target=group.close)

    def idle(self: Watch, *given: Any, **more: Any) -> bool:
        is_in_time = wait(self, *given, **more)
        is_idle.set()
        assert is_added.wait(TIMEOUT_S)
        return is_in_time

    def overtaken(*given: Any) -> Any:
        closes.start()
        assert is_idle.wait(TIMEOUT_S)
        return prepare(*given)

    def added(self: Watch, flight: Any, add: Any = Watch.add) -> bool:
        is_new: bool = add(self, flight)
        is_added.set()
        return is_new

    monkeypatch.setattr(Watch, "wait_until_idle", idle)
    monkeypatch.setattr(Watch, "add", added)
    monkeypatch.setattr(members, "_prepared", overtaken)
    with pytest.raises(ac.ClosedError, match="the group was closed"):
        group.all_reduce(ac.ones(3)).sync(TIMEOUT_S)
    closes.join(TIMEOUT_S)
    assert not closes.is_alive()


@pytest.mark.parametrize("build", [lambda group: group.all_reduce([ac.ones(1)]), lambda group: group.barrier()])
@pytest.mark.parametrize(("end", "error"), [("close", ac.ClosedError), ("abort", CollectiveError)])
def test_a_call_that_is_being_built_when_its_group_ends_names_the_group(monkeypatch, build, end, error):
    group, make = Group.local([0]), _native.collective_op

    def overtaken(*given: Any) -> Any:
        made = make(*given)
        ends = threading.Thread(target=lambda: (getattr(group, end)(), group.close()))
        ends.start()
        ends.join(TIMEOUT_S)
        return made

    monkeypatch.setattr(_native, "collective_op", overtaken)
    with pytest.raises(error, match="the group was closed" if end == "close" else "rank 0 aborted the group"):
        build(group)


def test_what_has_ended_is_not_waited_for(group):
    xs = arrays(1)
    graph = ac.zip(*group.all_reduce(xs, out=xs)).graph()
    for each in (lambda: group.all_reduce(xs)[0], graph.launch, group.barrier):
        each().sync(TIMEOUT_S)
        assert group.waits_for() == ""


@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_group_that_has_ended_gives_its_events_back(monkeypatch, latch, end):
    """Those that it does not give back stay with the driver until the process ends."""
    taken: list[int] = []

    class Counted:
        def __init__(self, device: int, make: Any = _native.StreamEvents) -> None:
            self._events = make(device)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._events, name)

        def record(self, stream: int) -> int:
            taken.append(self._events.record(stream))
            return taken[-1]

        def put_back(self, event: int) -> None:
            taken.remove(event)
            self._events.put_back(event)

    monkeypatch.setattr(_native, "StreamEvents", Counted)
    group = Group.local([0, 1])
    xs = arrays(1)
    stream = ac.Device(1).stream()
    latch.hold(stream)
    ac.fill(xs[1], 1).on(stream).submit()
    ops = [group.all_reduce(xs, out=xs)[0], group.all_reduce(xs, out=xs)[0]]
    for each in ops:
        each.submit()
    assert taken
    if end == "abort":
        group.abort()
    latch.release()
    group.close()
    assert not taken


def test_an_abort_does_not_wait_long_for_nccl(group, monkeypatch):
    """NCCL may wait for a stream whose work waits for the thread that aborts."""
    may_end = threading.Event()
    abort = nccl.Communicators.abort

    def stuck(self: nccl.Communicators) -> None:
        may_end.wait()
        abort(self)

    monkeypatch.setattr(nccl.Communicators, "abort", stuck)
    aborts = threading.Thread(target=lambda: (group.abort(), group.close()), daemon=True)
    aborts.start()
    aborts.join(TIMEOUT_S)
    is_over = not aborts.is_alive()
    may_end.set()
    assert is_over


def test_communicators_that_are_being_aborted_can_be_asked(monkeypatch):
    """NCCL's abort may take long: it holds no lock that others wait for."""
    is_in, may_end = threading.Event(), threading.Event()

    class Bindings:
        NCCLError = RuntimeError

        @staticmethod
        def comm_abort(handle: object) -> None:
            is_in.set()
            assert may_end.wait(TIMEOUT_S)

    monkeypatch.setattr(nccl, "_bindings", Bindings)
    communicators = nccl.Communicators([0], [0], 1)
    communicators._roots.append(None)
    aborts = threading.Thread(target=communicators.abort)
    aborts.start()
    assert is_in.wait(TIMEOUT_S)
    asked: list[str | None] = []
    asks = threading.Thread(target=lambda: asked.append(communicators.state()), daemon=True)
    asks.start()
    asks.join(5)
    may_end.set()
    aborts.join()
    asks.join()
    assert asked == ["the communicators were aborted"]
    communicators.destroy()  # nothing more is asked of NCCL


def test_one_that_is_dropped_leaves_those_before_it_in_order(group):
    x = arrays(1)
    first = group.all_reduce(x, out=x)
    dropped = group.all_reduce(x, out=x)
    del dropped
    gc.collect()
    last = group.all_reduce(x, "max", out=x)
    last[0].sync(TIMEOUT_S)  # and the first one before it
    assert ac.to_host(x[0]).sync(TIMEOUT_S).tolist() == [2.0] * 4
    assert first[0].sync(TIMEOUT_S) is x[0]


def test_what_was_executed_is_not_remembered_for_the_order(group):
    x = arrays(1)
    for _ in range(20):
        group.all_reduce(x, out=x)[0].sync(TIMEOUT_S)
    group.barrier().sync(TIMEOUT_S)
    assert len(order._built) <= 1


def test_an_out_that_overlaps_in_part_is_refused(group):
    x = arrays(1)
    with pytest.raises(ac.ArgumentValueError, match=r"all_reduce: out, .* shares memory with x"):
        group.all_reduce([each[:3] for each in x], out=[each[1:] for each in x])[0].sync(TIMEOUT_S)
    assert ac.to_host(group.all_reduce(x)[0]).sync(TIMEOUT_S).tolist() == [2.0] * 4  # the group goes on


def test_in_place_as_nccl_has_it_gives_what_apart_gives(group):
    whole = [ac.zeros(8, device=each).sync() for each in range(2)]
    for rank in range(2):
        ac.fill(whole[rank][4 * rank : 4 * rank + 4], rank + 1.0).sync()
    mine = [whole[rank].reshape(2, 4)[rank : rank + 1] for rank in range(2)]
    group.all_gather(mine, out=whole)[0].sync(TIMEOUT_S)
    np.testing.assert_array_equal(ac.to_host(whole[0]).sync(TIMEOUT_S), [1] * 4 + [2] * 4)
    parts = [whole[rank][4 * rank : 4 * rank + 4] for rank in range(2)]
    group.reduce_scatter(whole, out=parts)[0].sync(TIMEOUT_S)
    assert [ac.to_host(each).sync(TIMEOUT_S).tolist() for each in parts] == [[2.0] * 4, [4.0] * 4]


def test_a_new_group_has_done_everything_once(monkeypatch):
    """So NCCL connects no ranks later, in a call that may be a loop's."""
    functions: list[list[str]] = []
    launch = nccl.Communicators.launch

    def launched(self: nccl.Communicators, streams: Any, calls: Any) -> None:
        functions.append([each.function for each in calls[0]])
        launch(self, streams, calls)

    monkeypatch.setattr(nccl.Communicators, "launch", launched)
    with Group.local([0, 1]):
        pass
    kinds = ["all_reduce", "reduce", "reduce_scatter", "all_gather", "broadcast", "allto_all"]
    assert functions == [kinds]


LOST = """
import threading
import aiocuda as ac
from aiocuda import _native
from aiocuda.collective import Group
illegal = ac.kernel('extern "C" __global__ void illegal(int* x, unsigned long long at) { x[at] = 1; }', "illegal")
group = Group.local([0, 1])
xs = [ac.zeros(4, "int32", device=each).sync() for each in range(2)]
beside = ac.zeros(4, "int32", device=LOST).sync()
illegal(beside, 0, grid=1, block=1).sync()
flag = ac.empty_host(1, "int32").sync()
flag.numpy()[0] = 0
hold = lambda stream, _: _native.wait_for_word(LOST, stream.handle, flag.address, 1)
ac.call(hold, xs[LOST], writes=[xs[LOST]]).submit()
op = group.all_reduce(xs, out=xs)[0]
future = op.submit()
illegal(beside, 1 << 40, grid=1, block=1).submit()
try:
    future.sync(20)
except (ac.errors.CollectiveError, ac.DeviceLostError) as error:
    print(type(error).__name__)
finally:
    flag.numpy()[0] = 1
while "failed" not in repr(group):
    threading.Event().wait(0.001)
try:
    group.barrier()
except ac.errors.CollectiveError as error:
    print(error)
group.close(20)
"""


@pytest.mark.parametrize("lost", [0, 1])
def test_a_device_that_is_lost_ends_what_is_under_way_on_all(in_process, lost):
    """The others wait for it, and their devices and NCCL see no error."""
    environment = {"AIOCUDA_DRIVER": "emulated", "AIOCUDA_EMULATED_DEVICES": "2"}
    done = in_process(LOST.replace("LOST", str(lost)), **environment)
    kind, error = done.stdout.splitlines()
    assert kind in ("CollectiveError", "DeviceLostError")
    assert error.startswith(f"device {lost} was lost"), done


def test_a_thread_that_cannot_look_after_calls_any_more_fails_the_group(group, monkeypatch):
    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(group._members._communicators, "state", refuse)
    with contextlib.suppress(CollectiveError):  # the thread may look before the call is launched
        group.all_reduce(arrays(1))[0].submit()
    while "failed" not in repr(group):
        threading.Event().wait(0.001)
    with pytest.raises(
        CollectiveError, match=r"cannot be looked after any more \(RuntimeError: can't start new thread\)"
    ):
        group.barrier()
