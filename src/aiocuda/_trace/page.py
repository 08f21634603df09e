"""Writes a trace as one page for a browser, which needs no server and no network.

Always true: all that the page shows lies in it, as JSON; its script and its style are the files beside this one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from aiocuda._trace import dag
from aiocuda._trace.analysis import Analysis
from aiocuda._trace.findings import Finding
from aiocuda._trace.model import Asked, Operation, Trace
from aiocuda._trace.tracks import Slice, Tracks

__all__ = ["write"]


def write(trace: Trace, tracks: Tracks, analysis: Analysis, findings: Sequence[Finding], path: Path) -> None:
    """Write a trace into a file."""
    parts = files("aiocuda._trace")
    page = (parts / "page.html").read_text(encoding="utf-8")
    filled = {
        "STYLE": (parts / "page.css").read_text(encoding="utf-8"),
        "SCRIPT": (parts / "page.js").read_text(encoding="utf-8"),
        "DAG": dag.picture(trace, analysis.critical),
    }
    with path.open("w", encoding="utf-8") as file:
        for part in page.split("@@"):
            if part == "DATA":
                file.writelines(_written(_data(trace, tracks, analysis, findings)))
            else:
                file.write(filled.get(part, part))


def _written(values: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Write an object piece by piece: a trace of many operations is large. Iterators are written as lists."""
    for i, (name, value) in enumerate(values):
        yield f"{',' if i else '{'}{_json(name)}:"
        if not isinstance(value, Iterator):
            yield _json(value)
            continue
        yield "["
        for j, item in enumerate(value):
            yield ("," if j else "") + _json(item)
        yield "]"
    yield "}"


def _json(value: Any) -> str:
    # A script element ends at its end tag, wherever that stands.
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")


def _data(trace: Trace, tracks: Tracks, analysis: Analysis, findings: Sequence[Finding]) -> Iterator[tuple[str, Any]]:
    zero_ns = trace.begun_ns
    texts: dict[str, int] = {}

    def text(of: str) -> int:
        return texts.setdefault(of, len(texts))

    def since(at_ns: int) -> int | None:
        return at_ns - zero_ns if at_ns else None

    def of_slice(each: Slice) -> list[Any]:
        took = each.end_ns - each.begin_ns
        return [
            each.begin_ns - zero_ns,
            took,
            text(each.kind),
            text(each.title),
            each.operation,
            each.asked,
            each.depth,
        ]

    def of_operation(each: Operation) -> list[Any]:
        times = (each.built_ns, each.called_ns, each.returned_ns, each.started_ns, each.ended_ns)
        return [
            text(each.kind), text(each.name), text(each.place), each.asked, each.device, each.stream, text(each.state),
            each.size_bytes, each.needs, *map(since, times),
        ]  # fmt: skip

    def of_asked(each: Asked) -> list[Any]:
        return [
            each.kind, each.outcome, text(each.name), text(each.place), text(each.who), each.results,
            since(each.begun_ns), since(each.ended_ns),
        ]  # fmt: skip

    places = {id(each): (i, j) for i, track in enumerate(tracks.tracks) for j, each in enumerate(track.slices)}
    found = asdict(analysis)
    for row, of in zip(found["rows"], analysis.rows, strict=True):
        row["waited_ns"] = of.waited_ns.most_common()
    yield "name", trace.name
    yield "is_emulated", trace.is_emulated
    yield "took", trace.ended_ns - zero_ns
    yield "most_shown", dag.MOST_SHOWN
    yield (
        "tracks",
        (
            {"group": track.group, "name": track.name, "slices": [of_slice(each) for each in track.slices]}
            for track in tracks.tracks
        ),
    )
    yield (
        "counts",
        (
            {"name": each.name, "unit": each.unit, "points": [(at - zero_ns, value) for at, value in each.points]}
            for each in tracks.counts
        ),
    )
    yield "arrows", ((each.kind, *places[id(each.begin)], *places[id(each.end)]) for each in tracks.arrows)
    yield "operations", (of_operation(each) for each in trace.operations)
    yield "asked", (of_asked(each) for each in trace.asked)
    yield "analysis", found
    yield "findings", [str(each) for each in findings]
    yield "texts", list(texts)  # at the end: by now all are there
