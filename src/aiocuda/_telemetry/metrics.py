"""The counts of `aiocuda.statistics` as instruments of OpenTelemetry.

Always true: nothing is counted for this; the counts are read when OpenTelemetry collects. A provider forgets no
instrument, so each gets them once, and they say nothing while they are closed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final
from weakref import WeakKeyDictionary

from aiocuda._instruments.statistics import MemoryUse, Statistics, statistics

__all__ = ["Metrics", "opened"]

_SAME_NS = 50_000_000  # OpenTelemetry asks one instrument after another

# (name, kind, unit, what it is, the value)
_COUNTS: tuple[tuple[str, str, str, str, Callable[[Statistics], float]], ...] = (
    ("operations.submitted", "counter", "{operation}", "Submissions", lambda now: now.submitted),
    ("operations.in_flight", "updown", "{operation}", "Submissions that have not passed", lambda now: now.in_flight),
    ("waits.pending", "updown", "{wait}", "Waits that go on", lambda now: now.pending),
    ("waits.completed", "counter", "{wait}", "Waits that have ended", lambda now: now.completed),
    ("waits.for_room", "counter", "{wait}", "Waits for room in a stream or in memory", lambda now: now.waits_for_room),
    ("loop.wakes", "counter", "{wake}", "Times that an event loop was woken", lambda now: now.wakes),
    ("loop.stalls", "counter", "{stall}", "Times that an event loop was held for over 50 ms", lambda now: now.stalls),
    (
        "loop.stall.longest",
        "gauge",
        "s",
        "The longest time that an event loop was held",
        lambda now: now.longest_stall_ns / 1e9,
    ),
    ("staging.io", "counter", "By", "Bytes that staged copies have moved", lambda now: now.staged_bytes),
    ("spins", "counter", "{spin}", "Waits that began with spinning", lambda now: now.spins),
    ("spins.paid", "counter", "{spin}", "Those that ended while spinning", lambda now: now.spins_that_paid),
)


class Metrics:
    """The instruments of one provider. They tell how things stand while this is open.

    Parameters
    ----------
    provider
        A ``MeterProvider``.
    version
        The version of aiocuda.

    Attributes
    ----------
    is_open
        Whether anything is said.
    dropped_spans
        Returns how many spans were left out.
    """

    def __init__(self, provider: Any, version: str) -> None:
        from opentelemetry import metrics
        from opentelemetry.metrics import Observation

        self.close()
        self._observation = Observation
        meter = metrics.get_meter("aiocuda", version, provider)
        make = {
            "counter": meter.create_observable_counter,
            "updown": meter.create_observable_up_down_counter,
            "gauge": meter.create_observable_gauge,
        }
        for name, kind, unit, text, value in _COUNTS:
            make[kind](f"aiocuda.{name}", [self._told(value)], unit, text)
        make["updown"]("aiocuda.memory.usage", [self._memory], "By", "Memory by who holds it")
        make["gauge"]("aiocuda.memory.peak", [self._peak], "By", "The most that arrays held")
        make["counter"](
            "aiocuda.spans.dropped", [self._told(lambda _: self.dropped_spans())], "{span}", "Spans that were left out"
        )

    def close(self) -> None:
        """Say nothing, and hold nothing of those who told."""
        self.is_open = False
        self.dropped_spans: Callable[[], int] = lambda: 0
        self._latest: tuple[int, Statistics] | None = None

    def _told(self, value: Callable[[Statistics], float]) -> Callable[[Any], Iterable[Any]]:
        def tell(_: Any) -> Iterable[Any]:
            if self.is_open:
                yield self._observation(value(self._now()))

        return tell

    def _memory(self, _: Any) -> Iterable[Any]:
        if not self.is_open:
            return
        now = self._now()
        for use in now.memory:
            for holder, size_bytes in _holders(use, now.staging_bytes):
                yield self._observation(size_bytes, {**_where(use), "aiocuda.memory.holder": holder})

    def _peak(self, _: Any) -> Iterable[Any]:
        if not self.is_open:
            return
        for use in self._now().memory:
            if use.peak_bytes is not None:
                yield self._observation(use.peak_bytes, _where(use))

    def _now(self) -> Statistics:
        now_ns = time.monotonic_ns()
        if self._latest is None or now_ns - self._latest[0] > _SAME_NS:
            self._latest = (now_ns, statistics())
        return self._latest[1]


_made: Final[WeakKeyDictionary[Any, Metrics]] = WeakKeyDictionary()  # by provider


def opened(provider: Any, version: str) -> Metrics:
    """Return the instruments of a provider, which tell how things stand from here on; None: of OpenTelemetry's own."""
    from opentelemetry import metrics

    provider = metrics.get_meter_provider() if provider is None else provider
    found = _made.get(provider)
    if found is None:
        found = _made[provider] = Metrics(provider, version)
    found.is_open = True
    return found


def _where(use: MemoryUse) -> dict[str, str | int]:
    return {"aiocuda.memory.kind": "page-locked"} if use.device is None else {
        "aiocuda.memory.kind": "device", "aiocuda.device": use.device
    }  # fmt: skip


def _holders(use: MemoryUse, staging_bytes: int) -> Iterable[tuple[str, int]]:
    rings = staging_bytes if use.device is None else 0
    yield "arrays", use.arrays_bytes - rings
    if use.device is None:
        yield "staging rings", rings
    else:
        yield "managed arrays", use.managed_bytes
        yield "other libraries", use.frameworks_bytes
    if use.kept_bytes is not None:
        yield "kept", use.kept_bytes
