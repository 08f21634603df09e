"""The constants of the simulation, of figures that were measured (`measured.json`), and of two assumptions.

NCCL's are those of two GPUs of one host: a line through the smallest and the largest array of nccl4py, awaited.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from scheduling.simulation import Constants

__all__ = ["HOST_RANKS", "LATENCY_S", "NETWORK_BYTES_PER_S", "bytes_of", "constants", "measured"]

LATENCY_S: Final = 5e-6  # between neighbours: two ranks do not tell it from the launch, so an assumption
NETWORK_BYTES_PER_S: Final = 40e9  # between hosts: an assumption
HOST_RANKS: Final = 8  # so many GPUs has a host


def measured() -> dict[str, Any]:
    """Return what was measured, by machine."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("measured.json").read_text(encoding="utf-8"))
    return found


def bytes_of(size: str) -> int:
    """Return the bytes of a size in words."""
    number, unit = size.split()
    return int(number) << {"KiB": 10, "MiB": 20, "GiB": 30}[unit]


def constants(
    ranks: int,
    *,
    processors_s: float | None = None,
    wire_s: float | None = None,
    line_s: float | None = None,
    place: str = "two processes",
) -> Constants:
    """Return the constants for so many ranks; those of a cluster are of the machine without a GPU if not given.

    `processors_s`: of the driver, for a call and its reply. `place`: where ranks of one host are.
    """
    there = measured()
    of_cluster, of_nccl = there["no GPU"], there["two H200"]["all_reduce, us"]
    if processors_s is None:
        processors_s = of_cluster["call and reply, ms"] / 1e3
    if wire_s is None:
        wire_s = of_cluster["from one process to another, ms"] / 1e3
    if line_s is None:
        line_s = of_cluster["message of the hub, us"] / 1e6
    smallest, largest = (of_nccl["two processes"][size][2] / 1e6 for size in ("4 KiB", "1 GiB"))
    bytes_per_s = (bytes_of("1 GiB") - bytes_of("4 KiB")) / (largest - smallest)
    ours, of_it = (of_nccl[place]["4 KiB"][column] / 1e6 for column in (0, 2))
    return Constants(
        processors_s / 2,
        processors_s / 2,
        wire_s,
        line_s,
        ours - of_it,
        smallest - bytes_of("4 KiB") / bytes_per_s - 2 * LATENCY_S,
        LATENCY_S,
        bytes_per_s if ranks <= HOST_RANKS else NETWORK_BYTES_PER_S,
    )
