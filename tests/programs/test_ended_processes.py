"""Tests that end the process that runs them: each fails, once, and all others are run."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("xdist")

FILES = 24
ENDING = {3: 0, 9: 1, 10: 0, 17: 1}  # by file: which of its tests


def test_each_fails_and_all_others_are_run(tmp_path, report_of):
    expected = {}
    for file in range(FILES):
        text = "import os\n"
        for test in range(1 + file % 4):
            ends = ENDING.get(file) == test
            text += f"def test_{test}():\n    {'os._exit(3)' if ends else 'pass'}\n"
            expected[f"test_file{file}.py::test_{test}"] = "FAILED" if ends else "PASSED"
        (tmp_path / f"test_file{file}.py").write_text(text)
    report = report_of(tmp_path, "-n", "2", "--dist", "loadfile")
    found = re.findall(r"^(PASSED|FAILED|ERROR) (?:\S*/)?(test_file\S+)", report, re.MULTILINE)
    assert {name: outcome for outcome, name in found} == expected, report
    assert len(found) == len(expected)
