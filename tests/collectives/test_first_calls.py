"""The first call between ranks keeps its caller until all have come, and an abort frees it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import aiocuda as ac
from aiocuda._collective.first_call import call_while
from aiocuda._collective.meeting import Line
from aiocuda._collective.watch import Watch
from aiocuda._driver import nccl
from aiocuda.collective import Group, unique_id
from aiocuda.errors import CollectiveError

pytest.importorskip("nccl.bindings")

TIMEOUT_S = 30


def test_who_waits_for_a_call_gives_up_while_that_is_held():
    is_in, may_end = threading.Event(), threading.Event()

    def held() -> None:
        is_in.set()
        may_end.wait(TIMEOUT_S)

    try:
        with pytest.raises(CollectiveError, match="nobody has come"):
            call_while(held, lambda: "nobody has come" if is_in.is_set() else None)
    finally:
        may_end.set()


def test_who_waits_for_a_call_gets_its_error():
    def fails() -> None:
        raise CollectiveError("it failed")

    with pytest.raises(CollectiveError, match="it failed"):
        call_while(fails, lambda: None)
    call_while(lambda: None, lambda: None)


@pytest.fixture
def ranks() -> Iterator[list[nccl.Communicators]]:
    """Two ranks that have joined, as if they were of two processes."""
    made = [nccl.Communicators([each], [each], 2) for each in range(2)]
    identity = nccl.new_id()
    joins = [threading.Thread(target=each.join, args=(identity, lambda: None)) for each in made]
    for each in joins:
        each.start()
    for each in joins:
        each.join(TIMEOUT_S)
    yield made
    for communicators in made:
        aborts = threading.Thread(target=communicators.abort, daemon=True)
        aborts.start()
        aborts.join(TIMEOUT_S)


@pytest.mark.needs_devices(2)
def test_an_abort_frees_a_launch_that_nccl_holds(ranks):
    x = ac.ones(4, device=0).sync()
    stream = ac.Device(0).stream()
    call = nccl.NcclCall("all_reduce", x.address, x.address, 4, nccl.DTYPES["float32"], (nccl.OPS["sum"],))
    raised: list[CollectiveError] = []

    def launch() -> None:
        try:
            ranks[0].launch([stream.handle], [[call]])
        except CollectiveError as error:
            raised.append(error)

    launches = threading.Thread(target=launch, daemon=True)
    launches.start()
    while not ranks[0]._launching.locked():
        assert launches.is_alive()
    ranks[0].abort()
    launches.join(TIMEOUT_S)
    assert not launches.is_alive()
    assert raised
    assert ranks[0].state() == "the communicators were aborted"


def interrupted(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function behind which a signal is handled, before what it has returned is used."""

    def call_and_signal(*given: Any) -> Any:
        returned = call(*given)
        signal.raise_signal(signal.SIGINT)
        return returned

    return call_and_signal


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("name", ["comm_init_rank_scalable", "comm_split"])
def test_a_signal_loses_no_communicator_that_nccl_makes(monkeypatch, name):
    bindings = nccl._bindings()
    make, abort = getattr(bindings, name), bindings.comm_abort
    made: list[Any] = []
    is_aborted = threading.Event()

    def note_made(*given: Any) -> Any:
        made.append(make(*given))
        return made[-1]

    def noted(communicator: Any) -> None:
        abort(communicator)
        if communicator is made[0]:
            is_aborted.set()

    monkeypatch.setattr(bindings, name, interrupted(note_made))
    monkeypatch.setattr(bindings, "comm_abort", noted)
    with pytest.raises(KeyboardInterrupt):
        Group.local([0])
    assert is_aborted.wait(TIMEOUT_S)  # by a thread
    monkeypatch.undo()
    Group.local([0]).close()


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("of", "name"), [(Watch, "__init__"), (Watch, "begin"), (Line, "begin")])
def test_a_signal_while_a_group_is_made_leaves_no_thread(monkeypatch, of, name):
    """Its threads would say for ever that the rank is there."""
    before = set(threading.enumerate())
    monkeypatch.setattr(of, name, interrupted(getattr(of, name)))
    with pytest.raises(KeyboardInterrupt):
        Group.init(0, 1, unique_id())
    for left in set(threading.enumerate()) - before:
        if left.name.startswith("aiocuda-collective"):
            left.join(TIMEOUT_S)
            assert not left.is_alive()
    monkeypatch.undo()
    Group.init(0, 1, unique_id()).close()


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("at", ["group_start", "all_reduce"])
def test_a_signal_leaves_no_group_of_nccls_open(monkeypatch, at):
    """It would swallow all later calls of the thread."""
    bindings = nccl._bindings()
    end = bindings.group_end
    ends: list[None] = []
    group = Group.local([0])
    monkeypatch.setattr(bindings, at, interrupted(getattr(bindings, at)))
    monkeypatch.setattr(bindings, "group_end", lambda: ends.append(end()))
    with pytest.raises((KeyboardInterrupt, ac.OperationInterruptedError)):
        group.all_reduce([ac.ones(3)])[0].sync(TIMEOUT_S)
    assert ends == [None]
    monkeypatch.undo()
    group.close()
    with Group.local([0]) as other:
        assert ac.to_host(other.all_reduce([ac.ones(3)])[0]).sync(TIMEOUT_S).tolist() == [1.0] * 3


