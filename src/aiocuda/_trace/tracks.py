"""A trace as tracks of slices, counters and arrows, which every picture of it shows.

Always true: slices of one track lie one behind another, or one within another. An arrow goes from a slice to one that
began no earlier.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from aiocuda._trace.model import Trace

__all__ = ["Arrow", "Counts", "Slice", "Track", "Tracks", "lay_out"]


@dataclass(slots=True)
class Slice:
    """A time on a track.

    Attributes
    ----------
    begin_ns, end_ns, kind, title
        When it was, and what.
    operation, asked
        The number of the operation that it is of; the index of who asked; None where it is of none.
    depth
        How many slices it lies in.
    """

    begin_ns: int
    end_ns: int
    kind: str
    title: str
    operation: int | None = None
    asked: int | None = None
    depth: int = 0


@dataclass(slots=True)
class Track:
    """Slices of one stream, task or thread, in the order of their begins."""

    group: str
    name: str
    slices: list[Slice] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Counts:
    """A number over time: pairs of a time and the value from then on."""

    name: str
    unit: str
    points: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Arrow:
    """From a slice to a slice, by what it stands for: ``"submit"``, ``"wake"`` or ``"need"``."""

    kind: str
    begin: Slice
    end: Slice


@dataclass(frozen=True, slots=True)
class Tracks:
    """All of a trace."""

    tracks: tuple[Track, ...]
    counts: tuple[Counts, ...]
    arrows: tuple[Arrow, ...]


def lay_out(trace: Trace) -> Tracks:
    """Lay a trace out."""
    tracks: dict[tuple[str, str], Track] = {}
    hosts: dict[str, list[Slice]] = {}
    submitted: dict[int, Slice] = {}
    awaits: list[Slice] = []
    for index, asked in enumerate(trace.asked):
        title = f"{asked.kind}: {asked.name}" + ("" if asked.outcome == "done" else f" ({asked.outcome})")
        made = Slice(asked.begun_ns, asked.ended_ns or trace.ended_ns, "await", title, None, index)
        awaits.append(made)
        hosts.setdefault(asked.who, []).append(made)
    for step in trace.steps:
        who = trace.asked[step.asked].who
        hosts[who].append(Slice(step.begun_ns, step.ended_ns, "step", "holds the thread", None, step.asked))
    on_device: dict[int, Slice] = {}
    for each in trace.operations:
        who = trace.asked[each.asked].who if each.asked is not None else "not known: who asked"
        is_function = each.kind == "function"
        verb = "" if is_function or each.stream is None else "submit "
        made = Slice(
            each.called_ns, each.returned_ns or each.called_ns, "function" if is_function else "submit",
            f"{verb}{each.name}", each.number, each.asked,
        )  # fmt: skip
        submitted[each.number] = made
        hosts.setdefault(who, []).append(made)
        if each.stream is not None and each.is_measured:
            track = tracks.setdefault(
                (f"device {each.device}", f"{each.stream:09}"),
                Track(_device_title(trace, each.device), f"stream {each.stream}"),
            )
            on_device[each.number] = Slice(
                each.started_ns, each.ended_ns, each.kind, each.name, each.number, each.asked
            )
            track.slices.append(on_device[each.number])
    for who, slices in hosts.items():
        library, _, name = who.partition(": ")
        tracks[(f"~{library}", name)] = Track("threads" if library == "thread" else f"loop of {library}", name, slices)
    for track in tracks.values():
        track.slices = _nested(track.slices)
    ordered = tuple(tracks[key] for key in sorted(tracks))
    return Tracks(ordered, tuple(_counts(trace)), tuple(_arrows(trace, awaits, submitted, on_device)))


def _device_title(trace: Trace, device: int) -> str:
    return f"device {device}{' (emulated)' if trace.is_emulated else ''}"


def _nested(slices: list[Slice]) -> list[Slice]:
    """Put slices in order, and cut off what would reach over the end of one that they begin in."""
    ordered = sorted(slices, key=lambda each: (each.begin_ns, -each.end_ns))
    around: list[Slice] = []
    for each in ordered:
        while around and around[-1].end_ns <= each.begin_ns:
            around.pop()
        if around:
            each.end_ns = min(each.end_ns, around[-1].end_ns)
        each.depth = len(around)
        around.append(each)
    return ordered


def _counts(trace: Trace) -> Iterable[Counts]:
    for device in sorted({each.device for each in trace.operations if each.device >= 0}):
        own = [each for each in trace.operations if each.device == device]
        held = tuple((each.decided_ns, each.held_bytes) for each in sorted(own, key=lambda each: each.decided_ns))
        yield Counts(f"memory held on {_device_title(trace, device)}", "bytes", held)
        changes = sorted(
            change
            for each in own
            if each.is_measured
            for change in ((each.returned_ns, 1), (max(each.ended_ns, each.returned_ns), -1))
        )
        in_flight, points = 0, []
        for at, change in changes:
            in_flight += change
            points.append((at, in_flight))
        yield Counts(f"work in flight on {_device_title(trace, device)}", "operations", tuple(points))


def _arrows(
    trace: Trace, awaits: list[Slice], submitted: dict[int, Slice], on_device: dict[int, Slice]
) -> Iterable[Arrow]:
    for each in trace.operations:
        if each.number not in on_device:
            continue
        yield Arrow("submit", submitted[each.number], on_device[each.number])
        for number in each.needs:
            if number in on_device and trace.operations[number].stream != each.stream:
                yield Arrow("need", on_device[number], on_device[each.number])
    for asked, made in zip(trace.asked, awaits, strict=True):
        for number in asked.results:
            if number in on_device and asked.ended_ns:
                yield Arrow("wake", on_device[number], made)
