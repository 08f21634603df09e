"""The command line of aiocuda, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def command(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aiocuda", *arguments],
        env={**os.environ, "AIOCUDA_EMULATED_DEVICES": "2", "AIOCUDA_EMULATED_MEMORY": "64M"},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
