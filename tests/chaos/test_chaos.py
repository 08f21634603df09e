"""Nothing hangs, leaks or lies, whatever goes wrong on the device.

Each process (`chaos.py`) runs the property programs of `tests/ordering` under one plan of injected faults. Every wait
in it must end, every error be what that fault has to become, all memory come back on the devices that are left, and
what was read be right. `AIOCUDA_HYPOTHESIS=long` draws a thousand plans.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import settings

CHAOS = Path(__file__).with_name("chaos.py")
IS_LONG = settings().max_examples > 1000
WATCHDOG_S = 90.0
AT_ONCE = 3  # they wait more than they work
pytestmark = [pytest.mark.emulated_only, pytest.mark.needs_devices(2), pytest.mark.timeout(0 if IS_LONG else 180)]

# Faults that strike while the process is being set up, in the middle, and again and again; and faults that never end a
# program.
PLANS = [
    "alloc:1,alloc:2,launch:1,launch:3",
    "alloc:60,alloc:61,launch:40,launch:90@1",
    "seed:1:5,launch:20",
    "seed:2:15,launch:9,launch:25,alloc:90,alloc:91",
]
HARMLESS = "stall:30,stall:31,slow_copy:4,slow_copy:15,not_ready:3,not_ready:40,not_ready:41"
LOSSES = {
    "lost:1@0": {0},
    "lost:45@1": {1},
    "lost:160@0,seed:3:5": {0},
    "illegal:4@0": {0},
    "illegal:12@1": {1},
    "lost:60@0,illegal:30@1": {0, 1},
}


def run_chaos(plan: str, first: int, count: int = 15) -> dict[str, str]:
    """Run programs in a process of its own, and return what it counted."""
    done = subprocess.run(
        [sys.executable, str(CHAOS), str(first), str(count), str(WATCHDOG_S)],
        env={**os.environ, "AIOCUDA_EMULATOR_FAULTS": plan, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S + 30,
        check=False,
    )
    assert done.returncode == 0, f"AIOCUDA_EMULATOR_FAULTS={plan} chaos.py {first} {count}\n{done.stdout}{done.stderr}"
    return dict(pair.split("=") for pair in done.stdout.split())


@pytest.fixture(scope="module")
def found() -> Iterator[dict[str, Future[dict[str, str]]]]:
    """The final counts of the process of each plan; each plan has programs of its own."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        plans = enumerate([*PLANS, HARMLESS, *LOSSES])
        yield {plan: threads.submit(run_chaos, plan, 100 * number) for number, plan in plans}


@pytest.mark.parametrize("plan", PLANS)
def test_what_the_driver_refuses_ends_in_its_own_error_and_nothing_else_is_hurt(found, plan):
    counts = found[plan].result()
    assert int(counts["errors"]) > 0
    assert int(counts["hit"]) < int(counts["programs"])
    assert int(counts["reads"]) > 0
    assert counts["lost"] == "none"


def test_delays_and_spurious_answers_hit_nobody(found):
    counts = found[HARMLESS].result()
    assert (counts["hit"], counts["errors"], counts["lost"]) == ("0", "0", "none")
    assert int(counts["reads"]) > 0


@pytest.mark.parametrize("plan", LOSSES)
def test_a_lost_device_ends_its_work_and_the_process_goes_on_with_another(found, plan):
    lost, counts = LOSSES[plan], found[plan].result()
    assert counts["lost"] == ",".join(map(str, sorted(lost)))
    if len(lost) < 2:
        assert counts["programs"] == "15"
        assert int(counts["reads"]) > 0


@pytest.mark.skipif(not IS_LONG, reason="for a night's run")
def test_a_thousand_plans():
    def drawn(number: int) -> str:
        choose = random.Random(number)
        kinds = ["alloc", "launch", "stall", "slow_copy", "not_ready", "illegal", "lost"]
        faults = [
            f"{choose.choice(kinds)}:{int(10 ** choose.uniform(0, 3))}{choose.choice(['', '@0', '@1'])}"
            for _ in range(choose.randint(1, 5))
        ]
        if choose.random() < 0.5:
            faults.append(f"seed:{number}:{choose.randint(1, 30)}")
        return ",".join(faults)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(lambda number: run_chaos(drawn(number), 10_000 * number, 30), range(1000)))
