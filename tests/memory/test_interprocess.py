"""Arrays and events between processes."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import other_process
import pytest

import aiocuda as ac
from aiocuda._devices.lending import Owner
from aiocuda._driver import runtime

N = 1000
BLOCK = 2 << 20  # what other processes are lent at least


class Refused(Exception):
    """What the other process raised: the error's name, and what it said."""


class Process:
    """Another process, which does what `other_process.Other` can; started afresh, as CUDA survives no fork."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=other_process.serve, args=(there,), daemon=True)
        self._process.start()
        there.close()

    def __call__(self, method: str, *arguments: Any) -> Any:
        self._here.send((method, arguments))
        assert self._here.poll(60), f"the other process does not answer {method}"
        is_fine, answer = self._here.recv()
        if not is_fine:
            raise Refused(*answer)
        return answer

    def end(self) -> None:
        if self._process.is_alive():
            self._here.send(None)
        self._process.join(60)
        assert self._process.exitcode == 0


@pytest.fixture
def processes() -> Iterator[Callable[[], Process]]:
    started: list[Process] = []

    def start() -> Process:
        started.append(Process())
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture(scope="module")
def other() -> Iterator[Process]:
    """One that all tests share: each closes what it has opened there."""
    process = Process()
    yield process
    process.end()


def lent(values: Any) -> ac.DeviceArray:
    """An array that other processes may open."""
    array = ac.empty(values.shape, values.dtype, interprocess=True).sync()
    ac.copy(array, values).sync()
    return array


# --- arrays


def test_processes_work_on_the_same_memory(other, kernels):
    x = lent(np.arange(N, dtype=np.int32))
    assert other("open", "x", x.ipc_handle()) == (0, (N,), "int32", (4,))
    np.testing.assert_array_equal(other("read", "x"), np.arange(N))
    other("increment", "x")
    np.testing.assert_array_equal(ac.to_host(x).sync(), np.arange(N) + 1)
    kernels.increment(x, N, threads=N).sync()
    np.testing.assert_array_equal(other("read", "x"), np.arange(N) + 2)
    other("close", "x")


def test_it_is_lent_in_either_direction_and_to_several(processes):
    one, another = processes(), processes()
    handle = one("make", "x", np.arange(N, dtype=np.int32))
    x = ac.open_ipc(handle)
    another("open", "x", handle)
    another("increment", "x")
    np.testing.assert_array_equal(ac.to_host(x).sync(), np.arange(N) + 1)
    another("close", "x")
    x.close()
    np.testing.assert_array_equal(one("read", "x"), np.arange(N) + 1)


def test_the_first_use_there_waits_for_what_was_submitted_here(other, kernels, latch, device):
    x = lent(np.zeros(N, np.int32))
    other("open", "before", x.ipc_handle())  # whatever the driver must do once is done
    stream = device.stream()
    latch.hold(stream)
    kernels.increment(x, N, threads=N).on(stream).submit()
    other("open", "x", x.ipc_handle())
    assert not other("begin_increment", "x", "later")
    assert not other("done", "later")
    latch.release()
    assert (other("read", "x") == 2).all()
    other("close", "before")
    other("close", "x")


def test_the_first_use_there_waits_for_readers_here_too(other, kernels, latch, device):
    x, y = lent(np.ones(N, np.int32)), ac.zeros(N, np.int32).sync()
    other("open", "before", x.ipc_handle())
    stream = device.stream()
    latch.hold(stream)
    future = kernels.accumulate(1, x, y, N, threads=N).on(stream).submit()
    other("open", "x", x.ipc_handle())
    assert not other("begin_increment", "x", "later")
    latch.release()
    assert (ac.to_host(future.sync()).sync() == 1).all()
    assert (other("read", "x") == 2).all()
    other("close", "before")
    other("close", "x")


def test_views_are_lent_as_they_are(other):
    values = np.arange(60, dtype=np.float64).reshape(6, 10)
    x = lent(values)
    assert other("open", "piece", x[2:4].ipc_handle()) == (0, (2, 10), "float64", (80, 8))
    assert other("open", "strided", x[1:5:2, ::3].ipc_handle()) == (0, (2, 4), "float64", (160, 24))
    np.testing.assert_array_equal(other("read", "piece"), values[2:4])
    np.testing.assert_array_equal(other("read", "strided"), values[1:5:2, ::3])
    other("fill", "strided", -1)
    expected = values.copy()
    expected[1:5:2, ::3] = -1
    np.testing.assert_array_equal(ac.to_host(x).sync(), expected)
    np.testing.assert_array_equal(other("read", "piece"), expected[2:4])  # one memory, also there
    other("close", "piece")
    other("close", "strided")


def test_what_is_shared_is_lent_for_reading(other):
    x = lent(np.zeros(N, np.int32))
    handle = x.ipc_handle()
    y = x.share()
    assert (handle.is_read_only, y.ipc_handle().is_read_only) == (False, True)
    other("open", "x", y.ipc_handle())
    with pytest.raises(Refused, match=r"OwnershipError.*its owner lends it for reading"):
        other("increment", "x")
    assert (other("read", "x") == 0).all()
    other("close", "x")


def test_what_was_opened_for_reading_forbids_no_writes_once_it_is_closed(other):
    x = lent(np.zeros(N, np.int32))
    shared = x.share()
    other("open", "reader", shared.ipc_handle())
    shared.close()
    x.unwrap()
    other("open", "writer", x.ipc_handle())
    with pytest.raises(Refused, match=r"OwnershipError.*its owner lends it for reading"):
        other("increment", "writer")
    other("close", "reader")
    other("increment", "writer")
    assert (other("read", "writer") == 1).all()
    other("close", "writer")


def test_an_array_is_opened_as_often_as_one_likes(other):
    x = lent(np.full(N, 3, np.int32))
    for _ in range(3):
        other("open", "one", x.ipc_handle())
        other("open", "two", x.ipc_handle())
        other("increment", "one")
        other("close", "one")
        other("increment", "two")
        other("drop", "two")
    assert (ac.to_host(x).sync() == 9).all()
    assert other("used_bytes") == 0


def test_memory_that_was_given_back_is_lent_anew(other):
    x = lent(np.full(N, 3, np.int32))
    other("open", "x", x.ipc_handle())
    other("close", "x")
    x.close()
    y = lent(np.full(2 * N, 4, np.int32))
    other("open", "y", y.ipc_handle())
    assert (other("read", "y") == 4).all()
    other("close", "y")


@pytest.mark.driver_refuses("cuIpcOpenMemHandle")
def test_what_an_ended_process_lent_cannot_be_opened(processes):
    ended = processes()
    handle = ended("make", "x", np.zeros(N, np.int32))
    ended.end()
    with pytest.raises(ac.DriverError, match="opening an array of another process"):
        ac.open_ipc(handle)


def test_only_others_can_open_it(other):
    x = lent(np.zeros(N, np.int32))
    with pytest.raises(ac.ArgumentValueError, match="made by this very process"):
        ac.open_ipc(x.ipc_handle())
    assert other("process_id") != os.getpid()


def test_what_is_lent_by_another_process_is_not_lent_on(other):
    x = ac.open_ipc(other("make", "x", np.zeros(N, np.int32)))
    with pytest.raises(ac.ArgumentValueError, match="this one has made with interprocess=True"):
        x.ipc_handle()


@pytest.mark.needs_devices(2)
def test_the_device_is_found_whatever_its_ordinal(processes, monkeypatch, device):
    if device.is_emulated:
        pytest.skip("the emulated driver hides no devices")
    x = ac.full(N, 7, np.int32, 1, interprocess=True).sync()
    handle = x.ipc_handle()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    sees_it = processes()
    assert sees_it("open", "x", handle)[0] == 0
    assert (sees_it("read", "x") == 7).all()
    sees_it("close", "x")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(Refused, match=r"DeviceMismatchError.*CUDA_VISIBLE_DEVICES"):
        processes()("open", "x", handle)


# --- events


def test_another_process_waits_for_an_event_of_this_one(other, kernels, latch, device):
    x = lent(np.zeros(N, np.int32))
    other("open", "x", x.ipc_handle())
    stream = device.stream()
    latch.hold(stream)
    event = stream.record(interprocess=True)
    ordinal, text = other("open", "event", pickle.loads(pickle.dumps(event.ipc_handle())))
    assert ordinal == 0
    assert text == f"<Event of process {os.getpid()}, pending>"
    assert not other("wait_in_stream", "event", "x", "later")
    assert not other("done", "event")
    latch.release()
    other("wait_for", "event")
    other("wait_for", "later")
    assert (ac.to_host(x).sync() == 1).all()
    with pytest.raises(Refused, match=r"ArgumentValueError.*without timing"):
        other("elapsed", "event")
    other("close", "x")


def test_this_process_waits_for_an_event_of_another(other, run):
    x = lent(np.zeros(N, np.int32))
    other("open", "x", x.ipc_handle())
    event = ac.open_ipc(other("increment_behind_hold", "x"))
    assert not event.done()
    assert event.device == ac.Device(0)

    async def main() -> None:
        other("release")
        await event
        assert (await ac.to_host(x) == 1).all()

    run(main)
    assert event.done()
    event.sync()
    with pytest.raises(ac.ArgumentValueError, match="this one has recorded with interprocess=True"):
        event.ipc_handle()
    other("close", "x")


def test_an_event_is_opened_by_others_alone_and_has_no_timing(processes, device):
    event = device.stream().record(interprocess=True)
    with pytest.raises(ac.ArgumentValueError, match="made by this very process"):
        ac.open_ipc(event.ipc_handle())
    event.sync()
    with pytest.raises(ac.ArgumentValueError, match="without timing"):
        event.elapsed(event)


# --- the memory


def test_here_it_is_device_memory_like_any_other(run, kernels, used_bytes):
    before = used_bytes()

    async def main() -> None:
        x = await ac.full((4, 250), 7, np.int32, interprocess=True)
        y = await kernels.accumulate(2, x.reshape(N), ac.ones(N, np.int32, interprocess=True), N, threads=N)
        np.testing.assert_array_equal(await ac.to_host(y), np.full(N, 17))
        assert not x.is_managed
        assert sum(each.memory_info().used_bytes for each in ac.devices()) == before + 2 * 4 * N
        x[1:3].close()
        dup = await ac.dup(x)
        with pytest.raises(ac.ArgumentValueError, match="interprocess=True"):
            dup.ipc_handle()

    run(main)
    assert used_bytes() == before


@pytest.mark.parametrize("make", [ac.empty, ac.zeros, ac.ones, lambda *a, **k: ac.full(a[0], 3, a[1], **k)])
@pytest.mark.parametrize("dtype", ["int8", np.dtype([("a", "i4"), ("b", "f8")])])
def test_all_that_make_arrays_make_such(make, dtype):
    array = make((2, 3), dtype, interprocess=True).sync()
    assert array._is_interprocess
    if make is not ac.empty:
        np.testing.assert_array_equal(ac.to_host(array).sync(), ac.to_host(make((2, 3), dtype)).sync())
    with pytest.raises(ac.ArgumentValueError, match="managed or interprocess"):
        make(3, np.int32, managed=True, interprocess=True)


def test_arrays_lie_in_blocks_of_their_own():
    arrays = [ac.zeros(10, interprocess=True).sync() for _ in range(5)]
    assert len({array.address // BLOCK for array in arrays}) == 5
    assert all(array.address % BLOCK == 0 for array in arrays) or ac.Device(0).is_emulated


def test_a_memory_limit_bounds_it(device, used_bytes):
    used_bytes()
    with ac.memory_limit(device.memory_info().used_bytes + 100, device=device):
        with pytest.raises(ac.OutOfMemoryError, match=r"no room for 101 B: 100 B free of .*memory_limit\(\)"):
            ac.zeros(101, np.uint8, interprocess=True).sync()
        held = ac.zeros(100, np.uint8, interprocess=True).sync()
        with pytest.raises(ac.OutOfMemoryError, match=r"no room for 1 B: 0 B free of .*memory_limit\(\)"):
            ac.zeros(1, np.uint8).sync()
        held.close()
        ac.zeros(100, np.uint8).sync()


@pytest.mark.emulated_only
def test_what_is_kept_makes_room_for_other_memory_and_other_memory_for_it(in_process):
    done = in_process(
        """
        import numpy as np, aiocuda as ac
        from aiocuda import _native
        MIB = 1 << 20
        for size in (26 * MIB, 30 * MIB):
            held = ac.zeros(size, np.uint8, interprocess=True).sync()
            held.close()
            free = ac.Device(0).memory_info().free_bytes
            assert free >= 60 * MIB, free
            pooled = ac.zeros(40 * MIB, np.uint8).sync()      # more than there is beside what is kept
            assert _native.kept_interprocess_bytes(0) == 0
            pooled.close()
        ac.zeros(40 * MIB, np.uint8, interprocess=True).sync()  # more than there is beside what the pool keeps
        try:
            ac.zeros(100 * MIB, np.uint8, interprocess=True).sync()
        except ac.OutOfMemoryError as error:
            assert (error.asked_bytes, error.device) == (100 * MIB, "device 0"), error
        else:
            raise AssertionError
        ac.Device(0).trim_memory()
        assert _native.kept_interprocess_bytes(0) == 0
        print("end")
        """,
        AIOCUDA_EMULATED_MEMORY="64M",
        AIOCUDA_EMULATED_DEVICES="1",
    )
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr


def test_a_graph_does_not_make_it_and_takes_it(kernels):
    with pytest.raises(ac.CaptureError, match="other processes may open cannot be made inside a graph"):
        kernels.increment(ac.zeros(N, np.int32, interprocess=True), N, threads=N).graph()
    x = ac.zeros(N, np.int32, interprocess=True).sync()
    kernels.increment(x, N, threads=N).graph(x=x).launch().sync()
    assert (ac.to_host(x).sync() == 1).all()


# --- handles, and what is no handle


def handle_of(shape: tuple[int, ...] = (4,), **changes: Any) -> ac.IpcHandle:
    """A handle as another process might have made it."""
    owner = Owner(os.getpid(), b"another process!", runtime.uuid(0))
    handle = ac.IpcHandle(shape, np.dtype(np.int32), None, owner, bytes(64), bytes(64), BLOCK, 0, False)
    return dataclasses.replace(handle, **changes)


def test_handles_are_plain_values():
    import ml_dtypes

    handle = handle_of(dtype=np.dtype(ml_dtypes.bfloat16), strides=(4,))
    again = pickle.loads(pickle.dumps(handle))
    assert again == handle
    assert repr(again) == f"<IpcHandle of bfloat16[4] of process {os.getpid()}>"
    event = ac.IpcEventHandle(handle.owner, bytes(64))
    assert pickle.loads(pickle.dumps(event)) == event
    assert repr(event) == f"<IpcEventHandle of process {os.getpid()}>"
    with pytest.raises(dataclasses.FrozenInstanceError):
        handle.event = b""


def test_only_arrays_made_for_it_are_lent(device):
    with pytest.raises(ac.ArgumentValueError, match=r"interprocess=True.*copy\(\) it into one"):
        ac.zeros(3).sync().ipc_handle()
    with pytest.raises(ac.ArgumentValueError, match="no items"):
        ac.zeros(0, interprocess=True).sync().ipc_handle()
    x = ac.zeros(3, interprocess=True).sync()
    x.close()
    with pytest.raises(ac.ClosedError, match=r"ipc_handle: the array of .* was closed at"):
        x.ipc_handle()
    with pytest.raises(ac.ArgumentValueError, match="recorded with interprocess=True"):
        device.stream().record().ipc_handle()


@pytest.mark.parametrize("wrong", [None, 3, b"handle", "handle"])
def test_what_is_no_handle_is_not_opened(wrong):
    with pytest.raises(ac.ArgumentTypeError, match="takes what ipc_handle"):
        ac.open_ipc(wrong)


def test_handles_that_make_no_sense_are_refused():
    owner = handle_of().owner
    here = Owner.here(0)
    with pytest.raises(ac.ArgumentValueError, match="made by this very process"):
        ac.open_ipc(handle_of(owner=here))
    elsewhere = owner._replace(device_uuid=b"no such device!!")
    with pytest.raises(ac.DeviceMismatchError, match="CUDA_VISIBLE_DEVICES"):
        ac.open_ipc(handle_of(owner=elsewhere))
    with pytest.raises(ac.ArgumentValueError, match="reaches beyond the 2097152 bytes"):
        ac.open_ipc(handle_of((BLOCK // 4 + 1,)))
    with pytest.raises(ac.ArgumentValueError, match="has 64 bytes, not 3"):
        ac.open_ipc(handle_of(memory=b"abc"))
