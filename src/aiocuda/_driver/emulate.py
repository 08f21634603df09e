"""Runs programs that do not know aiocuda on the emulated driver."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from aiocuda._driver.select import VARIABLE, select_driver

__all__ = ["emulate_this_process", "run_program"]

# Holds a sitecustomize.py, which Python runs when it starts.
_FOR_CHILDREN = Path(__file__).parent / "in_children"


def emulate_this_process() -> None:
    """Choose the emulated driver for this process, and for the Python processes that it will start.

    Raises
    ------
    DriverSelectionError
        The process already uses another driver.

    Notes
    -----
    *Stream*: none. *Blocks*: while the driver is loaded.
    """
    os.environ[VARIABLE] = "emulated"
    _put_first("PYTHONPATH", _FOR_CHILDREN)
    # What is started without Python's variables, or is no Python, finds the libraries by their names.
    _put_first("LD_LIBRARY_PATH", Path(select_driver().library_path).parent)


def _put_first(variable: str, directory: Path) -> None:
    others = os.environ.get(variable, "")
    os.environ[variable] = os.pathsep.join([str(directory), *filter(None, [others])])


def run_program(program: str, arguments: Sequence[str], *, is_module: bool) -> None:
    """Run a program as Python's command line runs it, in this process.

    Parameters
    ----------
    program
        The path of a file, or the name of a module.
    arguments
        What the program finds in ``sys.argv`` behind its own name.
    is_module
        Whether `program` is the name of a module.

    Notes
    -----
    *Stream*: none. *Blocks*: until the program has ended. What it raises, this raises.
    """
    sys.argv[:] = [program, *arguments]
    if is_module:
        sys.path[0] = str(Path.cwd())
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(program).resolve().parent)
        runpy.run_path(program, run_name="__main__")
