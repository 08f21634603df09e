"""Tests that end the process that runs them: each fails, once, and all others are run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("xdist")

TESTS = Path(__file__).parents[1]
FILES = 24
ENDING = {3: 0, 9: 1, 10: 0, 17: 1}  # by file: which of its tests


def test_each_fails_and_all_others_are_run(tmp_path):
    for name in ("conftest.py", "xdist_files.py"):
        shutil.copy(TESTS / name, tmp_path)
    expected = {}
    for file in range(FILES):
        text = "import os\n"
        for test in range(1 + file % 4):
            ends = ENDING.get(file) == test
            text += f"def test_{test}():\n    {'os._exit(3)' if ends else 'pass'}\n"
            expected[f"test_file{file}.py::test_{test}"] = "FAILED" if ends else "PASSED"
        (tmp_path / f"test_file{file}.py").write_text(text)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "-c", TESTS.parent / "pyproject.toml"),
            *("-n", "2", "--dist", "loadfile", tmp_path),
        ],
        env={**{name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}, "COLUMNS": "999"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    found = re.findall(r"^(PASSED|FAILED|ERROR) (?:\S*/)?(test_file\S+)", done.stdout, re.MULTILINE)
    assert {name: outcome for outcome, name in found} == expected, done.stdout + done.stderr
    assert len(found) == len(expected)
