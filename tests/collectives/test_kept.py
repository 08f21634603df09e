"""Calls that a rank has built, and that nobody executes, while other ranks wait in them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from aiocuda._collective.coordinator import Coordinator

sys.path.insert(0, str(Path(__file__).parent))
from ranks import run_ranks

pytest.importorskip("nccl.bindings")


def test_the_hub_asks_those_that_are_absent_and_there_and_passes_on_what_they_say():
    coordinator = Coordinator(0, 4)
    for rank in (0, 1, 2):
        coordinator.join(rank, 4)
    coordinator.hear(0, [["call", [1, -1, -1], "x"]])
    coordinator.hear(1, [["call", [1, -1, -1], "x"]])
    assert coordinator.hear(0, [["kept?", 5]]) == [([0], ["kept?", 5, 1]), ([2], ["built?", 0, 5, (1, -1, -1)])]
    assert coordinator.hear(2, [["built", 0, 5, "words"]]) == [([0], ["built", 5, "words"])]
    assert coordinator.hear(2, [["built", 3, 5, "words"]]) == []  # who asked is gone
    assert coordinator.hear(2, [["kept?", 1]]) == [
        ([2], ["kept?", 1, 0]),
        ([], ["built?", 2, 1, None]),
    ]  # it waits in none


KEPT = """
import logging
logged = []
handler = logging.Handler()
handler.emit = lambda record: logged.append(record.getMessage())
logging.getLogger("aiocuda.collective").addHandler(handler)
made = group()
x = ac.ones(3).sync()
kept = made.all_reduce(x) if rank == 1 else None  # which nobody executes
if rank == 1:
    tell("built")
    wait_for("heard")
    kept.sync(60)
else:
    wait_for("built")
    waits = made.all_reduce(x).submit()
    while "nobody has executed it" not in (words := made.waits_for()):
        pass
    made._members._others._kept_s = 0
    while not logged:
        time.sleep(0.005)
    say(words=words, logged=logged[0])
    tell("heard")
    waits.sync(60)
made.barrier().sync(60)
say(count=len(logged))
made.close()
"""


def test_a_call_that_a_rank_keeps_and_does_not_execute_is_named_to_those_who_wait(tmp_path):
    """By waits_for(), and once in the log; the call can still be executed."""
    first, second = run_ranks(KEPT, 2, tmp_path)
    assert (first.status, second.status) == (0, 0), first.errors + second.errors
    kept = r"rank 1 has built it at .*:\d+, and nobody has executed it"
    assert re.fullmatch(rf"call 2, all_reduce of float32\(3,\), sum: rank 1 has not called it; {kept}", first["words"])
    logged = rf"rank 0 has waited for 0 s in call 2, all_reduce of .*: {kept}; execute it there, or drop it"
    assert re.fullmatch(logged, first["logged"])
    assert first["count"] == 1
    assert second["count"] == 0


def test_a_rank_that_has_not_built_a_call_keeps_none(tmp_path):
    program = """
made = group()
if rank == 0:
    waits = made.barrier().submit()
    say(words=made.waits_for())
    tell("asked")
    waits.sync(60)
else:
    wait_for("asked")
    made.barrier().sync(60)
made.close()
"""
    first, second = run_ranks(program, 2, tmp_path)
    assert (first.status, second.status) == (0, 0), first.errors + second.errors
    assert first["words"].endswith("rank 1 has not called it")
