"""What finds the planted bugs: the emulated driver's checks, or NVIDIA's compute-sanitizer, as a table.

    AIOCUDA_DRIVER=emulated python tests/checks/table.py
    AIOCUDA_DRIVER=nvidia python tests/checks/table.py [-j 4]

Each bug runs in a process of its own, and so does its clean twin. On a GPU each runs under the tool of
compute-sanitizer that is meant for it. "found" says that the bug was reported, "at its line" that the report names the
line that is marked in `planted.cu`; "false alarm" that the clean twin was reported, too. With --verbose, what the tool
said.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
from pathlib import Path

from lines import marked_lines
from planted import CASES, CLEAN, CORRECT, EVERY

LINES = marked_lines()
PROGRAM = Path(__file__).with_name("planted.py")
LIMIT_S = 300
FINDING = 9  # the status of compute-sanitizer where it has found something


def command(name: str) -> tuple[list[str], dict[str, str]]:
    """Return how a kernel is run and looked at."""
    case = EVERY[name]
    program = [sys.executable, str(PROGRAM), name]
    if os.environ.get("AIOCUDA_DRIVER") == "nvidia":
        sanitizer = [
            "compute-sanitizer",
            "--tool",
            case.tool,
            "--error-exitcode",
            str(FINDING),
            "--report-api-errors=no",
        ]
        return [*sanitizer, "--target-processes", "application-only", *program], {}
    return program, {"AIOCUDA_EMULATOR_CHECK": "memory,races,init,sync", "AIOCUDA_DRIVER": "emulated"}


def look(name: str) -> tuple[bool, bool, str]:
    """Return whether something was reported, whether at the marked line, and all that was said."""
    words, more = command(name)
    done = subprocess.run(
        words, env={**os.environ, **more}, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    said = done.stdout + done.stderr
    is_gpu = words[0] == "compute-sanitizer"
    found = done.returncode == FINDING if is_gpu else '"reports": [{' in done.stdout
    lines = {int(each) for each in re.findall(r"planted\.cu:(\d+)", said)}
    return found, bool(lines & set(LINES.get(name, {}).values())), said


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-j", type=int, default=2, help="how many processes run side by side")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    with concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        results = dict(zip(EVERY, pool.map(look, EVERY), strict=True))
    print("| bug | check | tool | result | clean twin |\n|---|---|---|---|---|")
    for name, case in CASES.items():
        found, at_line, _ = results[name]
        result = "not found" if not found else "found, at its line" if at_line else "found"
        twin = "false alarm" if results[f"{name}_clean"][0] else "silent"
        print(f"| `{name}` | {case.check} | {case.tool} | {result} | {twin} |")
    for name, case in CORRECT.items():
        silent = "false alarm" if results[name][0] else "silent"
        print(f"| `{name}` (correct) | {case.check} | {case.tool} | | {silent} |")
    if options.verbose:
        for name, (_, _, said) in results.items():
            print(f"\n==== {name}\n{said}")
    assert len(results) == len(CASES) + len(CLEAN) + len(CORRECT)


if __name__ == "__main__":
    main()
