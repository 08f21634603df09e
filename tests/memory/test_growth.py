"""Programs that run for long: round after round leaves everything where it was, except for the caches of others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROUNDS, WINDOWS = 12, 5
# Python keeps the names of attributes in a cache of 4,096; glibc does not always merge what was freed.
MOST_BY_ROUND = {"blocks of Python": 100, "bytes of C++": 1000}


@pytest.fixture(scope="module")
def grown() -> dict[str, int]:
    """By how much each count grew in the window of rounds in which it grew least."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("growing.py"), str(ROUNDS), str(WINDOWS)],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_rounds_of_a_mixed_program_leave_nothing_behind(grown):
    assert {name: n for name, n in grown.items() if n >= ROUNDS * MOST_BY_ROUND.get(name, 1)} == {}


def test_what_passes_for_a_round_is_less_than_one_of_anything(grown):
    """One file, thread, stream or object that is left now and then is found as well, where it cannot be a cache's."""
    exact = ("files", "threads", "submissions in flight", "pending waits", "staging threads", "memory of", "streams of")
    assert {name: n for name, n in grown.items() if name.startswith(exact)} == {}


@pytest.mark.parametrize("asked", ["ac.Device(0)", "ac.Device(0).default_stream"])
def test_waits_for_streams_alone_leave_nothing_behind(in_process, asked):
    done = in_process(
        f"""
        import ctypes, gc
        import aiocuda as ac
        class Mallinfo2(ctypes.Structure):
            _fields_ = [("unused", ctypes.c_size_t * 7), ("uordblks", ctypes.c_size_t), ("others", ctypes.c_size_t * 2)]
        libc = ctypes.CDLL(None)
        libc.mallinfo2.restype = Mallinfo2
        ac.ones(4).sync()
        used = []
        for _ in range(4):
            for _ in range(1000):
                {asked}.synchronize().sync()
            gc.collect()
            used.append(libc.mallinfo2().uordblks)
        print(min(after - before for before, after in zip(used, used[1:])))
        """
    )
    assert int(done.stdout) < 16_000
