"""The command ``aiocuda bench graphs``: what it prints and writes, and the floors that it compares with."""

from __future__ import annotations

import json
import sys
import types

import numpy as np
import pytest
from bench_runs import bench, rows_of, run_whole
from cuda.bindings import driver

import aiocuda as ac
from aiocuda import _native
from aiocuda._bench import graph_work
from aiocuda._bench.figures import Section, figure
from aiocuda._bench.goals import Goal, beside, shown
from aiocuda._bench.peers import graphs as peers
from aiocuda._bench.peers.loading import Known

CASES = [
    ("replay", "1,000"),
    ("replay", "1"),
    ("rebind", ".sync()"),
    ("rebind", "await, asyncio"),
    ("rebind", "await, uvloop"),
    ("rebind", "await, trio"),
    ("branches", "8"),
    ("branches", "32"),
    ("make", "chain"),
    ("make", "own arrays"),
    ("make", "branches"),
]
WAYS = ["aiocuda: .sync()", *(f"aiocuda: await, {loop}" for loop in ("asyncio", "uvloop", "trio"))]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One run of everything: what it printed, and where it wrote the rest."""
    return run_whole(tmp_path_factory.mktemp("bench_graphs"), "graphs")


def figures_of(whole) -> list[dict]:
    return json.loads((whole[1] / "json").read_text("utf-8"))["figures"]


def test_every_case_is_measured_over_a_floor(whole):
    rows = rows_of(whole[1] / "csv")
    assert list(dict.fromkeys((row["measure"], row["case"]) for row in rows)) == CASES
    for row in rows:
        assert 0 < float(row["minimum"]) <= float(row["median"]), row
        assert int(row["samples"]) >= 1, row
        assert float(row["ratio"]) == pytest.approx(float(row["median"]) / float(row["floor"])), row


def test_floors_are_of_cpp_and_of_a_launch_as_it_is(whole):
    firsts = {}
    for row in rows_of(whole[1] / "csv"):
        firsts.setdefault((row["measure"], row["case"]), row)
    for (measure, _), row in firsts.items():
        assert row["name"].startswith("aiocuda: launch()" if measure == "rebind" else "C++: "), row
        assert float(row["ratio"]) == 1, row


@pytest.mark.parametrize("case", [("replay", "1,000"), ("replay", "1"), ("branches", "8"), ("branches", "32")], ids=str)
def test_a_replay_is_waited_for_in_every_way(whole, case):
    names = [row["name"] for row in rows_of(whole[1] / "csv") if (row["measure"], row["case"]) == case]
    assert [name for name in names if name.startswith("aiocuda")] == WAYS


def test_goals_stand_beside_the_figures(whole):
    goals = {
        (each["measure"], each["case"], each["name"]): (each["goal"]["of"], each["goal"]["at_most"])
        for each in figures_of(whole)
        if each["goal"]
    }
    expected = {
        **{("replay", "1,000", way): ("ratio", 1.03) for way in WAYS},
        ("replay", "1", "aiocuda: await, asyncio"): ("ratio", 1.7),
        ("replay", "1", "aiocuda: await, uvloop"): ("ratio", 1.5),
        **{("branches", "8", way): ("ratio", 1.08) for way in WAYS},
        **{("branches", "32", way): ("ratio", 1.06) for way in WAYS},
        **{
            (*case, name): ("more", 4)
            for case in CASES
            if case[0] == "rebind"
            for name in ("aiocuda: launch(y=, x=, g=)", "aiocuda: a compiled function's call")
        },
        **{(*case, "aiocuda: op.graph()"): ("median", 12) for case in CASES if case[0] == "make"},
    }
    assert goals == expected
    lines = whole[0].splitlines()
    for _, _, name in goals:
        assert any(line.startswith(f"{name} (goal: ") for line in lines), name


def test_the_table_and_json_have_the_rows_of_the_csv(whole):
    rows = rows_of(whole[1] / "csv")
    lines = whole[0].splitlines()
    for row in rows:
        assert any(line.startswith(row["name"]) and row["unit"] in line for line in lines), row
    assert [(each["measure"], each["name"], str(each["median"])) for each in figures_of(whole)] == [
        (row["measure"], row["name"], row["median"]) for row in rows
    ]


@pytest.mark.emulated_only
def test_an_emulated_driver_is_called_no_performance_model(whole):
    assert "not a performance model" in whole[0]
    assert "run one node after another" in whole[0]
    assert "driver: emulated" in whole[0]
    assert "aiocuda bench graphs on" in (whole[1] / "plot").read_text("utf-8")
    assert "no performance model" in (whole[1] / "plot").read_text("utf-8")


def test_other_libraries_replay_and_make_or_are_left_out_with_the_reason(whole):
    about = json.loads((whole[1] / "json").read_text("utf-8"))["about"]
    rows = rows_of(whole[1] / "csv")
    for name in peers.NAMES:
        measured = {(row["measure"], row["case"]) for row in rows if row["name"].startswith(f"{name}:")}
        if name in about["left out"]:
            assert measured == set()
            assert f"left out: {name} (" in whole[0]
        else:
            assert measured == {("replay", "1,000"), ("replay", "1"), ("make", "chain")}, name
    assert not {name for name in about["left out"] if name.startswith("cuda.core")}


def test_only_measures_what_is_asked_for(tmp_path):
    done = bench("graphs", "--quick", "--only", "make", "--csv", str(tmp_path / "csv"))
    assert done.returncode == 0, done.stderr
    assert {row["measure"] for row in rows_of(tmp_path / "csv")} == {"make"}
    assert "Replay" not in done.stdout


@pytest.mark.parametrize("only", ["submit", "make,awake", ""])
def test_an_unknown_measure_is_told_those_there_are(only):
    done = bench("graphs", "--only", only)
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"{only.split(',')[-1]!r} was given" in done.stderr
    assert "replay, rebind, branches, make" in done.stderr


@pytest.mark.parametrize("option", ["--csv", "--json", "--plot"])
def test_a_file_that_cannot_be_written_is_said_before_anything_is_measured(tmp_path, option):
    for path in (tmp_path / "nowhere" / "file", tmp_path):
        done = bench("graphs", "--quick", option, str(path))
        assert done.returncode == 2
        assert done.stdout == ""
        assert f"{path} cannot be written" in done.stderr


def test_a_peer_that_fails_is_left_out_with_what_it_said(monkeypatch):
    def connect(work):
        raise RuntimeError("no\nlicence")

    broken = types.SimpleNamespace(connect=connect)
    monkeypatch.setitem(sys.modules, "aiocuda._bench.peers.broken", broken)
    known = (Known("Broken", "json", "broken", runs_emulated=True), Known("Gone", "no_such", "gone"))
    monkeypatch.setattr(peers, "_KNOWN", known)
    found, left_out = peers.load_graph_peers(types.SimpleNamespace(device=ac.Device(0)))
    assert found == []
    assert left_out == {"Broken": "RuntimeError: no licence", "Gone": "not installed"}


def test_a_goal_is_said_in_the_unit_of_what_it_is_about():
    floor = figure("the floor", "µs", [2e-6])
    names = {"a": Goal(1.5, "ratio"), "b": Goal(4, "more"), "c": Goal(12, "median")}
    figures = beside(names, (floor, *(figure(name, "µs", [5e-6], floor) for name in "abc")))
    assert [each.name for each in shown(Section("replay", "", "A title", figures)).figures] == [
        "the floor",
        "a (goal: 1.5 x)",
        "b (goal: 4 µs more; 3.00 more)",
        "c (goal: 12 µs)",
    ]
    assert [each.name for each in figures] == ["the floor", "a", "b", "c"]


INCREMENT = r"""
extern "C" __global__ void increment(int* x, unsigned n) { if (threadIdx.x < n) x[threadIdx.x] += 1; }
"""


class Counted:
    """A floor's graph whose launches can be counted: an array for each branch."""

    def __init__(self, branches: int, depth: int, block: int = 32) -> None:
        self.device = ac.Device(0)
        self.kernel = ac.kernel(INCREMENT)
        self.kernel.compile(self.device)
        self.arrays = [ac.zeros(1, np.int32).sync() for _ in range(branches)]
        self.stream = self.device.stream()
        values = [self.values(array) for array in self.arrays]
        self.floor = _native.GraphFloor(0, self.kernel._load(0), 1, block, values, depth)

    @staticmethod
    def values(array: ac.DeviceArray) -> list[bytes]:
        return [array.address.to_bytes(8, "little"), np.uint32(1).tobytes()]

    def counts(self) -> list[int]:
        return [count(array) for array in self.arrays]


