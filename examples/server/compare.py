"""Compare ways to run the server: the same model, requests and HTTP front, one way after another in each round.

On a GPU, with PyTorch:

    python examples/server/compare.py --size medium --rates 10 40 --seconds 20 --json out.json

Without a GPU:

    python examples/server/compare.py --dry

The server of each way is a process of its own. It lives through all rounds, and is idle in those of the others.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tokenize
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
from figures import LATE_MS, figures_of, table, verdicts
from load_generator import WARM, client_of
from sizes import SIZES

HERE = Path(__file__).parent
WAYS = {
    "a": "synchronous PyTorch",
    "b": "asyncio and to_thread",
    "c": "a thread, two slots, events",
    "d": "aiocuda",
    "n": "no model, a pause for a step",
}
FLOOR = "n"  # it answers anything
# The classes that schedule, and what each way needs of them.
CODE = {
    "a": {"torch_ways.py": ["Slot", "Synchronous"]},
    "b": {"torch_ways.py": ["Slot", "Synchronous", "Threads"]},
    "c": {"torch_ways.py": ["Slot", "Overlapped"]},
    "d": {"scheduler.py": ["Scheduler"]},
    "n": {},
}
PYTORCH = {"a", "b", "c"}
INHERITED = {"b": {"Synchronous._done"}}  # what a class replaces does not count
# Way d has its graphs, and the memory that others have in a Slot, in its model: these lines count, too.
MARKED = {"d": ("model.py", r"ac\.compile|told|ac\.empty\(picked \+ TIMES")}
START_S, END_S, ANSWER_S = (
    900,
    60,
    180,
)  # limits: of a server's start and end, and of answers behind a run's last request
PROBE = "import cuda.core, nvmath, torch\nif not torch.cuda.is_available(): raise SystemExit('PyTorch finds no GPU')"


def lines_of(way: str) -> int:
    """Count the lines of a way's scheduling: those that are neither blank, comment nor docstring."""
    count = 0
    for name, classes in CODE[way].items():
        text = (HERE / name).read_text()
        left_out: set[int] = set()
        counted: set[int] = set()
        for node in ast.parse(text).body:
            if not isinstance(node, ast.ClassDef) or node.name not in classes:
                continue
            counted |= set(range(node.lineno, (node.end_lineno or 0) + 1))
            for part in node.body:
                if f"{node.name}.{getattr(part, 'name', '')}" in INHERITED.get(way, ()):
                    left_out |= set(range(part.lineno, (part.end_lineno or 0) + 1))
        count += len(code_of(text) & counted - left_out)
    if way in MARKED:
        name, mark = MARKED[way]
        text = (HERE / name).read_text()
        count += sum(
            number in code_of(text) and bool(re.search(mark, line)) for number, line in enumerate(text.splitlines(), 1)
        )
    return count


def code_of(text: str) -> set[int]:
    """Return the numbers of a program's lines that are neither blank, comment nor docstring."""
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    said = [
        part
        for part in ast.walk(ast.parse(text))
        if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
    ]
    return {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in blank
        for line in range(token.start[0], token.end[0] + 1)
    } - {line for part in said for line in range(part.lineno, (part.end_lineno or 0) + 1)}


def orders(ways: Sequence[str]) -> list[list[str]]:
    """Return orders of the ways, in all of which together each has each place, and follows each other, equally often.

    E. J. Williams, "Experimental designs balanced for the estimation of residual effects of treatments" (1949).
    """
    count = len(ways)
    zigzag = [i // 2 if i % 2 == 0 else count - 1 - i // 2 for i in range(count)]
    rows = [[ways[(i + shift) % count] for i in zigzag] for shift in range(count)]
    return rows if count % 2 == 0 else rows + [row[::-1] for row in rows]


@contextlib.asynccontextmanager
async def child(*command: str, end_s: float = 0, **given: Any) -> AsyncIterator[Process]:
    """Run a process, and yield it; it does not outlive the block by more than a limit."""
    process = await asyncio.create_subprocess_exec(sys.executable, *command, **given)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), end_s)
        if process.returncode is None:
            process.kill()
            await process.wait()


