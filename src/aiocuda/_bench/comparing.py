"""A run of now beside an earlier one, which `--json` has written.

Always true: two times are called different only if they hardly overlap, and what else differs between the runs is said
before the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiocuda._bench.figures import Figure, Section
from aiocuda._bench.report import number, print_table
from aiocuda.errors import ArgumentValueError

__all__ = ["Earlier", "print_comparison", "read_earlier"]

Place = tuple[str, str, str]  # measure, case, name
_SAMPLES = 3  # of which a least and a median say something
_FIELDS = ("name", "unit", "median", "minimum", "samples", "floor")


@dataclass(frozen=True, slots=True)
class Earlier:
    """An earlier run.

    Attributes
    ----------
    about
        What it was measured on.
    figures
        By measure, case and name.
    """

    about: Mapping[str, Any]
    figures: Mapping[Place, Figure]


def read_earlier(path: Path) -> Earlier:
    """Read what ``--json`` has written.

    Raises
    ------
    ArgumentValueError
        The file cannot be read, or is none of ``--json``.
    """
    try:
        written = json.loads(path.read_text("utf-8"))
        figures = {
            (each["measure"], each["case"], each["name"]): Figure(**{field: each[field] for field in _FIELDS})
            for each in written["figures"]
        }
        about = dict(written["about"])
    except OSError as error:
        raise ArgumentValueError(f"--compare {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ArgumentValueError(f"--compare {path}: the file is none that `aiocuda bench --json` wrote") from error
    return Earlier(about, figures)


def print_comparison(earlier: Earlier, about: Mapping[str, object], sections: Sequence[Section]) -> None:
    """Print a table of the figures of both runs, and before it how the runs differ in other ways."""
    print(f"\n{told_differences(earlier.about, about)}")
    rows, here = [], set()
    for section in sections:
        for now in section.figures:
            place = (section.measure, section.case, now.name)
            here.add(place)
            then = earlier.figures.get(place)
            if then is not None and then.unit == now.unit:
                rows.append(_row(" ".join(filter(None, place)), then, now))
    if not rows:
        print("The runs have no figure in common: compare runs of one command, with the same --only.")
        return
    print_table(("beside the earlier run", "then", "now", "now / then", "over the floors", ""), rows)
    measured = {section.measure for section in sections}
    missing = sum(place[0] in measured and place not in here for place in earlier.figures)
    new = len(here) - len(rows)
    if missing or new:
        print(f"\nnot compared: {missing} figures that only the earlier run has, {new} that only this one has")


def told_differences(then: Mapping[str, Any], now: Mapping[str, object]) -> str:
    """Say what the runs were measured on, as far as it differs."""
    differences = [
        f"  {name}: {then.get(name, 'not said')} then, {now.get(name, 'not said')} now"
        for name in dict.fromkeys([*then, *now])
        if name not in ("versions", "left out") and then.get(name) != now.get(name)
    ]
    old, new = dict(then.get("versions", {})), now.get("versions", {})
    assert isinstance(new, Mapping)
    differences += [
        f"  {name}: {old.get(name, 'none')} then, {new.get(name, 'none')} now"
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]
    if not differences:
        return "The earlier run was on the same kind of machine, with the same versions. Other work there is not known."
    return "\n".join(
        [
            "The runs differ in more than time:",
            *differences,
            "If the machines differ, times do not compare. Look at the column over the floors: each run has its own.",
        ]
    )


def _row(name: str, then: Figure, now: Figure) -> tuple[str, ...]:
    over = ""
    if then.ratio is not None and now.ratio is not None:
        over = f"{number(now.ratio / then.ratio)} x"
    return (
        name,
        f"{number(then.median)} {then.unit}",
        f"{number(now.median)} {now.unit}",
        f"{number(now.median / then.median)} x",
        over,
        verdict(then, now),
    )


def verdict(then: Figure, now: Figure) -> str:
    """Say whether a figure is another one: if even the quickest sample of one is slower than the median of the other.

    One or two samples do not say it.
    """
    if min(then.samples, now.samples) < _SAMPLES:
        return ""
    if now.minimum > then.median:
        return "slower"
    if now.median < then.minimum:
        return "faster"
    return ""
