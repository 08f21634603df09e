"""Tests of how the tests are run: a folder of tests is run with the settings of these."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def report_of() -> Callable[..., str]:
    """Run the tests of a folder, with more arguments if need be; return what pytest says of each."""

    def run(folder: Path, *arguments: str) -> str:
        for name in ("conftest.py", "xdist_files.py"):
            shutil.copy(TESTS / name, folder)
        settings = ("-rA", "-p", "no:cacheprovider", "-c", str(TESTS.parent / "pyproject.toml"))
        outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *settings, *arguments, folder],
            env={**outside, "COLUMNS": "999"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        return done.stdout + done.stderr

    return run
