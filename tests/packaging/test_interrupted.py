"""`make demo` may be interrupted, or killed, at any moment: nothing that is half made is taken for whole.

The Makefile is the real one. Python is `python_of_the_makefile.py`, so that nothing is downloaded or compiled.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAND_IN = Path(__file__).with_name("python_of_the_makefile.py")
INTERRUPTED = ("venv", "build", "compile", "demo")
KILLED = ("pip", "build", "numpy")
PYTHON = sys._base_executable  # starts faster than that of an environment
WHOLE = "demo of aiocuda build numpy pip\n"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


class Checkout:
    """What `make demo` needs of the repository, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkout"
        self.folder.mkdir()
        for name in ("Makefile", "pyproject.toml", "CMakeLists.txt"):
            shutil.copy(ROOT / name, self.folder)
        shutil.copytree(ROOT / "cmake", self.folder / "cmake")
        for name in ("native", "emulator", "examples/mlp"):
            (self.folder / name).mkdir(parents=True)
        python = folder / "python"
        python.write_text(f"#!{PYTHON} -IS\n{STAND_IN.read_text()}")
        python.chmod(0o755)
        self._held = folder / "held"
        os.mkfifo(self._held)
        kept = ("CXX", "HOME", "LANG", "PATH", "TMPDIR")
        self._environment = {name: os.environ[name] for name in kept if name in os.environ}
        self._environment |= {"WITH": PYTHON, "HELD": str(self._held)}
        # SIGINT is ignored in what was started in the background.
        self._make = ["env", "--default-signal=INT", "make", f"PYTHON={python}"]

    def _start(self, *goals: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._make, *goals],
            cwd=self.folder,
            env={**self._environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def make(self, *goals: str) -> tuple[int, str]:
        with self._start(*goals) as run:
            said, _ = run.communicate(timeout=60)
        return run.returncode, said

    def stop(self, step: str, number: signal.Signals = signal.SIGINT) -> None:
        """Run `make demo`, and do as Ctrl-C does when the step is half done; or kill all."""
        held = os.open(self._held, os.O_RDONLY | os.O_NONBLOCK)
        with self._start("demo", HOLD_AT=step) as run:
            ended = os.pidfd_open(run.pid)
            readable, _, _ = select.select([held, ended], [], [], 60)
            assert readable == [held], run.communicate(timeout=60)[0]
            os.killpg(run.pid, number)
            assert select.select([ended], [], [], 60)[0] == [ended]
            left = processes_of(run.pid)
            said, _ = run.communicate(timeout=60)
        os.close(held)
        os.close(ended)
        assert run.returncode == -number, said
        assert left == [] or number == signal.SIGKILL, said


def processes_of(session: int) -> list[str]:
    """Return what still runs of a session, but for its leader."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            name, _, fields = (each / "stat").read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, _, _, of, *_ = fields.split()
        if int(of) == session and int(each.name) != session and state != "Z":
            found.append(name)
    return found


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


@pytest.mark.parametrize(
    ("number", "step"),
    [*((signal.SIGINT, step) for step in INTERRUPTED), *((signal.SIGKILL, step) for step in KILLED)],
    ids=[*(f"interrupted-{step}" for step in INTERRUPTED), *(f"killed-{step}" for step in KILLED)],
)
def test_the_next_demo_makes_whole_what_was_half_made(checkout, number, step):
    checkout.stop(step, number)
    status, said = checkout.make("demo")
    assert status == 0, said
    assert said.endswith(WHOLE)
    assert checkout.make("--question", ".venv/.stamps/built")[0] == 0


def test_a_build_that_was_interrupted_is_not_taken_for_built(checkout):
    """There is one from before the edit."""
    assert checkout.make("demo")[0] == 0
    (checkout.folder / "native" / "edited.cpp").touch()
    checkout.stop("compile")
    status, said = checkout.make("demo")
    assert (status, "set-up: building aiocuda" in said) == (0, True), said


def test_what_is_interrupted_ends_before_make_does(checkout):
    """A compiler that still writes would spoil what the next `make` makes."""
    checkout.stop("compile")
    assert (checkout.folder / "ended").exists()


def test_pip_writes_the_installer_last(tmp_path):
    """The Makefile knows by that what pip had half installed. An interrupted pip takes it for installed."""
    about = "half-1.dist-info"
    with zipfile.ZipFile(tmp_path / "half-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("half.py", "")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: half\nVersion: 1\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", f"half.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")
    interrupt_pip = (  # in what was started in the background, Python leaves the signal ignored
        "import compileall, runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "compileall.compile_file = lambda *_, **__: signal.raise_signal(signal.SIGINT)"
    )
    command = [sys.executable, "-c", f"{interrupt_pip}; runpy.run_module('pip', run_name='__main__', alter_sys=True)"]
    command += ["install", "--no-index", "--no-deps", f"--prefix={tmp_path}", str(*tmp_path.glob("*.whl"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "cancelled by user" in done.stderr, done.stdout + done.stderr
    (found,) = tmp_path.glob(f"lib*/python*/site-packages/{about}")
    assert (found / "METADATA").exists()
    assert not (found / "INSTALLER").exists()
    assert all((each / "INSTALLER").exists() for each in Path(pytest.__file__).parents[1].glob("*.dist-info"))
