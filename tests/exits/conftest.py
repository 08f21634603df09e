"""Programs that end while other threads use aiocuda."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

# `endlessly(turn)`: starts daemon threads that call `turn` for ever, and returns when each has come round some times.
START = """
import asyncio, atexit, concurrent.futures, multiprocessing, os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs in the background ignores it
import numpy as np
import aiocuda as ac

hold = ac.kernel('''extern "C" __global__ void hold(unsigned long long flag) {
    while (*(volatile int*)flag == 0) {}
}''')
flag = ac.empty_host(1, np.int32).sync()
flag.numpy()[0] = 0
hold.compile()

def hung():
    "An operation that never ends."
    return hold(flag.address, grid=1, block=1)

def thread(function):
    begun = threading.Thread(target=function, daemon=True)
    begun.start()
    return begun

def endlessly(turn, threads=2, turns=20):
    come_round = threading.Semaphore(0)
    def go_on():
        while True:
            turn()
            come_round.release()
    for _ in range(threads): thread(go_on)
    for _ in range(threads * turns): come_round.acquire()
"""


@pytest.fixture
def begin() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a program, after `START`, with this process' driver; `first` comes before all else."""
    begun: list[subprocess.Popen[str]] = []

    def start(program: str, first: str = "") -> subprocess.Popen[str]:
        source = textwrap.dedent(first) + START + textwrap.dedent(program)
        process = subprocess.Popen(
            [sys.executable, "-c", source],
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        begun.append(process)
        return process

    yield start
    for each in begun:
        each.kill()
        with each:  # waits for it, and closes its pipes
            pass
