"""The example of a pricing service: prices against NumPy, batches, deadlines, and the program that asks."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import options as example
import pytest

STEPS = 24
PUTS = [
    example.Option(spot=100, strike=strike, volatility=volatility, years=years)
    for strike in (80, 100, 125)
    for volatility in (0.1, 0.5)
    for years in (0.25, 2)
]


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Import a service anew, with few steps."""

    def module(name: str) -> Any:
        monkeypatch.setenv("PRICING_STEPS", str(STEPS))
        sys.modules.pop(name, None)
        return importlib.import_module(name)

    return module


@pytest.fixture(params=["service", "thread_pool"])
def service(request: pytest.FixtureRequest, imported: Callable[[str], Any]) -> Any:
    return imported(request.param)


def with_client(service: Any, use: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with service.started(service.app):
            transport = httpx.ASGITransport(service.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                await use(client)

    asyncio.run(main())


@pytest.mark.parametrize("steps", [1, STEPS, 300])
def test_prices_are_numpys(steps):
    found = example.prices_of(PUTS, steps).sync(60)
    np.testing.assert_allclose(found, [example.expected(each, steps) for each in PUTS], rtol=1e-3, atol=1e-3)


def test_a_put_that_is_deep_in_the_money_is_exercised_at_once():
    (found,) = example.prices_of([example.Option(spot=10, strike=100, volatility=0.1)], STEPS).sync(60)
    assert found == pytest.approx(90)


def test_all_who_ask_get_their_own_price(service):
    async def use(client: httpx.AsyncClient) -> None:
        asked = [each.model_copy(update={"within_s": 60}).model_dump() for each in PUTS]
        answers = await asyncio.gather(*(client.post("/price", json=each) for each in asked))
        found = [answer.json()["price"] for answer in answers]
        np.testing.assert_allclose(found, [example.expected(each, STEPS) for each in PUTS], rtol=1e-3, atol=1e-3)

    with_client(service, use)


def test_an_option_that_is_none_is_refused(service):
    async def use(client: httpx.AsyncClient) -> None:
        assert (await client.post("/price", json={"spot": 100, "strike": -1})).status_code == 422

    with_client(service, use)


def test_what_cannot_be_priced_in_time_is_refused_at_once_and_others_are_not(imported):
    service = imported("service")

    async def use(client: httpx.AsyncClient) -> None:
        option = {"spot": 100, "strike": 100}
        refused, priced = await asyncio.gather(
            *(client.post("/price", json=option | {"within_s": within_s}) for within_s in (1e-9, 60))
        )
        assert refused.status_code == 503
        assert "the item" in refused.json()["detail"]
        assert priced.status_code == 200

    with_client(service, use)


def test_the_pool_of_threads_gives_up_in_time(imported, monkeypatch):
    service = imported("thread_pool")
    go_on = threading.Event()

    async def use(client: httpx.AsyncClient) -> None:
        monkeypatch.setattr(service, "price", lambda _: go_on.wait(60))
        answer = await client.post("/price", json={"spot": 100, "strike": 100, "within_s": 0.001})
        go_on.set()
        assert answer.status_code == 503

    with_client(service, use)


def test_those_who_ask_at_once_are_priced_together(imported):
    service = imported("service")

    async def use(client: httpx.AsyncClient) -> None:
        before = (await client.get("/batches")).json()
        asked = PUTS[0].model_copy(update={"within_s": 60}).model_dump()
        await asyncio.gather(*(client.post("/price", json=asked) for _ in range(100)))
        after = (await client.get("/batches")).json()
        assert after["items"] - before["items"] == 100
        assert after["batches"] - before["batches"] < 50

    with_client(service, use)


def test_the_program_asks_both_services(tmp_path):
    program = Path(example.__file__).parent / "load.py"
    done = subprocess.run(
        [sys.executable, program, "--rate", "20", "--seconds", "1", "--within", "30", "--steps", str(STEPS)],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()[1:]
    assert [line[:12].strip() for line in lines] == ["batches", "thread pool"]
    for line in lines:
        rate, asked, p50, p99, refused = map(float, line[12:].split())
        assert (rate, refused) == (20, 0)
        assert asked > 5
        assert 0 < p50 <= p99
