"""The benchmarks, in their shortest form: each runs to its end and finds a figure for all that it measures.

Always true: each figure is a number; its value is not checked.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"(?<![\w.(,-])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w)])|\b(?:nan|inf)\b")

pytestmark = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "c++")) is None, reason="needs a C++ compiler for the floors and the stub driver"
)


def run(benchmark: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / benchmark, *arguments],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def figures(line: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(line)]


def row(lines: list[str], name: str) -> list[float]:
    """The figures of the line that begins so."""
    (found,) = [line for line in lines if line.strip().startswith(name)]
    return figures(found.strip()[len(name) :])


@pytest.mark.parametrize(
    ("arguments", "tables"),
    [(("--stub", "--only", "a"), "a"), (("--stub", "--only", "b,d,e"), "bde"), (("--only", "c"), "ccc")],
    ids=["stub-a", "stub-bde", "c"],
)
def test_dataflow(tmp_path, arguments, tables):
    written = tmp_path / "figures.json"
    lines = run("bench_dataflow.py", *arguments, "--repeat", "1", "--json", str(written))
    found = json.loads(written.read_text(encoding="utf-8"))
    assert (found["about"]["driver"] == "does nothing") == ("--stub" in arguments)
    assert [table["name"][0] for table in found["tables"]] == list(tables)
    for table in found["tables"]:
        assert table["name"] in lines
        assert table["rows"]
        for name, *cells in table["rows"]:
            there = [cell for cell in cells if cell is not None]
            assert there, name
            assert all(isinstance(cell, float | int) and math.isfinite(cell) for cell in there), (name, cells)
            assert there[0] > 0, name
            assert any(line.strip().startswith(name) for line in lines), name


def test_submission():
    lines = run("bench_submission.py", "--repeat", "1")
    (floor,) = row(lines, "the driver call in a C++ loop, doing nothing")
    assert 0 < floor < math.inf
    for name in ("built only", "built and submitted, in a chain of 1000", "built and submitted, one by one"):
        found = row(lines, name)
        assert len(found) == 2, name  # under each policy
        assert all(map(math.isfinite, found)), name
    assert len(row(lines, "built, submitted, with a DeviceFuture each")) == 2


def test_submission_thread():
    lines = run("submission_thread.py", "--rounds", "2", "--runs", "1")
    for value in ("never", "auto", "always"):
        found = [figures(line.strip()[len(value) :]) for line in lines if line.strip().startswith(value)]
        assert len(found) == 13, value
        assert all(len(each) == 1 and each[0] >= 0 and math.isfinite(each[0]) for each in found), value


@pytest.mark.needs_devices(2)
def test_ways_of_arrays_are_counted():
    pytest.importorskip("ray")
    pytest.importorskip("nccl.bindings")
    lines = run("bench_ways.py", "--mib", "2")
    assert row(lines, "by handle")[:2] == [2, 0]
    assert row(lines, "by NCCL")[:2] == [6, 0]
    assert row(lines, "object store")[:2] == [2, 4]
    (by_nccl,) = [line for line in lines if line.startswith("by NCCL")]
    assert by_nccl.endswith("2 NCCL; 2 NCCL")  # on either side one for each direction, and no copy


def test_functions_of_frameworks_are_measured():
    lines = run("bench_frameworks.py", "--repeat", "2", "--chain", "4")
    found = {line.partition(" us  ")[2]: float(line.partition(" us  ")[0]) for line in lines[1:] if " us  " in line}
    assert found["a kernel of aiocuda's"] > 0
    assert found["call, of a function that does nothing"] > 0
    # Each framework has rows, or it is said why not.
    for name in ("torch", "cupy", "triton"):
        assert any(re.match(rf"not measured: {name} needs .|.* us  {name}: ", line) for line in lines), name


@pytest.mark.skipif(os.environ.get("AIOCUDA_DRIVER") == "nvidia", reason="then a GPU is there")
def test_frameworks_that_cannot_be_measured_are_named():
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "bench_frameworks.py", "torch", "cupy"],
        env={**os.environ, "PYTHONWARNINGS": "ignore", "AIOCUDA_DRIVER": "emulated"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"error: {name} needs a GPU; this is the emulated driver" for name in ("torch", "cupy")
    ]


def test_figures_of_frameworks_are_compared_with_their_floors(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    bench = importlib.import_module("bench_frameworks")
    names = [bench.ARRAY, bench.AWAITED, bench.TO_THREAD, bench.BLOCKING]
    names += [f"cupy: {bench.TENSOR}", "cupy: its own add", "cupy: op(add) and a kernel of aiocuda's in turn"]
    compared = {(row, floor) for _, row, floor in bench.comparisons(dict.fromkeys(names, 1.0))}
    assert compared == {
        (bench.AWAITED, bench.BLOCKING),
        (bench.TO_THREAD, bench.BLOCKING),
        (f"cupy: {bench.TENSOR}", bench.ARRAY),
        ("cupy: op(add) and a kernel of aiocuda's in turn", "cupy: its own add"),
    }


def test_copies():
    lines = run("bench_copies.py", "--mib", "1", "--repeat", "1", "--chunks", "2")
    ways = ("driver, pageable", "driver, page-locked", "copy(array, numpy)", "to_host(array)", "copy(HostArray, array)")
    for way in ways:
        found = [line for line in lines if way in line]
        assert found, way
        for line in found:
            numbers = figures(line.split(way)[1])
            assert len(numbers) == 4, line
            assert all(0 <= number < math.inf for number in numbers), line
    (overlap,) = [line for line in lines if "of the ideal" in line]
    assert len(figures(overlap)) == 4  # milliseconds one behind the other, ideally, as it was; and its share
    assert all(map(math.isfinite, figures(overlap)))


def test_device_loops(tmp_path):
    lines = run("bench_device_loops.py", "--quick", "--json", str(tmp_path / "loops.json"))
    (row,) = json.loads((tmp_path / "loops.json").read_text())["rows"]
    assert (row["items"], row["iterations"]) == (1, 10)
    assert row["device_us"] > 0
    assert row["host_us"] > 0
    assert len([line for line in lines if " us" in line]) == 1


def test_files(tmp_path):
    lines = run("bench_files.py", "--mib", "1", "--repeat", "1", "--folder", str(tmp_path))
    ways = ("read(path)", "to_device(memmap(path))", "write(path, array)", "to_host(array, out).tofile(path)")
    for way, count in zip(ways, (3, 1, 1, 1), strict=True):
        found = [line for line in lines if line.startswith(way)]
        assert len(found) == count, way
        for line in found:
            numbers = figures(line.removeprefix(way))
            assert len(numbers) == 3, line  # milliseconds, the rate, and the ratio
            assert all(0 < number < math.inf for number in numbers), line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="counts under valgrind")
def test_instructions(tmp_path):
    written = tmp_path / "figures.json"
    lines = run("bench_instructions.py", "--json", str(written))
    rows = json.loads(written.read_text(encoding="utf-8"))["rows"]
    assert len(rows) > 8
    for found in rows:
        assert found["instructions"] > 0, found
        assert all(math.isfinite(found[each]) for each in ("instructions", "misses", "allocations")), found
        assert any(line.startswith(found["title"]) for line in lines), found
    by_title = {found["title"]: found for found in rows}
    built, submitted = by_title["a launch, built only"], by_title["a launch, built and submitted"]
    assert submitted["instructions"] > built["instructions"]
    assert by_title["an operation of PyTorch's function of an array"]["allocations"] >= 1  # they are counted


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="counts under valgrind")
def test_growth(tmp_path):
    written = tmp_path / "figures.json"
    lines = run("bench_growth.py", "--quick", "--json", str(written))
    rows = {found["name"]: found for found in json.loads(written.read_text(encoding="utf-8"))["rows"]}
    assert len(rows) == 14
    for found in rows.values():
        assert 1_000 < found["instructions"] < 10_000_000, found
        assert math.isfinite(found["bytes"]), found
        assert any(f"{found['instructions']:,.0f} instructions" in line for line in lines), found
    assert rows["nodes"]["bytes"] > 100  # a graph keeps its nodes


def test_counting_instructions_needs_valgrind(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "bench_instructions.py"],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "apt-get install valgrind" in done.stderr


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("instructions.held")


def test_a_count_is_held_with_some_slack(tmp_path, held):
    table = tmp_path / "held.json"
    held.write({"built": 2000.4, "sync": 8000}, table)
    assert held.check([{"built": 2099, "sync": 7601}], table)[0]
    is_held, said = held.check([{"built": 2101, "sync": 8000}], table)
    assert not is_held
    assert "built: 2,101 instructions, 2,000 are written down" in said
    assert "sync" not in said
    is_held, said = held.check([{"built": 2000, "sync": 7599}], table)
    assert is_held
    assert "These take fewer" in said
    assert "sync: 7,599 instructions, 8,000 are written down" in said


def test_a_count_that_is_too_high_is_taken_again_and_the_least_is_held(tmp_path, held):
    table, asked = tmp_path / "held.json", []

    def layouts(*counts):
        for each in counts:
            asked.append(each)
            yield each

    held.write({"built": 2000, "sync": 8000}, table)
    assert held.check(layouts({"built": 2200, "sync": 8000}, {"built": 2000, "sync": 9000}, {}), table)[0]
    assert len(asked) == 2  # a third process was not asked for
    is_held, said = held.check(layouts({"built": 2300, "sync": 8000}, {"built": 2200, "sync": 8000}), table)
    assert not is_held
    assert "built: 2,200 instructions, 2,000 are written down" in said


def test_a_measure_that_is_new_or_gone_is_told(tmp_path, held):
    table = tmp_path / "held.json"
    held.write({"built": 2000}, table)
    is_held, said = held.check([{"built": 2000, "new": 5}], table)
    assert not is_held
    assert "new: 5 instructions, and none are written down" in said
    is_held, said = held.check([{}], table)
    assert not is_held
    assert "built: 2,000 instructions are written down, and it is not measured" in said


def test_counts_of_other_versions_are_not_compared_and_that_is_said(tmp_path, held, monkeypatch):
    table = tmp_path / "held.json"
    held.write({"built": 2000}, table)
    here = held.versions()
    monkeypatch.setattr(held, "versions", lambda: "another compiler")
    is_held, said = held.check([{"built": 9000}], table)
    assert is_held
    assert "No count is held: nothing is written down for another compiler" in said
    assert here in said
    held.write({"built": 9000}, table)
    assert held.read(table) == {here: {"built": 2000}, "another compiler": {"built": 9000}}


def test_each_measure_that_has_a_bare_loop_is_written_down(held):
    rows = importlib.import_module("bench_instructions").ROWS
    for counts in held.read().values():
        assert counts.keys() == {row.name for row in rows if not row.name.endswith("bare")}


def test_the_pictures_of_growth_are_those_of_the_figures_beside_them(tmp_path):
    measured = ROOT / "docs/measurements/2026-11-22-growth.json"
    copy = tmp_path / measured.name
    copy.write_bytes(measured.read_bytes())
    run("draw_growth.py", str(copy))
    table = measured.with_suffix(".md").read_text(encoding="utf-8")
    rows = json.loads(measured.read_text(encoding="utf-8"))["rows"]
    assert len(rows) == len(re.findall(r"^\|(?! There)(?!--)", table, re.MULTILINE))
    for measure in ("instructions", "bytes"):
        drawn = copy.with_name(f"{copy.stem}-{measure}.svg").read_text(encoding="utf-8")
        assert drawn == measured.with_name(f"{copy.stem}-{measure}.svg").read_text(encoding="utf-8")
        for row in rows:
            assert f">{row[measure]:,}<" in drawn
            assert f"{row[measure]:,}" in table


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("scheduling.simulation")


@pytest.mark.parametrize("is_one_host", [False, True])
def test_the_simulation_of_steps_keeps_to_what_can_be_computed_by_hand(simulation, is_one_host):
    constants = simulation.Constants(
        dispatch_s=0.002,
        reply_s=0.003,
        wire_s=0.01,
        line_s=0.001,
        call_s=0.05,
        launch_s=0.3,
        latency_s=0.1,
        bytes_per_s=100,
    )
    ring_s = 0.3 + 2 * (0.1 + 50 / 100)
    assert simulation.ring_s(constants, 2, 100) == ring_s
    job = simulation.Job(2, 4, 1.0, 0.0, 100, has_call_per_step=True, is_one_host=is_one_host)
    # The word of the later one, and two answers; each wire once.
    channel_s = 0 if is_one_host else 0.01 + 3 * 0.001 + 0.01
    # Two calls, one after the other; the ring; two replies.
    once_s = 2 * 0.002 + 0.01 + 1.0 + 0.05 + channel_s + ring_s + 0.01 + 2 * 0.003
    assert simulation.step_s(constants, job) == pytest.approx(once_s)
    all_at_once = simulation.Job(2, 4, 1.0, 0.0, 100, has_call_per_step=False, is_one_host=is_one_host)
    hub_s = 0 if is_one_host else 0.01 + 4 * 0.001 + 0.01  # both words come at the same time
    steady_s = 1.0 + 0.05 + hub_s + ring_s
    first_s = once_s - (2 * 0.003 + 0.01)
    assert simulation.step_s(constants, all_at_once) == pytest.approx((first_s + 3 * steady_s + 0.01 + 0.006) / 4)


def test_the_simulation_of_training_keeps_to_what_can_be_computed_by_hand(simulation):
    def step_s(ring_s: float, steps: int, **parts: bool) -> float:
        constants = simulation.Constants(0, 0, 0, 0, call_s=0.25, launch_s=ring_s, latency_s=0, bytes_per_s=1e30)
        return simulation.training_s(constants, network, 2, steps, **parts)

    network = simulation.Network(layers=2, product_s=1.0, size_bytes=4)
    assert step_s(0.5, 3, is_computed=True, is_reduced=False) == 6
    assert step_s(0.5, 2, is_computed=False, is_reduced=True) == pytest.approx((0.25 + 4 * 0.5) / 2)
    assert step_s(0.5, 3, is_computed=True, is_reduced=True) == 6  # each sum ends before the next is there
    # The sums begin after 3 s, and each takes 2; that of the first layer is over 7 s after the beginning.
    assert step_s(2, 1, is_computed=True, is_reduced=True) == 7
    # Sums of 5 s are the limit: the first begins after 3 s, and then four of them.
    assert step_s(5, 2, is_computed=True, is_reduced=True) == (3 + 4 * 5) / 2


def test_the_simulation_depends_on_its_seed_alone(simulation):
    constants = simulation.Constants(1e-3, 1e-3, 1e-4, 1e-5, 1e-4, 1e-4, 5e-6, 4e10)
    job = simulation.Job(64, 5, 0.1, 0.5, 1 << 20, has_call_per_step=False, is_one_host=False)
    assert simulation.step_s(constants, job) == simulation.step_s(constants, job)
    assert simulation.step_s(constants, job, seed=1) != simulation.step_s(constants, job, seed=2)


@pytest.fixture
def comparison(simulation: Any) -> Any:
    return importlib.import_module("compare_simulation")


def test_the_simulation_agrees_with_runs_on_two_gpus(comparison):
    rows = list(comparison.rows())
    assert len(rows) == 23
    for row in rows:
        assert abs(row.ratio - 1) <= comparison.TOLERANCE, row


def test_the_page_has_the_tables_of_the_simulation(comparison):
    page = (ROOT / "docs/measurements/beyond-one-machine.md").read_text(encoding="utf-8")
    assert "\n".join(comparison.checks()) in page
    assert "\n".join(comparison.many()) in page
    assert f"leaves {1 - comparison.TOLERANCE:.2f} to {1 + comparison.TOLERANCE:.2f}" in page


def test_what_the_simulation_is_held_against_stands_on_the_pages_of_measurements(comparison):
    there = comparison.measured()
    found = there["two H200"]
    page = (ROOT / found["page"]).read_text(encoding="utf-8")
    assert found["commit"] in page
    for place, of_place in found["all_reduce, us"].items():
        if place != "columns":
            assert f"| {place} | aiocuda, awaited | in a row | nccl4py, awaited | in a row |" in page
            for size, times in of_place.items():
                assert f"| {size} | " + " | ".join(f"{each:,}" for each in times) + " |" in page, (place, size)
    network, of_cluster = found["network"], found["cluster"]
    text = " ".join(page.split())
    alone, sums, both = (network[f"{name}, ms"] for name in ("alone", "sums alone", "both"))
    assert f"{alone} ms alone, {sums} the sums alone, {both} both" in text
    assert f"Weak scaling {network['weak scaling']} " in text
    assert f"the benchmark computes ({network['overlap']};" in text
    assert f"An empty `run` takes {of_cluster['empty run, us']:,} µs" in text
    each, for_all = (of_cluster[f"step, {name}, ms"] for name in ("a call for each", "one call for all"))
    assert f"takes {each} ms with a call for each, and {for_all} with one call for all" in text
    shape = there["the network"]
    assert shape["layers"] == 6
    assert f"six layers of {shape['width']:,}, bfloat16" in (ROOT / shape["page"]).read_text(encoding="utf-8")
    of_driver = there["no GPU"]
    page = (ROOT / of_driver["page"]).read_text(encoding="utf-8")
    assert f"| {of_driver['call and reply, ms']} ms |" in page
    assert f"| {of_driver['from one process to another, ms']} ms |" in page
    assert f"| {of_driver['message of the hub, us']} µs |" in page
