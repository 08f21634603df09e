"""The oracle notices when the engine leaves out a wait: each kind of wait is left out, and reported.

The driver drops the n-th wait of the process (``AIOCUDA_EMULATOR_DROP_WAIT``), just as a mutant of the engine without
that wait would.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.emulated_only

HEAD = """
import aiocuda as ac, gc, numpy as np
from aiocuda._driver.checking import take_race_reports

reads = ac.kernel(
    'extern "C" __global__ void reads(const int* x, int* y, int n) '
    '{ if (threadIdx.x < n) y[threadIdx.x] += x[threadIdx.x]; }')
writes = ac.kernel(
    'extern "C" __global__ void writes(int* x, int n) { if (threadIdx.x < n) x[threadIdx.x] += 1; }')
holds = ac.kernel('extern "C" __global__ void holds(unsigned long long gate) { while (*(volatile int*)gate == 0) {} }')
gate = ac.empty_host(1, np.int32).sync()
gate.numpy()[0] = 0
device = ac.Device(0)
a, b, c = device.stream(), device.stream(), device.stream()
x, y = ac.zeros(8, np.int32).sync(), ac.zeros(8, np.int32).sync()
device.synchronize().sync()
def read(x, y): return reads(x, y, 8, threads=8)
def write(x, n=8): return writes(x, n, threads=8)
def hold(*streams):  # for what has passed when it is asked about needs no wait
    for stream in streams: holds(gate.address, grid=1, block=1).on(stream).submit()
"""
TAIL = """
gate.numpy()[0] = 1
for device in ac.devices(): device.synchronize().sync()
for report in take_race_reports(): print("RACE", report.first, "|", report.second)
"""

# The program, how many waits it needs, and what is told of each that is left out: a part of each operation's name.
PROGRAMS = {
    "read after write": ("hold(a); write(x).on(a).submit(); read(x, y).on(b).submit()", [("writes", "reads")]),
    "write after read": ("hold(a); read(x, y).on(a).submit(); write(x).on(b).submit()", [("reads", "writes")]),
    "write after write": ("hold(a); write(x).on(a).submit(); write(x).on(b).submit()", [("writes", "writes")]),
    "write after each of two readers": (
        "z = ac.zeros(8, np.int32).on(b).sync(); hold(a, b); read(x, y).on(a).submit(); read(x, z).on(b).submit()\n"
        "write(x).on(c).submit()",
        [("reads", "writes"), ("reads", "writes")],
    ),
    "slices that overlap": (
        "hold(a); write(x[:5], 5).on(a).submit(); write(x[4:], 4).on(b).submit()",
        [("writes", "writes")],
    ),
    "a fork and its join": (
        "policy = ac.Dataflow(4); hold(*policy.streams(0))\n"
        "with ac.use(policy):\n"
        "    top = write(x)\n"
        "    read(read(top, y), read(top, ac.zeros(8, np.int32))).submit()",
        [("writes", "reads"), ("", "free")],  # of what the join's other branch made
    ),
    "a copy": ("hold(a); write(x).on(a).submit(); ac.copy(y, x).on(b).submit()", [("writes", "copy")]),
    "a copy to another device": ("hold(a); write(x).on(a).submit(); x.to(1).submit()", [("writes", "copy")]),
    "a new array on another stream": (
        "hold(a); n = ac.zeros(8, np.int32).on(a); n.submit(); write(n).on(b).submit()",
        [("", "writes")],
    ),
    "a free behind two users": (
        "z = ac.zeros(8, np.int32).sync(); device.synchronize().sync()\n"
        "hold(a, b); read(z, x).on(a).submit(); read(z, y).on(b).submit()\n"
        "del z; gc.collect(); ac.zeros(1).sync()",
        [("reads", "free"), ("reads", "free")],
    ),
    "foreign work": (
        "from cuda.bindings import driver\n"
        "def fill(stream, x): assert driver.cuMemsetD32Async(x.address, 7, 8, stream.handle)[0] == 0\n"
        "hold(a); read(x, y).on(a).submit(); ac.call(fill, x, writes=[x]).on(b).submit()",
        [("reads", "memset")],
    ),
}


@pytest.fixture
def reports(in_process: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., list[tuple[str, ...]]]:
    def run(program: str, **environment: str) -> list[tuple[str, ...]]:
        ended = in_process(HEAD + program + TAIL, AIOCUDA_EMULATOR_CHECK="races", **environment)
        assert ended.returncode == 0, ended.stderr
        lines = [line for line in ended.stdout.splitlines() if line.startswith("RACE ")]
        return [tuple(line.removeprefix("RACE ").split(" | ")) for line in lines]

    return run


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_reported_of_the_engine_as_it_is(reports, name):
    for seed in ("1", "2"):
        assert reports(PROGRAMS[name][0], AIOCUDA_EMULATOR_SHUFFLE=seed) == []


@pytest.mark.parametrize(
    ("name", "dropped"), [(name, n) for name, (_, told) in PROGRAMS.items() for n in range(len(told))]
)
def test_a_wait_that_is_left_out_is_reported(reports, name, dropped):
    program, told = PROGRAMS[name]
    found = reports(program, AIOCUDA_EMULATOR_DROP_WAIT=str(dropped + 1))
    first, second = told[dropped]
    assert any(first in pair[0] and second in pair[1] for pair in found), found
