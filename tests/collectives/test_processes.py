"""Groups of processes: their order, their agreement, and their end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from ranks import run_ranks

pytest.importorskip("nccl.bindings")

COLLECTIVES = """
g = group()
async def main():
    x = await ac.arange(4 * size, dtype="float32")
    x = await ac.fill(x, rank + 1)
    say(repr=repr(g), all_reduce=(await ac.to_host(g.all_reduce(x, "max"))).tolist()[:2],
        all_gather=(await ac.to_host(g.all_gather(x)))[:, 0].tolist(),
        scatter=(await ac.to_host(g.reduce_scatter(x))).tolist(),
        to_all=(await ac.to_host(g.all_to_all(x))).tolist()[::4])
    at_root = await g.reduce(x, 1)
    say(reduce=None if at_root is None else (await ac.to_host(at_root)).tolist()[:2])
    several = g.all_reduce([x, x[:2], x[3:4]])
    say(several=[(await ac.to_host(each)).tolist()[:1] for each in several])
    if rank == 0:
        await g.send(x, 2)
    if rank == 2:
        await g.recv(x, 0)
    say(message=(await ac.to_host(x)).tolist()[0])
    say(broadcast=(await ac.to_host(g.broadcast(x, 1))).tolist()[0])
    await g.barrier()
"""


@pytest.mark.parametrize(
    "loop", ["asyncio.run(main())", "import trio; trio.run(main)", "import uvloop; uvloop.run(main())"]
)
def test_collectives_of_three_processes(tmp_path, loop):
    ends = run_ranks(COLLECTIVES + loop + "\ng.close()\n", 3, tmp_path)
    for rank, ended in enumerate(ends):
        assert ended.status == 0, ended
        assert ended["repr"] == f"<aiocuda.collective.Group rank {rank} of 3>"
        assert ended["all_reduce"] == [3.0, 3.0]
        assert ended["all_gather"] == [1.0, 2.0, 3.0]
        assert ended["scatter"] == [6.0] * 4
        assert ended["to_all"] == [1.0, 2.0, 3.0]
        assert ended["reduce"] == ([6.0, 6.0] if rank == 1 else None)
        assert ended["several"] == [[6.0]] * 3
        assert ended["message"] == [1.0, 2.0, 1.0][rank]
        assert ended["broadcast"] == 2.0


def test_groups_that_ranks_make_side_by_side_may_come_in_any_order(tmp_path):
    """NCCL keeps the first call of each, on one rank of one group and on the other rank of the other."""
    ends = run_ranks(
        """
import threading
from aiocuda._driver import nccl
join, launch, is_in = nccl.Communicators.join, nccl.Communicators.launch, threading.Event()
def joined(self, identity, *given):
    self.is_first = ids[rank].endswith(identity)
    join(self, identity, *given)
def launched(self, *given):
    if self.is_first:
        is_in.set()
    elif not is_in.wait(10):
        say(error="the other group's call was not made")
    launch(self, *given)
nccl.Communicators.join, nccl.Communicators.launch = joined, launched
ids = [shared(name, unique_id) for name in ("one", "other")]
def make(which):
    with Group.init(rank, size, ids[which], timeout_s=20) as g:
        say(made=which)
        both_made.wait(20)
both_made = threading.Barrier(2)
makes = [threading.Thread(target=make, args=(which,)) for which in range(2)]
for each in makes:
    each.start()
for each in makes:
    each.join()
""",
        2,
        tmp_path,
    )
    for ended in ends:
        assert sorted(each.get("made", -1) for each in ended.said) == [0, 1], ended


def test_a_message_that_nobody_has_received_yet_holds_no_loop_up(tmp_path):
    ends = run_ranks(
        """
g = group()
async def main():
    x = await ac.ones(4)
    if rank == 1:
        await asyncio.to_thread(wait_for, "the loop goes on")
        await g.recv(x, 0)
        return
    sends = asyncio.ensure_future(asyncio.wait_for(g.send(x, 1), 60))
    while not g.waits_for():
        await asyncio.sleep(0)
    tell("the loop goes on")
    await sends
