"""The emulated driver's own check of races over local groups; and that it would see what is forgotten."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import aiocuda as ac

sys.path.insert(0, str(Path(__file__).parent))
from ranks import run_ranks

pytest.importorskip("nccl.bindings")
pytestmark = pytest.mark.skipif(not ac.Device(0).is_emulated, reason="only the emulated driver looks for races")

PROGRAM = """
from aiocuda import _native
from aiocuda._driver import checking
MUTATION
g = Group.local([0, 1, 2])
rng = random.Random(SEED)
xs = [[ac.full(64, 1.0, device=d).sync() for _ in range(3)] for d in range(3)]
for turn in range(30):
    n = rng.randrange(3)
    row = [xs[d][n] for d in range(3)]
    match rng.randrange(5):
        case 0:
            ac.fill(row[rng.randrange(3)], turn).submit()
        case 1:
            g.all_reduce(row, "max", out=row)[0].submit()
        case 2:
            g.broadcast(row, rng.randrange(3))[1].submit()
        case 3:
            g.all_reduce(row, out=[xs[d][(n + 1) % 3] for d in range(3)])[2].submit()
        case 4:
            ac.to_host(row[rng.randrange(3)]).submit()
for d in range(3):
    ac.Device(d).synchronize().sync(60)
say(races=[str(each) for each in checking.take_race_reports()])
"""
FORGOTTEN = """
order = _native.StreamEvents.order
def forgetful(self, after, before):
    if FORGETS:
        return
    order(self, after, before)
_native.StreamEvents.order = forgetful
"""


def races(tmp_path: Path, seed: int, mutation: str = "") -> list[str]:
    program = PROGRAM.replace("MUTATION", mutation).replace("SEED", str(seed))
    environment = {
        "AIOCUDA_EMULATED_DEVICES": "3",
        "AIOCUDA_EMULATOR_CHECK": "races",
        "AIOCUDA_EMULATOR_SHUFFLE": str(seed),
    }
    (ended,) = run_ranks(program, 1, tmp_path, environment)
    assert ended.status == 0, ended
    return ended["races"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_collectives_race_with_nothing(tmp_path, seed):
    assert races(tmp_path, seed) == []


@pytest.mark.parametrize("forgets", ["self.device == 0", "self.device != 0"], ids=["before", "behind"])
def test_a_wait_that_is_forgotten_is_a_race(tmp_path, forgets):
    mutation = FORGOTTEN.replace("FORGETS", forgets)
    # Where the host comes late, it may have seen the end of what the other stream was to wait for.
    assert any("NCCL" in each for seed in (1, 2, 3) for each in races(tmp_path, seed, mutation))
