"""What the modules of this folder share; they import one another by their names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import aiocuda as ac

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

RANDOM_PROGRAMS = """
import sys
sys.path.insert(0, {folder!r})
import aiocuda as ac
from aiocuda._driver.checking import take_race_reports
{setup}
for seed in range({first}, {first} + 15):
    {run}
    for report in take_race_reports(): print("RACE", seed, report.first, "|", report.second)
"""


@pytest.fixture(params=[True, False], ids=["exchange", "python"])
def torch(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Give a stand-in for PyTorch, imported: of a version with DLPack's exchange in C, and of one before."""
    from torch_like import Torch, close

    made = Torch(has_exchange=request.param)
    with made.imported():
        yield made
    close(made)


@pytest.fixture
def held(latch: Any) -> ac.Stream:
    """Give a stream that is at a standstill until the latch is released."""
    stream = ac.Device(0).stream()
    latch.hold(stream)
    return stream


@pytest.fixture
def run_random_programs(in_process: Callable[..., Any]) -> Callable[[str, str, int], tuple[int, str, str]]:
    """Run 15 random programs, `run` for each seed, where races are looked for; return how that ended, and its words."""

    def run_all(setup: str, run: str, shuffle: int) -> tuple[int, str, str]:
        program = RANDOM_PROGRAMS.format(folder=str(FOLDER), setup=setup, run=run, first=100 * shuffle)
        ended = in_process(program, AIOCUDA_EMULATOR_CHECK="races", AIOCUDA_EMULATOR_SHUFFLE=str(shuffle))
        return ended.returncode, ended.stdout, ended.stderr

    return run_all
