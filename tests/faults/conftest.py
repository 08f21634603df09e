"""Programs that lose a device, each in a process of its own."""

from __future__ import annotations

import textwrap

import pytest

PRELUDE = """
import asyncio, gc, sys, threading
import numpy as np
import aiocuda as ac

SOURCE = r'''
extern "C" __global__ void illegal(int* x, unsigned long long far) { x[far] = 1; }
extern "C" __global__ void trap(int* x) { __trap(); }
extern "C" __global__ void assertion(int* x) { assert(x[0] == 12345); }
extern "C" __global__ void increment(int* x) { x[0] += 1; }
extern "C" __global__ void hold(unsigned long long flag) { while (*(volatile int*)flag == 0) {} }
'''
k = {name: ac.kernel(SOURCE, name) for name in ("illegal", "trap", "assertion", "increment", "hold")}
for kernel in k.values():
    for device in ac.devices():
        kernel.compile(device)
FAR = 1 << 40

def illegal(x=None):
    return k["illegal"](ac.zeros(4, np.int32) if x is None else x, FAR, grid=1, block=1)

def refused(call):
    try:
        call()
    except ac.DeviceLostError:
        return
    raise AssertionError("the device is not lost")

class Latch:
    def __init__(self):
        self.flag = ac.empty_host(1, np.int32).sync()
        self.view = self.flag.numpy()
        self.view[0] = 0
        k["hold"](self.flag.address, grid=1, block=1).submit()
    def release(self):
        self.view[0] = 1
"""


@pytest.fixture
def broken(in_process):
    """Run a program that ends with ``end``, whatever became of its devices; it writes nothing to stderr."""

    def run_program(program: str, **environment: str) -> str:
        done = in_process(PRELUDE + textwrap.dedent(program) + "\nprint('end', flush=True)", **environment)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "end", done.stdout + done.stderr
        return done.stdout

    return run_program
