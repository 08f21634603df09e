"""The channel beside NCCL: without devices."""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from aiocuda import ArgumentValueError
from aiocuda._collective import meeting, outbox

TIMEOUT_S = 60


class Rank:
    """A rank that hears."""

    def __init__(self, place: meeting.Place, rank: int) -> None:
        self.heard: queue.Queue[tuple[int, Any]] = queue.Queue()
        self.line = meeting.Line(place, rank, lambda *said: self.heard.put(said), TIMEOUT_S)

    def hears(self) -> tuple[int, Any]:
        return self.heard.get(timeout=TIMEOUT_S)

    def knows(self, other: Rank, number: int) -> None:
        """Return when another one has been let in."""
        other.line.say(["here", number])
        assert self.hears() == (number, ["here", number])


@pytest.fixture
def place() -> meeting.Place:
    return meeting.open_hub("127.0.0.1")


@pytest.fixture
def ranks(place: meeting.Place) -> Iterator[list[Rank]]:
    made = [Rank(place, each) for each in range(2)]
    made[0].knows(made[1], 1)
    made[1].knows(made[0], 0)
    yield made
    for each in made:
        each.line.close()


def deaf(place: meeting.Place, rank: int, others: list[Rank], says: bytes = b'["here"]\n') -> socket.socket:
    """Return the connection of a rank that takes nothing."""
    made = socket.create_connection((place.host, place.port), timeout=TIMEOUT_S)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.sendall(json.dumps({"secret": place.secret, "rank": rank}).encode() + b"\n" + says)
    for each in others:
        assert each.hears()[0] == rank
    return made


def test_one_that_takes_nothing_holds_nobody_up(place, ranks):
    with deaf(place, 2, ranks):
        text = "x" * 30_000
        for each in range(1000):
            ranks[0].line.say([each, text])
        for each in range(1000):
            assert ranks[1].hears() == (0, [each, text])


def test_one_that_takes_nothing_for_long_is_gone(place, ranks, monkeypatch):
    monkeypatch.setattr(outbox, "_MOST_BYTES", 1 << 18)
    with deaf(place, 2, ranks):
        for _ in range(1000):
            ranks[0].line.say("x" * 30_000)
        while ranks[1].hears() != (2, [meeting.GONE]):
            pass


def test_lists_in_lists_in_lists_are_no_words(place, ranks):
    with deaf(place, 2, [], b"[" * 60_000 + b"\n"):
        assert [each.hears() for each in ranks] == [(2, [meeting.GONE])] * 2


def test_who_speaks_is_not_held_up_by_a_hub_that_hears_nothing():
    with socket.create_server(("127.0.0.1", 0)) as hub:
        line = meeting.Line(meeting.Place(*hub.getsockname(), "secret"), 0, lambda *_: None, TIMEOUT_S)
        connection, _ = hub.accept()
        speaks = threading.Thread(target=lambda: [line.say("x" * 30_000) for _ in range(1000)], daemon=True)
        speaks.start()
        speaks.join(TIMEOUT_S)
        assert not speaks.is_alive()
        connection.close()
        line.close()


def test_last_words_are_heard():
    with socket.create_server(("127.0.0.1", 0)) as hub:
        line = meeting.Line(meeting.Place(*hub.getsockname(), "secret"), 0, lambda *_: None, TIMEOUT_S)
        connection, _ = hub.accept()
        for _ in range(300):
            line.say("x" * 30_000)  # more than the connection takes by itself
        closes = threading.Thread(target=line.close)
        closes.start()
        with connection, connection.makefile("rb") as heard:
            assert len(heard.readlines()) == 1 + 300
        closes.join(TIMEOUT_S)


FORKING = """
import os, sys
from aiocuda._collective import meeting
place, _ = meeting.Place.from_bytes(bytes.fromhex(sys.argv[1]))
line = meeting.Line(place, 2, lambda *_: None, 60)
line.say(["here"])
HOLDER
sys.stdin.read()
"""
# Both hold what they have got of their parent until it ends.
HOLDERS = {
    "forked": "child = os.fork(); print(child or '', flush=True) if child else (os.close(1), sys.stdin.read())",
    "started": "import subprocess\n"
    "child = subprocess.Popen(['cat'], stdout=subprocess.DEVNULL, close_fds=False); print(child.pid, flush=True)",
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_child_does_not_keep_its_parent_s_connection(place, ranks, holder):
    read, write = os.pipe()
    parent = subprocess.Popen(
        [sys.executable, "-c", FORKING.replace("HOLDER", HOLDERS[holder]), place.to_bytes().hex()],
        stdin=read,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert ranks[0].hears() == (2, ["here"])
        parent.kill()
        assert ranks[0].hears() == (2, [meeting.GONE])
        os.kill(child, 0)  # it is there
    finally:
        parent.kill()
        parent.communicate()
        os.close(write)
        os.close(read)


def test_nobody_joins_without_the_secret(place):
    for hello in (b'{"secret": "00", "rank": 0}\n', b'{"secret": "\\u00e9\\ud800"}\n', b"nonsense\n", b'{"rank": 0}\n'):
        with socket.create_connection((place.host, place.port), timeout=TIMEOUT_S) as connection:
            connection.sendall(hello)
            assert connection.recv(1) == b""
    with pytest.raises(ArgumentValueError, match="unique_id"):
        meeting.Place.from_bytes(b"anything")
    assert json.loads(place.to_bytes()) == [place.host, place.port, place.secret]
