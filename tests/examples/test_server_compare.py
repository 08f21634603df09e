"""The comparison's programs: clients, figures, verdicts, and a dry run."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import signal
from pathlib import Path
from typing import Any

import compare
import figures
import httpx
import pytest
from compare import lines_of
from figures import GOALS, figures_of, interval, values_of, verdict, verdicts
from load_generator import Heard, Load, make

FOLDER = Path(compare.__file__).parent


def heard_of(load: Load, respond: Any) -> Heard:
    async def main() -> Heard:
        transport = httpx.MockTransport(respond)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await make(client, load, seed=3)

    return asyncio.run(main())


def test_a_load_counts_what_comes_in_its_time_from_when_it_was_due():
    """A server that answers at once with three tokens, two of them together."""
    asked: list[dict[str, Any]] = []

    async def respond(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        if len(asked) % 5 == 0:
            return httpx.Response(503)
        return httpx.Response(200, text="data: [1]\n\ndata: [2, 3]\n\nevent: end\ndata:\n\n")

    # All are due long ago, so that none is waited for: each is that late.
    heard = heard_of(Load(50, 2, (2, 4), (5, 9), 10, 0, begin=-1000), respond)
    assert 50 < len(asked) < 200
    assert all(2 <= len(one["prompt"]) <= 4 and 5 <= one["limit"] <= 9 for one in asked)
    assert heard.refused + heard.answered == len(heard.first_s) + heard.refused
    assert heard.refused > 5
    assert min(heard.first_s) > 900
    assert heard.tokens == heard.events == 0  # they came long after the time that counts
    assert min(heard.late_s) > 900
    assert len(heard.late_s) == len(heard.first_s) + heard.refused


def test_gaps_are_between_events_and_tokens_of_one_event_have_none_between(monkeypatch):
    monkeypatch.setattr(Load, "counts", lambda *_: True)

    async def respond(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text="data: [1]\n\ndata: [2, 3, 4]\n\nevent: end\ndata:\n\n")

    heard = heard_of(Load(20, 1, (1, 1), (9, 9), 10, 0, begin=-1000), respond)
    assert heard.answered > 5
    assert heard.events == 2 * heard.answered
    assert heard.tokens == 4 * heard.answered
    assert len(heard.gap_s) == heard.answered
    assert len(heard.between_s) == 3 * heard.answered
    assert heard.between_s.count(0.0) >= 2 * heard.answered


def test_errors_of_connections_and_answers_are_counted_and_end_nothing(monkeypatch):
    monkeypatch.setattr(Load, "counts", lambda *_: True)
    calls = itertools.count()

    async def respond(_: httpx.Request) -> httpx.Response:
        number = next(calls) % 3
        if number == 0:
            raise httpx.ReadError("the connection is closed")
        last = ["", "event: error\ndata: 0", "event: end\ndata:"][number]
        return httpx.Response(200, text=f"data: [1]\n\n{last}\n\n")

    heard = heard_of(Load(60, 1, (1, 1), (9, 9), 10, 0, begin=-1000), respond)
    count = next(calls)
    assert heard.answered == count // 3
    assert heard.failed == count - heard.answered


def test_figures_are_of_all_clients_and_of_what_the_server_did_meanwhile():
    heard = [
        {
            "first_s": [0.1],
            "between_s": [0.0, 0.02],
            "gap_s": [0.02],
            "late_s": [0.001],
            "tokens": 300,
            "events": 50,
            "answered": 3,
            "refused": 1,
            "left": 0,
            "failed": 0,
        },
        {
            "first_s": [0.3],
            "between_s": [0.04],
            "gap_s": [0.04],
            "late_s": [0.004],
            "tokens": 100,
            "events": 50,
            "answered": 2,
            "refused": 0,
            "left": 1,
            "failed": 2,
        },
    ]
    before = {"steps": 10, "in_steps_s": 1.0, "cpu_s": 2.0, "now_s": 100.0, "lags_s": [9.0]}
    after = {"steps": 60, "in_steps_s": 4.0, "cpu_s": 2.2, "now_s": 104.0, "lags_s": [0.001, 0.001]}
    found = figures_of(heard, before, after, seconds=4)
    assert found["tokens_per_s"] == 100
    assert found["first_p50_ms"] == pytest.approx(200)
    assert found["between_p50_ms"] == pytest.approx(20)
    assert found["in_steps_percent"] == pytest.approx(75)
    assert found["lag_p99_ms"] == pytest.approx(1)
    assert found["cpu_s_per_1000_tokens"] == pytest.approx(0.5)
    assert found["gap_p50_ms"] == pytest.approx(30)
    assert found["tokens_per_event"] == 4
    assert found["late_p99_ms"] == pytest.approx(4)  # of the latest program, whatever the others do
    names = ("steps", "answered", "refused", "left", "failed")
    assert [found[name] for name in names] == [50, 5, 1, 1, 2]


def test_an_interval_is_students():
    mean, half = interval([1, 2, 3, 4, 5])
    assert mean == 3
    assert half == pytest.approx(1.963, abs=1e-3)  # 2.776 * 1.5811 / sqrt(5)


def test_lines_are_code_alone(tmp_path, monkeypatch):
    slot = (
        'class Slot:\n    """Says.\n\n    More.\n    """\n\n    # why\n    x = 1  # one\n    y = (\n        2\n    )\n'
    )
    (tmp_path / "torch_ways.py").write_text(slot + "\n\nclass Other:\n    z = 3\n")
    monkeypatch.setattr(compare, "HERE", tmp_path)
    monkeypatch.setitem(compare.CODE, "a", {"torch_ways.py": ["Slot"]})
    assert lines_of("a") == 5


def test_lines_of_the_model_that_schedule_count_for_aiocuda(monkeypatch):
    in_model = lines_of("d")
    monkeypatch.setattr(compare, "MARKED", {})
    assert in_model - lines_of("d") == 4


def test_the_page_has_the_lines_and_what_part_of_the_others_they_are():
    lines = {way: lines_of(way) for way in "abcd"}
    page = (FOLDER.parents[1] / "docs" / "server.md").read_text()
    assert "The lines are {d} for way d, {c} for c, {a} for a and {b} for b".format(**lines) in page
    assert f"d has {100 * lines['d'] / lines['c']:.0f} % of the lines of c" in page


@pytest.mark.parametrize("count", [2, 3, 4])
def test_orders_are_balanced(count):
    ways = "abcd"[:count]
    found = compare.orders(ways)
    places = [(way, i) for order in found for i, way in enumerate(order)]
    follows = [pair for order in found for pair in itertools.pairwise(order)]
    assert len(set(places)) == count**2
    assert len(set(follows)) == count * (count - 1)
    for each in (places, follows):
        assert len({each.count(one) for one in each}) == 1


def run_of(way: str, turn: int, **given: float) -> dict[str, Any]:
    plain = {"tokens_per_s": 100.0, "in_steps_percent": 98.0, "lag_p99_ms": 1.0, "cpu_s_per_1000_tokens": 1.0}
    return {"way": way, "rate": 10.0, "round": turn, "late_p99_ms": 0.1, **plain, **given}


def test_ratios_are_of_the_runs_of_one_round_and_late_runs_do_not_count():
    runs = [
        *(run_of("c", turn, tokens_per_s=speed) for turn, speed in enumerate([100, 50, 100])),
        *(run_of("d", turn, tokens_per_s=speed) for turn, speed in enumerate([110, 50, 300])),
        run_of("d", 3),  # the round has no c
    ]
    assert values_of(GOALS[0], runs, 10) == [1.1, 1, 3]
    runs[2]["late_p99_ms"] = figures.LATE_MS + 1
    assert values_of(GOALS[0], runs, 10) == [1.1, 1]
    assert values_of(GOALS[0], runs, 20) == []


@pytest.mark.parametrize(
    ("goal", "mean", "half", "said"),
    [
        (GOALS[0], 1.0, 0.01, "met"),
        (GOALS[0], 0.98, 0.01, "open"),
        (GOALS[0], 0.9, 0.01, "not met"),
        (GOALS[3], 1.5, 0.4, "met"),
        (GOALS[3], 1.5, 0.6, "open"),
        (GOALS[3], 3.0, 0.5, "not met"),
        (GOALS[3], 1.0, float("nan"), "open: too few rounds"),
    ],
)
def test_a_goal_is_met_if_all_of_the_interval_says_so(goal, mean, half, said):
    assert verdict(goal, mean, half) == said


def test_each_goal_has_its_verdict():
    runs = [run_of(way, turn, cpu_s_per_1000_tokens=ord(way)) for way in "bcd" for turn in range(4)]
    assert verdicts(runs, {"c": 100, "d": 34}) == [
        "at 10/s: tokens/s, d/c >= 0.98: 1.000 ± 0.000: met",
        "at 10/s: tokens/s, d/b >= 1.3: 1.000 ± 0.000: not met",
        "at 10/s: in steps %, d >= 97: 98.000 ± 0.000: met",
        "at 10/s: lag p99, d <= 2: 1.000 ± 0.000: met",
        "at 10/s: CPU s/1000, d/b <= 0.5: 1.020 ± 0.000: not met",
        "lines, d/c <= 1/3: 0.340: not met",
    ]


def test_ways_that_cannot_run_are_left_out_with_the_reason(tmp_path, monkeypatch):
    (tmp_path / "nvmath.py").write_text("")
    (tmp_path / "torch.py").write_text("class cuda:\n    is_available = lambda: False\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert compare.possible(["a", "d"], is_dry=False) == (["d"], {"a": "PyTorch finds no GPU"})
    (tmp_path / "torch.py").write_text("class cuda:\n    is_available = lambda: True\n")
    assert compare.possible(["a", "d"], is_dry=False) == (["a", "d"], {})
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart is not there')")
    assert compare.possible(["a", "d"], is_dry=False)[1] == {"a": "ImportError: libcudart is not there"}


def test_children_do_not_outlive_an_error():
    async def main() -> int | None:
        program = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(flush=True)\nsignal.pause()"
        try:
            async with compare.child("-c", program, end_s=0.01, stdout=asyncio.subprocess.PIPE) as process:
                await process.stdout.readline()  # it hears no SIGTERM from here on
                raise EOFError
        except EOFError:
            return process.returncode

    assert asyncio.run(main()) == -signal.SIGKILL


def test_a_comparison_keeps_what_it_has_measured_and_fails_if_answers_differ(tmp_path, monkeypatch, capsys):
    found_at, runs = tmp_path / "found.json", itertools.count()

    class Server:
        def __init__(self, way: str, *_: str) -> None:
            self.way = way

        async def __aenter__(self) -> str:
            return self.way

        async def __aexit__(self, *_: object) -> None:
            pass

    async def greedy(address: str, _: int) -> list[int]:
        return [ord(address)]

    async def measure(address: str, *_: Any) -> dict[str, float]:
        number = next(runs)
        if number:
            assert len(json.loads(found_at.read_text())["runs"]) == number
        return dict.fromkeys(figures.TITLES, 1.0 + number)

    for each in (greedy, measure):
        monkeypatch.setattr(compare, each.__name__, each)
    monkeypatch.setattr(compare, "served", Server)
    monkeypatch.setattr(compare, "possible", lambda ways, is_dry: (ways, {}))
    monkeypatch.setenv("AIOCUDA_DRIVER", "emulated")
    with pytest.raises(SystemExit, match="the answers of d are not those of the first way"):
        compare.main(["--dry", "--ways", "c,d", "--rounds", "4", "--json", str(found_at)])
    found = json.loads(found_at.read_text())
    assert found["same_answers"] == {"c": True, "d": False}
    assert [run["way"] for run in found["runs"]] == list("cddccddc")
    printed = capsys.readouterr()
    assert "tokens/s, d/c >= 0.98" in printed.out
    assert "clients sent requests 8.0 ms late" in printed.err


def test_a_load_generator_that_fails_ends_the_run(monkeypatch):
    async def at_once(*_: Any) -> dict[str, Any]:
        return {}

    monkeypatch.setattr(compare, "metrics_at", at_once)
    given = argparse.Namespace(clients=1, seconds=0.1, leave=0, prompt=[1, 1], answer=[1, 1], size="no such size")
    monkeypatch.setitem(compare.SIZES, given.size, argparse.Namespace(vocabulary="no number"))
    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(compare.measure("nowhere", 10, 0, given))
    assert "a load generator ended with 2" in str(caught.value.exceptions[0])


def test_the_comparison_runs_dry(tmp_path):
    async def main() -> str:
        found: Any = asyncio.subprocess.PIPE
        command = [str(FOLDER / "compare.py"), "--dry", "--seconds", "1.5", "--rounds", "2", "--clients", "1"]
        more = ["--ways", "n,a,d", "--rates", "20", "--json", str(tmp_path / "found.json")]
        async with compare.child("-W", "ignore", *command, *more, stdout=found, stderr=found, end_s=60) as process:
            printed, errors = await process.communicate()
            assert process.returncode == 0, errors.decode()
        return str(printed.decode())

    printed = asyncio.run(main())
    found = json.loads((tmp_path / "found.json").read_text())
    assert set(found["left_out"]) == {"a"}
    assert found["same_answers"] == {"d": True}  # the way without a model answers anything
    assert [run["way"] for run in found["runs"]] == ["n", "d", "d", "n"]
    for run in found["runs"]:
        assert run["tokens_per_s"] > 0
        assert 0 < run["in_steps_percent"] <= 100 if run["way"] == "d" else run["in_steps_percent"] == 0
        assert run["cpu_s_per_1000_tokens"] > 0
        assert run["tokens_per_event"] >= 1
        assert run["refused"] == run["failed"] == 0
    assert {line[:2] for line in printed.splitlines()[1:3]} == {"d ", "n "}
    assert "lag p99, d <= 2" in printed
