"""Stands in for Python where the Makefile runs it: makes environments and installs packages, in no time.

It does so in the steps of `venv` and pip, and takes an interruption as pip does. At the step that HOLD_AT names, it
says so to the pipe HELD, and waits to be interrupted. The Python that WITH names runs all else.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

PACKAGES_OF_AIOCUDA = ("numpy", "aiocuda")
MUCH = 1 << 20  # more than a pipe holds


def reach(step: str) -> None:
    if step == os.environ.get("HOLD_AT"):
        Path(os.environ["HELD"]).write_text(step)
        signal.pause()


def make_environment(folder: Path, *, clear: bool) -> None:
    if clear and folder.exists():
        shutil.rmtree(folder)
    (folder / "bin").mkdir(parents=True)
    (folder / "half").touch()
    reach("venv")
    for name in ("python", "aiocuda"):
        (folder / "bin" / name).symlink_to(Path(sys.argv[0]).resolve())
    site_packages(folder).mkdir(parents=True)
    (folder / "half").unlink()


def site_packages(folder: Path) -> Path:
    return folder / "lib" / "python3" / "site-packages"


def install(folder: Path, arguments: list[str]) -> None:
    if "-e" in arguments:
        with subprocess.Popen([sys.argv[0], "compile"]) as build:
            try:
                build.wait()
            except KeyboardInterrupt:
                build.wait()  # however long it takes to end
                raise
        packages = list(PACKAGES_OF_AIOCUDA)
    else:
        packages = [arguments[i + 1] for i, each in enumerate(arguments) if each == "--group"] or ["pip"]
    for package in packages:
        about = site_packages(folder) / f"{package}.dist-info"
        if about.exists() and package != "aiocuda":
            continue  # satisfied already
        about.mkdir(exist_ok=True)
        (about / "METADATA").touch()
        reach(package)
        (site_packages(folder) / package).touch()
        (about / "INSTALLER").touch()


def compile_all() -> None:
    """Build, and say much when it ends."""
    print("[1/2] Building", flush=True)
    try:
        reach("compile")
    except KeyboardInterrupt:
        print("x" * MUCH, flush=True)
        Path("ended").touch()
        raise
    print("[2/2] Linking")


def run_demo(folder: Path) -> None:
    reach("demo")
    found = {each.name for each in site_packages(folder).iterdir() if not each.suffix}
    print("demo of", *sorted(found), *folder.glob("half"))


def main(arguments: list[str]) -> None:
    folder = Path(sys.argv[0]).parent.parent
    if arguments[:2] == ["-m", "venv"]:
        make_environment(Path(arguments[-1]), clear="--clear" in arguments)
    elif arguments[:2] == ["-m", "pip"]:
        install(folder, arguments)
    elif arguments == ["compile"]:
        compile_all()
    elif arguments == ["demo"]:
        run_demo(folder)
    else:
        os.execv(os.environ["WITH"], [os.environ["WITH"], *arguments])


try:
    main(sys.argv[1:])
except KeyboardInterrupt:
    sys.exit("ERROR: Operation cancelled by user")
