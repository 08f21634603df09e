"""Records what runs, and writes it: `trace`.

Always true: one trace is recorded at a time. Its files are written however the block ends.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from aiocuda._pictures import layout
from aiocuda._trace import page, perfetto, terminal
from aiocuda._trace.activities import Activities
from aiocuda._trace.analysis import Analysis, analyse
from aiocuda._trace.findings import Finding, find
from aiocuda._trace.model import Trace
from aiocuda._trace.ranges import Ranges
from aiocuda._trace.recorded import Recorded
from aiocuda._trace.tracks import lay_out
from aiocuda.errors import AiocudaError, ArgumentValueError

__all__ = ["Tracing", "trace"]


class Tracing:
    """A trace that is recorded from the begin of a ``with`` block to its end, as `trace` returns it.

    Attributes
    ----------
    name
        Its name, which its files begin with.
    output
        The folder of its files.
    """

    def __init__(self, name: str, output: Path, *, is_told: bool, has_ranges: bool, has_activities: bool) -> None:
        self.name = name
        self.output = output
        self._is_told = is_told
        self._has_ranges = has_ranges
        self._has_activities = has_activities
        self._recorded: Recorded | None = None
        self._result: Trace | None = None
        self._analysis: Analysis
        self._findings: tuple[Finding, ...]

    @property
    def perfetto_path(self) -> Path:
        """The file for Perfetto."""
        return self.output / f"{self.name}.perfetto-trace"

    @property
    def page_path(self) -> Path:
        """The page for a browser."""
        return self.output / f"{self.name}.trace.html"

    @property
    def result(self) -> Trace:
        """The trace that was recorded: its operations, who asked for them, and when what happened.

        Raises
        ------
        AiocudaError
            The block has not ended.
        """
        return self._require_end()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The habits that cost time in what was recorded, the dearest first; see `debug`. Raises as `result` does."""
        self._require_end()
        return self._findings

    def summary(self) -> str:
        """Return the figures of what was recorded, as lines of text. Raises as `result` does.

        Returns
        -------
        str
            Several lines: times, streams, and what held them up.
        """
        return terminal.summary(self.result, self._analysis, self._findings)

    def __enter__(self) -> Self:
        if self._recorded is not None or self._result is not None:
            raise AiocudaError(f"the trace {self.name} was recorded already; make another one with trace()")
        perfetto.require()
        layout.require("trace")
        if not self.output.is_dir():
            raise ArgumentValueError(f"output={str(self.output)!r} is no folder; make it first")
        ranges = Ranges() if self._has_ranges else None
        self._recorded = Recorded(self.name, ranges, Activities() if self._has_activities else None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        recorded, self._recorded = self._recorded, None  # its events are given back
        assert recorded is not None
        result = recorded.end()
        self._analysis, self._findings = analyse(result), find(result)
        self._result = result
        self._write(result)

    def _require_end(self) -> Trace:
        if self._result is None:
            raise AiocudaError(f"the trace {self.name} is not there before its with block has ended")
        return self._result

    def _write(self, result: Trace) -> None:
        tracks = lay_out(result)
        perfetto.write(result, tracks, self.perfetto_path)
        page.write(result, tracks, self._analysis, self._findings, self.page_path)
        if self._is_told:
            print(self.summary(), file=sys.stderr)
            print(f"written: {self.perfetto_path} (ui.perfetto.dev), {self.page_path}", file=sys.stderr)


def trace(
    name: str = "trace", *, output: str | Path = ".", report: bool = True, nvtx: bool = False, cupti: bool = False
) -> Tracing:
    """Record what runs in a ``with`` block: awaits, operations, streams and what waited for what.

    At the end of the block it writes ``name.perfetto-trace``, for Perfetto, and ``name.trace.html``, for a browser.

    Parameters
    ----------
    name
        The trace's name.
    output
        The folder for the files; it must be there.
    report
        Whether the figures are printed to standard error, too.
    nvtx
        Whether each await is a range of NVTX, too, for Nsight Systems. It needs the package ``nvtx``.
    cupti
        Whether the times of the device are CUPTI's, which are those of the kernels and copies alone, and not those of
        events around them. It needs the package ``cupti-python`` and an NVIDIA GPU.

    Returns
    -------
    Tracing
        To be entered by ``with``. Afterwards ``.result`` is what was recorded, and ``.summary()`` its figures.

    Raises
    ------
    MissingPackageError
        The packages ``perfetto`` and ``igraph`` are not installed (extra ``trace``), or ``nvtx`` or ``cupti-python`` is
        asked for and not installed.
    ArgumentValueError
        `cupti` is asked for, and the driver is emulated, or ``AIOCUDA_SUBMISSION_THREAD`` is in force.
    AiocudaError
        When the block begins: another trace is recorded; or CUPTI refused, because another profiler uses it, for
        instance.

    Notes
    -----
    *Stream*: events around each piece of work. *Blocks*: at the end of the block, until the devices have passed what
    was recorded, for 5 seconds at most; and while files are written. Of work that has not passed by then no times of
    the device are known. An operation of a graph's is part of its launch.

    Examples
    --------
    >>> import aiocuda as ac
    >>> with ac.trace("ones", report=False) as t:
    ...     _ = ac.ones(3).sync()
    >>> [each.name for each in t.result.operations]
    ['allocate and fill']
    """
    if name in {"", ".."} or Path(name).name != name:
        raise ArgumentValueError(f"name={name!r} is no name of a file; output= names the folder")
    return Tracing(name, Path(output), is_told=report, has_ranges=nvtx, has_activities=cupti)
