"""The server's batches, and PyTorch's ways to run them, on stand-ins: each text gets its own answer, in any order."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import random
import sys
import time
from typing import Any

import metering
import numpy as np
import pytest
import uvloop
from batching import Batch, LateError, RefusedError, Step, Text
from hypothesis import given
from hypothesis import strategies as st
from server_machine import Event, FakeDecoder, FakeGraph, FakeTorch, Machine, Stream, answer_to
from sizes import PAGE, TINY, Sizes

SIZES = Sizes(
    layers=1, width=8, heads=1, kv_heads=1, hidden=8, vocabulary=23,
    slots=3, pages=7, positions=3 * PAGE, buckets=(1, 3, 8),
)  # fmt: skip
asked = st.tuples(
    st.lists(st.integers(0, SIZES.vocabulary - 1), min_size=1, max_size=20),
    st.integers(1, 20),
    st.none() | st.integers(0, SIZES.vocabulary - 1),
    st.integers(1, 30),  # tokens that its client stays for
)


class Client:
    """A text, and what its client has heard."""

    def __init__(self, prompt: list[int], limit: int, stop: int | None, stay: int) -> None:
        self.heard: list[Any] = []
        self.stay = stay
        self.expected = answer_to(prompt, limit, stop, SIZES.vocabulary)
        self.text = Text(prompt, limit, self._give, stop=stop)

    def _give(self, token: Any) -> None:
        self.heard.append(token)
        if len(self.heard) == self.stay:
            self.text.is_over = True

    @property
    def should_hear(self) -> list[Any]:
        """All of the answer and its end; the first tokens, if the client goes before the last."""
        return [*self.expected, None] if self.stay >= len(self.expected) else self.expected[: self.stay]


def owned_once(batch: Batch) -> None:
    pages = [page for text in batch._running for page in text.pages]
    slots = [text.slot for text in batch._running]
    assert sorted([*pages, *batch._free_pages]) == list(range(SIZES.pages))
    assert sorted([*slots, *batch._free_slots]) == list(range(SIZES.slots))


@given(st.lists(asked, max_size=12), st.lists(st.integers(0, 3), max_size=30), st.integers(0, 2))
def test_each_text_gets_its_own_answer_and_all_pages_come_back(texts, arrivals, ahead):
    batch, machine = Batch(SIZES, max_waiting=100), Machine(SIZES)
    clients = [Client(*each) for each in texts]
    coming, under_way = list(clients), []
    while coming or under_way or batch.counts["waiting"] or batch.counts["running"]:
        for _ in range(arrivals.pop() if arrivals else 1):
            if coming:
                batch.add(coming.pop(0).text)
        step = batch.plan()
        owned_once(batch)
        if step is not None:
            bucket = (step.plan.size - SIZES.slots * (SIZES.pages_each + 4)) // 3
            assert bucket in SIZES.buckets
            under_way.append((step, machine.do(step.plan, bucket)))  # the device does steps in order
        if under_way and (step is None or len(under_way) > ahead):
            batch.take(*under_way.pop(0))
    assert batch.counts == {"waiting": 0, "running": 0, "pages": 0}
    assert not batch._open
    for client in clients:
        assert client.heard == client.should_hear


def planned(batch: Batch) -> Step:
    step = batch.plan()
    assert step is not None
    return step


def test_a_full_line_refuses_and_takes_again_when_one_has_begun():
    batch = Batch(SIZES, max_waiting=2)
    texts = [Text([1], 1, [].append) for _ in range(4)]
    batch.add(texts[0])
    batch.add(texts[1])
    with pytest.raises(RefusedError, match="2 texts wait already"):
        batch.add(texts[2])
    planned(batch)
    batch.add(texts[3])


def test_a_text_that_waited_too_long_is_told_and_others_go_on():
    batch, told, other = Batch(SIZES, max_waiting=9), [], []
    batch.add(Text([1], 1, told.append, due=5))
    batch.add(Text([1], 1, other.append, due=7))
    step = batch.plan(now=6)
    assert step is not None
    assert len(step.takers) == 1
    assert isinstance(told[0], LateError)
    assert other == []


@pytest.mark.parametrize(
    ("prompt", "limit", "said"),
    [([], 1, "a prompt has tokens from 0 to 22"), ([23], 1, "from 0 to 22"), ([1] * 40, 10, "have 49 tokens at most")],
)
def test_a_text_that_cannot_be_is_refused(prompt, limit, said):
    with pytest.raises(ValueError, match=said):
        Batch(SIZES, 9).add(Text(prompt, limit, [].append))


def test_an_error_reaches_all_texts_and_ends_the_taking():
    batch, told = Batch(SIZES, max_waiting=9), []
    for _ in range(5):
        batch.add(Text([1], 1, told.append))
    planned(batch)  # three of them have no later step, and wait for this one
    batch.fail(error := RuntimeError("lost"))
    assert told == [error] * 5
    with pytest.raises(RefusedError, match="no text is answered any more: lost"):
        batch.add(Text([1], 1, told.append))


def test_long_prompts_leave_room_for_those_that_answer():
    batch = Batch(SIZES, max_waiting=9)
    batch.add(Text([1], 5, [].append))
    planned(batch)
    batch.add(Text([2] * 12, 1, [].append))
    step = planned(batch)
    rows = step.plan[-3 * 8 :].reshape(-1, 3).tolist()
    assert rows[0][1:] == [1, -1]  # the answer's, first
    assert [row[1] for row in rows[1:]] == list(range(7))  # then a part of the prompt
    assert len(step.takers) == 1


def test_numbers_of_a_model_are_those_of_its_weights():
    from sizes import draw_weights

    weights = draw_weights(TINY)
    arrays = [weights.embedding, weights.gain, *(each for layer in weights.layers for each in vars(layer).values())]
    assert sum(each.size for each in arrays) == TINY.parameters
    assert {each.dtype.name for each in arrays} == {"bfloat16"}


# --- PyTorch's ways

WAYS = ["Synchronous", "Threads", "Overlapped"]


@pytest.fixture
def torch_ways(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, with a stand-in for PyTorch."""
    monkeypatch.setitem(sys.modules, "torch", FakeTorch(0))
    monkeypatch.delitem(sys.modules, "torch_ways", raising=False)
    module = importlib.import_module("torch_ways")
    yield module
    sys.modules.pop("torch_ways", None)


