"""Programs that tests start: what goes wrong in one fails the test, except where the test looks at it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

TESTED = """
FAILS = "import sys; sys.exit(3)"
WRITES = "import sys; print('said', file=sys.stderr)"

def test_overlooks_a_status(in_process):
    in_process(FAILS)

def test_overlooks_what_is_written(in_process):
    assert in_process(WRITES).returncode == 0

def test_overlooks_the_first_of_two(in_process):
    in_process(FAILS)
    assert in_process(FAILS).returncode == 3

def test_looks_at_a_status(in_process):
    assert in_process(FAILS).returncode == 3

def test_looks_at_what_is_written(in_process):
    assert in_process(WRITES).stderr == "said\\n"

def test_of_a_quiet_program(in_process):
    in_process("print('fine')")
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, report_of: Callable[..., str]) -> dict[str, str]:
    """The outcome of each of those tests, by its name."""
    place = tmp_path_factory.mktemp("tested")
    (place / "test_tested.py").write_text(TESTED)
    report = report_of(place)
    found = re.findall(r"^(PASSED|FAILED|ERROR) \S*::(\w+)(.*)", report, re.MULTILINE)
    assert found, report
    return {name: outcome + reason for outcome, name, reason in sorted(found, reverse=True)}  # an error comes last


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("overlooks_a_status", "it ended with 3"),
        ("overlooks_what_is_written", "it wrote to stderr"),
        ("overlooks_the_first_of_two", "it ended with 3"),
    ],
)
def test_what_a_test_overlooks_fails_it(outcomes, name, told):
    assert outcomes[f"test_{name}"].startswith("ERROR")
    assert told in outcomes[f"test_{name}"]


@pytest.mark.parametrize("name", ["looks_at_a_status", "looks_at_what_is_written", "of_a_quiet_program"])
def test_what_a_test_looks_at_does_not(outcomes, name):
    assert outcomes[f"test_{name}"] == "PASSED"
