"""The generics say what they should: mypy checks a program, and the package itself, strictly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="mypy comes with the group `check`")

ROOT = Path(__file__).parents[2]


def test_generics_are_what_users_should_see(tmp_path_factory):
    # The package's own cache is not touched: this one keeps nothing in the checkout.
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml")),
            *("--cache-dir", str(tmp_path_factory.mktemp("mypy")), "--no-error-summary"),
            str(Path(__file__).with_name("typed_program.py")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout + done.stderr == ""
    assert done.returncode == 0
