"""The command ``aiocuda``: a table of commands, each a function from arguments to exit status.

A command's own failure is one clear line on stderr and exit status 1; a wrong command line is
argparse's message and status 2.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import platform
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiocuda._bench import command as bench_command
from aiocuda._bench import graphs as bench_graphs
from aiocuda._driver import emulate
from aiocuda._driver.inventory import compiler_text, device_rows
from aiocuda._driver.select import select_driver
from aiocuda._live import command as live_command
from aiocuda._trace.tracing import trace
from aiocuda.errors import (
    AiocudaError,
    CompilationError,
    DriverNotFoundError,
    EmulatedDeviceWarning,
)

__all__ = ["COMMANDS", "Command", "main"]

Row = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Command:
    """One entry of the table: ``aiocuda name ...`` calls ``run`` with the arguments after it."""

    name: str
    summary: str
    run: Callable[[Sequence[str]], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status.

    Parameters
    ----------
    arguments
        The arguments after the program's name; those of this process when None.
    """
    parser = argparse.ArgumentParser(prog="aiocuda", description="Async CUDA for Python.")
    parser.add_argument("--version", action="version", version=_version_of("aiocuda"))
    choices = parser.add_subparsers(dest="command", metavar="command")
    for command in COMMANDS:
        # The command parses its own arguments, so its --help is its own too.
        choices.add_parser(command.name, help=command.summary, add_help=False)
    given = list(sys.argv[1:] if arguments is None else arguments)
    chosen, rest = parser.parse_known_args(given[:1])[0].command, given[1:]
    if chosen is None:
        parser.print_help()
        return 0
    table = {command.name: command for command in COMMANDS}
    try:
        return table[chosen].run(rest)
    except AiocudaError as error:
        print(f"aiocuda {chosen}: {error}", file=sys.stderr)
        return 1


def run_info(arguments: Sequence[str]) -> int:
    """Print the driver, its devices and their memory, the compiler and the versions in use."""
    parser = argparse.ArgumentParser(
        prog="aiocuda info", description="Show the driver, devices, compiler and versions in use."
    )
    parser.parse_args(arguments)

    with warnings.catch_warnings():
        # What it warns of is the first thing printed below.
        warnings.simplefilter("ignore", EmulatedDeviceWarning)
        chosen = select_driver()
    devices = [
        (
            f"device {row.ordinal}",
            f"{row.name}, compute capability "
            f"{row.compute_capability[0]}.{row.compute_capability[1]}, "
            f"{_gibibytes(row.free_bytes)} free of {_gibibytes(row.total_bytes)}"
            f"{', emulated' if row.is_emulated else ''}",
        )
        for row in device_rows()
    ]
    try:
        compiler = compiler_text()
    except (CompilationError, DriverNotFoundError) as error:
        # The rest is what the reader needs to mend it.
        compiler = f"no kernel compiles here: {' '.join(str(error).split())}"
    sections: list[tuple[str, list[Row]]] = [
        (
            "driver",
            [
                ("kind", "emulated, on the CPU" if chosen.is_emulated else "NVIDIA's"),
                ("library", chosen.library_path),
                ("CUDA version", chosen.version_text),
                ("chosen because", chosen.reason),
            ],
        ),
        ("devices", devices or [("none", "the driver has no device")]),
        ("compiler", [("kernels", compiler)]),
        (
            "versions",
            [
                ("aiocuda", _version_of("aiocuda")),
                ("Python", f"{platform.python_version()} ({platform.python_implementation()})"),
                *((name, _version_of(name)) for name in ("cuda-core", "cuda-bindings", "numpy")),
            ],
        ),
    ]
    _print_sections(sections)
    return 0


def run_demo(arguments: Sequence[str]) -> int:
    """Run the first example: train a small network on all the devices there are."""
    if importlib.util.find_spec("rich") is None:
        print('aiocuda demo needs rich: pip install "aiocuda[cli]"', file=sys.stderr)
        return 1
    # By name: the examples are installed inside the package and are no part of its floors.
    example = importlib.import_module("aiocuda._examples.mlp.mlp")
    try:
        status: int = example.run_demo(arguments)
    except KeyboardInterrupt:  # Ctrl-C is a way to end it, and no fault of the program
        print("aiocuda demo: interrupted", file=sys.stderr)
        return 130  # what a shell says of a program that SIGINT ended
    return status


