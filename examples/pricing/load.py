"""Ask both services for prices at given rates, and print how long they take and how many are refused.

Run: python examples/pricing/load.py [--rate 30 300] [--seconds 10] [--within 0.1] [--steps 1024]
Requests come at random, as of independent callers, and do not wait for one another: a service that falls behind gets
as many as before. Time is from when a request was due.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

SERVICES = {"batches": "service:app", "thread pool": "thread_pool:app"}


@dataclass
class Heard:
    """Answers and refusals of requests."""

    seconds: list[float] = field(default_factory=list)  # of those that were answered
    refused: int = 0

    def line(self, name: str, rate: float) -> str:
        """Return them as a line of the table."""
        p50, p99 = np.percentile(self.seconds, [50, 99]) * 1e3 if self.seconds else (float("nan"),) * 2
        asked = len(self.seconds) + self.refused
        return f"{name:12} {rate:8g} {asked:8} {p50:10.2f} {p99:10.2f} {self.refused:8}"


async def ask(client: httpx.AsyncClient, due: float, option: dict[str, float], heard: Heard) -> None:
    """Ask for one price."""
    answer = await client.post("/price", json=option)
    if answer.status_code == 503:
        heard.refused += 1
        return
    answer.raise_for_status()
    heard.seconds.append(time.perf_counter() - due)


async def load(client: httpx.AsyncClient, rate: float, seconds: float, within_s: float) -> Heard:
    """Send requests at a rate, and return what came of them."""
    heard, chance = Heard(), random.Random(1)
    begin = due = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        while (due := due + chance.expovariate(rate)) < begin + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            option = {"spot": 100, "strike": chance.uniform(80, 120), "years": chance.uniform(0.1, 2)}
            group.create_task(ask(client, due, option | {"within_s": within_s}, heard))
    return heard


@contextlib.asynccontextmanager
async def served(application: str, steps: int) -> AsyncIterator[httpx.AsyncClient]:
    """Run a service in a process of its own, and yield a client of it."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"{folder}/socket"
        command = [sys.executable, "-m", "uvicorn", application, "--uds", address, "--log-level", "error"]
        environment = os.environ | {"PRICING_STEPS": str(steps)}
        process = await asyncio.create_subprocess_exec(*command, cwd=Path(__file__).parent, env=environment)
        try:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
            transport = httpx.AsyncHTTPTransport(uds=address, limits=limits)
            async with httpx.AsyncClient(transport=transport, base_url="http://service", timeout=60) as client:
                while not await has_started(client):
                    if process.returncode is not None:
                        raise RuntimeError(f"{application} ended with {process.returncode} before it had started")
                    await asyncio.sleep(0.1)
                yield client
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def has_started(client: httpx.AsyncClient) -> bool:
    """Say whether a service answers."""
    try:
        return (await client.get("/docs")).is_success
    except httpx.ConnectError:
        return False


async def run(asked: argparse.Namespace) -> None:
    print(f"{'':12} {'per s':>8} {'asked':>8} {'p50 ms':>10} {'p99 ms':>10} {'refused':>8}")
    for name, application in SERVICES.items():
        async with served(application, asked.steps) as client:
            for rate in asked.rate:
                heard = await load(client, rate, asked.seconds, asked.within)
                print(heard.line(name, rate), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, nargs="+", default=[30, 300], help="requests a second")
    parser.add_argument("--seconds", type=float, default=10, help="how long each rate lasts")
    parser.add_argument("--within", type=float, default=0.1, help="seconds that a price may take")
    parser.add_argument("--steps", type=int, default=1024, help="of the trees")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
