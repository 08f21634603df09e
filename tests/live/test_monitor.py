"""`monitor`: this process in numbers while a block runs, and what is shown of numbers."""

from __future__ import annotations

import builtins
import dataclasses
import io
import sys
from typing import Any

import numpy as np
import pytest

import aiocuda as ac
from aiocuda._live import drawing, report, view
from aiocuda._live.drawing import Display
from aiocuda._live.page import Counts
from aiocuda._live.view import Section


def rows_of(sections, title):
    (found,) = [dict(rows) for each, rows in sections if each == title]
    return found


@pytest.fixture
def now():
    ac.zeros(1, np.uint8).sync()
    return report.of_this_process(largest=2)


def test_the_last_figures_are_written_where_nobody_sees_them_change(run, capsys):
    async def main():
        with ac.monitor():
            await ac.zeros(4)

    run(main)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("memory of device 0") == 1
    assert "submitted" in said.err


def test_a_monitor_is_shown_once_at_a_time_and_again_later(capsys):
    monitor = ac.monitor(interval_s=0.05)
    with monitor, pytest.raises(ac.AiocudaError, match="shown already"):
        monitor.__enter__()
    with monitor:
        pass
    assert capsys.readouterr().err.count("page-locked memory") == 2


@pytest.mark.parametrize("interval_s", [0, -1, float("nan")])
def test_an_interval_that_is_none_is_an_error(interval_s):
    with pytest.raises(ac.errors.ArgumentValueError, match="interval_s="):
        ac.monitor(interval_s=interval_s)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_changes():
    pytest.importorskip("rich")
    file = Terminal()
    numbers = iter(range(1000))
    with Display(lambda: [Section("a title", [("number", str(next(numbers)))])], 0.05, file, is_driven=True) as _:
        pass
    assert "a title" in file.getvalue()
    display = Display(lambda: [Section("a title", [("number", str(next(numbers)))])], 0.05, file, is_driven=True)
    with display:
        display.update()
        display.update()
    assert file.getvalue().count("a title") >= 3


def test_without_rich_each_update_is_lines(monkeypatch):
    own = builtins.__import__

    def without_rich(name: str, *arguments: Any) -> Any:
        if name.startswith("rich"):
            raise ImportError(name)
        return own(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without_rich)
    file = Terminal()
    display = Display(lambda: [Section("a title", [("number", "1")])], 0.05, file, is_driven=True)
    with display:
        display.update()
        display.update()
    assert file.getvalue() == "a title\n  number              1\n" * 2


def test_rates_are_those_since_the_earlier_report(now):
    counts = dataclasses.replace(now.statistics, submitted=now.statistics.submitted + 30, completed=100, spins=0)
    later = now._replace(taken_ns=now.taken_ns + 3_000_000_000, statistics=counts)
    work = rows_of(view.sections(later, now), "work")
    assert work["submitted"] == f"{counts.submitted:,}, 10 a second"
    assert work["spins that paid"] == "none yet"
    assert "a second" not in rows_of(view.sections(later), "work")["submitted"]


def test_latencies_are_told_as_bounds(now):
    latencies = [0] * 24
    latencies[0], latencies[3], latencies[23] = 50, 48, 2
    counts = dataclasses.replace(now.statistics, latencies=tuple(latencies))
    work = rows_of(view.sections(now._replace(statistics=counts)), "work")
    assert work["they took"] == "half under 1 µs, 99 % over 4.19 s"
    nothing = dataclasses.replace(now.statistics, latencies=(0,) * 24)
    assert rows_of(view.sections(now._replace(statistics=nothing)), "work")["they took"] == "nothing yet"


def test_rates_of_latencies_are_of_the_waits_since_then(now):
    before, after = [0] * 24, [0] * 24
    before[10], after[10], after[1] = 1000, 1000, 10
    earlier = now._replace(statistics=dataclasses.replace(now.statistics, completed=1000, latencies=tuple(before)))
    later = now._replace(statistics=dataclasses.replace(now.statistics, completed=1010, latencies=tuple(after)))
    assert rows_of(view.sections(later, earlier), "work")["they took"] == "half under 2 µs, 99 % under 2 µs"


def test_memory_of_a_lost_device_is_unknown_in_part(now):
    use = dataclasses.replace(now.statistics.memory[0], kept_bytes=None, managed_bytes=1 << 31, frameworks_bytes=5)
    counts = dataclasses.replace(now.statistics, memory=(use,))
    memory = rows_of(view.sections(now._replace(statistics=counts)), "memory of device 0")
    assert memory["kept for later"] == "unknown: the device is lost"
    assert memory["managed arrays"] == "2.0 GiB"
    assert memory["other libraries"] == "5 B"


def test_counts_alone_are_lines():
    (section,) = view.sections_of_counts(Counts(1, 2000, 3, 4, 5, 6), 3.2)
    assert section.title == "work, 3 s ago"
    assert dict(section.rows)["waits that ended"] == "2,000"


def test_a_terminal_gets_no_commands():
    file = Terminal()
    hostile = [Section("\x1b[2J", [("program", "\x1b]0;owned\x07 ö \udcff")])]
    assert drawing.text(hostile) == "\\x1b[2J\n  program             \\x1b]0;owned\\x07 ö \\udcff"
    with Display(lambda: hostile, 0.05, file, is_driven=True):
        pass
    assert "\x1b[2J" not in file.getvalue()
    assert "\x07" not in file.getvalue()


def test_text_has_all_lines():
    assert drawing.text([Section("one", [("a", "1")]), Section("two", [])]) == "one\n  a                   1\ntwo"


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 40, "1.0 TiB"), (1 << 51, "2048.0 TiB")]
)
def test_sizes(size, text):
    assert view.size_text(size) == text


def test_the_program_is_named(now):
    assert sys.orig_argv[-1] in now.program
