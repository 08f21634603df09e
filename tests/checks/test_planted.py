"""The checks within kernels find each planted bug at its line, and nothing in correct kernels.

The kernels are those of `planted.cu`. They run in a few processes, shared by the tests that look at what was found.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
try:
    from lines import marked_lines
    from planted import CASES, CLEAN, CORRECT
finally:
    sys.path.pop(0)

pytestmark = pytest.mark.emulated_only

PLANTED = Path(__file__).with_name("planted.py")
LINES = marked_lines()
# Each of these breaks its context, which is what a GPU does, too. So each has a process of its own.
BREAK = {
    "use_after_free": "CUDA_ERROR_ILLEGAL_ADDRESS",
    "vote_without_own_lane": "CUDA_ERROR_LAUNCH_FAILED",
}
ALONE = {*BREAK, "shared_not_requested"}
TOGETHER = (*(name for name in CASES if name not in ALONE), *CLEAN, *CORRECT)


def run(names: tuple[str, ...], checks: str) -> tuple[dict[str, Any], str]:
    """Return what the program printed of each kernel, by its name, and its standard error."""
    done = subprocess.run(
        [sys.executable, PLANTED, *names],
        env={**os.environ, "AIOCUDA_DRIVER": "emulated", "AIOCUDA_EMULATOR_CHECK": checks},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {each["name"]: each for each in map(json.loads, done.stdout.splitlines())}, done.stderr


@cache
def outcome(name: str) -> tuple[dict[str, Any], str]:
    """What one kernel did and was reported for, with every check on, and the process's standard error."""
    results, stderr = run((name,), "memory,races,init,sync") if name in ALONE else together()
    return results[name], stderr


@cache
def together() -> tuple[dict[str, Any], str]:
    return run(TOGETHER, "memory,races,init,sync")


@pytest.mark.parametrize("name", CASES)
def test_a_planted_bug_is_reported_at_its_line(name: str) -> None:
    result, stderr = outcome(name)
    bug = LINES[name]["bug"]
    also = LINES[name].get("also", bug)
    found = [each for each in result["reports"] if each["check"] == CASES[name].check]
    lines = {each["line"] for each in found}
    assert lines & {bug, also}, result
    for each in found:
        assert each["kernel"] == name
        assert each["file"] == "planted.cu"
        assert f"kernel {name}, planted.cu:{each['line']}, block (" in each["message"]
        assert each["message"].split(" (and ")[0] in stderr
    if CASES[name].check == "races":  # with its other access
        message = found[0]["message"]
        assert message.count("thread (") == 2
        assert re.search(rf" at planted\.cu:({bug}|{also}), and nothing orders the two", message), message


@pytest.mark.parametrize("name", [*CLEAN, *CORRECT])
def test_a_correct_kernel_is_not_reported(name: str) -> None:
    result, _ = outcome(name)
    assert result["status"] == "CUDA_SUCCESS"
    assert result["reports"] == []


@pytest.mark.parametrize(("name", "status"), BREAK.items())
def test_what_breaks_a_context_still_breaks_it(name: str, status: str) -> None:
    assert outcome(name)[0]["status"] == status


MEMORY = {
    "overrun_of_global": "0 bytes behind an allocation of 400 bytes",
    "overrun_of_static_shared": "offset 128 of the shared variable overrun_of_static_shared::s of 128 bytes",
    "overrun_of_dynamic_shared": "offset 128 of dynamic shared memory, of which the launch asked for 128 bytes",
    "shared_not_requested": "of which the launch asked for none",
    "use_after_free": "offset 0 of an allocation of 400 bytes",
    "use_after_pool_free": "offset 0 of an allocation of 400 bytes",
    "race_between_blocks": "offset 0 of an allocation of 400 bytes",
    "uninitialised_global": "offset 0 of an allocation of 400 bytes",
    "uninitialised_shared": "of the shared variable uninitialised_shared::s of 256 bytes",
}


@pytest.mark.parametrize(("name", "memory"), MEMORY.items())
def test_a_report_says_which_memory_it_is_about(name: str, memory: str) -> None:
    found = [each for each in outcome(name)[0]["reports"] if each["check"] == CASES[name].check]
    assert memory in found[0]["memory"]


def test_a_report_names_the_thread() -> None:
    (overrun,) = outcome("overrun_of_global")[0]["reports"]
    assert (overrun["block"], overrun["thread"]) == ([1, 0, 0], [36, 0, 0])  # 1 * 64 + 36 is 100
    (shuffle,) = outcome("shuffle_outside_mask")[0]["reports"]
    assert shuffle["thread"] == [8, 0, 0]  # the first lane that reads from lane 16 or higher
    assert shuffle["count"] == 8


def test_only_the_checks_asked_for_are_made() -> None:
    names = ("overrun_of_global", "race_between_blocks", "uninitialised_shared", "barrier_after_return")
    for check, bug in zip(("memory", "races", "init", "sync"), names, strict=True):
        results, _ = run(names, check)
        assert {name for name, each in results.items() if each["reports"]} == {bug}, check
