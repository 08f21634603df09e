"""Runs a command that builds with Ninja, and says how far it is: on one line of a terminal, else at each quarter.

    python cmake/build_progress.py WORDS COMMAND ...

WORDS begin the line. The command's own output is shown if it fails; the exit status is the command's. Interrupted, it
ends when the command has ended, and whatever that started.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time

STEP = re.compile(r"\[(\d+)/([1-9]\d*)\]")


def main(words: str, command: list[str]) -> int:
    """Run the command; see above."""
    begun = time.monotonic()
    is_terminal = sys.stdout.isatty()
    quarters = 0
    print(words, end="" if is_terminal else "\n", flush=True)
    output: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as run:
        assert run.stdout is not None
        try:
            for line in run.stdout:
                output.append(line)
                found = STEP.search(line)
                if found is None:
                    continue
                done, total = int(found[1]), int(found[2])
                if is_terminal:
                    print(f"\r{words}: {done} of {total} steps, {time.monotonic() - begun:.0f} s", end="", flush=True)
                elif 4 * done // total > quarters:
                    quarters = 4 * done // total
                    print(f"{words}: {done} of {total} steps, {time.monotonic() - begun:.0f} s", flush=True)
        except KeyboardInterrupt:
            # The command had it, too. Nobody writes any more once it has ended, and all that it started.
            for _ in run.stdout:
                pass
            run.wait()
            raise
    if is_terminal:
        print()
    if run.returncode:
        sys.stderr.writelines(output)
    return run.returncode


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], sys.argv[2:]))
    except KeyboardInterrupt:
        sys.exit(130)