asyncio.run(main())
g.close()
""",
        2,
        tmp_path,
        timeout_s=60,
    )
    assert [ended.status for ended in ends] == [0, 0], ends


def test_ranks_agree_on_the_order_whatever_streams_and_tasks_do(tmp_path):
    """Each rank executes in an order of its own, with streams that start late by a seed of its own."""
    ends = run_ranks(
        """
os.environ["AIOCUDA_EMULATOR_SHUFFLE"] = str(rank + 1)
g = group()
rng = random.Random(rank)
async def main():
    wrong = 0
    for turn in range(10):
        xs = [ac.full(8, 10.0 * turn + n + rank) for n in range(8)]
        sums = [g.all_reduce(x, "max" if n % 2 else "sum") for n, x in enumerate(xs)]
        order = list(range(8))
        rng.shuffle(order)
        async def one(n):
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(0)
            return n, (await ac.to_host(sums[n]).on(ac.Device(0).stream()))[0]
        for n, found in await asyncio.gather(*map(one, order)):
            base = 10.0 * turn + n
            wrong += int(found != (base + 1 if n % 2 else 2 * base + 1))
    say(wrong=wrong)
asyncio.run(main())
g.close()
""",
        2,
        tmp_path,
    )
    assert [each["wrong"] for each in ends] == [0, 0], ends


DIFFERENT = """
g = group()
x, y = ac.ones(10).sync(), ac.ones(10).sync()
def build(rank):
    CALLS
async def main():
    made = build(rank)
    after = ac.to_host(made)
    for each in (made, after):
        try:
            await each
            say(error="none")
        except ac.errors.CollectiveError as error:
            say(error=str(error))
    try:
        g.barrier()
    except ac.errors.CollectiveError as error:
        say(later=str(error))
    say(goes_on=(await ac.to_host(y)).tolist())
asyncio.run(main())
g.close()
"""


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ("return g.all_reduce(x) if rank else g.broadcast(x)", ("broadcast of float32(10,), root 0", "all_reduce of")),
        ("return g.all_reduce(x[: 9 + rank])", ("all_reduce of float32(9,), sum", "all_reduce of float32(10,), sum")),
        ("return g.all_reduce(ac.ones(10, ['int32', 'float32'][rank]))", ("of int32(10,)", "of float32(10,)")),
        ("return g.all_reduce(x, ['sum', 'max'][rank])", ("float32(10,), sum", "float32(10,), max")),
        ("return g.recv(x, 1) if rank == 0 else g.send(x[:3], 0)", ("of float32(10,)", "of float32(3,)")),
    ],
    ids=["kind", "shape", "dtype", "operator", "message"],
)
def test_ranks_that_do_not_do_the_same_are_told_what_both_do(tmp_path, calls, words):
    for ended in run_ranks(DIFFERENT.replace("CALLS", calls), 2, tmp_path):
        assert ended.status == 0, ended
        for said in [each["error"] for each in ended.said if "error" in each]:
            assert "do not call the same" in said
            assert all(each in said for each in words), said
            assert "rank 0" in said
            assert "rank 1" in said
        assert "do not call the same" in ended["later"]
        assert ended["goes_on"] == [1.0] * 10


KILLED = """
g = group()
x = ac.ones(10).sync()

def die_behind(*names):
    if rank == 1:
        for each in names:
            wait_for(each)
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    if WHEN == "in":  # the others have called it
        die_behind("called0")
    made = g.all_reduce(x)
    tell(f"built{rank}")
    if WHEN == "before":  # nobody has called it
        die_behind("built0", "built2")
    after = ac.to_host(made)
    if WHEN == "in":
        after = after.submit()
        tell(f"called{rank}")
    say(waits=g.waits_for())
    for each in (made, after):
        try:
            await each
            say(error="none")
        except ac.errors.CollectiveError as error:
            say(error=str(error))
    say(goes_on=(await ac.to_host(x)).tolist())
