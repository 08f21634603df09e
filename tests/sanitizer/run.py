"""The test suite on a GPU under one of compute-sanitizer's tools, and what it found, by test.

    AIOCUDA_DRIVER=nvidia python tests/sanitizer/run.py memcheck [-j 8] [-k EXPRESSION] [TESTS ...]

Files of tests run side by side, each process under a sanitizer of its own. The sanitizer also reports calls that the
driver refuses, and tests make such calls on purpose: those that a test is marked to provoke
(`@pytest.mark.driver_refuses("cuMemAlloc", ...)`) are counted, and the others are shown. Exits with 1 if there are
others, or if a process did not end well. Tests that hold a stream are skipped: under the sanitizer a launch waits for
its kernel. Programs that tests run in processes of their own are not looked at.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPTIONS = {
    "memcheck": ["--report-api-errors", "all"],
    "racecheck": [],
    "initcheck": [],
    "synccheck": [],
}
# Refusals that are how the driver is asked, in any test: (function, error).
ASKED = {
    ("cuGetProcAddress", "CUDA_ERROR_INVALID_VALUE"): "cuda.bindings asks for functions that the driver may not have",
    (
        "cuKernelGetParamInfo",
        "CUDA_ERROR_INVALID_VALUE",
    ): "a kernel is asked for one parameter after another, until there is none",
    (
        "cuMemPoolSetAccess",
        "CUDA_ERROR_INVALID_DEVICE",
    ): "cuda.core ends the access of peers when a pool ends, also where there are none",
    ("cuCtxGetLimit", "CUDA_ERROR_UNSUPPORTED_LIMIT"): "a device is asked for each limit, and has not all",
}
NO_REPORT = (
    "Error: No attachable process found",
    "Error: Target application terminated before",
)  # no CUDA in the process
LIMIT_S = 300  # for a file of tests
TOO_LATE = 124  # the status of one that took longer
# The beginning of a report; more lines about it follow, up to the next.
BEGINS = re.compile(r"^========= ((?:Program hit|Invalid|Error:|Warning:|Uninitialized|Barrier error|Leaked) .*)$")
REFUSED = re.compile(r"^Program hit (\w+).* on CUDA API call to (\w+)")


@dataclass(frozen=True)
class Span:
    """The log at the end of a test, and the refusals that the test is marked to provoke."""

    end: int
    test: str
    refuses: frozenset[str]


def spans_in(path: Path) -> list[Span]:
    """Read what `tests/conftest.py` wrote beside a log."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        end, test, refuses = line.split("\t")
        found.append(Span(int(end), test, frozenset(filter(None, refuses.split(",")))))
    return found


def reports_in(log: Path) -> list[tuple[str, Span]]:
    """Return the reports of a log, each with the test in which it came."""
    spans = spans_in(log.with_suffix(".tests"))
    last = Span(sys.maxsize, "(after the last test)", frozenset())
    found, at = [], 0
    for line in log.read_bytes().splitlines(keepends=True):
        matched = BEGINS.match(line.decode(errors="replace").rstrip())
        if matched and not matched[1].startswith(NO_REPORT):
            found.append((matched[1], next((span for span in spans if at < span.end), last)))
        at += len(line)
    return found


def is_expected(report: str, span: Span) -> bool:
    """Whether a test is marked to provoke what was reported."""
    refused = REFUSED.match(report)
    if refused is None:
        return False
    function = refused[2].removesuffix("_v2").removesuffix("_ptsz")
    return (function, refused[1]) in ASKED or function in span.refuses


def run_files(tool: str, files: list[Path], log: Path, arguments: list[str]) -> int:
    """Run some files of tests under the tool; return the exit status."""
    command = ["compute-sanitizer", "--tool", tool, *OPTIONS[tool], "--target-processes", "application-only"]
    # To show where in Python a kernel was launched, the sanitizer takes references to frames that it never gives back
    # (2025.3): what they hold lives for ever, and tests of lifetimes fail.
    command += ["--show-backtrace", "device"]
    command += ["--log-file", str(log), sys.executable, "-m", "pytest", "-q"]
    command += ["-p", "no:cacheprovider", "--timeout", "0"]
    environment = {**os.environ, "AIOCUDA_SANITIZER_LOG": str(log)}
    with log.with_suffix(".out").open("w") as out:
        process = subprocess.Popen(
            [*command, *arguments, *map(str, files)], cwd=ROOT, env=environment, stdout=out, stderr=out, process_group=0
        )
        try:
            return process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return TOO_LATE


def main() -> int:
    """Run, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool", choices=sorted(OPTIONS))
    parser.add_argument("tests", nargs="*", type=Path, default=[ROOT / "tests"])
    parser.add_argument("-j", "--jobs", type=int, default=8)
    parser.add_argument("-k", "--keep", help="an expression of pytest's -k")
    parser.add_argument("--logs", type=Path, help="where to write the logs; a temporary folder else")
    given = parser.parse_intermixed_args()  # files may come behind options
    logs = given.logs or Path(tempfile.mkdtemp(prefix="aiocuda-sanitizer-"))
    logs.mkdir(parents=True, exist_ok=True)
    files = sorted({file for path in given.tests for file in ([path] if path.is_file() else path.rglob("test_*.py"))})
    if not files:
        parser.error(f"there are no files of tests in {', '.join(map(str, given.tests))}")
    arguments = ["-k", given.keep] if given.keep else []

    def run(file: Path) -> tuple[Path, Path, int]:
        log = logs / ("-".join(file.resolve().relative_to(ROOT / "tests").with_suffix("").parts) + ".log")
        return file, log, run_files(given.tool, [file], log, arguments)

    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        done = list(pool.map(run, files))
    expected: collections.Counter[str] = collections.Counter()
    others: collections.Counter[tuple[str, str]] = collections.Counter()
    is_well = True
    for file, log, status in done:
        if status not in (0, 5):  # 5: no test was selected
            is_well = False
            print(f"{file}: exit status {status}; see {log.with_suffix('.out')}")
        for report, span in reports_in(log) if log.exists() else []:
            if is_expected(report, span):
                expected[REFUSED.sub(r"\1 from \2", report)] += 1
            else:
                others[report, span.test] += 1
    print(f"\n{given.tool}: {sum(expected.values())} refusals that tests provoke, {sum(others.values())} other reports")
    for what, count in expected.most_common():
        print(f"  provoked {count:6} x {what}")
    for (what, test), count in others.most_common():
        print(f"  OTHER    {count:6} x {what}  in {test}")
    return 0 if is_well and not others else 1


if __name__ == "__main__":
    sys.exit(main())
