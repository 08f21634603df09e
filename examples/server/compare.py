"""Compare ways to run the server: the same model, requests and HTTP front, one way after another in each round.

Run on a GPU, with PyTorch:  python examples/server/compare.py --size medium --rates 10 40 --seconds 20 --json out.json
Without a GPU:  python examples/server/compare.py --dry
The server of each way is a process of its own, which lives through all rounds and is idle in those of the others.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import importlib.util
import io
import json
import os
import random
import statistics
import sys
import tempfile
import time
import tokenize
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from load_generator import WARM, client_of
from sizes import SIZES

HERE = Path(__file__).parent
WAYS = {
    "a": "synchronous PyTorch",
    "b": "asyncio and to_thread",
    "c": "a thread, two slots, events",
    "d": "aiocuda",
}
# The classes that schedule, and what each way needs of them.
CODE = {
    "a": {"torch_ways.py": ["Slot", "Synchronous"]},
    "b": {"torch_ways.py": ["Slot", "Synchronous", "Threads"]},
    "c": {"torch_ways.py": ["Slot", "Overlapped"]},
    "d": {"scheduler.py": ["Scheduler"]},
}
INHERITED = {"b": {"Synchronous.run"}}  # what a class replaces does not count
FIGURES = {
    "tokens_per_s": "tokens/s",
    "first_p50_ms": "first p50",
    "first_p99_ms": "first p99",
    "between_p50_ms": "between p50",
    "between_p99_ms": "between p99",
    "busy_percent": "busy %",
    "lag_p99_ms": "lag p99",
    "cpu_s_per_1000_tokens": "CPU s/1000",
    "refused": "refused",
}
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}  # Student's


def lines_of(way: str) -> int:
    """Count the lines of a way's scheduling: those of its classes that are neither blank, comment nor docstring."""
    count = 0
    for name, classes in CODE[way].items():
        text = (HERE / name).read_text()
        left_out: set[int] = set()
        counted: set[int] = set()
        for node in ast.parse(text).body:
            if not isinstance(node, ast.ClassDef) or node.name not in classes:
                continue
            counted |= set(range(node.lineno, (node.end_lineno or 0) + 1))
            for part in ast.walk(node):
                if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant):
                    left_out |= set(range(part.lineno, (part.end_lineno or 0) + 1))
            for part in node.body:
                if f"{node.name}.{getattr(part, 'name', '')}" in INHERITED.get(way, ()):
                    left_out |= set(range(part.lineno, (part.end_lineno or 0) + 1))
        blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
        code = {
            line
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type not in blank
            for line in range(token.start[0], token.end[0] + 1)
        }
        count += len(code & counted - left_out)
    return count


@contextlib.asynccontextmanager
async def served(way: str, size: str, folder: str) -> AsyncIterator[str]:
    """Run a way's server in a process of its own, and yield its socket when it answers."""
    address = f"{folder}/{way}"
    command = [sys.executable, "-m", "uvicorn", "app:app", "--uds", address, "--log-level", "error"]
    environment = os.environ | {"SERVER_WAY": way, "SERVER_SIZE": size}
    process = await asyncio.create_subprocess_exec(*command, cwd=HERE, env=environment)
    try:
        async with client_of(address) as client:
            while not await answers(client):
                if process.returncode is not None:
                    raise RuntimeError(f"the server of way {way} ended with {process.returncode} before it had started")
                await asyncio.sleep(0.1)
        yield address
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def answers(client: httpx.AsyncClient) -> bool:
    """Say whether a server is there, and healthy."""
    try:
        return (await client.get("/health")).is_success
    except httpx.TransportError:
        return False


async def metrics_at(address: str, due: float) -> dict[str, Any]:
    """Ask a server for its numbers at a time."""
    await asyncio.sleep(max(0.0, due - time.perf_counter()))
    async with client_of(address) as client:
        found: dict[str, Any] = (await client.get("/metrics")).raise_for_status().json()
        return found


async def greedy(address: str, vocabulary: int) -> list[int]:
    """Ask a server for some answers, one after another, so that those of all ways can be compared."""
    found: list[int] = []
    async with client_of(address) as client:
        for length in (3, 30, 60):
            prompt = [7 * i % vocabulary for i in range(length)]
            answer = await client.post("/generate", json={"prompt": prompt, "limit": 30})
            lines = answer.raise_for_status().text.splitlines()
            found += [token for line in lines if line.startswith("data: ") for token in json.loads(line[6:])]
    return found


async def measure(address: str, rate: float, seed: int, given: argparse.Namespace) -> dict[str, float]:
    """Ask a server for a while, from so many processes, and return the figures."""
    begin = time.perf_counter() + 2  # the clients have started by then
    arguments = [
        "--rate", rate / given.clients, "--seconds", given.seconds, "--begin", begin, "--leave", given.leave,
        "--prompt", *given.prompt, "--answer", *given.answer, "--vocabulary", SIZES[given.size].vocabulary,
    ]  # fmt: skip

    async def client(number: int) -> dict[str, Any]:
        command = [sys.executable, str(HERE / "load_generator.py"), address, "--seed", str(seed + number)]
        process = await asyncio.create_subprocess_exec(*command, *map(str, arguments), stdout=asyncio.subprocess.PIPE)
        printed, _ = await process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"a load generator ended with {process.returncode}")
        found: dict[str, Any] = json.loads(printed)
        return found

    before, after, *heard = await asyncio.gather(
        metrics_at(address, begin + WARM * given.seconds),
        metrics_at(address, begin + given.seconds),
        *(client(number) for number in range(given.clients)),
    )
    return figures_of(heard, before, after, given.seconds * (1 - WARM))


