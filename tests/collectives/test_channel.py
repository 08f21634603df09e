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

import aiocuda as ac
from aiocuda import ArgumentTypeError, ArgumentValueError
from aiocuda._collective import hub, meeting, outbox
from aiocuda._collective.coordinator import LONGEST_REASON
from aiocuda.errors import CollectiveError

TIMEOUT_S = 60
NEVER_S = 1e6  # so tests alone look whether somebody is silent
IDENTITY = bytes(range(128))
HERE = 7  # of a message to oneself: an answer says that one was let in


def begun(*arguments: Any, **options: Any) -> meeting.Line:
    line = meeting.Line(*arguments, **options)
    line.begin()
    return line


class Rank:
    """A rank that hears."""

    def __init__(self, place: meeting.Place, rank: int, size: int = 3, *, has_hub: bool = False) -> None:
        self.rank = rank
        self.heard: queue.Queue[Any] = queue.Queue()
        self.line = begun(place, rank, size, self.heard.put, TIMEOUT_S, has_hub=has_hub)
        self.line.say(["waits", HERE])
        assert self.hears() == ["waits", HERE, ""]

    def hears(self) -> Any:
        return self.heard.get(timeout=TIMEOUT_S)


@pytest.fixture
def opened() -> Iterator[hub.Hub]:
    made = hub.Hub("127.0.0.1", NEVER_S)
    yield made
    made._end()


@pytest.fixture
def place(opened: hub.Hub) -> meeting.Place:
    return opened.place


@pytest.fixture
def ranks(place: meeting.Place) -> Iterator[list[Rank]]:
    made = [Rank(place, each) for each in range(2)]
    yield made
    for each in made:
        each.line.close()


def message(number: int, source: int = 0, to: int = 1) -> list[int]:
    return [number, source, to]


