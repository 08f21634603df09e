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
    paths = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_FOR_CHILDREN), *filter(None, [paths])])
    select_driver()


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
