"""The cost of the dataflow engine, and how much it lets overlap, as ratios to floors of the same run.

Run: python benchmarks/bench_dataflow.py [--json PATH] [--only a,b,c,d,e,f]
     python benchmarks/bench_dataflow.py --stub     (a, b, d, e on a driver that does nothing)
On the driver that AIOCUDA_DRIVER says. On the emulated one, kernels share the cores with the program that
submits them: what overlaps there says how many cores there are, and nothing of a GPU.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from dataflow.tables import Table, write_json

SLICES = (1, 10, 100, 1_000, 10_000, 100_000)
PARTS = {
    "a": "a tracked launch on one stream",
    "b": "between two streams",
    "c": "branches, diamonds, a chain",
    "d": "many slices of one array",
    "e": "policies",
    "f": "data-parallel training",
}
NEED_A_DEVICE = "cf"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", default=",".join(PARTS), help="; ".join(f"{key}: {what}" for key, what in PARTS.items())
    )
    parser.add_argument("--repeat", type=int, default=9, help="runs of each measure, of which the fastest is shown")
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    parser.add_argument("--stub", action="store_true", help="measure on a driver whose functions do nothing")
    given = parser.parse_args()
    asked = given.only.split(",")
    if unknown := set(asked) - set(PARTS):
        parser.error(f"--only takes {', '.join(PARTS)}, with commas; {', '.join(sorted(unknown))} was given")
    with tempfile.TemporaryDirectory() as directory:
        run(Path(directory), [part for part in asked if not given.stub or part not in NEED_A_DEVICE], given)


def run(directory: Path, parts: list[str], given: argparse.Namespace) -> None:
    # Emulated devices are as many as one asks for; training is measured on several.
    os.environ.setdefault("AIOCUDA_EMULATED_DEVICES", "4")
    loaded: Callable[[object], object] = ready
    if given.stub:
        from submission.stub import Stub, without_code

        Stub(directory)
        loaded = without_code
    about = machine(given.stub)
    print("\n".join(f"{key}: {value}" for key, value in about.items()))
    tables = []
    for measure in measures(directory, parts, given.repeat, loaded):
        tables.append(measure())
        tables[-1].print()
    if given.json:
        write_json(given.json, about, tables)


def measures(
    directory: Path, parts: list[str], repeat: int, loaded: Callable[[object], object]
) -> list[Callable[[], Table]]:
    found: list[Callable[[], Table]] = []
    if set(parts) & set("abde"):
        from dataflow.costs import Costs

        costs = Costs(directory, repeat, loaded)
        found += [
            measure
            for part, measure in [
                ("a", costs.one_stream),
                ("b", costs.two_streams),
                ("d", lambda: costs.slices(SLICES)),
                ("e", costs.policies),
            ]
            if part in parts
        ]
    if "c" in parts:
        from dataflow.overlap import Overlap

        overlap = Overlap(repeat)
        found += [overlap.branches, overlap.sixty_four_diamonds, overlap.chain]
    if "f" in parts:
        from dataflow.training import training

        found.append(training)
    return found


def ready(kernel: object) -> object:
    kernel.compile()  # type: ignore[attr-defined]
    return kernel


def machine(is_stub: bool) -> dict[str, object]:
    """Say what is measured on."""
    import aiocuda as ac

    device = ac.Device(0)
    emulated = "emulated: kernels share the CPU's cores with what submits them, and overlap on few"
    return {
        "driver": "does nothing" if is_stub else emulated if device.is_emulated else "NVIDIA",
        "device": device.name,
        "devices": 1 if is_stub else len(ac.devices()),
        "cores": len(os.sched_getaffinity(0)),
        "Python": platform.python_version(),
        **{name: metadata.version(name) for name in ("cuda-core", "cuda-bindings", "numpy")},
    }


if __name__ == "__main__":
    main()
