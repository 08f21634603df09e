"""Runs of ``aiocuda bench``, each in a process of its own, and what they write."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aiocuda", "bench", *arguments],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def run_whole(directory: Path, *command: str) -> tuple[str, Path]:
    """Run everything: give what it printed, and where it wrote the rest."""
    written = [option for kind in ("csv", "json", "plot") for option in (f"--{kind}", str(directory / kind))]
    done = bench(*command, "--quick", *written)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout, directory


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