def _add_program(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", dest="module", action="store_true", help="run a module, as python -m does")
    parser.add_argument("program", metavar="program.py", help="the program, or the name of the module")
    own = parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="argument", help="the program's own")
    own.required = False  # CPython 3.11 says otherwise where the program is missing


def run_emulate(arguments: Sequence[str]) -> int:
    """Run a Python program on the emulated driver, as ``python`` would run it.

    The program need not know aiocuda: whatever it does through ``cuda.bindings`` or ``cuda.core`` goes to the emulated
    driver. So do the Python processes that it starts.
    """
    parser = argparse.ArgumentParser(
        prog="aiocuda emulate",
        description="Run a Python program, and the processes it starts, on the emulated CUDA driver.",
        usage="aiocuda emulate [-h] (program.py | -m module) [argument ...]",
    )
    _add_program(parser)
    given = parser.parse_args(arguments)
    emulate.emulate_this_process()
    try:
        emulate.run_program(given.program, given.arguments, is_module=given.module)
    except AiocudaError:
        sys.excepthook(*sys.exc_info())  # the program's own, with its lines
        return 1
    return 0


def run_trace(arguments: Sequence[str]) -> int:
    """Run a Python program as ``python`` would, and write a trace of it, however it ends."""
    parser = argparse.ArgumentParser(
        prog="aiocuda trace",
        description="Run a Python program and write what it did on the devices: for Perfetto, and as a page.",
        usage="aiocuda trace [-h] [--output FOLDER] [--nvtx] [--cupti] (program.py | -m module) [argument ...]",
    )
    parser.add_argument("--output", default=".", metavar="FOLDER", help="where the files go; the current folder")
    parser.add_argument("--nvtx", action="store_true", help="awaits are ranges for Nsight, too; needs the package nvtx")
    parser.add_argument("--cupti", action="store_true", help="times are CUPTI's; needs the package cupti-python")
    _add_program(parser)
    given = parser.parse_args(arguments)
    name = given.program if given.module else Path(given.program).stem
    signal.signal(signal.SIGTERM, _exit_by_signal)  # so that the trace is written
    with trace(name, output=given.output, nvtx=given.nvtx, cupti=given.cupti):
        try:
            emulate.run_program(given.program, given.arguments, is_module=given.module)
        except AiocudaError:
            sys.excepthook(*sys.exc_info())  # the program's own, with its lines
            return 1
    return 0


def _exit_by_signal(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def run_bench(arguments: Sequence[str]) -> int:
    """Measure what submitting, awaiting and graphs cost, over their floors in C++ and beside other libraries."""
    if list(arguments[:1]) == ["graphs"]:
        return bench_graphs.run(arguments[1:])
    return bench_command.run(arguments)


COMMANDS: tuple[Command, ...] = (
    Command("info", "show the driver, devices, compiler and versions in use", run_info),
    Command("demo", "train a small network on all the devices there are", run_demo),
    Command("emulate", "run a Python program of CUDA on the emulated driver: emulate program.py ...", run_emulate),
    Command("trace", "run a program and write a trace of it: trace program.py ...", run_trace),
    Command(
        "top", "show what a running process does: top PID; without PID, list those that use aiocuda", live_command.run
    ),
    Command("bench", "measure what submitting and awaiting costs, over C++; bench graphs: what graphs cost", run_bench),
)


def _version_of(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _gibibytes(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.2f} GiB"


def _print_sections(sections: Sequence[tuple[str, Sequence[Row]]]) -> None:
    # To a pipe or a file, a line is a line however long it is.
    if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        _print_with_rich(sections)
        return
    width = max(len(label) for _, rows in sections for label, _ in rows)
    for title, rows in sections:
        print(title)
        for label, value in rows:
            print(f"  {label:<{width}}  {value}")


def _print_with_rich(sections: Sequence[tuple[str, Sequence[Row]]]) -> None:
    from rich.console import Console  # noqa: PLC0415 - optional
    from rich.table import Table  # noqa: PLC0415 - optional
    from rich.text import Text  # noqa: PLC0415 - optional

    table = Table.grid(padding=(0, 2))
    for title, rows in sections:
        table.add_row(Text(title, style="bold"))
        for label, value in rows:
            table.add_row(Text(f"  {label}"), Text(value, overflow="fold"))
    Console().print(table)
