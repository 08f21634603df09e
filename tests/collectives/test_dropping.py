"""Groups that are dropped, and neither closed nor aborted: what is let go of, when, and what others hear."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aiocuda as ac
from aiocuda import _native
from aiocuda._driver import nccl
from aiocuda.collective import Group

sys.path.insert(0, str(Path(__file__).parent))
from ranks import run_ranks

pytest.importorskip("nccl.bindings")
pytestmark = pytest.mark.needs_devices(2)

TIMEOUT_S = 60
DROPPED = "a group of 2 ranks was dropped, and neither closed nor aborted"


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Rises for each group whose communicators NCCL has destroyed or aborted."""
    rises = threading.Semaphore(0)
    for each in ("abort", "destroy"):
        end = getattr(nccl.Communicators, each)

        def noted(self: nccl.Communicators, end: Callable[[Any], None] = end) -> None:
            end(self)
            rises.release()

        monkeypatch.setattr(nccl.Communicators, each, noted)
    return rises


def collect() -> None:
    """Let go of what the devices have passed, and of what nobody has."""
    for each in range(2):
        ac.Device(each).synchronize().sync(TIMEOUT_S)
    _native.collect()
    gc.collect()


def drop(held: list[Any]) -> None:
    """Drop what a list holds, which nobody else has."""
    held.clear()
    collect()


def used() -> tuple[list[Any], Any]:
    """Return a list with a group that has worked, and a weak reference to its ranks."""
    group = Group.local([0, 1])
    sums = group.all_reduce([ac.ones(3, device=each) for each in range(2)])
    assert [ac.to_host(each).sync(TIMEOUT_S).tolist() for each in sums] == [[2.0] * 3] * 2
    return [group], weakref.ref(group._members)


def test_a_dropped_group_is_let_go_of_and_a_warning_says_so(ended):
    held, members = used()
    with pytest.warns(ResourceWarning, match=DROPPED):
        drop(held)
    assert ended.acquire(timeout=TIMEOUT_S)
    while members() is not None:  # the threads that had it end
        gc.collect()


def test_an_operation_keeps_its_group_until_it_has_run(ended):
    held, members = used()
    sums = held[0].all_reduce([ac.ones(3, device=each) for each in range(2)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drop(held)
        assert not members().has_ended
    with pytest.warns(ResourceWarning, match=DROPPED):
        assert [ac.to_host(each).sync(TIMEOUT_S).tolist() for each in sums] == [[2.0] * 3] * 2
    assert ended.acquire(timeout=TIMEOUT_S)


def test_what_a_dropped_group_has_written_stays_well(ended):
    held, _ = used()
    x = [ac.full(3, 2.0, device=each).sync() for each in range(2)]
    held[0].all_reduce(x, out=x)[0].submit()
    with pytest.warns(ResourceWarning, match=DROPPED):
        drop(held)
    assert ended.acquire(timeout=TIMEOUT_S)
    assert [ac.to_host(each).sync(TIMEOUT_S).tolist() for each in x] == [[4.0] * 3] * 2


@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_group_that_has_ended_is_dropped_without_a_word(end: str):
    held, _ = used()
    getattr(held[0], end)()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drop(held)


def test_who_drops_a_group_waits_for_no_lock(ended):
    """A finalizer may come in the middle of anything, on a thread that has the locks itself."""
    held, members = used()
    collect()
    ranks = members()
    with ranks._lock, ranks._watch._changed, pytest.warns(ResourceWarning, match=DROPPED):
        held.clear()
    assert ended.acquire(timeout=TIMEOUT_S)


def test_a_group_that_is_there_at_the_end_of_the_interpreter_ends_with_it():
    program = (
        "import warnings; warnings.simplefilter('error', ResourceWarning)\n"
        "from aiocuda.collective import Group\n"
        "group = Group.local([0, 1]); group.barrier().sync(60); group.itself = group\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert not {"ResourceWarning", "Traceback", "Exception"} & set(done.stderr.replace(":", " ").split()), done.stderr


DROPS = """
x = ac.ones(3).sync()
made = group()
made.all_reduce(x, out=x).sync(60)
if rank == 1:
    import gc, warnings, weakref
    warnings.simplefilter("ignore")
    members = weakref.ref(made._members)
    del made
    while members() is not None:
        ac.Device(0).synchronize().sync(60)
        ac._native.collect()
        gc.collect()
    tell("dropped")
    wait_for("heard")
else:
    wait_for("dropped")
    try:
        made.all_reduce(x).sync(60)
    except ac.errors.CollectiveError as error:
        say(error=str(error))
    tell("heard")
    made.close()
"""


def test_other_ranks_that_call_fail_at_once(tmp_path):
    first, second = run_ranks(DROPS, 2, tmp_path)
    assert (first.status, second.status) == (0, 0), first.errors + second.errors
    assert "rank 1 has closed the group" in first["error"]
