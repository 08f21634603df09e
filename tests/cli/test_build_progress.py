"""What `make` shows while the package is built."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "cmake" / "build_progress.py"
STEPS = "print('[0/0]'); [print(f'[{i}/8] Building CXX object {i}') for i in range(1, 9)]"


def command(program: str) -> list[str]:
    return [sys.executable, str(SCRIPT), "building", sys.executable, "-c", program]


def test_each_quarter_is_a_line_of_a_file() -> None:
    done = subprocess.run(command(STEPS), capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "building"
    assert [each.rpartition(",")[0] for each in lines[1:]] == [f"building: {i} of 8 steps" for i in (2, 4, 6, 8)]
    assert done.stderr == ""


def test_a_terminal_has_one_line_that_is_written_again() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(command(STEPS), stdout=theirs, stderr=theirs) as run:
        os.close(theirs)
        written = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # Linux says so when the other end is closed
                break
            if not part:
                break
            written += part
        assert run.wait(60) == 0
    os.close(ours)
    text = written.decode()
    assert text.count("\n") == 1
    assert [f"\rbuilding: {i} of 8 steps" in text for i in range(1, 9)] == [True] * 8


def test_of_a_build_that_fails_all_is_shown_and_its_status_is_the_status() -> None:
    program = f"{STEPS}\nimport sys; print('error: no such type', file=sys.stderr); sys.exit(3)"
    done = subprocess.run(command(program), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "error: no such type" in done.stderr
    assert "[8/8] Building CXX object 8" in done.stderr
