"""The command ``aiocuda top``: another process in numbers.

Always true: the process that is looked at is not changed, and the command ends when that process does.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from typing import Self

from aiocuda._live import drawing, view
from aiocuda._live.drawing import Display
from aiocuda._live.page import Answer, CannotLookError, LookedAt, listed
from aiocuda._live.report import Report
from aiocuda._live.view import Section

__all__ = ["run"]


def run(arguments: Sequence[str]) -> int:
    """Show a process that uses aiocuda, again and again; without its number, list those that there are."""
    parser = argparse.ArgumentParser(
        prog="aiocuda top",
        description="Show what a running process does with aiocuda. Without PID: list the processes that use it.",
    )
    parser.add_argument("process", metavar="PID", type=int, nargs="?", help="the number of the process")
    parser.add_argument("--once", action="store_true", help="show it once, and end")
    parser.add_argument("--json", action="store_true", help="write JSON: an object a line for each time")
    parser.add_argument("--interval", type=_interval, default=1.0, metavar="SECONDS", help="how often; 1")
    given = parser.parse_args(arguments)
    if given.process is None:
        return _list(is_json=given.json)
    try:
        with LookedAt(given.process) as process, _Pause(given.interval) as pause:
            if given.json:
                return _write_json(process, pause, is_once=given.once)
            return _show(process, pause, is_once=given.once)
    except CannotLookError as error:
        print(f"aiocuda top: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


class _Pause:
    """The time between two looks, which Ctrl-C ends, and all that comes after.

    Python drops a KeyboardInterrupt that comes in a finaliser; so the next pause raises it again.
    """

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._is_over = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._end)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _end(self, *_: object) -> None:
        self._is_over = True
        raise KeyboardInterrupt

    def __call__(self) -> None:
        if self._is_over:
            raise KeyboardInterrupt
        time.sleep(self.interval_s)


def _interval(text: str) -> float:
    seconds = float(text)
    if not 0.05 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not between 0.05 and 3600 seconds")
    return seconds


def _list(*, is_json: bool) -> int:
    found = listed()
    if is_json:
        print(json.dumps([each._asdict() for each in found]))
        return 0
    if not found:
        print("no process that you may look at uses a device by aiocuda", file=sys.stderr)
        return 1
    print("    PID  aiocuda  program")
    for each in found:
        print(f"{each.process:>7}  {drawing.printable(each.version):<7}  {drawing.printable(each.program)}")
    return 0


def _write_json(process: LookedAt, pause: _Pause, *, is_once: bool) -> int:
    while True:
        answer = process.ask()
        if process.has_ended():
            return _say_ended(process)
        known = None if answer.counts is None else answer.counts._asdict()
        said = {
            "process": process.process,
            "state": answer.state,
            "counts": known,
            "report": None if answer.report is None else answer.report.as_dict(),
        }
        print(json.dumps(said), flush=True)
        if is_once:
            return 0 if answer.report else 1
        pause()


class _Shown:
    """The last report of a process, rates since the one before, and the reason why there is no newer one."""

    def __init__(self) -> None:
        self.answer = Answer(None)
        self._reports: list[Report] = []  # the last two

    def take(self, answer: Answer) -> None:
        self.answer = answer
        if answer.report is not None:
            self._reports = [*self._reports[-1:], answer.report]

    def sections(self) -> list[Section]:
        found: list[Section] = []
        if self.answer.state:
            found.append(Section(self.answer.state, []))
            if self.answer.counts is not None:
                found += view.sections_of_counts(self.answer.counts, _age_s(self.answer.counted_ns))
        if self._reports:
            *earlier, now = self._reports
            if self.answer.state:
                found.append(Section(f"its last answer, {_age_s(now.taken_ns):.0f} s ago:", []))
            found += view.sections(now, earlier[0] if earlier else None)
        return found


def _show(process: LookedAt, pause: _Pause, *, is_once: bool) -> int:
    shown = _Shown()
    if is_once:
        shown.take(process.ask())
        if process.has_ended():
            return _say_ended(process)
        print(drawing.text(shown.sections()))
        return 0 if shown.answer.report else 1
    display = Display(shown.sections, pause.interval_s, sys.stdout, is_driven=True)
    with display:
        while not process.has_ended():
            answer = process.ask()
            if process.has_ended():
                break
            shown.take(answer)
            display.update()
            pause()
    return _say_ended(process)


def _age_s(then_ns: int) -> float:
    return (time.monotonic_ns() - then_ns) / 1e9


def _say_ended(process: LookedAt) -> int:
    print(f"process {process.process} has ended", file=sys.stderr)
    return 0
