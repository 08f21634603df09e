"""Writes a trace for Perfetto (ui.perfetto.dev), as its protobuf messages.

Always true: packets are written one after another, so a file that ends early is read up to there. A slice of an
operation has what is known of it as arguments.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from aiocuda._trace.model import Trace
from aiocuda._trace.tracks import Counts, Slice, Track, Tracks
from aiocuda.errors import MissingPackageError

__all__ = ["require", "write"]

_SEQUENCE = 1  # of packets: there is one writer
_PROCESS = 1  # the track of the process; the others follow


def require() -> None:
    """Raise `MissingPackageError` where the package `perfetto` is not installed."""
    _messages()


def write(trace: Trace, tracks: Tracks, path: Path) -> None:
    """Write a trace into a file."""
    messages = _messages()
    with path.open("wb") as file:
        for packet in _Packets(messages, trace, tracks).all():
            _put(file, packet)


def _messages() -> Any:
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingPackageError(
            'writing a trace needs the package perfetto, which is not installed: pip install "aiocuda[trace]"'
        ) from error
    return perfetto_trace_pb2


def _put(file: BinaryIO, packet: Any) -> None:
    """Write a packet as the field `packet` of the message `Trace`."""
    body = packet.SerializeToString()
    file.write(b"\x0a" + _varint(len(body)) + body)


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


class _Packets:
    """The packets of one trace."""

    def __init__(self, messages: Any, trace: Trace, tracks: Tracks) -> None:
        self._messages = messages
        self._event = messages.TrackEvent
        self._trace = trace
        self._tracks = tracks
        self._numbers = itertools.count(_PROCESS + 1)
        self._flows: dict[int, list[int]] = {}  # by the identity of a slice
        self._ends: dict[int, list[int]] = {}  # the flows that end where an await ends
        for number, arrow in enumerate(tracks.arrows, 1):
            self._flows.setdefault(id(arrow.begin), []).append(number)
            (self._ends if arrow.kind == "wake" else self._flows).setdefault(id(arrow.end), []).append(number)

    def all(self) -> Iterator[Any]:
        packet = self._packet()
        packet.sequence_flags = self._messages.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        packet.track_descriptor.uuid = _PROCESS
        packet.track_descriptor.process.pid = 1
        packet.track_descriptor.process.process_name = f"aiocuda: {self._trace.name}"
        yield packet
        groups: dict[str, int] = {}
        for track in self._tracks.tracks:
            if track.group not in groups:
                groups[track.group] = next(self._numbers)
                yield self._described(groups[track.group], track.group, _PROCESS)
            number = next(self._numbers)
            yield self._described(number, track.name, groups[track.group])
            yield from self._slices(track, number)
        for counts in self._tracks.counts:
            yield from self._counts(counts)

    def _packet(self, at_ns: int | None = None) -> Any:
        packet = self._messages.TracePacket()
        packet.trusted_packet_sequence_id = _SEQUENCE
        if at_ns is not None:
            packet.timestamp = at_ns
        return packet

    def _described(self, number: int, name: str, parent: int) -> Any:
        packet = self._packet()
        descriptor = packet.track_descriptor
        descriptor.uuid, descriptor.name, descriptor.parent_uuid = number, name, parent
        return packet

    def _slices(self, track: Track, number: int) -> Iterator[Any]:
        around: list[Slice] = []
        for each in track.slices:
            while around and around[-1].end_ns <= each.begin_ns:
                yield from self._end(around.pop(), number)
            around.append(each)
            packet = self._packet(each.begin_ns)
            event = packet.track_event
            event.type, event.track_uuid = self._event.TYPE_SLICE_BEGIN, number
            event.name = each.title
            event.categories.append(each.kind)
            event.flow_ids.extend(self._flows.get(id(each), ()))
            for name, value in self._arguments(each):
                annotation = event.debug_annotations.add()
                annotation.name = name
                if isinstance(value, tuple):
                    for item in value:
                        annotation.array_values.add().uint_value = item
                elif isinstance(value, int):
                    annotation.int_value = value
                else:
                    annotation.string_value = value
            yield packet
        while around:
            yield from self._end(around.pop(), number)

    def _end(self, ended: Slice, number: int) -> Iterator[Any]:
        if wakes := self._ends.get(id(ended)):
            packet = self._packet(ended.end_ns)
            event = packet.track_event
            event.type, event.track_uuid, event.name = self._event.TYPE_INSTANT, number, "wake"
            event.terminating_flow_ids.extend(wakes)
            yield packet
        packet = self._packet(ended.end_ns)
        packet.track_event.type, packet.track_event.track_uuid = self._event.TYPE_SLICE_END, number
        yield packet

    def _arguments(self, of: Slice) -> Iterator[tuple[str, Any]]:
        if of.operation is None:
            if of.asked is not None and of.kind == "await":
                asked = self._trace.asked[of.asked]
                yield from (("await", of.asked), ("outcome", asked.outcome), ("built at", asked.place))
            return
        each = self._trace.operations[of.operation]
        yield from (("operation", each.number), ("built at", each.place), ("state", each.state))
        if each.asked is not None:
            yield "asked", each.asked
        if each.size_bytes:
            yield "bytes", each.size_bytes
        if each.needs:
            yield "needs", each.needs

    def _counts(self, counts: Counts) -> Iterator[Any]:
        number = next(self._numbers)
        packet = self._described(number, counts.name, _PROCESS)
        counter = packet.track_descriptor.counter
        counter.unit_name = counts.unit
        yield packet
        for at_ns, value in counts.points:
            packet = self._packet(at_ns)
            event = packet.track_event
            event.type, event.track_uuid, event.counter_value = self._event.TYPE_COUNTER, number, value
            yield packet
