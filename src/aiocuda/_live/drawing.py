"""Sections of figures on a terminal, in a notebook, or as plain lines.

Always true: rich draws where it is installed and somebody sees it change; lines are the same in all places. A terminal
gets no commands from the processes that are shown: of their texts, characters that print nothing become escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import IO, Any

from aiocuda._live.view import Section

__all__ = ["Display", "printable", "text"]

_WIDTH = 18  # of what stands before a figure


def text(sections: Sequence[Section]) -> str:
    """Return sections as lines."""
    lines = []
    for title, rows in sections:
        lines.append(printable(title))
        lines += [f"  {label:<{_WIDTH}}  {printable(value)}".rstrip() for label, value in rows]
    return "\n".join(lines)


def printable(words: str) -> str:
    """Return words with an escape in place of each character that prints nothing."""
    return (
        words if words.isprintable() else "".join(each if each.isprintable() else ascii(each)[1:-1] for each in words)
    )


class Display:
    """Shows sections that change, in a ``with`` block, and leaves the last ones standing at its end.

    Where nobody sees a change, as in a file, or rich is not installed, each update is written as lines; if nobody calls
    `update`, the last sections are.

    Parameters
    ----------
    sections
        Returns what is to be shown now.
    interval_s
        How often it is asked, where `is_driven` is false; then a thread asks.
    file
        Where to.
    is_driven
        Whether `update` is called whenever there is something new.
    """

    def __init__(
        self, sections: Callable[[], Sequence[Section]], interval_s: float, file: IO[str], *, is_driven: bool
    ) -> None:
        self._sections, self._file, self._is_driven = sections, file, is_driven
        self._live = _live(lambda: _table(sections()), interval_s, file, is_driven=is_driven)

    def __enter__(self) -> None:
        if self._live is not None:
            self._live.start(refresh=True)

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        elif not self._is_driven:
            print(text(self._sections()), file=self._file)

    def update(self) -> None:
        """Show what is new."""
        if self._live is not None:
            self._live.refresh()
        else:
            print(text(self._sections()), file=self._file, flush=True)


def _live(table: Callable[[], Any], interval_s: float, file: IO[str], *, is_driven: bool) -> Any:
    try:
        from rich.console import Console  # noqa: PLC0415 - optional
        from rich.live import Live  # noqa: PLC0415 - optional
    except ImportError:
        return None
    console = Console(file=file)
    if not console.is_terminal and not console.is_jupyter:
        return None
    return Live(
        get_renderable=table, console=console, auto_refresh=not is_driven, refresh_per_second=1 / interval_s,
        redirect_stdout=not is_driven, redirect_stderr=not is_driven,
    )  # fmt: skip


def _table(sections: Sequence[Section]) -> Any:
    from rich.table import Table  # noqa: PLC0415 - optional
    from rich.text import Text  # noqa: PLC0415 - optional

    table = Table.grid(padding=(0, 2))
    for title, rows in sections:
        table.add_row(Text(printable(title), style="bold"))
        for label, value in rows:
            table.add_row(Text(f"  {label}"), Text(printable(value), overflow="fold"))
    return table
