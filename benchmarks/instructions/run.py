"""Running a module of measures in a process of its own, under callgrind."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from instructions.callgrind import OPTIONS, Cost, read
from submission.floor import build_library

HERE = Path(__file__).parent


def about() -> str:
    """Return what was measured, in a line."""
    return f"aiocuda {metadata.version('aiocuda')}, CPython {platform.python_version()}, {platform.machine()}"


def counted(directory: Path, module: str, *arguments: str) -> dict[str, Cost]:
    """Count everything that a module measures, given some arguments, by the names of its marks."""
    if shutil.which("valgrind") is None:
        sys.exit(
            "error: valgrind was not found; it counts the instructions.\n"
            "       On Debian and Ubuntu: sudo apt-get install valgrind; on Fedora: sudo dnf install valgrind-devel"
        )
    marks = build_library(HERE / "marks.cpp", directory / "marks.so")
    written = f"--callgrind-out-file={directory / 'callgrind.out'}"
    program = [sys.executable, "-m", module, directory, marks, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        ["valgrind", *OPTIONS, written, *program], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"error: the measures failed under valgrind\n{done.stdout}{done.stderr}")
    return read(directory)
