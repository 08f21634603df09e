"""nccl4py's own calls on the emulated NCCL: unchanged, in one process and in several."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import aiocuda as ac

sys.path.insert(0, str(Path(__file__).parent))
from ranks import run_ranks

pytest.importorskip("nccl.bindings")
pytestmark = pytest.mark.skipif(not ac.Device(0).is_emulated, reason="it is about the emulated NCCL")

RANK = """
import ml_dtypes, nccl.core as nc
from nccl.bindings import nccl
ac.select_driver()
uid = nc.UniqueId.from_bytes(shared("uid", lambda: bytes(nc.get_unique_id())))
stream = ac.Device(0).stream()
"""


def test_one_process_with_four_devices(tmp_path):
    (ended,) = run_ranks(
        """
import nccl.core as nc
ac.select_driver()
communicators = nc.Communicator.init_all(4)
streams = [ac.Device(each).stream() for each in range(4)]
xs = [ac.full(100_000, each + 1, np.float32, device=each).sync() for each in range(4)]
ys = [ac.zeros(100_000, device=each).sync() for each in range(4)]
with nc.group():
    for communicator, x, y, stream in zip(communicators, xs, ys, streams):
        communicator.allreduce(x, y, nc.SUM, stream=stream)
for stream in streams:
    stream.synchronize().sync(60)
say(sums=[sorted(set(ac.to_host(y).sync().tolist())) for y in ys],
    ranks=[(each.rank, each.nranks, each.device.device_id) for each in communicators])
for each in communicators:
    each.destroy()
""",
        1,
        tmp_path,
        {"AIOCUDA_EMULATED_DEVICES": "4"},
    )
    assert ended["sums"] == [[10.0]] * 4, ended
    assert ended["ranks"] == [[n, 4, n] for n in range(4)]


def test_reductions_of_all_types_are_numpys(tmp_path):
    """In the order of ranks, and rounded into the type at each step."""
    ends = run_ranks(
        RANK
        + """
communicator = nc.Communicator.init(size, rank, uid)
names = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16",
         "float8_e4m3fn", "float8_e5m2"]
wrong = []
for number, name in enumerate(names):
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    parts = [np.random.default_rng(each).integers(-9, 9, 1000).astype(np.float32) * (1 if number < 6 else 0.37)
             for each in range(size)]
    parts = [each.astype(dtype) for each in parts]
    for op, join in ((nc.SUM, np.add), (nc.PROD, np.multiply), (nc.MAX, np.maximum), (nc.MIN, np.minimum)):
        expected = parts[0]
        with np.errstate(all="ignore"):
            for each in parts[1:]:
                expected = join(expected, each).astype(dtype)
        x, y = ac.to_device(parts[rank]).sync(), ac.empty(1000, dtype).sync()
        nccl.all_reduce(x.address, y.address, 1000, number, int(op), nccl.Comm(communicator.ptr), stream.handle)
        stream.synchronize().sync(60)
        found = ac.to_host(y).sync()
        same = (found == expected) | ((found != found) & (expected != expected))
        if not same.all():
            wrong.append((name, int(op), str(found[~same][:3]), str(expected[~same][:3])))
say(wrong=wrong)
communicator.destroy()
""",
        3,
        tmp_path,
    )
    assert [each["wrong"] for each in ends] == [[]] * 3, ends


def test_what_ranks_send_one_another(tmp_path):
    """Larger than what the shared memory holds at once, and in an order of calls that would block without a group."""
    ends = run_ranks(
        RANK
        + """
communicator = nc.Communicator.init(size, rank, uid)
n = 300_001
x = ac.full(n, float(rank), np.float64).sync()
got = [ac.empty(n, np.float64).sync() for _ in range(size)]
with nc.group():
    for peer in range(size):
        communicator.send(x, peer, stream=stream)
    for peer in range(size):
        communicator.recv(got[peer], peer, stream=stream)
stream.synchronize().sync(60)
say(got=[sorted(set(ac.to_host(each).sync().tolist())) for each in got])
whole = ac.empty(size * 5, np.float64).sync()
communicator.allgather(x[:5], whole, stream=stream)
part = ac.empty(5, np.float64).sync()
communicator.reduce_scatter(whole, part, nc.SUM, stream=stream)
communicator.broadcast(x, x, 2, stream=stream)
stream.synchronize().sync(60)
say(whole=ac.to_host(whole).sync().tolist(), part=ac.to_host(part).sync().tolist(),
    root=sorted(set(ac.to_host(x).sync().tolist())))
half = communicator.split(rank % 2, -rank)
say(half=(half.rank, half.nranks))
half.destroy()
communicator.destroy()
""",
        3,
        tmp_path,
    )
    for rank, ended in enumerate(ends):
        assert ended["got"] == [[0.0], [1.0], [2.0]], ended
        assert ended["whole"] == [0.0] * 5 + [1.0] * 5 + [2.0] * 5
        assert ended["part"] == [3.0 * rank] * 5
        assert ended["root"] == [2.0]
    assert [each["half"] for each in ends] == [[1, 2], [0, 1], [0, 2]]


def test_different_calls_are_an_error_of_the_communicator_and_abort_ends_the_wait(tmp_path):
    ends = run_ranks(
        RANK
        + """
