"""Counts of instructions that are held: none may take more than was written down, and a little.

Always true: a count is compared only with one of the same kind of machine, interpreter and compilers. Cache misses are
not held, because they change with where the linker puts functions.

CPython looks types, names and objects up by their addresses, so a count changes by up to 6 % with where the objects
lie, and that changes with the lengths of paths. So a count that is too high is taken again, in processes whose
directories have longer names, and the least of them is held: code that takes more does so wherever its objects lie.
"""

from __future__ import annotations

import importlib.util
import json
import platform
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

TABLE = Path(__file__).with_name("held.json")
SLACK = 0.05  # of the count that was written down
LAYOUTS = (1, 34, 89, 144)  # letters in the name of the process' directory: where objects lie changes with them
_COMPILERS = re.compile(rb"GCC: \([^)]*\) \d+\.\d+|clang version \d+\.\d+")


def versions() -> str:
    """Return what the counts depend on: the machine, the interpreter, and what compiled both sides."""
    module = importlib.util.find_spec("aiocuda._native")
    assert module is not None
    assert module.origin is not None
    found = sorted({each.decode() for each in _COMPILERS.findall(Path(module.origin).read_bytes())})
    compilers = ", ".join(re.sub(r" \([^)]*\)|:| version", "", each) for each in found) or "an unknown compiler"
    interpreter = f"CPython {platform.python_version()} ({platform.python_compiler()})"
    return f"{platform.machine()}, {interpreter}, aiocuda by {compilers}"


def compared(counts: Mapping[str, float], held: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """Return in words what takes more than was written down, and what takes less by as much.

    Parameters
    ----------
    counts
        The instructions of each measure.
    held
        The same, as they were written down.
    """
    over, under = [], []
    for name in sorted(counts.keys() | held.keys()):
        if name not in held:
            over.append(f"{name}: {counts[name]:,.0f} instructions, and none are written down")
        elif name not in counts:
            over.append(f"{name}: {held[name]:,.0f} instructions are written down, and it is not measured")
        elif abs(counts[name] - held[name]) > SLACK * held[name]:
            change = f"{name}: {counts[name]:,.0f} instructions, {held[name]:,.0f} are written down"
            (over if counts[name] > held[name] else under).append(change)
    return over, under


def read(table: Path = TABLE) -> dict[str, dict[str, float]]:
    """Return what was written down, for each of the versions."""
    found: dict[str, dict[str, float]] = json.loads(table.read_text(encoding="utf-8"))
    return found


def write(counts: Mapping[str, float], table: Path = TABLE) -> None:
    """Write counts down for the versions that there are now; those for others stay."""
    known = read(table) if table.exists() else {}
    known[versions()] = {name: round(count) for name, count in counts.items()}
    table.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")


def least(layouts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the least count of each measure."""
    found: dict[str, float] = {}
    for counts in layouts:
        found = {name: min(count, found.get(name, count)) for name, count in counts.items()}
    return found


def check(layouts: Iterable[Mapping[str, float]], table: Path = TABLE) -> tuple[bool, str]:
    """Return whether the counts are held, or nothing is known of them; and that in words.

    Parameters
    ----------
    layouts
        The counts, as processes took them whose objects lie at other addresses: as many are asked for as it takes
        until no count is too high.
    table
        The file of what was written down.
    """
    known = read(table)
    if versions() not in known:
        return True, (
            f"No count is held: nothing is written down for {versions()}. What is known is for\n  "
            + "\n  ".join(sorted(known))
            + "\n--write writes these counts down."
        )
    counts: dict[str, float] = {}
    over: list[str] = []
    under: list[str] = []
    for each in layouts:
        counts = least([counts, each]) if counts else dict(each)
        over, under = compared(counts, known[versions()])
        if not over:
            break
    lines = [f"{len(counts)} counts are held for {versions()}, with {SLACK:.0%} of slack."]
    if over:
        lines = ["error: these take more instructions than are written down:", *(f"  {each}" for each in over)]
        lines.append("If that is meant, write them down: python benchmarks/bench_instructions.py --write")
    if under:
        lines += ["These take fewer; write them down (--write), or the gain is held by nothing:"]
        lines += [f"  {each}" for each in under]
    return not over, "\n".join(lines)
