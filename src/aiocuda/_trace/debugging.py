"""Finds the habits of a program that cost time, and tells them: `debug`.

Always true: it writes no files, and needs no other package. It tells at the end of its block, however that ends.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from aiocuda import _loops
from aiocuda._engine import held_up
from aiocuda._trace.findings import HELD_NS, Busy, Finding, find
from aiocuda._trace.recorded import Recorded
from aiocuda.errors import AiocudaError, ArgumentValueError

__all__ = ["Debugging", "debug"]


class Debugging:
    """A ``with`` block whose habits that cost time are found, as `debug` returns it."""

    def __init__(self, held_ns: int, *, is_told: bool) -> None:
        self._held_ns = held_ns
        self._is_told = is_told
        self._recorded: Recorded | None = None
        self._around: held_up.Watching | None = None
        self._busy: list[Busy] = []
        self._findings: tuple[Finding, ...] | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The habits that were found, the dearest first.

        Raises
        ------
        AiocudaError
            The block has not ended.
        """
        if self._findings is None:
            raise AiocudaError("findings are there when the with block of debug() has ended")
        return self._findings

    def __enter__(self) -> Self:
        if self._recorded is not None or self._findings is not None:
            raise AiocudaError("this debug() has had its block already; make another one")
        self._recorded = Recorded("debug")
        self._around = held_up.watch(self._held_ns / 1e9, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        recorded, self._recorded = self._recorded, None
        assert recorded is not None
        held_up.restore(self._around)
        self._findings = find(recorded.end(), self._busy, self._held_ns)
        if self._is_told and sys.stderr is not None:
            for each in self._findings:
                print(f"aiocuda: {each}", file=sys.stderr)

    def _note(self, what: str, place: str, begun_s: float, taken_s: float) -> None:
        begun_ns = int(begun_s * 1e9)
        self._busy.append(Busy(_loops.current_name(), what, place, begun_ns, begun_ns + int(taken_s * 1e9)))


def debug(held_ms: float = HELD_NS / 1e6, *, report: bool = True) -> Debugging:
    """Find the habits of a ``with`` block that cost time, each with its line.

    It finds:

    - an event loop that is held for long: by a function of `map`, `then` or `inspect`, by ``sync()``, by a kernel that
      is compiled or loaded there, by a graph that is made, by a submission;
    - copies that wait on their stream behind work that they do not need, and kernels behind such copies;
    - arrays that copies bring to the host, or to another device, and bring back, and that no operation changed there
      (a change that the program makes itself, with NumPy, is not known);
    - awaits of one line, one after the other, of which none needs the one before;
    - streams that never work at the same time, because the host asks for work too late.

    All but the first are left out where they cost less than 5 ms, or than 5 % of the block's time.

    Parameters
    ----------
    held_ms
        For how many milliseconds an event loop may be held at once.
    report
        Whether the findings are printed to standard error, too, at the end of the block.

    Returns
    -------
    Debugging
        To be entered by ``with``. Afterwards ``.findings`` is what was found.

    Raises
    ------
    ArgumentValueError
        `held_ms` is no number, 0 or more.
    AiocudaError
        When the block begins: another trace is recorded.

    Notes
    -----
    *Stream*: events around each piece of work, as by `trace`; 160 bytes are kept for each until the block ends.
    *Blocks*: at the end of the block, until the devices have passed the work, for 5 seconds at most.

    Examples
    --------
    >>> import aiocuda as ac
    >>> with ac.debug(report=False) as debugging:
    ...     _ = ac.ones(3).sync()
    >>> debugging.findings
    ()
    """
    if not held_ms >= 0:
        raise ArgumentValueError(f"held_ms={held_ms!r} is no time; give milliseconds from 0 on")
    return Debugging(int(held_ms * 1e6), is_told=report)