async def answered(module: Any, name: str, seed: int) -> list[Client]:
    """Have a way answer texts that come by and by; return their clients, or raise the way's error."""
    module.torch = torch = FakeTorch(seed)
    way = getattr(module, name)(FakeDecoder(torch, SIZES), 100)
    await way.warm_up()
    running = asyncio.create_task(way.run())
    chance, clients = random.Random(seed), []
    ends: asyncio.Queue[None] = asyncio.Queue()

    def added(client: Client) -> None:
        give = client.text.give

        def heard(token: Any) -> None:
            give(token)
            if token is None or isinstance(token, Exception):
                ends.put_nowait(None)

        client.text.give = heard
        way.add(client.text)
        clients.append(client)

    try:
        for _ in range(25):
            prompt = [chance.randrange(SIZES.vocabulary) for _ in range(chance.randint(1, 20))]
            added(Client(prompt, chance.randint(1, 20), chance.choice([None, 3]), 99))
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        async with asyncio.timeout(60):
            for _ in clients:
                await ends.get()
    finally:
        running.cancel()
        await asyncio.wait([running])
        if not running.cancelled() and (error := running.exception()) is not None:
            raise error
    return clients


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("seed", range(4))
def test_ways_of_pytorch_answer_whatever_order_streams_take(torch_ways, name, seed):
    for client in asyncio.run(answered(torch_ways, name, seed)):
        assert client.heard == [*client.expected, None]


def was_right(module: Any, seed: int) -> bool:
    try:
        clients = asyncio.run(answered(module, "Overlapped", seed))
    except (AssertionError, IndexError, RefusedError):  # the stand-in met numbers that make no sense
        return False
    return all(client.heard == [*client.expected, None] for client in clients)


@pytest.mark.parametrize(("kind", "name"), [(Stream, "wait_event"), (Event, "synchronize")])
def test_a_missing_event_of_pytorchs_is_noticed(torch_ways, monkeypatch, kind, name):
    assert all(was_right(torch_ways, seed) for seed in range(4))
    monkeypatch.setattr(kind, name, lambda *_: None)
    assert not all(was_right(torch_ways, seed) for seed in range(4))