asyncio.run(main())
g.close()
"""


@pytest.mark.parametrize("when", ["before", "in"])
def test_a_rank_that_is_killed_ends_the_awaits_of_all_others(tmp_path, when):
    ends = run_ranks(KILLED.replace("WHEN", repr(when)), 3, tmp_path)
    for rank in (0, 2):
        assert ends[rank].status == 0, ends[rank]
        said = [each["error"] for each in ends[rank].said if "error" in each]
        assert len(said) == 2
        assert all("rank 1 is gone" in each or "rank 1, which is gone" in each for each in said), said
        assert ends[rank]["goes_on"] == [1.0] * 10


def test_a_rank_that_is_killed_afterwards_takes_no_result_away(tmp_path):
    ends = run_ranks(
        """
g = group()
x = ac.ones(10).sync()
async def main():
    made = g.all_reduce(x)
    say(sum=(await ac.to_host(made)).tolist()[0])
    tell(f"done{rank}")
    if rank == 1:
        for each in range(size):
            wait_for(f"done{each}")
        os.kill(os.getpid(), signal.SIGKILL)
    while "failed" not in repr(g):
        await asyncio.sleep(0.005)
    say(again=(await ac.to_host(made)).tolist()[0])
    try:
        await g.all_reduce(x)
    except ac.errors.CollectiveError as error:
        say(error=str(error))
asyncio.run(main())
g.close()
""",
        3,
        tmp_path,
    )
    for rank in (0, 2):
        assert ends[rank]["sum"] == 3.0, ends[rank]
        assert ends[rank]["again"] == 3.0
        assert "rank 1 is gone" in ends[rank]["error"]


def test_an_abort_ends_the_awaits_of_all_ranks(tmp_path):
    ends = run_ranks(
        """
g = group()
async def main():
    if rank == 1:
        wait_for("called")
        g.abort()
        return
    made = g.all_reduce(ac.ones(10))
    try:
        await made.within(0.05)
    except ac.DeviceTimeoutError:
        say(waits=g.waits_for())
    tell("called")
    try:
        await made
    except ac.errors.CollectiveError as error:
        say(error=str(error))
asyncio.run(main())
g.close()
""",
        2,
        tmp_path,
    )
    assert ends[0]["waits"] == "call 2, all_reduce of float32(10,), sum: rank 1 has not called it", ends
    assert "rank 1 aborted the group" in ends[0]["error"]
    assert [each.status for each in ends] == [0, 0]


@pytest.mark.parametrize("error", ["KeyboardInterrupt()", "OSError('no room')"])
def test_a_rank_that_gives_up_while_the_group_is_made_says_so(tmp_path, error):
    ends = run_ranks(
        """
from aiocuda._driver import nccl
def join(*_):
    raise ERROR
if rank == 1:
    nccl.Communicators.join = join
try:
    group()
except BaseException as error:
    say(error=str(error), of=type(error).__name__)
tell(f"over{rank}")
wait_for(f"over{1 - rank}")
""".replace("ERROR", error),
        2,
        tmp_path,
    )
    given = error.replace("()", "").replace("('", ": ").replace("')", "")
    assert f"the group was not made: rank 1 gave up ({given})" in ends[0]["error"], ends
    assert ends[1]["of"] == error.split("(")[0]


def test_a_rank_that_does_not_come_is_named_by_the_time_out(tmp_path):
    ends = run_ranks(
        """
if rank > 0:
    wait_for("over")
    sys.exit()
try:
    Group.init(rank, size, unique_id(), timeout_s=0.5)
except ac.errors.CollectiveError as error:
    say(error=str(error))
tell("over")
""",
        3,
        tmp_path,
    )
    assert "rank 1, 2 of 3 has not joined the group within 0.5 s, or not by the same id" in ends[0]["error"], ends


@pytest.mark.parametrize("channel", ["board", "line"])
def test_a_time_out_names_the_ranks_that_have_not_come(tmp_path, channel):
    """Also that of copies of the result, which asks once; and once they have come nothing of it is left."""
    ends = run_ranks(
        """
