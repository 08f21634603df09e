"""Ranks of one host agree in memory that they share; the hub hears of it later."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from aiocuda._collective import board, hub

sys.path.insert(0, str(Path(__file__).parent))
from ranks import run_ranks

HEARD_LATE = """
made = shared("id", unique_id)
g = Group.init(rank, size, made)
others = g._members._others
said, flush = [], others._line.flush
others._line.flush = lambda: None  # the hub hears nothing
others._line.say = said.append
x = ac.full(4, rank + 1.0).sync()
sums = [g.all_reduce(x) for _ in range(100)]
if rank == 1:
    wait_for("is ahead")
futures = [ac.to_host(each).submit() for each in sums]
if rank == 0:
    tell("is ahead")
say(uses=others._is_board_used, sums=sorted({float(each.sync(60)[0]) for each in futures}))
say(said=said, unanswered=len(others._calls))
del others._line.flush, others._line.say
flush()
g.close()
"""


def test_streams_go_on_before_the_hub_has_heard_of_a_call(tmp_path):
    pytest.importorskip("nccl.bindings")
    for ended in run_ranks(HEARD_LATE, 2, tmp_path):
        assert ended.status == 0, ended
        assert ended["uses"]
        assert ended["sums"] == [3.0]
        assert ended["said"] == []
        assert ended["unanswered"] == 100


WITHOUT = """
from aiocuda._collective import board, others
if rank == 1:
    others.opened = lambda place: None
g = group()
x = ac.full(4, rank + 1.0).sync()
say(sums=[ac.to_host(g.all_reduce(x)).sync(60).tolist()[0] for _ in range(3)], uses=g._members._others._is_board_used)
g.close()
"""


def test_ranks_agree_on_the_channel_if_one_of_them_cannot_open_the_board(tmp_path):
    pytest.importorskip("nccl.bindings")
    for ended in run_ranks(WITHOUT, 2, tmp_path):
        assert ended.status == 0, ended
        assert ended["sums"] == [3.0] * 3
        assert not ended["uses"]


FIRST = """
from aiocuda._collective.others import Others
agree = Others.agree
def early(self, *arguments):  # rank 0 calls before the last rank has joined, so before it hears of the board
    Others.agree = agree
    heard, self._is_board_used = self._is_board_used, False
    agree(self, *arguments)
    self._is_board_used = heard
if rank == 0:
    Others.agree = early
g = group()
line = g._members._others._line
flush, line.flush = line.flush, lambda: None  # so all that follows is agreed on there, or not at all
say(sum=ac.to_host(g.all_reduce(ac.ones(4))).sync(10).tolist()[0])
flush()
g.close()
"""


def test_the_first_call_is_made_on_the_channel_by_all_and_later_ones_on_the_board(tmp_path):
    pytest.importorskip("nccl.bindings")
    assert [each["sum"] for each in run_ranks(FIRST, 2, tmp_path)] == [2.0, 2.0]


def test_memory_of_another_file_is_not_opened():
    made = board.BoardFile()
    memory = board.opened(made.place)
    assert memory is not None
    assert memory[:16].hex() == made.place[2]
    process, number, nonce = made.place
    assert board.opened([process, number, "00" * 16]) is None  # a place of another host that looks alike
    file = os.memfd_create("another")
    assert board.opened([process, file, nonce]) is None
    os.close(file)
    assert board.opened([process, file, nonce]) is None
    assert board.opened([1 << 22, number, nonce]) is None
    short = os.memfd_create("aiocuda-board")
    os.pwrite(short, bytes.fromhex(nonce), 0)
    assert board.opened([process, short, nonce]) is None
    os.close(short)
    for place in (None, [], ["1", "2", "3"]):
        assert board.opened(place) is None  # type: ignore[arg-type]
    made.close()
    assert board.opened(made.place) is None


def test_a_hub_that_may_make_no_such_file_has_no_board(monkeypatch):
    def refused(name: str) -> int:
        raise PermissionError(name)

    monkeypatch.setattr(os, "memfd_create", refused)
    opened = hub.Hub("127.0.0.1", 1e6)
    assert opened.place.board is None
    opened._end()


FREED = """
import gc, threading
from cuda.bindings import driver
from aiocuda import _native
g = group()
x, stream, word = ac.ones(4).sync(), ac.Device(0).stream(), ac.empty_host(1, "uint32").sync()
word.numpy()[0] = 0
ac.to_host(g.all_reduce(x)).sync(60)
words = g._members._others._board._board.words
def is_locked():
    with ac.use(ac.Device(0)):
        return int(driver.cuMemHostGetFlags(words)[0]) == 0
say(before=is_locked())
g.close()
for each in threading.enumerate():
    if each.name.startswith("aiocuda-collective"):
        each.join(60)  # they have the group; and NCCL, which they end, waits for the device
def wait(stream, _):
    _native.wait_for_word(0, stream.handle, word._address, 1)
if IS_AT_WORK:
    ac.call(wait, x, writes=[x]).on(stream).submit()
del g
gc.collect()
for _ in range(20):
    ac.zeros(1).sync_on(ac.Device(0).stream(), 60)  # would wait for the driver, if that waited for the device
say(meanwhile=is_locked())
word.numpy()[0] = 1
stream.synchronize().sync(60)
for _ in range(1000):
    if not is_locked():
        break
    ac.zeros(1).sync(60)
say(after=is_locked())
"""


@pytest.mark.parametrize("is_at_work", [False, True])
def test_pages_of_a_group_that_nobody_has_are_unlocked_when_the_device_is_at_rest(tmp_path, is_at_work):
    pytest.importorskip("nccl.bindings")
    (ended,) = run_ranks(FREED.replace("IS_AT_WORK", str(is_at_work)), 1, tmp_path, timeout_s=100)
    assert ended.status == 0, ended
    assert ended["before"]
    assert ended["meanwhile"] or not is_at_work
    assert not ended["after"]
