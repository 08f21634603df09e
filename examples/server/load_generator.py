"""Ask a server for answers as many clients do: requests come at random, and do not wait for one another.

Run: python examples/server/load_generator.py SOCKET --rate 10 --seconds 5 [--seed 1] [--leave 0.1] [--begin TIME]
It prints what came of them as JSON. A server that falls behind gets as many requests as before, and all times are from
when a request was due.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import random
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

WARM = 0.2  # of the time: what comes in it is not counted


@dataclass
class Heard:
    """The outcome of requests that were due, and of tokens that came, in the time that counts.

    Attributes
    ----------
    first_s
        From when a request was due to its first token.
    between_s
        From a token to the next one. Of tokens that come together, all but the first have 0.
    gap_s
        From an event to the next one of its answer.
    late_s
        From when a request was due until this program sent it. It should be next to nothing.
    events
        That brought the tokens.
    left
        Requests whose client went away before the end.
    failed
        Requests whose connection, or whose answer, ended with an error.
    """

    first_s: list[float] = field(default_factory=list)
    between_s: list[float] = field(default_factory=list)
    gap_s: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    events: int = 0
    tokens: int = 0
    answered: int = 0
    refused: int = 0
    left: int = 0
    failed: int = 0


@dataclass(frozen=True)
class Load:
    """Which requests are made, and which of them count."""

    rate: float
    seconds: float
    prompt: tuple[int, int]  # tokens, at least and at most
    answer: tuple[int, int]
    vocabulary: int
    leave: float  # the part of the clients that go away early
    begin: float  # on the clock of time.perf_counter()

    def counts(self, at: float) -> bool:
        """Say whether a time is one that counts."""
        return self.begin + WARM * self.seconds <= at < self.begin + self.seconds


async def ask(
    client: httpx.AsyncClient, load: Load, due: float, asked: dict[str, Any], stay: int, heard: Heard
) -> None:
    """Ask for an answer, and read it; go away when `stay` tokens have come."""
    if load.counts(due):
        heard.late_s.append(time.perf_counter() - due)
    try:
        await listen(client, load, due, asked, stay, heard)
    except httpx.HTTPError:
        heard.failed += load.counts(due)


async def listen(
    client: httpx.AsyncClient, load: Load, due: float, asked: dict[str, Any], stay: int, heard: Heard
) -> None:
    """Read an answer; the error of a connection is the caller's."""
    came, before = 0, due
    async with client.stream("POST", "/generate", json=asked) as answer:
        if answer.status_code == 503:
            heard.refused += load.counts(due)
            return
        answer.raise_for_status()
        async for line in answer.aiter_lines():
            if line == "event: error":  # the server's log says which
                heard.failed += load.counts(due)
                return
            if not line.startswith("data: "):
                continue
            now, count = time.perf_counter(), len(json.loads(line[6:]))
            if came == 0 and load.counts(due):
                heard.first_s.append(now - due)
            if load.counts(now):
                heard.between_s += ([now - before] if came else []) + [0.0] * (count - 1)
                heard.gap_s += [now - before] if came else []
                heard.events += 1
                heard.tokens += count
            came, before = came + count, now
            if came >= stay:
                heard.left += load.counts(due)
                return
    heard.answered += load.counts(due)


async def make(client: httpx.AsyncClient, load: Load, seed: int) -> Heard:
    """Make requests from `load.begin` on, and return what came of them when all have ended."""
    heard, chance, due = Heard(), random.Random(seed), load.begin
    async with asyncio.TaskGroup() as group:
        while (due := due + chance.expovariate(load.rate)) < load.begin + load.seconds:
            prompt = [chance.randrange(load.vocabulary) for _ in range(chance.randint(*load.prompt))]
            limit = chance.randint(*load.answer)
            stay = chance.randint(1, limit) if chance.random() < load.leave else limit + 1
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            asked = {"prompt": prompt, "limit": limit, "seed": chance.randrange(1 << 31), "temperature": 0.7}
            group.create_task(ask(client, load, due, asked, stay, heard))
    return heard


@contextlib.asynccontextmanager
async def client_of(address: str) -> Any:
    """Yield a client of the server at a Unix socket, with as many connections as it wants."""
    transport = httpx.AsyncHTTPTransport(uds=address, limits=httpx.Limits(max_connections=None))
    async with httpx.AsyncClient(transport=transport, base_url="http://server", timeout=120) as client:
        yield client


async def run(given: argparse.Namespace) -> Heard:
    load = Load(
        given.rate, given.seconds, tuple(given.prompt), tuple(given.answer), given.vocabulary, given.leave,
        given.begin or time.perf_counter(),
    )  # fmt: skip
    async with client_of(given.socket) as client:
        return await make(client, load, given.seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("socket", help="of the server")
    parser.add_argument("--rate", type=float, default=10, help="requests a second")
    parser.add_argument("--seconds", type=float, default=5, help="how long requests are made")
    parser.add_argument("--prompt", type=int, nargs=2, default=[4, 16], help="tokens of a prompt, least and most")
    parser.add_argument("--answer", type=int, nargs=2, default=[8, 32], help="tokens of an answer, least and most")
    parser.add_argument("--vocabulary", type=int, default=101, help="of the server's model")
    parser.add_argument("--leave", type=float, default=0.1, help="the part of the clients that go away early")
    parser.add_argument("--seed", type=int, default=1, help="of the requests")
    parser.add_argument("--begin", type=float, default=0, help="when, on the clock of the machine; now")
    print(json.dumps(dataclasses.asdict(asyncio.run(run(parser.parse_args())))))


if __name__ == "__main__":
    main()