communicator = nc.Communicator.init(size, rank, uid)
x = ac.ones(10).sync()
stream_of_others = ac.Device(0).stream()
if rank == 0:
    communicator.allreduce(x, x, nc.SUM, stream=stream)
else:
    communicator.broadcast(x, x, 0, stream=stream)
while int(communicator.get_async_error()) == 0:
    time.sleep(0.005)
say(error=communicator.get_last_error())
ac.to_host(ac.ones(10).on(stream_of_others)).sync(60)  # other streams go on
communicator.abort()
stream.synchronize().sync(60)
""",
        2,
        tmp_path,
    )
    for ended in ends:
        assert ended.status == 0, ended
        assert "AllReduce of 10 float32, sum (call 1)" in ended["error"]
        assert "Broadcast of 10 float32, root 0 (call 1)" in ended["error"]


def test_a_rank_that_is_killed_is_an_error_of_the_others(tmp_path):
    ends = run_ranks(
        RANK
        + """
communicator = nc.Communicator.init(size, rank, uid)
x = ac.ones(10).sync()
communicator.allreduce(x, x, nc.SUM, stream=stream)  # the first call keeps its caller until all ranks have come
stream.synchronize().sync(60)
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
communicator.allreduce(x, x, nc.SUM, stream=stream)
while int(communicator.get_async_error()) == 0:
    time.sleep(0.005)
say(error=communicator.get_last_error())
communicator.abort()
stream.synchronize().sync(60)
""",
        3,
        tmp_path,
    )
    for rank in (0, 2):
        assert ends[rank].status == 0, ends[rank]
        assert "waits for rank 1, which is gone" in ends[rank]["error"]


def test_memory_and_streams_of_other_devices_are_refused(tmp_path):
    (ended,) = run_ranks(
        """
import nccl.core as nc
from nccl.bindings import nccl
ac.select_driver()
one, other = nc.Communicator.init_all(2)
streams = [ac.Device(each).stream() for each in range(2)]
x, y = (ac.ones(10, device=each).sync() for each in range(2))
said = []
for arguments in ((y.address, y.address, 10, 7, 0, nccl.Comm(one.ptr), streams[0].handle),
                  (x.address, x.address, 10, 7, 0, nccl.Comm(one.ptr), streams[1].handle),
                  (x.address, x.address, 10, 99, 0, nccl.Comm(one.ptr), streams[0].handle),
                  (64, 64, 10, 7, 0, nccl.Comm(one.ptr), streams[0].handle)):
    try:
        nccl.all_reduce(*arguments)
    except Exception as error:
        said.append(nccl.get_last_error(nccl.Comm(one.ptr)))
# Such a call refuses its whole group: nothing is launched.
nccl.group_start()
nccl.all_reduce(x.address, x.address, 10, 7, 0, nccl.Comm(one.ptr), streams[0].handle)
for function in (lambda: nccl.all_reduce(x.address, x.address, 10, 7, 0, nccl.Comm(other.ptr), streams[1].handle),
                 nccl.group_end):
    try:
        function()
        said.append("no error")
    except Exception as error:
        said.append(type(error).__name__)
streams[0].synchronize().sync(60)
say(said=said)
""",
        1,
        tmp_path,
        {"AIOCUDA_EMULATED_DEVICES": "2"},
    )
    memory, stream, kind, nothing, *group = ended["said"]
    assert "is memory of device 1, the communicator is of device 0" in memory
    assert "the stream is of device 1" in stream
    assert "data type 99 is none" in kind
    assert "is no memory of a device" in nothing
    assert group == ["NCCLError", "NCCLError"], group


def test_the_checks_of_races_see_what_collectives_read_and_write(tmp_path):
    program = """
import nccl.core as nc
ac.select_driver()
(communicator,) = nc.Communicator.init_all(1)
stream, other = ac.Device(0).stream(), ac.Device(0).stream()
x, y = ac.ones(1000).sync(), ac.zeros(1000).sync()
ORDER
communicator.allreduce(x, y, nc.SUM, stream=stream)
ac.Device(0).synchronize().sync(60)
from aiocuda._driver.checking import take_race_reports
say(races=[str(each) for each in take_race_reports()])
"""
    unordered = "ac.fill(y, 1).on(other).submit()"
    ordered = unordered + "; event = other.record(); stream.wait(event)"
    for order, races in ((unordered, True), (ordered, False)):
        (ended,) = run_ranks(program.replace("ORDER", order), 1, tmp_path, {"AIOCUDA_EMULATOR_CHECK": "races"})
        assert any("NCCL: AllReduce of 1000 float32, sum of rank 0" in each for each in ended["races"]) == races, ended