def asking(place: meeting.Place, rank: int, says: bytes) -> socket.socket:
    """Return the connection of a rank that takes no answer."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(TIMEOUT_S)
    made.connect((place.host, place.port))
    made.sendall(json.dumps({"secret": place.secret, "rank": rank, "size": 3}).encode() + b"\n" + says)
    return made


# Answers to it are long.
QUESTIONS = json.dumps(["call", [1, -1, -1], "x" * 900]).encode() + b"\n" + b'["waits", 1]\n' * 30_000


def test_many_messages_go_in_few_lines_that_a_reader_takes():
    ours, theirs = socket.socketpair()
    messages = [["call", [each, -1, -1], "\N{GRINNING FACE}" * 1000] for each in range(20)]
    lines = meeting.lines_of([meeting.encoded(each) for each in messages])
    assert 1 < lines.count(b"\n") < 20
    sends = threading.Thread(target=ours.sendall, args=(lines,))
    sends.start()
    reader, heard = meeting.Reader(theirs), []
    while len(heard) < len(messages):
        line = reader.next()
        assert line is not None, "the line was too long"
        heard += line
    sends.join(TIMEOUT_S)
    assert heard == messages
    ours.close()
    theirs.close()


@pytest.mark.parametrize("character", ["x", "\N{GRINNING FACE}", "\x01", "\n", '"', "\udc80"])
def test_a_message_has_room_for_the_longest_reason_twice_whatever_the_characters(character):
    ours, theirs = socket.socketpair()
    message = ["ended", character * LONGEST_REASON, character * LONGEST_REASON]
    sends = threading.Thread(target=ours.sendall, args=(meeting.lines_of([meeting.encoded(message)]),))
    sends.start()
    heard = meeting.Reader(theirs).next()
    theirs.close()
    sends.join(TIMEOUT_S)
    ours.close()
    assert heard == [message]


def test_a_call_is_answered_once_all_have_made_it(ranks, place):
    third = Rank(place, 2)
    for each in (*ranks, third):
        each.line.say(["call", [1, -1, -1], "x"])
    assert [each.hears() for each in (*ranks, third)] == [["agreed", [[1, -1, -1]]]] * 3
    third.line.close()


def test_ranks_that_differ_hear_what_both_call(ranks):
    for each in ranks:
        each.line.say(["call", [1, -1, -1], f"words {each.rank}"])
    for each in ranks:
        what, reason, waiting = each.hears()
        assert (what, waiting) == ("ended", "")
        assert "as call 1, rank 0 calls words 0, rank 1 calls words 1" in reason


def test_one_that_takes_nothing_holds_nobody_up(place, ranks):
    with asking(place, 2, QUESTIONS):
        for number in range(1, 1000):
            for each in ranks:
                each.line.say(["call", message(number), "x"])
        for number in range(1, 1000):
            assert [each.hears() for each in ranks] == [["agreed", [message(number)]]] * 2


def test_one_that_takes_nothing_for_long_is_gone(place, ranks, monkeypatch):
    monkeypatch.setattr(outbox, "_MOST_BYTES", 1 << 18)
    with asking(place, 2, QUESTIONS):
        assert [each.hears() for each in ranks] == [["ended", "rank 2 is gone", ""]] * 2


def test_one_that_is_gone_is_told_with_what_waits_for_it(place, ranks):
    ranks[0].line.say(["call", [1, -1, -1], "x"])
    ranks[0].line.say(["waits", 1])
    waiting = "call 1, x: rank 1, 2 has not called it"
    assert ranks[0].hears() == ["waits", 1, waiting]
    with asking(place, 2, b""):
        pass
    assert ranks[0].hears() == ["ended", "rank 2 is gone", waiting]
    assert ranks[1].hears() == ["ended", "rank 2 is gone", ""]


def test_one_that_joins_after_the_end_is_told(place, ranks):
    ranks[0].line.say(["failed", "it was enough"])
    assert ranks[1].hears() == ["ended", "it was enough", ""]
    heard: queue.Queue[Any] = queue.Queue()
    late = begun(place, 2, 3, heard.put, TIMEOUT_S)
    assert heard.get(timeout=TIMEOUT_S) == ["ended", "it was enough", ""]
    late.close()


def refused(place: meeting.Place, rank: int, size: int) -> Any:
    """Return what a rank hears that may not join."""
    heard: queue.Queue[Any] = queue.Queue()
    line = begun(place, rank, size, heard.put, TIMEOUT_S)
    line.wait_for_answer(TIMEOUT_S)
    what, reason, *_ = heard.get(timeout=TIMEOUT_S)
    line.close()
    assert what == "ended"
    return reason


def test_one_that_may_not_join_hears_why_whatever_it_has_said():
    """What a connection was sent is gone once the other end closes it with words in it that nobody has read."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as rank:
        connection, _ = server.accept()
        rank.settimeout(TIMEOUT_S)
        rank.sendall(b'["beat"]\n' * 10_000)
        refuses = threading.Thread(target=hub._refuse, args=(connection, meeting.Reader(connection), "no"))
        refuses.start()
        refuses.join(0.05)  # if it does not read, it has closed the connection then
        rank.shutdown(socket.SHUT_WR)
        refuses.join(TIMEOUT_S)
        with rank.makefile("rb") as heard:
            assert heard.readlines() == [b'["ended", "no", ""]\n']


def test_two_that_come_as_one_rank_are_told(place, ranks):
    assert refused(place, 1, 3) == "rank 1 has already joined this group; each process needs a rank of its own"
    assert all(each.heard.empty() for each in ranks)  # the first one stays
    third = Rank(place, 2)
    third.line.close()


def test_one_that_comes_again_before_all_have_come_is_told(place, ranks):
    ranks[0].line.close()
    assert ranks[1].hears() == ["ended", "rank 0 is gone", ""]
    assert refused(place, 0, 3) == "rank 0 of this id's group has come and gone; each group needs a new id"


def test_an_id_that_is_used_again_is_told(place, ranks):
    third = Rank(place, 2)
    assert refused(place, 0, 3) == "this id's group was already made, of 3 ranks; each group needs a new id"
    third.line.close()


