"""Programs that do not know aiocuda: each runs in a process of its own, as a shell starts it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from emulate_command import command

import aiocuda as ac

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def emulate(tmp_path: Path) -> Run:
    """Run ``aiocuda emulate`` on a program given as text, with its own arguments."""

    def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(program), encoding="utf-8")
        return command("emulate", str(path), *arguments)

    return run


@pytest.fixture
def runtime():
    """Call the runtime by a name and arguments; return what it answers, without its error, which must be none."""
    ac.select_driver()
    from cuda.bindings import runtime

    def call(name, *arguments):
        error, *values = getattr(runtime, name)(*arguments)
        assert error == runtime.cudaError_t.cudaSuccess, (name, error)
        return values[0] if len(values) == 1 else tuple(values)

    call.module = runtime
    call("cudaSetDevice", 0)
    return call