def count(array: ac.DeviceArray) -> int:
    return int(ac.to_host(array).sync()[0])


def test_a_floor_orders_the_nodes_of_a_branch_and_no_others():
    floor = Counted(branches=3, depth=7).floor
    answer, before, after, _, number = driver.cuGraphGetEdges(driver.CUgraph(floor.handle), floor.nodes)
    assert (answer, number) == (driver.CUresult.CUDA_SUCCESS, floor.edges)
    follower = {int(one): int(other) for one, other in zip(before[:number], after[:number], strict=True)}
    lengths = []
    for first in follower.keys() - set(follower.values()):
        length, last = 1, first
        while last in follower:
            length, last = length + 1, follower[last]
        lengths.append(length)
    assert lengths == [7, 7, 7]
    assert floor.nodes == 21


def test_a_floor_launches_every_node_of_its_branches():
    counted = Counted(branches=3, depth=7)
    for total in (20, 40):
        times = counted.floor.replays(counted.stream.handle, 20)
        assert len(times) == 20
        assert min(times) > 0
        assert counted.counts() == [7 * total] * 3
    assert _native.pending_count() == 0


def test_a_floor_returns_when_what_it_launched_has_passed():
    counted = Counted(branches=1, depth=500)
    counted.floor.replays(counted.stream.handle, 4)
    assert driver.cuStreamQuery(counted.stream.handle) == (driver.CUresult.CUDA_SUCCESS,)
    assert counted.counts() == [2000]


