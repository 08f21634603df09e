"""A simulation of a training job over many ranks: events on a clock of its own, no threads and no devices.

Always true: an event that comes later by the clock is handled later; the same constants and seed give the same times.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Clock", "Constants", "Job", "Network", "Queue", "ring_s", "step_s", "training_s"]


@dataclass(frozen=True, slots=True)
class Constants:
    """How long things take, in seconds.

    Attributes
    ----------
    dispatch_s, reply_s
        Of the driver's processor, for sending one call, and for taking one reply.
    wire_s
        From one process to another.
    line_s
        Of the hub's processor, for one message: what a rank calls, or the answer to one rank.
    call_s
        Of a rank, for one call of a collective, beyond what NCCL takes.
    launch_s
        Of NCCL, for one call of few bytes, beyond the ring.
    latency_s, bytes_per_s
        Of one message between two neighbours of NCCL's ring.
    """

    dispatch_s: float
    reply_s: float
    wire_s: float
    line_s: float
    call_s: float
    launch_s: float
    latency_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Job:
    """A step: each rank computes, and one all_reduce follows.

    Attributes
    ----------
    ranks, steps
        How many.
    compute_s, jitter
        How long a rank computes, and by which share longer at most, by chance.
    size_bytes
        Of the arrays that are added up.
    has_call_per_step
        Whether the driver calls all ranks for each step; else one call has all steps.
    is_one_host
        Whether the ranks agree in memory that they share; else by the channel.
    """

    ranks: int
    steps: int
    compute_s: float
    jitter: float
    size_bytes: int
    has_call_per_step: bool
    is_one_host: bool


@dataclass(frozen=True, slots=True)
class Network:
    """Square layers, each of whose gradients is added up while the layer before it computes.

    Attributes
    ----------
    layers
        How many.
    product_s
        How long a product of matrices takes. A layer has three: forward, its gradients, and the error before it.
    size_bytes
        Of a layer's gradients.
    """

    layers: int
    product_s: float
    size_bytes: int


class Clock:
    """Events, in the order of their times."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def after(self, delay_s: float, event: Callable[[], None]) -> None:
        """Have something happen later."""
        heapq.heappush(self._events, (self.now_s + delay_s, next(self._order), event))

    def run(self) -> None:
        """Let all happen."""
        while self._events:
            self.now_s, _, event = heapq.heappop(self._events)
            event()


class Queue:
    """A processor that does one thing after another, first come first served."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free_s = 0.0

    def do(self, takes_s: float, then: Callable[[], None]) -> None:
        """Do something behind what was asked for before, and then call `then`."""
        self._free_s = max(self._free_s, self._clock.now_s) + takes_s
        self._clock.after(self._free_s - self._clock.now_s, then)


def ring_s(constants: Constants, ranks: int, size_bytes: int) -> float:
    """Return how long NCCL's all_reduce takes: twice round the ring, a part of the array at each of the steps."""
    rounds = 2 * (ranks - 1)
    return constants.launch_s + rounds * (constants.latency_s + size_bytes / ranks / constants.bytes_per_s)


class _Run:
    def __init__(self, constants: Constants, job: Job, seed: int) -> None:
        self.constants, self.job = constants, job
        self.clock = Clock()
        self.driver, self.hub = Queue(self.clock), Queue(self.clock)
        self.random = random.Random(seed)
        self.left = job.steps
        self.come = 0

    def call_all(self) -> None:
        for _ in range(self.job.ranks):
            self.driver.do(self.constants.dispatch_s, lambda: self.clock.after(self.constants.wire_s, self.compute))

    def compute(self) -> None:
        takes_s = self.job.compute_s * (1 + self.job.jitter * self.random.random()) + self.constants.call_s
        if self.job.is_one_host:
            self.clock.after(takes_s, self.called)
        else:
            self.clock.after(takes_s, lambda: self.clock.after(self.constants.wire_s, self.say))

    def say(self) -> None:
        """Have the hub hear what a rank calls."""
        self.hub.do(self.constants.line_s, self.heard)

    def heard(self) -> None:
        """Have the hub answer all ranks, once all have come."""
        self.come += 1
        if self.come == self.job.ranks:
            self.come = 0
            for _ in range(self.job.ranks):
                self.hub.do(self.constants.line_s, self.answered)

    def answered(self) -> None:
        self.clock.after(self.constants.wire_s, self.called)

    def called(self) -> None:
        """Have NCCL begin, once all ranks may."""
        self.come += 1
        if self.come == self.job.ranks:
            self.come = 0
            self.clock.after(ring_s(self.constants, self.job.ranks, self.job.size_bytes), self.reduced)

    def reduced(self) -> None:
        self.left -= 1
        if self.left and not self.job.has_call_per_step:
            for _ in range(self.job.ranks):
                self.compute()
            return
        for _ in range(self.job.ranks):
            self.clock.after(self.constants.wire_s, lambda: self.driver.do(self.constants.reply_s, self.replied))

    def replied(self) -> None:
        self.come += 1
        if self.come == self.job.ranks:
            self.come = 0
            if self.left:
                self.call_all()


def step_s(constants: Constants, job: Job, seed: int = 20) -> float:
    """Return how long a step takes, on average."""
    run = _Run(constants, job, seed)
    run.call_all()
    run.clock.run()
    return run.clock.now_s / job.steps


def training_s(
    constants: Constants, network: Network, ranks: int, steps: int, *, is_computed: bool, is_reduced: bool
) -> float:
    """Return how long a step of a network takes, on average; it may be computed alone, or added up alone.

    Host, kernels and NCCL each do one thing after another. A layer's gradients are written again when their last sum
    has ended. The next step does not wait for the sums: the network's weights are not changed.
    """
    host_s = kernels_s = nccl_s = 0.0
    takes_s = ring_s(constants, ranks, network.size_bytes)
    summed_s = [0.0] * network.layers
    for _ in range(steps):
        if is_computed:
            kernels_s += network.layers * network.product_s
        for layer in reversed(range(network.layers)):
            if is_computed:
                kernels_s = max(kernels_s, summed_s[layer]) + network.product_s
            if is_reduced:
                host_s += constants.call_s
                nccl_s = max(nccl_s, host_s, kernels_s) + takes_s
                summed_s[layer] = nccl_s
            if is_computed:
                kernels_s += network.product_s
    return max(kernels_s, nccl_s) / steps
