"""``aiocuda bench --compare``: two runs side by side, and what is said of those that do not compare."""

from __future__ import annotations

import pytest

from aiocuda._bench.comparing import Earlier, print_comparison, read_earlier, verdict
from aiocuda._bench.figures import Figure, Section
from aiocuda._bench.report import write_json
from aiocuda._cli import main
from aiocuda.errors import ArgumentValueError

ABOUT = {"device": "a GPU", "cores": 2, "versions": {"aiocuda": "0.2.0"}, "left out": {"CuPy": "not installed"}}


def times(median: float, minimum: float, *, samples: int = 15, floor: float | None = 1.0) -> Figure:
    return Figure("a launch", "µs", median, minimum, samples, floor)


def earlier(tmp_path, figure: Figure, about: dict[str, object] = ABOUT) -> Earlier:
    path = tmp_path / "earlier.json"
    write_json(path, about, [Section("submit", "", "Submit", (figure,))])
    return read_earlier(path)


def compared(then: Earlier, now: Figure, capsys, *, measure: str = "submit") -> str:
    print_comparison(then, ABOUT, [Section(measure, "", "Submit", (now,))])
    return capsys.readouterr().out


def test_what_was_written_is_read_as_it_was(tmp_path):
    figure = times(3.0, 2.0)
    assert earlier(tmp_path, figure).figures == {("submit", "", "a launch"): figure}


def test_a_row_has_both_times_their_ratio_and_that_of_the_ratios_to_the_floors(tmp_path, capsys):
    text = compared(earlier(tmp_path, times(4.0, 3.9, floor=2.0)), times(3.0, 2.9, floor=3.0), capsys)
    assert " ".join(text.splitlines()[-1].split()) == "submit a launch 4.00 µs 3.00 µs 0.75 x 0.50 x faster"
    assert "same versions" in text


def test_figures_without_a_floor_have_no_ratio_of_ratios(tmp_path, capsys):
    text = compared(earlier(tmp_path, times(4.0, 3.0, floor=None)), times(4.0, 3.0, floor=None), capsys)
    assert " ".join(text.splitlines()[-1].split()) == "submit a launch 4.00 µs 4.00 µs 1.00 x"


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        (times(4.0, 3.0), times(2.9, 2.0), "faster"),
        (times(4.0, 3.0), times(5.0, 4.1), "slower"),
        (times(4.0, 3.0), times(5.0, 3.9), ""),
        (times(4.0, 3.0), times(3.1, 1.0), ""),
        (times(4.0, 4.0, samples=1), times(9.0, 9.0), ""),
    ],
)
def test_times_that_overlap_are_called_neither_faster_nor_slower(then, now, said):
    assert verdict(then, now) == said


def test_runs_of_different_machines_are_told_apart_before_the_table(tmp_path, capsys):
    other = {**ABOUT, "cores": 16, "versions": {"aiocuda": "0.1.0", "torch": "2.9"}, "left out": {}}
    lines = compared(earlier(tmp_path, times(4.0, 3.0), other), times(4.0, 3.0), capsys).splitlines()
    assert lines[1:5] == [
        "The runs differ in more than time:",
        "  cores: 16 then, 2 now",
        "  aiocuda: 0.1.0 then, 0.2.0 now",
        "  torch: 2.9 then, none now",
    ]
    assert lines[5].startswith("If the machines differ, times do not compare.")


def test_runs_without_a_common_figure_say_so(tmp_path, capsys):
    assert "no figure in common" in compared(
        earlier(tmp_path, times(4.0, 3.0)), times(4.0, 3.0), capsys, measure="await"
    )


def test_figures_of_one_run_alone_are_counted(tmp_path, capsys):
    then = earlier(tmp_path, times(4.0, 3.0))
    more = Figure("another", "µs", 1.0, 1.0, 15, 1.0)
    print_comparison(then, ABOUT, [Section("submit", "", "Submit", (times(4.0, 3.0), more))])
    assert "0 figures that only the earlier run has, 1 that only this one has" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"about": {}, "figures": [{"measure": "submit"}]}'])
def test_a_file_of_something_else_is_refused(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ArgumentValueError, match="none that `aiocuda bench --json` wrote"):
        read_earlier(path)


def test_a_file_that_is_missing_is_told_before_anything_is_measured(tmp_path, capsys):
    assert main(["bench", "--compare", str(tmp_path / "missing.json")]) == 1
    assert capsys.readouterr() == ("", f"aiocuda bench: --compare {tmp_path}/missing.json: No such file or directory\n")
