"""How far work is, as a bar: of several operations, or of anything that is iterated asynchronously.

Always true: the bar is of what was yielded, changes nothing of it, and ends when the iteration does, however that is.
It is written to a terminal or a notebook alone.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any, ClassVar, Protocol, Self, TypeVar, overload

from aiocuda._engine.futures import DeviceFuture
from aiocuda._engine.under_way import UNDER_WAY
from aiocuda._ops.operation import DeviceOp
from aiocuda._values.given import between
from aiocuda._verbs.waiting import as_completed

__all__ = ["progress"]

T = TypeVar("T")
_MOST = 1 << 62


class _Bar(Protocol):
    def advance(self) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...


class _RichBar:
    """A bar of rich's, in a terminal or a notebook. All share one display: rich has one at a time."""

    _lock: ClassVar = threading.RLock()  # a bar that nobody has any more may be closed within, when it is collected
    _display: ClassVar[Any] = None
    _open: ClassVar[int] = 0

    def __init__(self, total: int | None, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        cls = type(self)
        self._title = title
        with cls._lock:
            cls._open += 1  # first: no bar that is closed from here on is the last
            try:
                if cls._display is None:
                    console = Console(stderr=True)
                    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
                    is_seen = console.is_terminal or console.is_jupyter
                    display = Progress(*columns, TimeElapsedColumn(), console=console, disable=not is_seen)
                    display.start()
                    cls._display = display
                self._own = cls._display
                self._task = self._own.add_task(title, total=total)
            except BaseException:
                cls._open -= 1
                raise

    def advance(self) -> None:
        self._own.advance(self._task)

    def note(self, text: str) -> None:
        self._own.update(self._task, description=f"{self._title} ({text})" if text else self._title, refresh=True)

    def close(self) -> None:
        cls = type(self)
        with cls._lock:
            cls._open -= 1
            if cls._open == 0:
                cls._display = None
                self._own.stop()
            else:
                self._own.stop_task(self._task)


class _TqdmBar:
    """A bar of tqdm's: a widget in a notebook, a line in a terminal."""

    def __init__(self, total: int | None, title: str) -> None:
        from tqdm.auto import tqdm

        self._bar = tqdm(total=total, desc=title, disable=None)  # None: where there is no terminal

    def advance(self) -> None:
        self._bar.update()

    def note(self, text: str) -> None:
        self._bar.set_postfix_str(text)

    def close(self) -> None:
        self._bar.close()


class _PlainBar:
    """A line of the terminal that is written again, where neither rich nor tqdm is installed."""

    def __init__(self, total: int | None, title: str) -> None:
        self._title, self._total, self._done = title, total, 0
        self._note, self._width = "", 0
        self._is_seen = sys.stderr is not None and sys.stderr.isatty()
        self._write("\r")

    def advance(self) -> None:
        self._done += 1
        self._write("\r")

    def note(self, text: str) -> None:
        self._note = f" ({text})" if text else ""
        self._write("\r")

    def close(self) -> None:
        self._write("\r", "\n")
        self._is_seen = False

    def _write(self, before: str, behind: str = "") -> None:
        if self._is_seen:
            of_total = "" if self._total is None else f"/{self._total}"
            line = f"{self._title} {self._done}{of_total}{self._note}"
            print(f"{before}{line:{self._width}}", end=behind, file=sys.stderr, flush=True)
            self._width = len(line)  # the next one covers it


def _bar(total: int | None, title: str) -> _Bar:
    for kind in (_RichBar, _TqdmBar):
        try:
            return kind(total, title)
        except ImportError:
            continue  # it need not be installed
    return _PlainBar(total, title)


class _Notes:
    """Has a bar say what is being compiled, or made, meanwhile; other threads tell of that.

    A closed bar says nothing. If writing fails, the bar stays silent, so that no compilation fails of it. The next item
    raises the error.
    """

    def __init__(self, bar: _Bar) -> None:
        self._bar = bar

    def take(self, names: tuple[str, ...]) -> None:
        others = f", and {len(names) - 1} more" if len(names) > 1 else ""
        with contextlib.suppress(OSError, ValueError, SystemExit):  # rich exits where nobody reads any more
            self._bar.note(f"{names[0]}{others}" if names else "")


class _Shown(AsyncIterator[T]):
    """Yields what another iterator yields, and tells a bar."""

    def __init__(self, items: AsyncIterator[T], bar: _Bar) -> None:
        self._items = items
        self._bar: _Bar | None = bar
        self._notes = _Notes(bar)
        UNDER_WAY.tell(self._notes.take)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            item = await anext(self._items)
        except BaseException:  # also at the end, and where the task is cancelled
            self._close()
            raise
        if self._bar is not None:
            self._bar.advance()
        return item

    def _close(self) -> None:
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close()

    def __del__(self) -> None:  # the iteration was left early
        if hasattr(self, "_bar"):
            self._close()


@overload
def progress(
    work: Iterable[DeviceOp[T] | DeviceFuture[T]], *, total: int | None = None, title: str = ...
) -> AsyncIterator[DeviceFuture[T]]: ...
@overload
def progress(work: AsyncIterable[T], *, total: int | None = None, title: str = ...) -> AsyncIterator[T]: ...
def progress(work: Any, *, total: int | None = None, title: str = "working") -> AsyncIterator[Any]:
    """Show how far work is, while it is iterated: ``async for future in ac.progress(ops)``.

    Parameters
    ----------
    work
        Operations and futures, which are executed and yielded as by `as_completed`; or anything for ``async for``,
        whose items are yielded as they come.
    total
        How many items there will be, where `work` does not say it.
    title
        Stands before the bar.

    Returns
    -------
    AsyncIterator
        Of futures that are done, or of the items of `work`.

    Raises
    ------
    ArgumentTypeError
        `work` holds something that is neither an operation nor a future.
    ArgumentValueError, ArgumentTypeError
        `total` is no whole number, or negative.

    Notes
    -----
    The bar is rich's if it is installed (``pip install 'aiocuda[cli]'``), else tqdm's, else a plain line. It goes to
    standard error, or into the notebook; where there is neither a terminal nor a notebook, nothing is written. While a
    kernel is compiled or a graph is made in the background, the bar says so.
    *Stream* and *Blocks*: as for `as_completed`. *On cancel*, and where the iteration is left early: the bar ends.
    """
    if total is not None:
        total = between(total, "the total of progress()", 0, _MOST)
    if isinstance(work, AsyncIterable):
        return _Shown(aiter(work), _bar(total, title))
    ops = list(work)
    return _Shown(as_completed(ops), _bar(len(ops) if total is None else total, title))
