"""Random programs of aiocuda's operations and those of two frameworks give what they mean, without a race."""

from __future__ import annotations

import pytest
from framework_programs import run_program

SETUP = """
from framework_programs import run_program
increment = ac.kernel('extern "C" __global__ void increment(int* x, unsigned n) '
                      '{ unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += 1; }')
"""


@pytest.mark.parametrize("seed", range(12))
def test_a_random_program_gives_what_it_means(kernels, seed):
    run_program(seed, kernels.increment, steps=60)


@pytest.mark.emulated_only
@pytest.mark.parametrize("shuffle", [1, 2, 3])
def test_random_programs_race_nowhere(run_random_programs, shuffle):
    assert run_random_programs(SETUP, "run_program(seed, increment)", shuffle) == (0, "", "")
