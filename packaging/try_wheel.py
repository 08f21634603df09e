"""Tries the aiocuda that is installed, as somebody does who has nothing but its wheel.

    python packaging/try_wheel.py

The environment has aiocuda with the extras cli, emulator and trio. No compiler and no other program is on the path: the
emulated driver compiles with the extra's. It runs the program of the README, `aiocuda info`, and the tests that need no
checkout, and says how long importing takes.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ["arrays/test_indexing.py", "copies", "futures", "operations"]
NEEDED_BY_TESTS = ["anyio", "hypothesis", "pytest", "pytest-timeout", "uvloop"]
REPEATS = 11


def main() -> int:
    """Try it; see above."""
    with tempfile.TemporaryDirectory(prefix="aiocuda-try-") as name:
        folder = Path(name)
        alone = {"PATH": "", "HOME": name, "TMPDIR": name, "AIOCUDA_DRIVER": "emulated"}
        where = output([sys.executable, "-c", "import aiocuda; print(aiocuda.__file__)"], folder, alone).strip()
        if "site-packages" not in where:
            sys.exit(f"error: aiocuda was imported from {where}, and not from an installed wheel")
        check_readme(folder, alone)
        information = output([str(Path(sys.executable).with_name("aiocuda")), "info"], folder, alone)
        if "zig" not in information and "clang" not in information:
            sys.exit(f"error: aiocuda info names no compiler:\n{information}")
        print(f"importing takes {import_ms(folder, alone):.0f} ms more than importing NumPy (median of {REPEATS})")
        return run_tests(folder, alone)


def output(command: list[str], folder: Path, variables: dict[str, str]) -> str:
    """Return what a command prints; if it fails, end with that."""
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def check_readme(folder: Path, variables: dict[str, str]) -> None:
    """Run the README's program, and compare what it prints with what the README says."""
    text = (ROOT / "README.md").read_text()
    found = re.search(r"```python\n(.*?)```\s+```text\n(.*?)```", text, re.DOTALL)
    if found is None:
        sys.exit("error: the README has no program with its output")
    program = folder / "readme.py"
    program.write_text(found[1])
    printed = output([sys.executable, str(program)], folder, variables)
    if printed != found[2]:
        sys.exit(f"error: the README's program printed\n{printed}\nand not\n{found[2]}")
    print("the README's program prints what the README says")


def import_ms(folder: Path, variables: dict[str, str]) -> float:
    """Return how much longer importing aiocuda takes than importing NumPy: a median, in milliseconds."""
    program = (
        "import time; import numpy; begun = time.perf_counter(); import aiocuda; print(time.perf_counter() - begun)"
    )
    command = [sys.executable, "-c", program]
    return 1e3 * statistics.median(float(output(command, folder, variables)) for _ in range(REPEATS))


def run_tests(folder: Path, variables: dict[str, str]) -> int:
    """Run the tests that need no checkout on a copy of them; return the exit status."""
    install = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *NEEDED_BY_TESTS]
    subprocess.run(install, check=True, env=os.environ)
    tests = folder / "tests"
    tests.mkdir()
    shutil.copy(ROOT / "tests" / "conftest.py", tests)
    for name in TESTS:
        found, copied = ROOT / "tests" / name, tests / name
        if found.is_dir():
            shutil.copytree(found, copied)
        else:
            copied.parent.mkdir(exist_ok=True)
            shutil.copy(found, copied)
    command = [sys.executable, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    command += ["--config-file", str(ROOT / "pyproject.toml"), str(tests)]
    return subprocess.run(command, cwd=folder, env=variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
