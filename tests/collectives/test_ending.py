"""Communicators end without holding up anybody, and a process does not end while they do."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from aiocuda._collective import ending


def test_an_exit_waits_for_what_ends(in_process):
    """Functions of `atexit` run in the opposite order: that of `ending` lies between the other two."""
    done = in_process(
        """
        import atexit, threading
        exits = threading.Event()
        def look():
            print("is under way" if thread.is_alive() else "has ended")
        atexit.register(look)
        from aiocuda._collective import ending
        atexit.register(exits.set)
        def end():
            exits.wait(60)
            sum(range(1_000_000))
        ending.end_later(end, "slow")
        (thread,) = [each for each in threading.enumerate() if each.name == "slow"]
        """
    )
    assert done.stdout == "has ended\n", done.stderr


class Stuck:
    """Communicators whose abort waits for its stream, as NCCL does where a launch is under way."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.has_ended = threading.Event()

    def abort(self) -> None:
        if self.goes_on.wait(60):
            self.has_ended.set()


def test_an_abort_lets_streams_go_on_that_it_waits_for():
    stuck = Stuck()
    ending.abort(cast("Any", stuck), stuck.goes_on.set)
    assert stuck.has_ended.is_set()


def test_streams_go_on_where_nothing_can_be_aborted_any_more(monkeypatch):
    def refused(*_: Any) -> None:
        raise RuntimeError("can't start new thread at interpreter shutdown")

    monkeypatch.setattr(ending, "end_later", refused)
    stuck = Stuck()
    with pytest.raises(RuntimeError, match="new thread"):
        ending.abort(cast("Any", stuck), stuck.goes_on.set)
    assert stuck.goes_on.is_set()