def test_an_id_of_a_group_that_has_ended_says_so(opened):
    former = meeting.Place(opened.place.host, opened.place.port, "another secret", NEVER_S)  # whose port this one has
    heard: queue.Queue[Any] = queue.Queue()
    line = begun(former, 0, 3, heard.put, TIMEOUT_S)
    assert "does not know the id that rank 0 has" in heard.get(timeout=TIMEOUT_S)[1]
    line.close()


def test_a_hub_that_does_not_answer_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = meeting.Place(*server.getsockname(), "secret", NEVER_S)
        line = begun(place, 3, 4, lambda _: None, TIMEOUT_S)
        with pytest.raises(CollectiveError, match=r"rank 3 has heard nothing for 0\.01 s from 127\.0\.0\.1"):
            line.wait_for_answer(0.01)
        line.close()


NO_WORDS = {"lists in lists in lists": b"[" * 60_000 + b"\n", "no JSON": b"nonsense\n", "too long": b"1" * 70_000}


@pytest.mark.parametrize("said", NO_WORDS.values(), ids=NO_WORDS)
def test_one_that_says_what_is_no_line_is_gone(place, ranks, said):
    with asking(place, 2, said):
        assert [each.hears() for each in ranks] == [["ended", "rank 2 is gone", ""]] * 2


def test_words_that_are_not_understood_end_the_group(ranks):
    ranks[1].line.say(["what", 1])
    for each in ranks:
        assert each.hears() == ["ended", "rank 1 says ['what', 1], which is not understood", ""]


def test_who_speaks_is_not_held_up_by_a_hub_that_hears_nothing():
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = meeting.Place(*server.getsockname(), "secret", NEVER_S)
        line = begun(place, 0, 1, lambda _: None, TIMEOUT_S)
        connection, _ = server.accept()
        speaks = threading.Thread(target=lambda: [line.say("x" * 30_000) for _ in range(1000)], daemon=True)
        speaks.start()
        speaks.join(TIMEOUT_S)
        assert not speaks.is_alive()
        connection.close()
        line.close()


def test_last_words_are_heard():
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = meeting.Place(*server.getsockname(), "secret", NEVER_S)
        line = begun(place, 0, 1, lambda _: None, TIMEOUT_S)
        connection, _ = server.accept()
        for _ in range(300):
            line.say("x" * 30_000)  # more than the connection takes by itself
        closes = threading.Thread(target=line.close)
        closes.start()
        with connection, connection.makefile("rb") as heard:
            assert len(heard.readlines()) == 1 + 300
        closes.join(TIMEOUT_S)


def test_words_of_finalizers_take_no_lock_and_come_before_later_ones(ranks):
    line = ranks[0].line
    with line._saying:  # a finalizer may run in the middle of anything
        for number in range(3):
            line.say_later(["waits", number])
    line.say(["waits", 3])
    assert [ranks[0].hears()[1] for _ in range(4)] == list(range(4))


def test_words_of_finalizers_go_out_by_themselves(ranks):
    ranks[0].line.say_later(["waits", 1])
    assert ranks[0].hears() == ["waits", 1, ""]


def test_a_rank_that_says_nothing_is_gone_after_four_looks(opened, ranks):
    opened.look()  # it has joined since the last one
    for _ in range(3):
        ranks[0].line.look()
        ranks[0].line.say(["waits", 1])
        assert ranks[0].hears() == ["waits", 1, ""]  # so the hub has heard it
        opened.look()
        assert ranks[1].heard.empty()
    ranks[0].line.say(["waits", 1])
    assert ranks[0].hears() == ["waits", 1, ""]
    opened.look()
    for each in ranks:  # the one that was silent is told, too, if it hears
        assert each.hears() == ["ended", f"rank 1 has said nothing for {NEVER_S:g} s", ""]
    assert ranks[1].hears() == ["gone", "the process that made the group's id is gone, or rank 1 is cut off from it"]


def test_a_rank_that_gives_signs_of_life_stays(opened, ranks):
    for _ in range(12):
        for each in ranks:
            each.line.look()
            each.line.say(["waits", 1])
            assert each.hears() == ["waits", 1, ""]
        opened.look()
    assert all(each.heard.empty() for each in ranks)


