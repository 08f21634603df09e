"""The race oracle notices each wait between aiocuda and another library that is left out, as by a mutant.

The driver drops the n-th wait of the process (``AIOCUDA_EMULATOR_DROP_WAIT``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.emulated_only

HEAD = """
import gc, sys, types
sys.path.insert(0, {folder!r})
import aiocuda as ac, numpy as np
from aiocuda._driver.checking import take_race_reports
from framework import Framework, checked, driver
from framework_ops import Adapter
from torch_like import Torch

writes = ac.kernel(
    'extern "C" __global__ void writes(int* x, int n) {{ if (threadIdx.x < n) x[threadIdx.x] += 1; }}')
reads = ac.kernel('extern "C" __global__ void reads(const int* x, int* y, int n) '
                  '{{ if (threadIdx.x < n) y[threadIdx.x] += x[threadIdx.x]; }}')
holds = ac.kernel('extern "C" __global__ void holds(unsigned long long gate) '
                  '{{ while (*(volatile int*)gate == 0) {{}} }}')
gate = ac.empty_host(1, np.int32).sync()
gate.numpy()[0] = 0
a = ac.Device(0).stream()
x, y = ac.zeros(8, np.int32).sync(), ac.zeros(8, np.int32).sync()
framework = Framework()
op = Adapter(framework).op
b = ac.Device(0).stream()
with framework.device_current():
    framework.allocate(8)
    another = framework.stream()
ac.Device(0).synchronize().sync()
def write(x): writes(x, 8, threads=8).on(a).submit()
def read(x): reads(x, y, 8, threads=8).on(a).submit()
def hold(): holds(gate.address, grid=1, block=1).on(a).submit()
def hold_theirs(): checked(driver.cuStreamWaitValue32(framework.current, gate.address, 1, 0))
def shown(tensor):
    described = dict(shape=(8,), typestr="<i4", data=(tensor.address, False), version=3, stream=framework.current)
    return types.SimpleNamespace(__cuda_array_interface__=described, tensor=tensor)
"""
TAIL = """
gate.numpy()[0] = 1
ac.Device(0).synchronize().sync()
with framework.device_current(): checked(driver.cuCtxSynchronize())  # its streams, too
for report in take_race_reports(): print("RACE", report.first, "|", report.second)
"""

# The program, and what is told of each wait that is left out: a part of each operation's name; None where it is for
# something that this program does not have.
PROGRAMS = {
    "memory comes in by DLPack": ("write(ac.external(framework.full(8, 1)))", [("memset", "writes")] * 2),
    "memory comes in by the interface": (
        "write(ac.external(shown(framework.full(8, 1))))",
        [None, ("memset", "writes")],
    ),
    "memory comes in for a reader": ("read(ac.external(framework.full(8, 1)))", [("memset", "reads")] * 2),
    "memory goes out behind a write": (
        "hold(); write(x)\nt = framework.from_dlpack(x).fill_(3)",
        [("writes", "memset")],
    ),
    "memory goes out behind a read": (
        "hold(); read(x)\nt = framework.from_dlpack(x).fill_(3)",
        [("reads", "memset")],
    ),
    "a second borrower comes": (
        "hold_theirs(); framework.from_dlpack(x).fill_(3)\n"
        "with framework.using(another): framework.from_dlpack(x).fill_(4)",
        [None, ("memset", "memset")],
    ),
    "a use while a borrow lives": (
        "hold_theirs(); t = framework.from_dlpack(x).fill_(3)\nwrite(x)",
        [None, ("memset", "writes")],
    ),
    "a use when a borrow has ended": (
        "hold_theirs(); framework.from_dlpack(x).fill_(3)\nread(x)",
        [None, ("memset", "reads")],
    ),
    "memory is freed behind a borrow": (
        "hold_theirs(); framework.from_dlpack(x).fill_(3)\ndel x; gc.collect(); ac.zeros(1).sync()",
        [("memset", "free")],
    ),
    "a tensor behind its framework's stream": (
        "torch = Torch(has_exchange=True); sys.modules['torch'] = torch.module\nt = torch.tensor(1, 8)\nwrite(t)",
        [None, ("memset", "writes")],
    ),
    "a framework behind an operation of its tensor": (
        "torch = Torch(has_exchange=True); sys.modules['torch'] = torch.module\nt = torch.tensor(1, 8)\n"
        "hold(); write(t)\nt.fill_(3)",
        [None, None, ("writes", "memset")],
    ),
    "a function behind its framework's stream": (
        "t = framework.full(8, 1)\nop(lambda: t.fill_(2)).on(a).submit()",
        [("memset", "memset")],
    ),
    "a function behind who writes its argument": (
        "hold(); write(x)\nop(lambda t: t.fill_(2), x, writes=[x]).on(b).submit()",
        [("writes", "memset"), None],
    ),
    "a use of what a function has returned": (
        "hold(); made = op(lambda: framework.full(8, 1)).on(a)\nwrites(made, 8, threads=8).on(b).submit()",
        [None, ("memset", "writes")],
    ),
    "a write of what a function reads": (
        "hold(); op(lambda t: framework.full(8, 1).copy_(t), x).on(a).submit()\nwrites(x, 8, threads=8).on(b).submit()",
        [None, ("a copy", "writes")],
    ),
    "another call of a function": (
        "def fills(): t.fill_(2)\nt = framework.full(8, 1); hold(); op(fills).on(a).submit(); op(fills).on(b).submit()",
        [("memset", "memset"), ("memset", "memset"), None],
    ),
    "a graph behind the framework's stream": (
        "t = framework.full(8, 1)\ngraph = op(lambda: t.fill_(2) and None).graph()\ngraph.launch().on(b).submit()",
        [None, None],
    ),
}


@pytest.fixture
def reports(in_process: Callable[..., Any]) -> Callable[..., list[tuple[str, ...]]]:
    def run(program: str, **environment: str) -> list[tuple[str, ...]]:
        head = HEAD.format(folder=str(Path(__file__).parent))
        ended = in_process(head + program + TAIL, AIOCUDA_EMULATOR_CHECK="races", **environment)
        assert ended.returncode == 0, ended.stderr
        lines = [line for line in ended.stdout.splitlines() if line.startswith("RACE ")]
        return [tuple(line.removeprefix("RACE ").split(" | ")) for line in lines]

    return run


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_reported_as_it_is(reports, name):
    for seed in ("1", "2"):
        assert reports(PROGRAMS[name][0], AIOCUDA_EMULATOR_SHUFFLE=seed) == []


@pytest.mark.parametrize(
    ("name", "dropped"), [(name, n) for name, (_, told) in PROGRAMS.items() for n, each in enumerate(told) if each]
)
def test_a_wait_that_is_left_out_is_reported(reports, name, dropped):
    program, told = PROGRAMS[name]
    found = reports(program, AIOCUDA_EMULATOR_DROP_WAIT=str(dropped + 1))
    first, second = told[dropped]
    assert any(first in pair[0] and second in pair[1] for pair in found), found
