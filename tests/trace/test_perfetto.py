"""The file for Perfetto, read back by its own messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import aiocuda as ac

pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")


class Read:
    """The events of a file by their track, and its tracks."""

    def __init__(self, body: bytes) -> None:
        message = pb.Trace()
        message.ParseFromString(body)
        described = [each.track_descriptor for each in message.packet if each.HasField("track_descriptor")]
        self.names = {each.uuid: each.name or each.process.process_name for each in described}
        self.parents = {each.uuid: each.parent_uuid for each in described}
        self.events = [(each.timestamp, each.track_event) for each in message.packet if each.HasField("track_event")]

    def title(self, track: int) -> str:
        return f"{self.names[self.parents[track]]}/{self.names[track]}"

    def slices(self, prefix: str) -> list[Any]:
        return [
            event
            for _, event in self.events
            if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN and self.title(event.track_uuid).startswith(prefix)
        ]


def arguments(event: Any) -> dict[str, Any]:
    return {
        each.name: [item.uint_value for item in each.array_values]
        or each.string_value
        or (each.int_value if each.HasField("int_value") else "")
        for each in event.debug_annotations
    }


def test_the_device_has_each_operation_with_what_it_needed(two_branches: ac.Tracing) -> None:
    read = Read(two_branches.perfetto_path.read_bytes())
    measured = {each.number: each for each in two_branches.result.operations if each.is_measured}
    shown = {arguments(each)["operation"]: each for each in read.slices("device 0")}
    assert {number: each.name for number, each in shown.items()} == {
        number: each.name for number, each in measured.items()
    }
    assert sorted(each.name for each in shown.values()) == ["add", "copy to host", "scale", "scale"]
    for number, each in measured.items():
        assert tuple(arguments(shown[number]).get("needs", ())) == each.needs
        assert read.title(shown[number].track_uuid).endswith(f"/stream {each.stream}")


def test_flows_go_from_the_submission_to_the_device_and_to_the_wake(two_branches: ac.Tracing) -> None:
    read = Read(two_branches.perfetto_path.read_bytes())
    on_device = {arguments(each)["operation"]: set(each.flow_ids) for each in read.slices("device 0")}
    submitted = {
        arguments(each)["operation"]: set(each.flow_ids)
        for each in read.slices("threads")
        if each.name.startswith("submit ") and each.flow_ids
    }
    assert on_device.keys() == submitted.keys()
    assert all(on_device[number] & submitted[number] for number in on_device)
    woken = {flow for _, event in read.events for flow in event.terminating_flow_ids}
    (asked,) = two_branches.result.asked
    assert all(on_device[number] & woken for number in asked.results)


def test_waits_between_streams_are_flows(two_branches: ac.Tracing) -> None:
    read = Read(two_branches.perfetto_path.read_bytes())
    flows = {arguments(each)["operation"]: set(each.flow_ids) for each in read.slices("device 0")}
    operations = two_branches.result.operations
    between = [
        (number, each.number)
        for each in operations
        if each.is_measured
        for number in each.needs
        if operations[number].is_measured and operations[number].stream != each.stream
    ]
    assert between
    for one, other in between:
        assert flows[one] & flows[other]


def test_slices_begin_and_end_within_one_another(two_branches: ac.Tracing) -> None:
    read = Read(two_branches.perfetto_path.read_bytes())
    depths: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, event in read.events:
        if event.type in (pb.TrackEvent.TYPE_SLICE_BEGIN, pb.TrackEvent.TYPE_SLICE_END):
            depths[event.track_uuid] = depths.get(event.track_uuid, 0) + (
                1 if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN else -1
            )
            assert depths[event.track_uuid] >= 0
            assert at >= last.get(event.track_uuid, 0)
            last[event.track_uuid] = at
    assert not any(depths.values())


def test_memory_and_work_in_flight_are_counters(two_branches: ac.Tracing) -> None:
    read = Read(two_branches.perfetto_path.read_bytes())
    counted: dict[str, list[int]] = {}
    for _, event in read.events:
        if event.type == pb.TrackEvent.TYPE_COUNTER:
            counted.setdefault(read.names[event.track_uuid].partition(" on ")[0], []).append(event.counter_value)
    assert max(counted["memory held"]) >= 2 * 4096
    assert max(counted["work in flight"]) >= 1
    assert counted["work in flight"][-1] == 0


def test_a_file_that_ends_early_is_read_up_to_there(two_branches: ac.Tracing) -> None:
    body = two_branches.perfetto_path.read_bytes()
    ends = [0]
    while ends[-1] < len(body):  # a tag, a length of one or two bytes, and a packet
        at = ends[-1] + 1
        size, shift = 0, 0
        while True:
            size |= (body[at] & 0x7F) << shift
            shift += 7
            at += 1
            if body[at - 1] < 0x80:
                break
        ends.append(at + size)
    half = ends[len(ends) // 2]
    assert 0 < len(Read(body[:half]).events) < len(Read(body).events)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, ValueError])
def test_a_trace_that_is_interrupted_is_written(raised: type[BaseException], tmp_path: Path) -> None:
    with pytest.raises(raised), ac.trace("cut", output=tmp_path, report=False) as traced:  # noqa: PT012 - in the block
        ac.ones(5).sync()
        raise raised
    read = Read(traced.perfetto_path.read_bytes())
    assert [each.name for each in read.slices("device 0")] == ["allocate and fill"]
    assert traced.page_path.exists()