def test_a_hub_that_says_nothing_is_gone_after_four_looks():
    with socket.create_server(("127.0.0.1", 0)) as server:
        heard: queue.Queue[Any] = queue.Queue()
        place = meeting.Place(*server.getsockname(), "secret", NEVER_S)
        line = begun(place, 3, 4, heard.put, TIMEOUT_S)
        connection, _ = server.accept()
        for _ in range(4):
            line.look()
        assert heard.empty()
        line.look()
        what, reason = heard.get(timeout=TIMEOUT_S)
        assert what == "gone"
        assert (
            f"rank 3 has heard nothing for 1e+06 s from {place.host}:{place.port}, where the group's id was" in reason
        )
        with connection, connection.makefile("rb") as lines:
            assert [json.loads(lines.readline()) for _ in range(6)][1:] == [["beat"]] * 5
            line.close()


def test_a_hub_ends_when_all_ranks_have_come_and_gone():
    place = hub.open_hub("127.0.0.1", NEVER_S)
    (opened,) = [each for each in hub._hubs if each.place is place]
    for each in [Rank(place, number, 2) for number in range(2)]:
        assert opened in hub._hubs
        each.line.say(["bye"])
        each.line.close()
    assert opened._is_over.wait(TIMEOUT_S)
    assert opened not in hub._hubs
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((place.host, place.port), timeout=TIMEOUT_S)


def hub_has_gone(at: int, opened: hub.Hub) -> list[Any]:
    """Return what each of three ranks hears at the end, if the one that came then had the hub in its process."""
    made = [Rank(opened.place, each, has_hub=each == at) for each in range(3)]
    for each in made:  # whatever the hub said at the last one's coming was heard before this
        each.line.say(["waits", HERE])
        assert each.hears() == ["waits", HERE, ""]
    with opened._lock:
        opened._there.clear()  # a process that is gone says nothing of who is gone
    for each in opened._outboxes.values():
        each.close()
    heard = [each.hears()[1] for each in made]
    for each in made:
        each.line.close()
    return heard


@pytest.mark.parametrize("at", range(3))
def test_a_hub_that_is_gone_has_the_number_of_the_rank_of_its_process(opened, at):
    """Whether that one came before the others or after them."""
    for rank, heard in enumerate(hub_has_gone(at, opened)):
        gone = f"rank {at} is gone, whose process made" if rank != at else "the process that made"
        rest = "" if rank != at else " is gone"
        assert heard == f"{gone} the group's id{rest}, or rank {rank} is cut off from it"


def test_a_hub_of_a_process_without_a_rank_has_no_number(opened):
    for rank, heard in enumerate(hub_has_gone(-1, opened)):
        assert heard == f"the process that made the group's id is gone, or rank {rank} is cut off from it"


def test_a_forked_child_has_not_its_parent_s_hub():
    program = """
import os
from aiocuda._collective import hub
place = hub.open_hub("127.0.0.1", 60)
child = os.fork()
if not child:
    os._exit(hub.has_hub(place))
print(hub.has_hub(place), os.waitpid(child, 0)[1])
"""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}  # Python 3.12 warns of a fork
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == "True 0\n"


