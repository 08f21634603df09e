"""progress() yields what it is given, and tells a bar of it: rich's, tqdm's, or a plain line."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import threading

import numpy as np
import pytest

import aiocuda as ac
from aiocuda._engine.under_way import UNDER_WAY
from aiocuda._instruments import progress as shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(params=["rich", "tqdm", "plain"])
def terminal(request, monkeypatch):
    for missing in {"rich": [], "tqdm": ["rich.console"], "plain": ["rich.console", "tqdm.auto"]}[request.param]:
        monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def some(count: int) -> list[ac.DeviceOp]:
    return [ac.to_host(ac.full(2, i, np.int32)) for i in range(count)]


async def counted(count: int):
    for i in range(count):
        yield i


def test_all_futures_are_yielded_and_counted(run, terminal):
    async def main() -> list[int]:
        return sorted([int(future.result()[0]) async for future in ac.progress(some(3), title="[three]")])

    with contextlib.redirect_stderr(terminal):
        assert run(main) == [0, 1, 2]
    assert "[three]" in terminal.getvalue()
    assert re.search(r"3/3", terminal.getvalue())


def test_items_of_an_asynchronous_iterator_are_yielded_in_their_order(run, terminal):
    async def main() -> list[int]:
        return [i async for i in ac.progress(counted(4), total=4)]

    with contextlib.redirect_stderr(terminal):
        assert run(main) == [0, 1, 2, 3]
    assert "4/4" in terminal.getvalue()


def test_two_at_once_have_a_bar_each(run, terminal):
    async def main() -> None:
        first, second = ac.progress(counted(2), total=2, title="one"), ac.progress(counted(1), total=1, title="two")
        assert [await anext(first), await anext(second), await anext(first)] == [0, 0, 1]
        for each in (first, second):
            with pytest.raises(StopAsyncIteration):
                await anext(each)

    with contextlib.redirect_stderr(terminal):
        run(main)
    assert {"one", "two"} <= set(re.findall("one|two", terminal.getvalue()))


def test_an_error_comes_out_and_ends_the_bar(run, terminal):
    async def failing():
        yield 1
        raise ZeroDivisionError

    async def main() -> None:
        bars = ac.progress(failing(), total=2)
        await anext(bars)
        with pytest.raises(ZeroDivisionError):
            await anext(bars)
        assert bars._bar is None

    with contextlib.redirect_stderr(terminal):
        run(main)


def test_an_iteration_that_is_left_early_ends_its_bar(run, monkeypatch):
    ended = []

    class Bar:
        def advance(self) -> None: ...
        def note(self, text: str) -> None: ...
        def close(self) -> None:
            ended.append(True)

    monkeypatch.setattr(shown, "_bar", lambda total, title: Bar())

    async def main() -> None:
        bars = ac.progress(some(2))
        await anext(bars)
        del bars

    run(main)
    assert ended == [True]


def test_a_bar_says_what_is_compiled_meanwhile(run, terminal, monkeypatch, compiler):
    """When that has ended, it says nothing of it."""
    notes: list[str] = []
    make = shown._bar

    def bar(total, title):
        made = make(total, title)
        note = made.note
        monkeypatch.setattr(made, "note", lambda text: (notes.append(text), note(text)))
        return made

    monkeypatch.setattr(shown, "_bar", bar)
    kernel = ac.kernel('extern "C" __global__ void compiled_below_a_bar(int* x) { *x = 1; }')

    async def main() -> None:
        shows = ac.progress([kernel(ac.empty(1, np.int32), grid=1, block=1)])
        await compiler.until_begun()
        assert notes[-1] == "compiling kernel compiled_below_a_bar"
        compiler.released.set()
        async for _ in shows:
            pass

    with contextlib.redirect_stderr(terminal):
        run(main)
    assert notes[-1] == ""
    assert "compiled_below_a_bar" in terminal.getvalue()


def test_what_is_told_to_a_closed_bar_is_not_written(terminal):
    with contextlib.redirect_stderr(terminal):
        bar = shown._bar(1, "title")
        notes = shown._Notes(bar)
        notes.take(("early", "another"))
        assert "early, and 1 more" in terminal.getvalue()
        bar.close()
        written = terminal.getvalue()
        notes.take(("late",))
    assert "late" not in terminal.getvalue()[len(written) :]


def test_where_nobody_looks_nothing_is_written(run, capsys):
    async def main() -> None:
        async for _ in ac.progress(some(2)):
            pass

    run(main)
    assert capsys.readouterr() == ("", "")


def test_a_total_that_is_none_is_refused():
    with pytest.raises(ac.ArgumentTypeError, match="total"):
        ac.progress(counted(1), total="3")


def test_bars_that_are_gone_are_not_held_where_nothing_is_compiled():
    async def nothing():
        yield 1

    before = len(UNDER_WAY._told)
    for _ in range(100):
        ac.progress(nothing())
    assert len(UNDER_WAY._told) <= before + 2


def test_a_bar_that_is_collected_while_another_begins_holds_nobody_up(monkeypatch):
    """Python collects at any time, also within the lock of the bars."""
    progress = pytest.importorskip("rich.progress")
    begun = []
    add = progress.Progress.add_task

    def add_and_collect(self, *arguments, **options):
        if begun:
            begun.pop().close()
        return add(self, *arguments, **options)

    monkeypatch.setattr(progress.Progress, "add_task", add_and_collect)
    terminal = Terminal()
    with contextlib.redirect_stderr(terminal):
        begun.append(shown._RichBar(1, "first"))
        other = threading.Thread(target=lambda: begun.append(shown._RichBar(1, "second")), daemon=True)
        other.start()
        other.join(20)
        assert not other.is_alive()
        begun.pop().close()
    assert (shown._RichBar._open, shown._RichBar._display) == (0, None)
    assert "second" in terminal.getvalue()


def test_a_bar_that_cannot_be_made_leaves_the_next_one_as_it_would_be(monkeypatch):
    progress = pytest.importorskip("rich.progress")

    def refuse(self):
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(progress.Progress, "start", refuse)
        with pytest.raises(ZeroDivisionError):
            shown._RichBar(1, "refused")
    bar = shown._RichBar(1, "next")
    bar.close()
    assert (shown._RichBar._open, shown._RichBar._display) == (0, None)


def test_a_terminal_that_is_gone_does_not_end_a_compilation():
    class Gone:
        def note(self, text):
            raise SystemExit(1)  # as rich does where nobody reads its pipe

    notes = shown._Notes(Gone())
    UNDER_WAY.tell(notes.take)
    with UNDER_WAY.doing("compiling"):
        pass
