"""The work of one collective grows with its arrays, and not with their square. Counted, without a device."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from instructions.run import counted

pytestmark = pytest.mark.skipif(
    shutil.which("valgrind") is None or shutil.which(os.environ.get("CXX", "c++")) is None,
    reason="valgrind counts the instructions, of a driver that a C++ compiler makes",
)


def test_forty_times_as_many_arrays_take_no_more_instructions_each(tmp_path):
    found = counted(tmp_path, "instructions.growth", "parts")
    few, some, many = (found[f"parts {size}"].instructions / size for size in (100, 1_000, 4_000))
    assert some < 1.2 * few, (few, some, many)
    assert many < 1.2 * few, (few, some, many)
