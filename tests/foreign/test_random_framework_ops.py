"""Random programs of aiocuda's operations and those of two frameworks give what they mean, without a race."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from framework_programs import run_program

PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
import aiocuda as ac
from aiocuda._driver.checking import take_race_reports
from framework_programs import run_program
increment = ac.kernel('extern "C" __global__ void increment(int* x, unsigned n) '
                      '{{ unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += 1; }}')
for seed in range({first}, {first} + 15):
    run_program(seed, increment)
    for report in take_race_reports(): print("RACE", seed, report.first, "|", report.second)
"""


@pytest.mark.parametrize("seed", range(12))
def test_a_random_program_gives_what_it_means(kernels, seed):
    run_program(seed, kernels.increment, steps=60)


@pytest.mark.emulated_only
@pytest.mark.parametrize("shuffle", [1, 2, 3])
def test_random_programs_race_nowhere(in_process: Callable[..., Any], shuffle):
    program = PROGRAM.format(folder=str(Path(__file__).parent), first=100 * shuffle)
    ended = in_process(program, AIOCUDA_EMULATOR_CHECK="races", AIOCUDA_EMULATOR_SHUFFLE=str(shuffle))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