def test_a_floor_that_is_made_again_launches_the_new_graph():
    counted = Counted(branches=1, depth=5)
    other = ac.zeros(1, np.int32).sync()
    for total in (1, 2, 3):
        counted.floor.rebound_replays(counted.stream.handle, 1, [counted.values(other)])
        assert counted.floor.make() > 0
        assert counted.floor.nodes == 5
        counted.floor.replays(counted.stream.handle, 1)
        assert counted.counts() == [5 * total]
        assert count(other) == 5 * total


def test_a_floor_gives_its_nodes_other_arguments_in_turn():
    counted = Counted(branches=1, depth=4)
    others = [ac.zeros(1, np.int32).sync() for _ in range(2)]
    times = counted.floor.rebound_replays(counted.stream.handle, 9, [counted.values(array) for array in others])
    assert len(times) == 9
    assert [count(array) for array in others] == [4 * 5, 4 * 4]
    assert counted.counts() == [0]


@pytest.mark.driver_refuses("cuGraphAddKernelNode")
def test_a_floor_that_the_driver_refuses_is_an_error_of_the_driver():
    with pytest.raises(ac.DriverError, match="cuGraph"):
        Counted(branches=1, depth=1, block=100_000)


def test_a_floor_is_told_what_it_needs():
    with pytest.raises(ValueError, match="needs a branch"):
        Counted(branches=0, depth=1)
    with pytest.raises(ValueError, match="needs a branch"):
        Counted(branches=1, depth=0)
    counted = Counted(branches=1, depth=1)
    with pytest.raises(ValueError, match="other arguments"):
        counted.floor.rebound_replays(counted.stream.handle, 1, [])
    assert counted.counts() == [0]


def test_a_graph_is_compared_with_a_floor_of_as_many_nodes_and_edges_alone():
    counted = Counted(branches=1, depth=2)
    op = counted.kernel(counted.arrays[0], 1, grid=1, block=32)
    graph = counted.kernel(op, 1, grid=1, block=32).graph()
    graph_work.require_alike(graph, counted.floor)
    with pytest.raises(RuntimeError, match="floor's 1 nodes and 0 edges; it has 2 and 1"):
        graph_work.require_alike(graph, Counted(branches=1, depth=1).floor)
    with pytest.raises(RuntimeError, match="floor's 2 nodes and 0 edges; it has 2 and 1"):
        graph_work.require_alike(graph, Counted(branches=2, depth=1).floor)