async def prepared(module: Any, name: str) -> Any:
    module.torch = torch = FakeTorch(0)
    way = getattr(module, name)(FakeDecoder(torch, SIZES), 100)
    await way.warm_up()
    return way


@pytest.mark.parametrize("name", WAYS)
def test_all_ways_of_pytorch_submit_a_step_before_they_wait_for_the_one_before(torch_ways, monkeypatch, name):
    done: list[str] = []
    for method in ("compute", "wait"):
        real = getattr(torch_ways.Slot, method)

        def noted(slot: Any, plan: np.ndarray, method: str = method, real: Any = real) -> Any:
            done.append(method)
            return real(slot, plan)

        monkeypatch.setattr(torch_ways.Slot, method, noted)

    async def main() -> None:
        way = await prepared(torch_ways, name)
        end: asyncio.Queue[Any] = asyncio.Queue()
        way.add(Text([1], 5, end.put_nowait))
        running = asyncio.create_task(way.run())
        while await end.get() is not None:
            pass
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(main())
    assert done == ["compute", *["compute", "wait"] * 4, "wait"]


@pytest.mark.parametrize("name", WAYS)
def test_ways_of_pytorch_replay_each_graph_before_the_first_text(torch_ways, monkeypatch, name):
    replayed: list[FakeGraph] = []
    real = FakeGraph.replay

    def noted(graph: FakeGraph) -> None:
        replayed.append(graph)
        real(graph)

    monkeypatch.setattr(FakeGraph, "replay", noted)
    asyncio.run(prepared(torch_ways, name))
    assert len(set(replayed)) == len(replayed) == 2 * len(SIZES.buckets)


@pytest.mark.parametrize("name", WAYS)
def test_an_error_of_pytorchs_reaches_all_texts_and_ends_the_way(torch_ways, monkeypatch, name):
    do, steps = Machine.do, itertools.count()

    def failing(machine: Machine, plan: np.ndarray, bucket: int) -> np.ndarray:
        if plan[-3] >= 0 and next(steps) == 4:  # one with a row; those before the first text have none
            raise RuntimeError("lost")
        return do(machine, plan, bucket)

    async def main() -> None:
        way = await prepared(torch_ways, name)
        monkeypatch.setattr(Machine, "do", failing)
        told: list[list[Any]] = [[] for _ in range(7)]
        for each in told:
            way.add(Text([1], 20, each.append))
        with pytest.raises(RuntimeError, match="lost"):
            await way.run()
        await asyncio.sleep(0)  # a thread's words come by the loop
        assert [str(each[-1]) for each in told] == ["lost"] * 7
        with pytest.raises(RefusedError, match="no text is answered any more: lost"):
            way.add(Text([1], 1, [].append))

    asyncio.run(main())


def test_the_synchronous_way_lets_in_what_waits_before_it_waits_itself(torch_ways):
    async def main() -> None:
        way = await prepared(torch_ways, "Synchronous")
        end: asyncio.Queue[Any] = asyncio.Queue()
        way.add(Text([1], 9, end.put_nowait))
        turns: list[int] = []  # the steps that were done at each turn of the loop

        async def count() -> None:
            while True:
                turns.append(way.meter.steps)
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(way.run()), asyncio.create_task(count())]
        while await end.get() is not None:
            pass
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(turns.count(steps) == torch_ways.TURNS for steps in range(1, 8))

    asyncio.run(main())


# --- numbers


def test_a_lag_is_from_when_the_loop_was_due_and_one_for_each_point_that_it_missed():
    assert metering.lags_of(1_000_000_000, 3, 1_012_000_000) == [0.012, 0.007, 0.002]


@pytest.mark.parametrize("kind", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_loop_that_is_held_is_late_for_each_point_of_that_time(kind):
    async def main() -> list[float]:
        lag = metering.LoopLag()
        while not (lags := lag.take()):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        begin = time.monotonic_ns()
        while time.monotonic_ns() < begin + 4 * metering.PERIOD_NS:  # the loop is held
            pass
        while len(lags := lag.take()) < 3:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        lag.close()
        return lags

    with asyncio.Runner(loop_factory=kind) as runner:
        lags = runner.run(main())
    assert lags[0] > 2 * metering.PERIOD_NS / 1e9
    assert lags[0] - lags[1] == pytest.approx(metering.PERIOD_NS / 1e9)
