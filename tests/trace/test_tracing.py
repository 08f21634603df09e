"""`trace` and `aiocuda trace`: how they are asked for, and what they refuse."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import aiocuda as ac


def run(program: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "aiocuda", "trace", "--output", str(folder), str(folder / "program.py"), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_command_traces_a_program_and_prints_a_summary(tmp_path: Path) -> None:
    ended = run("import sys, aiocuda as ac\nprint(sys.argv[1:], ac.to_host(ac.ones(3)).sync())", tmp_path, "-x", "y")
    assert (ended.returncode, ended.stdout) == (0, "['-x', 'y'] [1. 1. 1.]\n")
    assert "trace program: " in ended.stderr
    assert "copy to host" in ended.stderr
    assert {each.name for each in tmp_path.iterdir()} >= {"program.perfetto-trace", "program.trace.html"}


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("raise SystemExit(3)", 3),
        ("raise ValueError('no')", 1),
        ("ac.copy(1, 2)", 1),
        (f"import os; os.kill(os.getpid(), {int(signal.SIGTERM)})", 128 + signal.SIGTERM),
    ],
)
def test_a_program_that_ends_otherwise_is_traced_and_has_its_own_status(
    ending: str, status: int, tmp_path: Path
) -> None:
    ended = run(f"import aiocuda as ac\nac.ones(3).sync()\n{ending}\n", tmp_path)
    assert ended.returncode == status, ended.stderr
    assert (tmp_path / "program.trace.html").exists()


def test_a_trace_is_recorded_once_and_one_at_a_time(tmp_path: Path) -> None:
    with ac.trace("one", output=tmp_path, report=False) as one:
        with pytest.raises(ac.AiocudaError, match="not there before its with block has ended"):
            _ = one.result
        with pytest.raises(ac.AiocudaError, match="one at a time"), ac.trace("two", output=tmp_path, report=False):
            pass
    with pytest.raises(ac.AiocudaError, match="recorded already"), one:
        pass


@pytest.mark.parametrize("name", ["", "a/b", ".."])
def test_a_name_that_is_none_of_a_file_is_refused(name: str) -> None:
    with pytest.raises(ac.ArgumentValueError, match="no name of a file"):
        ac.trace(name)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ac.ArgumentValueError, match="is no folder"), ac.trace("x", output=tmp_path / "missing"):
        pass


@pytest.mark.parametrize("package", ["perfetto.protos.perfetto.trace", "igraph"])
def test_a_missing_package_is_named_before_anything_is_recorded(
    package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # type: ignore[arg-type]
    with pytest.raises(ac.MissingPackageError, match=r"aiocuda\[trace\]"), ac.trace("x", output=tmp_path):
        pass
    assert not list(tmp_path.iterdir())
