"""The command ``aiocuda bench``: what it prints and writes, and the floors that it compares with."""

from __future__ import annotations

import json
import sys
import types
from xml.etree import ElementTree

import numpy as np
import pytest
from bench_runs import bench, rows_of, run_whole

import aiocuda as ac
from aiocuda import _native
from aiocuda._bench import peers, report
from aiocuda._bench.figures import Section, compare, figure
from aiocuda._bench.peers.loading import Known

MEASURES = ["submit", "await", "chain", "streams", "waiters", "stall", "idle", "import"]
WITHOUT_FLOOR = {"idle", "import"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One run of everything: what it printed, and where it wrote the rest."""
    return run_whole(tmp_path_factory.mktemp("bench"))


def test_every_measure_has_sane_figures(whole):
    rows = rows_of(whole[1] / "csv")
    assert list(dict.fromkeys(row["measure"] for row in rows)) == MEASURES
    for row in rows:
        assert 0 < float(row["minimum"]) <= float(row["median"]), row
        assert int(row["samples"]) >= 1, row
        if row["measure"] in WITHOUT_FLOOR:
            assert row["floor"] == row["ratio"] == "", row
        else:
            assert float(row["ratio"]) == pytest.approx(float(row["median"]) / float(row["floor"])), row


def test_ratios_are_to_the_quickest_floor_of_the_case(whole):
    rows = rows_of(whole[1] / "csv")
    floors = [row for row in rows if row["measure"] == "await" and row["name"].startswith("C++")]
    assert len(floors) == 3
    quickest = min(float(row["median"]) for row in floors)
    assert {float(row["floor"]) for row in rows if row["measure"] == "await"} == {quickest}


def test_every_loop_awaits_with_and_without_spinning(whole):
    names = {row["name"] for row in rows_of(whole[1] / "csv") if row["measure"] == "await"}
    for loop in ("asyncio", "uvloop", "trio"):
        assert {f"aiocuda: await, {loop}, spinning", f"aiocuda: await, {loop}, not spinning"} <= names
    assert {"aiocuda: .sync()", "cuda.core: launch, wait", "cuda.core: launch, to_thread(sync), asyncio"} <= names


def test_chains_and_waiters_come_in_all_sizes(whole):
    cases = {(row["measure"], row["case"]) for row in rows_of(whole[1] / "csv")}
    assert {("chain", number) for number in ("1", "10", "100", "1,000")} <= cases
    assert {("waiters", number) for number in ("1,000", "10,000")} <= cases


def test_the_table_has_the_rows_of_the_csv(whole):
    lines, rows = whole[0].splitlines(), rows_of(whole[1] / "csv")
    assert rows
    for row in rows:
        assert any(line.startswith(row["name"]) and row["unit"] in line for line in lines), row


@pytest.mark.emulated_only
def test_an_emulated_driver_is_called_no_performance_model(whole):
    assert "not a performance model" in whole[0]
    assert "driver: emulated" in whole[0]
    assert "no performance model" in (whole[1] / "plot").read_text("utf-8")


def test_a_run_is_compared_with_one_that_was_written(whole):
    path = whole[1] / "json"
    assert json.loads(path.read_text("utf-8"))["about"]["processor"]
    done = bench("--quick", "--only", "import", "--compare", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("import import aiocuda")]
    assert row.count(" ms") == 2
    assert row.rstrip().endswith(" x")


def test_other_libraries_are_measured_or_left_out_with_the_reason(whole):
    about = json.loads((whole[1] / "json").read_text("utf-8"))["about"]
    measured = {row["name"].partition(":")[0] for row in rows_of(whole[1] / "csv")}
    assert "cuda.core" in measured
    for name in peers.PACKAGES:
        assert (name in measured) != (name in about["left out"]), name
        if name not in measured:
            assert f"left out: {name} (" in whole[0]


def test_json_holds_what_the_csv_holds(whole):
    figures = json.loads((whole[1] / "json").read_text("utf-8"))["figures"]
    rows = rows_of(whole[1] / "csv")
    assert [(each["measure"], each["name"], str(each["median"])) for each in figures] == [
        (row["measure"], row["name"], row["median"]) for row in rows
    ]


def test_the_picture_has_a_bar_for_each_ratio(whole):
    picture = ElementTree.parse(whole[1] / "plot")
    svg = "{http://www.w3.org/2000/svg}"
    bars = [each for each in picture.iter(f"{svg}rect") if each.get("width") != "100%"]
    assert len(bars) == sum(row["ratio"] != "" for row in rows_of(whole[1] / "csv"))
    right_end = float(picture.getroot().attrib["width"])
    assert all(0 <= float(bar.attrib["x"]) <= right_end - float(bar.attrib["width"]) for bar in bars)


def test_only_measures_what_is_asked_for(tmp_path):
    done = bench("--quick", "--only", "idle,submit", "--csv", str(tmp_path / "csv"))
    assert done.returncode == 0, done.stderr
    assert list(dict.fromkeys(row["measure"] for row in rows_of(tmp_path / "csv"))) == ["submit", "idle"]
    assert "Launch and await one" not in done.stdout


@pytest.mark.parametrize("only", ["awake", "submit,awake", ""])
def test_an_unknown_measure_is_told_those_there_are(only):
    done = bench("--only", only)
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"{only.split(',')[-1]!r} was given" in done.stderr
    assert all(measure in done.stderr for measure in MEASURES)


@pytest.mark.parametrize("option", ["--csv", "--json", "--plot"])
def test_a_file_that_cannot_be_written_is_said_before_anything_is_measured(tmp_path, option):
    for path in (tmp_path / "nowhere" / "file", tmp_path):
        done = bench("--quick", option, str(path))
        assert done.returncode == 2
        assert done.stdout == ""
        assert f"{path} cannot be written" in done.stderr


def test_a_peer_that_fails_is_left_out_with_what_it_said(monkeypatch):
    def connect(work):
        raise RuntimeError("no\nlicence")

    broken = types.SimpleNamespace(connect=connect)
    monkeypatch.setitem(sys.modules, "aiocuda._bench.peers.broken", broken)
    known = [Known("Broken", "json", "broken", runs_emulated=True), Known("Gone", "no_such", "gone")]
    monkeypatch.setattr(peers, "_KNOWN", known)
    found, left_out = peers.load_peers(types.SimpleNamespace(device=ac.Device(0)))
    assert found == []
    assert left_out == {"Broken": "RuntimeError: no licence", "Gone": "not installed"}


def test_samples_are_taken_in_turn_after_once_for_nothing():
    taken: list[str] = []

    def sample(name: str, *times: float):
        remaining = [9.0, *times]

        def take():
            taken.append(name)
            return [remaining.pop(0)]

        return take

    floor, other, slow = compare(
        "ms",
        3,
        {"floor": sample("floor", 1, 3, 2)},
        {"other": sample("other", 6, 4, 5), "slow": sample("slow", 8, 8, 8)},
    )
    assert taken == ["floor", "other", "slow"] * 4
    assert (floor.median, floor.minimum, floor.samples, floor.ratio) == (2000, 1000, 3, 1)
    assert (other.median, other.minimum, other.ratio) == (5000, 4000, 2.5)
    assert slow.ratio == 4


def test_a_terminal_gets_the_same_figures(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    floor = figure("the floor", "µs", [2e-6])
    report.print_section(Section("await", "", "A title", (figure("an await", "µs", [5e-6], floor),)))
    printed = capsys.readouterr().out
    assert "A title" in printed
    assert "5.00 µs" in printed
    assert "2.50 x" in printed


INCREMENT = r"""
extern "C" __global__ void increment(int* x, unsigned n) { if (threadIdx.x < n) x[threadIdx.x] += 1; }
"""


class Counted:
    """A floor whose launches can be counted."""

    def __init__(self, block: int = 32) -> None:
        self.device = ac.Device(0)
        self.kernel = ac.kernel(INCREMENT)
        self.kernel.compile(self.device)
        self.array = ac.zeros(1, np.int32).sync()
        self.streams = [self.device.stream() for _ in range(3)]
        self.handles = [stream.handle for stream in self.streams]
        values = [self.array.address.to_bytes(8, "little"), np.uint32(1).tobytes()]
        self.floor = _native.Floor(0, self.kernel._load(0), 1, block, values)

    def count(self) -> int:
        return int(ac.to_host(self.array).sync()[0])


@pytest.mark.parametrize("how", ["stream", "flag", "host function"])
def test_a_floor_that_waits_takes_time_and_leaves_nothing_behind(how):
    counted = Counted()
    for total in (20, 40):
        times = counted.floor.waits(counted.handles[0], how, 20)
        assert len(times) == 20
        assert min(times) > 0
        assert counted.count() == total
    assert _native.pending_count() == 0


def test_a_floor_of_launches_returns_when_all_have_passed():
    counted = Counted()
    submitted, passed = counted.floor.launches(counted.handles[:1], 200, False)
    assert 0 < submitted <= passed
    assert counted.count() == 200
    submitted, passed = counted.floor.launches(counted.handles, 200, True)
    assert 0 < submitted <= passed
    assert counted.count() == 400
    assert _native.pending_count() == 0


@pytest.mark.driver_refuses("cuLaunchKernel")
def test_a_floor_that_the_driver_refuses_is_an_error_of_the_driver():
    counted = Counted(block=100_000)
    with pytest.raises(ac.LaunchError, match="cuLaunchKernel"):
        counted.floor.launches(counted.handles, 1, False)
    with pytest.raises(ac.LaunchError, match="cuLaunchKernel"):
        counted.floor.waits(counted.handles[0], "stream", 1)
    assert counted.count() == 0


def test_a_floor_is_told_what_to_wait_for():
    counted = Counted()
    with pytest.raises(ValueError, match="host function"):
        counted.floor.waits(counted.handles[0], "hope", 1)
    with pytest.raises(ValueError, match="need a stream"):
        counted.floor.launches([], 1, False)
    assert counted.count() == 0
