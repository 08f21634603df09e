"""Calls that one rank does not make: the others are told, and later calls do not take their place."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from ranks import run_ranks

pytest.importorskip("nccl.bindings")

# The process that made the id lives as long as the group.
END = """
tell(f"over{rank}")
for each in range(size):
    wait_for(f"over{each}")
g.close()
"""

PROGRAM = (
    """
g = group()
x = ac.ones(10).sync()
no = lambda: rank == 1 or EVERYBODY
def attempt(make):
    try:
        said.append(ac.to_host(make()).sync(60).tolist()[0])
    except (ac.ArgumentTypeError, ac.ArgumentValueError, ac.DeviceMismatchError) as error:
        said.append(type(error).__name__)
    except ac.errors.CollectiveError as error:
        said.append(str(error))
said = []
FIRST
attempt(lambda: g.all_reduce(x))
say(said=said)
"""
    + END
)

REFUSED = {
    "when built": "attempt(lambda: g.all_reduce(x, 'more' if no() else 'sum'))",
    "when executed": "attempt(lambda: g.all_reduce(ac.ones(10, 'bool') if no() else x))",
    "a form": "attempt(lambda: g.all_reduce(x, out=[x, x] if no() else x))",
    "an overlap": "attempt(lambda: g.all_reduce(x[:9], out=x[1:] if no() else ac.empty(9)))",
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_a_call_that_one_rank_refuses_fails_for_all(tmp_path, refused):
    program = PROGRAM.replace("FIRST", refused).replace("EVERYBODY", "False")
    zero, one = run_ranks(program, 2, tmp_path)
    assert [zero.status, one.status] == [0, 0], (zero, one)
    assert one["said"][0] in ("ArgumentTypeError", "ArgumentValueError")
    for error in (*zero["said"], one["said"][1]):
        assert "as call 2, rank 0 calls all_reduce of" in error, (zero, one)
        assert "rank 1 refuses its call (" in error


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_a_call_that_all_ranks_refuse_is_none(tmp_path, refused):
    program = PROGRAM.replace("FIRST", refused).replace("EVERYBODY", "True")
    for ended in run_ranks(program, 2, tmp_path):
        assert ended["said"][0] in ("ArgumentTypeError", "ArgumentValueError"), ended
        assert ended["said"][1:] == [2.0]


DROPPED = {
    "dropped": "made = g.all_reduce(x)\nif no(): del made\nelse: attempt(lambda: made)",
    "failed": "made = g.all_reduce(ac.ones(10).map(lambda y: 1 / 0) if no() else x)\n"
    "try: attempt(lambda: made)\nexcept ZeroDivisionError: pass",
}


@pytest.mark.parametrize("dropped", DROPPED.values(), ids=DROPPED)
def test_a_later_call_does_not_take_the_place_of_one_that_was_dropped(tmp_path, dropped):
    program = PROGRAM.replace("FIRST", dropped).replace("EVERYBODY", "False")
    for ended in run_ranks(program, 2, tmp_path):
        assert ended.status == 0, ended
        for error in ended["said"]:
            assert "as call 2, rank 0 calls all_reduce of float32(10,), sum, rank 1 has dropped it" in error, ended


@pytest.mark.parametrize("dropped", DROPPED.values(), ids=DROPPED)
def test_a_call_that_all_ranks_drop_is_none(tmp_path, dropped):
    program = PROGRAM.replace("FIRST", dropped).replace("EVERYBODY", "True")
    for ended in run_ranks(program, 2, tmp_path):
        assert ended["said"] == [2.0], ended


DROPPED_ALONE = (
    """
g = group()
x = ac.ones(10).sync()
made = g.all_reduce(ac.ones(10).map(lambda y: 1 / 0) if FAILS and rank == 1 else x)
try:
    if rank == 1:
        if FAILS:
            made.sync(60)
        del made
    else:
        made.sync(60)
except (ac.errors.CollectiveError, ZeroDivisionError) as error:
    say(error=str(error))
"""
    + END
)


@pytest.mark.parametrize("fails", [False, True], ids=["dropped", "failed"])
def test_a_call_that_a_rank_drops_is_told_though_it_makes_no_other_one(tmp_path, fails):
    """END closes the group behind the error of rank 0 alone."""
    zero, one = run_ranks(DROPPED_ALONE.replace("FAILS", str(fails)), 2, tmp_path)
    assert [zero.status, one.status] == [0, 0], (zero, one)
    told = "as call 2, rank 0 calls all_reduce of float32(10,), sum, rank 1 has dropped it, or it failed before"
    assert told in zero["error"]
    assert ("division by zero" in one["error"]) if fails else not one.said


LONG = (
    """
g = group()
x = ac.full((1000,) + (1,) * 25, rank + 1.0).sync()
lists = [x[n : n + 1] for n in range(1000)]
g.broadcast(lists)[0].sync(60)
say(last=ac.to_host(x).sync(60).flatten().tolist()[-1])
if rank == 1:
    lists[-1] = x[:0]  # nobody sees that at the beginning of the words
try:
    g.broadcast(lists)[0].sync(60)
except ac.errors.CollectiveError as error:
    say(error=str(error))
"""
    + END
)


def test_lists_of_thousands_of_arrays_are_compared(tmp_path):
    for ended in run_ranks(LONG, 2, tmp_path):
        assert ended["last"] == 1.0, ended
        assert "do not call the same: as call 3, rank 0 calls broadcast of float32(1, 1, 1" in ended["error"]
        assert ended["error"].count("sha256") == 2


CROSSING = (
    """
g = group()
x, y = ac.ones(10).sync(), ac.ones(4, "int32").sync()
made = [lambda: g.send(x, 1), lambda: BACK][rank]()
try:
    made.sync(60)
except ac.errors.CollectiveError as error:
    say(error=str(error))
"""
    + END
)


@pytest.mark.parametrize(
    ("back", "words"),
    [
        ("g.send(y, 0)", "a message of int32(4,) (message 1 from rank 1 to rank 0)"),
        ("g.all_reduce(y)", "all_reduce of int32(4,), sum (call 2)"),
    ],
    ids=["message", "collective"],
)
def test_calls_that_cross_are_both_named(tmp_path, back, words):
    for ended in run_ranks(CROSSING.replace("BACK", back), 2, tmp_path):
        assert "rank 0 calls a message of float32(10,) (message 1 from rank 0 to rank 1)" in ended["error"], ended
        assert f"rank 1 calls {words}" in ended["error"]


def test_a_call_that_one_rank_puts_into_a_graph_is_refused_at_once(tmp_path):
    """Whoever keeps the error keeps all that was called, so nothing is dropped."""
    program = """
g = group()
x = ac.ones(10).sync()
try:
    if rank == 1:
        g.all_reduce(x).graph()
    else:
        g.all_reduce(x).sync(60)
except (ac.CaptureError, ac.errors.CollectiveError) as error:
    kept = error
    say(error=str(error))
"""
    zero, one = run_ranks(program + END, 2, tmp_path)
    assert "cannot be part of a graph" in one["error"], (zero, one)
    assert (
        "as call 2, rank 0 calls all_reduce of float32(10,), sum, rank 1 refuses its call (CaptureError"
        in zero["error"]
    )