if CHANNEL == "line":
    from aiocuda._collective import hub
    hub._board_file = lambda: None
from aiocuda._collective.members import Members
asks, asked = Members.waits_for_now, []
Members.waits_for_now = lambda members: (asked.append(members), asks(members))[1]
g = group()
x = ac.ones(10).sync()
g.all_reduce(x).sync(60)
async def main():
    summed = g.all_reduce(x)
    if rank == 0:
        copies = ac.zip(*(ac.to_host(summed) for _ in range(5)))
        for wait in (summed.within(0.2), copies.within(0)):
            asked.clear()
            try:
                await wait
            except ac.DeviceTimeoutError as error:
                say(running=error.running, asked=len(asked))
        tell("over")
    while rank > 0 and not (folder / "over").exists():
        await asyncio.sleep(0.005)
    await summed
    say(sum=(await ac.to_host(summed)).tolist()[0])
asyncio.run(main())
g.close()
""".replace("CHANNEL", repr(channel)),
        3,
        tmp_path,
    )
    words = "which waits for call 3, all_reduce of float32(10,), sum: rank 1, 2 has not called it"
    said = [each for each in ends[0].said if "running" in each]
    assert [(len(each["running"]), each["asked"]) for each in said] == [(1, 1), (5, 1)], ends
    assert all(words in running for each in said for running in each["running"]), ends
    assert [each["sum"] for each in ends] == [3.0] * 3


def test_two_that_come_as_one_rank_are_told_and_the_first_one_stays(tmp_path):
    ends = run_ranks(
        """
from aiocuda._driver import nccl
join, joined = nccl.Communicators.join, []
nccl.Communicators.join = lambda *arguments: (joined.append(arguments), join(*arguments))[1]
given = shared("id", unique_id)
try:
    g = Group.init(0, 2, given)
except ac.errors.CollectiveError as error:
    say(refused=str(error), joined=len(joined))
    g = Group.init(1, 2, given)
say(sum=ac.to_host(g.all_reduce(ac.ones(3))).sync(60).tolist())
g.close()
""",
        2,
        tmp_path,
    )
    assert [each["sum"] for each in ends] == [[2.0] * 3] * 2, ends
    (refused,) = [said for each in ends for said in each.said if "refused" in said]
    assert "rank 0 has already joined this group; each process needs a rank of its own" in refused["refused"]
    assert refused["joined"] == 0  # NCCL of the first one would have heard of it


def test_an_id_is_for_one_group(tmp_path):
    (ended,) = run_ranks(
        """
given = unique_id()
g = Group.init(0, 1, given)
def again():
    try:
        Group.init(0, 1, given)
    except ac.errors.CollectiveError as error:
        return str(error)
say(while_open=again())
say(sum=ac.to_host(g.all_reduce(ac.ones(3))).sync(60).tolist())
g.close()
while "was already made" in (words := again()):
    pass  # the process has not heard yet that it is over
say(when_closed=words)
""",
        1,
        tmp_path,
    )
    assert "this id's group was already made, of 1 ranks; each group needs a new id" in ended["while_open"]
    assert ended["sum"] == [1.0] * 3
    assert "an id whose group has ended is of no use" in ended["when_closed"]


def test_collectives_of_processes_are_in_no_graph(tmp_path):
    (ended,) = run_ranks(
        """
g = group()
x = ac.ones(10).sync()
try:
    g.all_reduce(x).graph()
except ac.CaptureError as error:
    say(error=str(error))
say(sum=ac.to_host(g.all_reduce(x)).sync(60).tolist()[0])
g.close()
""",
        1,
        tmp_path,
    )
    assert "a group of processes cannot be part of a graph" in ended["error"], ended
    assert ended["sum"] == 1.0