def test_a_group_takes_no_stack_from_kernels():
    """NCCL is told to set the stack of all its kernels, which may be less than what a program has set."""
    device = ac.Device(0)
    before = device.limits().stack_bytes
    assert before is not None
    try:
        given = device.set_limits(stack_bytes=8 * before).stack_bytes
        assert given is not None
        with (
            ThreadPoolExecutor(4) as threads,
            contextlib.ExitStack() as groups,
        ):  # one reads it while another has set it
            for made in threads.map(Group.local, [[0]] * 8):
                groups.enter_context(made)
            assert (device.limits().stack_bytes or 0) >= given
    finally:
        device.set_limits(stack_bytes=before)


def test_nccl_sets_the_stack_of_its_kernels_at_the_beginning(in_process):
    """A launch that was the first to need so much would wait for the device, and that for other ranks."""
    done = in_process(
        """
        import aiocuda as ac
        from aiocuda.collective import Group
        device = ac.Device(0)
        device.set_limits(stack_bytes=256)
        with Group.local([0]):
            print(device.limits().stack_bytes > 256)
        """
    )
    assert done.stdout == "True\n", done.stderr


def test_a_group_of_many_devices_writes_nothing_beside_its_arrays(in_process):
    """The emulated driver ends a device whose work leaves its memory."""
    done = in_process(
        """
        import aiocuda as ac
        from aiocuda.collective import Group
        with Group.local(range(16)) as group:
            sums = group.all_reduce([ac.ones(1, device=each) for each in range(16)])
            print(ac.to_host(sums[15]).sync())
        """,
        AIOCUDA_DRIVER="emulated",
        AIOCUDA_EMULATED_DEVICES="16",
    )
    assert (done.stdout, done.stderr) == ("[16.]\n", "")


def test_a_group_that_is_being_made_holds_no_other_work_up(monkeypatch):
    is_in, may_go_on, has_ended = (threading.Event() for _ in range(3))
    launch = nccl.Communicators.launch

    def held(self: nccl.Communicators, streams: Any, calls: Any) -> None:
        is_in.set()
        may_go_on.wait(TIMEOUT_S)
        launch(self, streams, calls)

    def work() -> None:
        ac.ones(4, device=0).sync()
        has_ended.set()

    monkeypatch.setattr(nccl.Communicators, "launch", held)
    make = threading.Thread(target=lambda: Group.local([0]).close(), daemon=True)
    make.start()
    assert is_in.wait(TIMEOUT_S)
    works = threading.Thread(target=work, daemon=True)
    works.start()
    try:
        assert has_ended.wait(TIMEOUT_S)
    finally:
        may_go_on.set()
        make.join(TIMEOUT_S)
        works.join(TIMEOUT_S)
