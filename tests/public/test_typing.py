"""Types are what they should be: mypy and pyright check a program and a project, strictly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from language_server import LanguageServer

import aiocuda as ac

pytest.importorskip("mypy", reason="mypy comes with the group `check`")

ROOT = Path(__file__).parents[2]
PROGRAMS = [Path(__file__).with_name("typed_program.py"), Path(__file__).with_name("typed_project.py")]
EDITED = """
import aiocuda as ac
ac.
op = ac.ones(3)
op.
op.sync().
kernel: ac.Kernel[ac.DeviceArray] = ac.kernel("")
kernel.
kernel(threads=1).
ac.zeros(
"""
MISTAKE = """
import aiocuda as ac
kernel: ac.Kernel[ac.DeviceArray] = ac.kernel("")
wrong: ac.DeviceOp[ac.HostArray] = kernel(threads=3)
"""


def run(*arguments: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=240, check=False
    )


def mypy(tmp_path: Path, *programs: Path) -> subprocess.CompletedProcess[str]:
    # The package's own cache is not touched: this one keeps nothing in the checkout.
    settings = ("--config-file", ROOT / "pyproject.toml", "--cache-dir", tmp_path, "--no-error-summary")
    return run("mypy", "--strict", *settings, *programs)


def test_mypy_sees_the_types_that_users_should_see(tmp_path_factory):
    done = mypy(tmp_path_factory.mktemp("mypy"), *PROGRAMS)
    assert done.stdout + done.stderr == ""
    assert done.returncode == 0


@pytest.fixture(scope="module")
def pyright_folder(tmp_path_factory):
    """A folder with settings for pyright: strict, and with this package."""
    pytest.importorskip("pyright", reason="pyright comes with the group `check`")
    if (asked := run("pyright", "--version")).returncode != 0:  # it fetches itself, and Node.js, at its first start
        pytest.skip(f"pyright could not be fetched: {asked.stderr.strip()[-200:]}")
    folder = tmp_path_factory.mktemp("pyright")
    settings = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(ROOT / "src")]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module")
def checked_by_pyright(pyright_folder):
    """What pyright says of the programs and of one with a mistake, by file."""
    folder = pyright_folder
    for program in PROGRAMS:
        (folder / program.name).write_text(program.read_text("utf-8"), "utf-8")
    (folder / "mistake.py").write_text(MISTAKE)
    done = run("pyright", "--outputjson", "--pythonpath", sys.executable, cwd=folder)
    said = json.loads(done.stdout)
    assert said["summary"]["filesAnalyzed"] == len(PROGRAMS) + 1
    return [(Path(each["file"]).name, each["message"]) for each in said["generalDiagnostics"]]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_pyright_sees_the_types_that_users_should_see(checked_by_pyright, program):
    assert [message for file, message in checked_by_pyright if file == program.name] == []


def test_pyright_sees_that_a_kernel_does_not_write_what_is_asked_for(checked_by_pyright):
    (message,) = [message for file, message in checked_by_pyright if file == "mistake.py"]
    assert '"DeviceOp[DeviceArray]" is not assignable to "DeviceOp[HostArray]"' in message


def test_an_editor_completes_names_and_shows_parameters(pyright_folder):
    with LanguageServer(pyright_folder, EDITED) as server:
        assert set(ac.__all__) - server.completions("ac.") == set()
        assert {"sync", "then", "within", "reshape"} - server.completions("op.") == set()
        assert {"shape", "device", "share"} - server.completions("op.sync().") == set()
        assert {"occupancy", "compile"} - server.completions("kernel.") == set()
        assert {"sync", "reshape"} - server.completions("kernel(threads=1).") == set()
        assert [each.partition(":")[0] for each in server.parameters("ac.zeros(")][:3] == ["shape", "dtype", "device"]


def test_the_project_runs():
    done = run("tests.public.typed_project")
    assert (done.returncode, done.stdout) == (0, f"{[1.0] * 8}\n8.0\n"), done.stderr