def figures_of(
    heard: Sequence[dict[str, Any]], before: dict[str, Any], after: dict[str, Any], seconds: float
) -> dict[str, float]:
    """Make figures of what clients heard and of what the server said at the begin and the end of the time."""

    def all_of(name: str) -> list[float]:
        return [each for one in heard for each in one[name]]

    def percentile_ms(values: list[float], percent: float) -> float:
        return float(np.percentile(values, percent) * 1e3) if values else float("nan")

    tokens = sum(one["tokens"] for one in heard)
    return {
        "tokens_per_s": tokens / seconds,
        "first_p50_ms": percentile_ms(all_of("first_s"), 50),
        "first_p99_ms": percentile_ms(all_of("first_s"), 99),
        "between_p50_ms": percentile_ms(all_of("between_s"), 50),
        "between_p99_ms": percentile_ms(all_of("between_s"), 99),
        "busy_percent": 100 * (after["busy_s"] - before["busy_s"]) / (after["now_s"] - before["now_s"]),
        "lag_p99_ms": percentile_ms(after["lags_s"], 99),
        "cpu_s_per_1000_tokens": 1e3 * (after["cpu_s"] - before["cpu_s"]) / tokens if tokens else float("nan"),
        "steps": after["steps"] - before["steps"],
        **{name: sum(one[name] for one in heard) for name in ("answered", "refused", "left")},
    }


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and half of its 95 % interval by Student's t (NaN of one value)."""
    count = len(values)
    if count not in T_95:
        return statistics.fmean(values), float("nan")
    return statistics.fmean(values), T_95[count] * statistics.stdev(values) / count**0.5


def possible(ways: Sequence[str], is_dry: bool) -> tuple[list[str], dict[str, str]]:
    """Return the ways that can run here, and why each of the others cannot."""
    missing = [name for name in ("torch", "nvmath") if importlib.util.find_spec(name) is None]
    why = "PyTorch does not run on the emulated driver" if is_dry else " and ".join(missing) + " not installed"
    left_out = {way: why for way in ways if way != "d" and (is_dry or missing)}
    return [way for way in ways if way not in left_out], left_out


async def run(given: argparse.Namespace) -> dict[str, Any]:
    """Measure all ways at all rates in all rounds; return the figures of each."""
    ways, left_out = possible(given.ways, given.dry)
    for way, why in left_out.items():
        print(f"way {way} ({WAYS[way]}) is left out: {why}", file=sys.stderr)
    runs: list[dict[str, Any]] = []
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        servers = {way: await stack.enter_async_context(served(way, given.size, folder)) for way in ways}
        texts = {way: await greedy(address, SIZES[given.size].vocabulary) for way, address in servers.items()}
        for rate in given.rates:
            for turn in range(given.rounds):
                order = random.Random(turn).sample(ways, len(ways))  # no way always follows the same one
                for way in order:
                    found = await measure(servers[way], rate, 1000 * turn, given)
                    runs.append({"way": way, "rate": rate, "round": turn, **found})
                    print(f"{way} at {rate:g}/s, round {turn}: {found['tokens_per_s']:,.0f} tokens/s", file=sys.stderr)
    return {
        "size": given.size,
        "parameters": SIZES[given.size].parameters,
        "is_dry": given.dry,
        "seconds": given.seconds,
        "left_out": left_out,
        "lines": {way: lines_of(way) for way in WAYS},
        "same_answers": {way: text == texts[ways[0]] for way, text in texts.items()},
        "runs": runs,
    }


def table(found: dict[str, Any]) -> str:
    """Lay out the means of the runs, each with half of its 95 % interval."""
    lines = [f"{'way':30} {'rate':>6} {'lines':>5} " + " ".join(f"{title:>17}" for title in FIGURES.values())]
    for way, rate in dict.fromkeys((run["way"], run["rate"]) for run in found["runs"]):
        of_it = [run for run in found["runs"] if (run["way"], run["rate"]) == (way, rate)]
        cells = [interval([run[name] for run in of_it]) for name in FIGURES]
        shown = " ".join(f"{mean:9.2f} ± {half:5.2f}" for mean, half in cells)
        lines.append(f"{f'{way}  {WAYS[way]}':30} {rate:6g} {found['lines'][way]:5} {shown}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="on the emulated driver: shows that it runs, not how fast")
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS), help="a,b,c,d")
    parser.add_argument("--size", choices=SIZES, help="of the model; medium, with --dry tiny")
    parser.add_argument("--rates", type=float, nargs="+", default=[10.0], help="requests a second")
    parser.add_argument("--seconds", type=float, default=20, help="that each run makes requests")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each way at each rate")
    parser.add_argument("--clients", type=int, default=4, help="processes that make requests")
    parser.add_argument("--prompt", type=int, nargs=2, help="tokens of a prompt, least and most; 32 256, or 4 16")
    parser.add_argument("--answer", type=int, nargs=2, help="tokens of an answer; 64 256, or 8 32")
    parser.add_argument("--leave", type=float, default=0.05, help="the part of the clients that go away early")
    parser.add_argument("--json", type=Path, help="where all figures go")
    given = parser.parse_args(arguments)
    if not set(given.ways) <= set(WAYS):
        parser.error(f"--ways: {', '.join(WAYS)} can be asked for; {','.join(given.ways)} was")
    given.size = given.size or ("tiny" if given.dry else "medium")
    is_tiny = given.size == "tiny"
    given.prompt = given.prompt or ([4, 16] if is_tiny else [32, 256])
    given.answer = given.answer or ([8, 32] if is_tiny else [64, 256])
    if given.dry:
        os.environ["AIOCUDA_DRIVER"] = "emulated"
    found = asyncio.run(run(given))
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))
    print(table(found))


if __name__ == "__main__":
    main()
