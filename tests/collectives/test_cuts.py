"""The channel between two ranks is cut, and no process ends: rank 1's goes through a proxy, which stops."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from ranks import run_ranks

pytest.importorskip("nccl.bindings")

ANSWERS_WITHIN_S = 2.0

PROGRAM = """
import socket, struct, threading

class Proxy:  # of one connection
    def __init__(self, address):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.is_cut = threading.Event()
        self.ends = []
        threading.Thread(target=self.serve, args=(address,), daemon=True).start()

    def serve(self, address):
        here, there = self.server.accept()[0], socket.create_connection(address)
        self.ends = [here, there]
        for one, other in ((here, there), (there, here)):
            threading.Thread(target=self.pass_on, args=(one, other), daemon=True).start()

    def pass_on(self, one, other):
        while content := one.recv(4096):
            if not self.is_cut.is_set():
                other.sendall(content)

    def reset(self):
        for each in self.ends:  # a close without a lingering end is a reset
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.shutdown(socket.SHUT_RD)  # the thread that reads it lets go of it
            each.close()

made = shared("id", lambda: unique_id(answers_within_s=ANSWERS_WITHIN_S))
if rank == 1:
    place, separator, rest = made.partition(b"\\n")
    maker, host, port, *more, board = json.loads(place)
    proxy = Proxy((host, port))
    made = json.dumps([maker, host, proxy.port, *more, BOARD]).encode() + separator + rest
g = Group.init(rank, size, made)
x = ac.ones(10).sync()
assert ac.to_host(g.all_reduce(x)).sync(60).tolist() == [2.0] * 10
if rank == 0:
    future = g.all_reduce(x).submit()
    tell("called")
else:
    wait_for("called")
    CUT
try:
    if rank == 1:  # the cut may be known before
        future = g.all_reduce(x).submit()
    future.sync(60)
except ac.errors.CollectiveError as error:
    say(error=str(error))
say(goes_on=ac.to_host(x).sync(60).tolist()[0])
tell(f"over{rank}")
for each in range(size):
    wait_for(f"over{each}")
g.close()
"""
WAITING = "(call 3, all_reduce of float32(10,), sum: rank 1 has not called it)"


def apart(program: str) -> str:
    """Return the program, of ranks that have no memory in common, as on two hosts."""
    return program.replace("BOARD", "None")


def test_a_connection_that_is_reset_ends_the_awaits_of_both_sides_at_once(tmp_path):
    program = apart(PROGRAM).replace("ANSWERS_WITHIN_S", "1e6").replace("CUT", "proxy.reset()")
    zero, one = run_ranks(program, 2, tmp_path)
    assert [zero.status, one.status] == [0, 0], (zero, one)
    assert f"rank 1 is gone {WAITING}" in zero["error"]
    assert "rank 0 is gone, whose process made the group's id, or rank 1 is cut off from it" in one["error"]
    assert [zero["goes_on"], one["goes_on"]] == [1.0, 1.0]


def test_a_network_that_carries_nothing_ends_the_awaits_of_both_sides_in_time(tmp_path):
    program = apart(PROGRAM).replace("ANSWERS_WITHIN_S", str(ANSWERS_WITHIN_S)).replace("CUT", "proxy.is_cut.set()")
    zero, one = run_ranks(program, 2, tmp_path)
    assert [zero.status, one.status] == [0, 0], (zero, one)
    assert f"rank 1 has said nothing for {ANSWERS_WITHIN_S:g} s {WAITING}" in zero["error"]
    assert f"rank 1 has heard nothing for {ANSWERS_WITHIN_S:g} s from rank 0 at 127.0.0.1:" in one["error"]
    assert "where the group's id was made: that process is stopped, or the network is cut" in one["error"]
    assert "(call 3, all_reduce of float32(10,), sum: not all ranks have called it)" in one["error"]
    assert [zero["goes_on"], one["goes_on"]] == [1.0, 1.0]


def test_ranks_of_one_host_agree_though_the_channel_carries_nothing(tmp_path):
    program = PROGRAM.replace("BOARD", "board").replace("ANSWERS_WITHIN_S", "1e6").replace("CUT", "proxy.is_cut.set()")
    for ended in run_ranks(program, 2, tmp_path):
        assert ended.status == 0, ended
        assert ended.said == [{"goes_on": 1.0}]


def test_a_rank_that_is_stopped_is_named(tmp_path):
    program = """
g = Group.init(rank, size, shared("id", lambda: unique_id(answers_within_s=ANSWERS_WITHIN_S)))
if rank == 0:
    try:
        g.all_reduce(ac.ones(10)).sync(60)
    except ac.errors.CollectiveError as error:
        say(error=str(error))
    os.kill(int((wait_for("process"), (folder / "process").read_text())[1]), signal.SIGCONT)
else:
    tell("process", str(os.getpid()).encode())
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        g.all_reduce(ac.ones(10)).sync(60)
    except ac.errors.CollectiveError as error:
        say(error=str(error))
tell(f"over{rank}")
for each in range(size):
    wait_for(f"over{each}")
g.close()
"""
    ends = run_ranks(program.replace("ANSWERS_WITHIN_S", str(ANSWERS_WITHIN_S)), 2, tmp_path)
    for ended in ends:
        assert ended.status == 0, ends
        assert f"rank 1 has said nothing for {ANSWERS_WITHIN_S:g} s" in ended["error"], ends