@contextlib.asynccontextmanager
async def served(way: str, size: str, folder: str) -> AsyncIterator[str]:
    """Run a way's server in a process of its own, and yield its socket when it answers."""
    address = f"{folder}/{way}"
    command = ["-m", "uvicorn", "app:app", "--uds", address, "--log-level", "error"]
    environment = os.environ | {"SERVER_WAY": way, "SERVER_SIZE": size}
    limits = ["--timeout-graceful-shutdown", str(END_S // 2)]
    async with child(*command, *limits, end_s=END_S, cwd=HERE, env=environment) as process:
        async with client_of(address) as client, asyncio.timeout(START_S):
            while not await answers(client):
                if process.returncode is not None:
                    raise RuntimeError(f"the server of way {way} ended with {process.returncode} before it had started")
                await asyncio.sleep(0.1)
        yield address


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
        command = [str(HERE / "load_generator.py"), address, "--seed", str(seed + number), *map(str, arguments)]
        async with child(*command, stdout=PIPE) as process:
            printed, _ = await process.communicate()
            if process.returncode != 0:
                raise RuntimeError(f"a load generator ended with {process.returncode}")
            found: dict[str, Any] = json.loads(printed)
            return found

    async with asyncio.timeout(given.seconds + ANSWER_S), asyncio.TaskGroup() as group:  # one that fails ends all
        before, after = (group.create_task(metrics_at(address, begin + part * given.seconds)) for part in (WARM, 1))
        clients = [group.create_task(client(number)) for number in range(given.clients)]
    heard = [each.result() for each in clients]
    return figures_of(heard, before.result(), after.result(), given.seconds * (1 - WARM))


def possible(ways: Sequence[str], is_dry: bool) -> tuple[list[str], dict[str, str]]:
    """Return the ways that can run here, and why each of the others cannot. A process of its own asks PyTorch."""
    why = "PyTorch does not run on the emulated driver" if is_dry else ""
    if not is_dry and set(ways) & PYTORCH:
        done = subprocess.run(
            [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=START_S, check=False
        )
        why = (done.stderr.splitlines() or ["it gave no reason"])[-1] if done.returncode != 0 else ""
    left_out = {way: why for way in ways if way in PYTORCH and why}
    return [way for way in ways if way not in left_out], left_out


async def run(given: argparse.Namespace) -> dict[str, Any]:
    """Measure all ways at all rates in all rounds; return the figures of each."""
    ways, left_out = possible(given.ways, given.dry)
    for way, why in left_out.items():
        print(f"way {way} ({WAYS[way]}) is left out: {why}", file=sys.stderr)
    runs: list[dict[str, Any]] = []
    found: dict[str, Any] = {
        "size": given.size,
        "parameters": SIZES[given.size].parameters,
        "is_dry": given.dry,
        "seconds": given.seconds,
        "left_out": left_out,
        "lines": {way: lines_of(way) for way in WAYS},
        "runs": runs,
    }
    async with contextlib.AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        async with asyncio.TaskGroup() as starting:  # each draws the weights by itself
            begun = {
                way: starting.create_task(stack.enter_async_context(served(way, given.size, folder))) for way in ways
            }
        servers = {way: task.result() for way, task in begun.items()}
        texts = {way: await greedy(address, SIZES[given.size].vocabulary) for way, address in servers.items()}
        first = next((texts[way] for way in ways if way != FLOOR), None)
        found["same_answers"] = {way: text == first for way, text in texts.items() if way != FLOOR}
        for rate in given.rates:
            for turn in range(given.rounds):
                for way in orders(ways)[turn % len(orders(ways))]:
                    figures = await measure(servers[way], rate, 1000 * turn, given)
                    runs.append({"way": way, "rate": rate, "round": turn, **figures})
                    if given.json is not None:  # what was measured is kept, whatever comes
                        given.json.write_text(json.dumps(found, indent=1))
                    print(
                        f"{way} at {rate:g}/s, round {turn}: {figures['tokens_per_s']:,.0f} tokens/s", file=sys.stderr
                    )
                    if figures["late_p99_ms"] > LATE_MS:
                        print(
                            f"  is not counted: clients sent requests {figures['late_p99_ms']:.1f} ms late (p99); "
                            "take more --clients, or a lower rate",
                            file=sys.stderr,
                        )
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="on the emulated driver: shows that it runs, not how fast")
    parser.add_argument(
        "--ways",
        type=lambda text: text.split(","),
        default=list("abcd"),
        help="a,b,c,d; n too: what no way can go below",
    )
    parser.add_argument("--size", choices=SIZES, help="of the model; medium, with --dry tiny")
    parser.add_argument("--rates", type=float, nargs="+", default=[10.0], help="requests a second")
    parser.add_argument("--seconds", type=float, default=20, help="that each run makes requests")
    parser.add_argument("--rounds", type=int, default=8, help="runs of each way at each rate; 4, 8, … are balanced")
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
    os.environ["AIOCUDA_DRIVER"] = "emulated" if given.dry else "nvidia"
    found = asyncio.run(run(given))
    print(table(found, WAYS), *verdicts(found["runs"], found["lines"]), sep="\n")
    if others := [way for way, is_same in found["same_answers"].items() if not is_same]:
        raise SystemExit(f"the answers of {', '.join(others)} are not those of the first way: figures prove nothing")


if __name__ == "__main__":
    main()