FORKING = """
import os, sys
from aiocuda._collective import meeting
place, _ = meeting.Place.from_id(bytes.fromhex(sys.argv[1]))
line = meeting.Line(place, 2, 3, print, 60)
line.begin()
line.say(["waits", 1])
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
    program = FORKING.replace("HOLDER", HOLDERS[holder]).replace(", print,", ", lambda _: None,")
    parent = subprocess.Popen(
        [sys.executable, "-c", program, place.to_id(IDENTITY).hex()], stdin=read, stdout=subprocess.PIPE, text=True
    )
    try:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        assert ranks[0].hears() == ["ended", "rank 2 is gone", ""]
        os.kill(child, 0)  # it is there
    finally:
        parent.kill()
        parent.communicate()
        os.close(write)
        os.close(read)


def test_nobody_joins_without_the_secret(place):
    hellos = (
        b'{"secret": "00", "rank": 0, "size": 1}\n',
        b'{"secret": "\\u00e9\\ud800", "rank": 0, "size": 1}\n',
        b"nonsense\n",
        b'{"rank": 0, "size": 1}\n',
        json.dumps({"secret": place.secret, "rank": 3, "size": 3}).encode() + b"\n",  # there is no such rank
    )
    for hello in hellos:
        with socket.create_connection((place.host, place.port), timeout=TIMEOUT_S) as connection:
            connection.sendall(hello)
            assert connection.recv(1) == b""


def test_an_id_has_all_that_its_place_has(place):
    given, identity = meeting.Place.from_id(place.to_id(IDENTITY))
    assert vars(given) == vars(place)
    assert identity == IDENTITY


def test_a_hub_that_cannot_take_a_connection_now_takes_it_later(opened, monkeypatch):
    """As where the process has as many files open as it may."""
    has_refused, refuses = threading.Event(), threading.Event()
    real = opened._listener

    class Listener:
        def accept(self) -> Any:
            if refuses.is_set():
                has_refused.set()
                raise OSError(24, "Too many open files")
            return real.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    refuses.set()
    monkeypatch.setattr(opened, "_listener", Listener())
    first = Rank(opened.place, 0)  # behind which the hub asks the one that refuses
    assert has_refused.wait(TIMEOUT_S)
    refuses.clear()
    Rank(opened.place, 1).line.close()
    first.line.close()


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_a_hub_may_have_an_address_of_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no address of IPv6")
    Rank(hub.open_hub("::1", NEVER_S), 0).line.close()


BROKEN = """
import signal, socket
from aiocuda._collective import hub, meeting, outbox
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
ours, theirs = socket.socketpair()
theirs.close()
"""


@pytest.mark.parametrize(
    "says",
    [
        "box = outbox.Outbox(ours); box.put(b'x')",
        "box = outbox.Outbox(ours); box._waiting += b'x'; box._is_sending = True; box._send()",
        "hub._refuse(ours, meeting.Reader(ours), 'no')",
    ],
    ids=["at once", "by a thread", "no"],
)
def test_who_is_gone_does_not_end_a_program_that_takes_the_default_of_broken_pipes(says):
    program = [sys.executable, "-c", BROKEN + says + "\nprint('end')"]
    ended = subprocess.run(program, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "end\n"), ended


@pytest.mark.parametrize("cut", [1, 127, 128])
def test_an_id_that_was_cut_says_how_long_it_is_and_should_be(place, cut):
    whole = place.to_id(IDENTITY)
    with pytest.raises(ArgumentValueError, match=f"of {len(whole)} bytes, and {len(whole) - cut} were given; pass all"):
        meeting.Place.from_id(whole[:-cut])


def test_an_id_that_has_grown_says_how_long_it_is_and_should_be(place):
    whole = place.to_id(IDENTITY)
    with pytest.raises(ArgumentValueError, match=f"of {len(whole)} bytes, and {len(whole) + 1} were given; pass all"):
        meeting.Place.from_id(whole + b"\n")


@pytest.mark.parametrize("given", [b"", b"anything", b"[]\n", b"5\n", b'"aiocuda"\n', b"[" * 100_000, b'["aiocuda 0.2'])
def test_what_is_no_id_says_how_long_it_is(given):
    words = f"none that aiocuda.collective.unique_id.. made: {len(given)} bytes were given, and an id is .* 128 bytes"
    with pytest.raises(ArgumentValueError, match=words):
        meeting.Place.from_id(given)


def test_an_id_of_another_version_names_both(place, monkeypatch):
    monkeypatch.setattr(meeting, "_VERSION", "aiocuda 9.9.9")
    made = place.to_id(IDENTITY)
    monkeypatch.undo()
    with pytest.raises(ArgumentValueError, match=rf"made by aiocuda 9\.9\.9, and this is aiocuda {ac.__version__}"):
        meeting.Place.from_id(made)


@pytest.mark.parametrize("given", ["str", None, 5])
def test_an_id_is_of_bytes(given):
    with pytest.raises(ArgumentTypeError, match="unique_id is the bytes that"):
        meeting.Place.from_id(given)
