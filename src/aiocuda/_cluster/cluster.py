"""`start`, and the cluster that it makes.

Always true: when the block of ``start`` has ended, so have the workers' processes; and Ray, if the block started it.
"""

from __future__ import annotations

import concurrent.futures
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar, overload

from aiocuda._cluster import ray
from aiocuda._cluster.actor import EMULATED_DEVICES, WorkerActor, facts_of_this_process
from aiocuda._cluster.crossing import in_thread, side_by_side, wait_for
from aiocuda._cluster.groups import ClusterGroup, make_group
from aiocuda._cluster.keeper import Keeper
from aiocuda._cluster.process import WorkerProcess
from aiocuda._cluster.reaching import address_of
from aiocuda._cluster.restarts import restart
from aiocuda._cluster.watch import Watch
from aiocuda._cluster.worker import Worker
from aiocuda._driver import runtime
from aiocuda._engine.execution import checked_timeout
from aiocuda._values.given import between, mapping, whole
from aiocuda.errors import ArgumentIndexError, ArgumentValueError, ClusterError, WorkerLostError

__all__ = ["Cluster", "start"]

T = TypeVar("T")
Item = TypeVar("Item")

_LONGEST_S = 2e6  # which Ray takes for a placement group
_VARIABLES = "AIOCUDA_"  # what workers are told of this process' environment


class Cluster:
    """Workers on Ray: processes with devices of their own. Made by `start`.

    ``cluster[i]`` is a `Worker`, ``len(cluster)`` says how many there are, and iteration gives all.
    """

    def __init__(self, reserved: Any, size: int, gpus: int, answers_within_s: float, begins_within_s: float) -> None:
        self._reserved = reserved
        self._gpus = gpus
        self._answers_within_s = answers_within_s
        self._begins_within_s = begins_within_s
        self._driver = facts_of_this_process(range(runtime.device_count()))
        self._environment = _environment(size * gpus)
        self._is_over = False
        self._workers = [Worker(self._started(number), self._driver) for number in range(size)]
        self._watch = Watch(lambda: [each._process for each in self._workers], answers_within_s)

    def __len__(self) -> int:
        return len(self._workers)

    def __getitem__(self, number: int) -> Worker:
        if not -len(self) <= (number := whole(number, "worker")) < len(self):
            raise ArgumentIndexError(f"worker {number} was asked for; the cluster has {len(self)}, from 0")
        return self._workers[number]

    def __iter__(self) -> Iterator[Worker]:
        return iter(list(self._workers))

    def __repr__(self) -> str:
        lost = [each.number for each in self._workers if each.lost]
        state = "ended" if self._is_over else f"lost: {lost}" if lost else "all well"
        return f"<aiocuda.cluster.Cluster of {len(self)} workers with {self._gpus} GPUs each, {state}>"

    @overload
    async def run(self, function: Callable[..., Coroutine[Any, Any, T]], /, *args: Any, **kwargs: Any) -> list[T]: ...
    @overload
    async def run(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> list[T]: ...
    async def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a function on all workers at the same time; return the results in the order of the workers.

        If one call fails, the others are cancelled. Otherwise as `Worker.run`.

        Parameters
        ----------
        function, *args, **kwargs
            As for `Worker.run`.

        Returns
        -------
        list
            The result of each worker, by its number.
        """

        def of(worker: Worker) -> Callable[[], Awaitable[Any]]:
            return lambda: worker.run(function, *args, **kwargs)

        return await side_by_side([of(each) for each in self._workers], "worker")

    @overload
    async def map(self, function: Callable[[Item], Coroutine[Any, Any, T]], items: Iterable[Item]) -> list[T]: ...
    @overload
    async def map(self, function: Callable[[Item], T], items: Iterable[Item]) -> list[T]: ...
    async def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Call a function for each item on some worker; return the results in the order of the items.

        Each worker has one item at a time, and takes the next one when it is done with it. If one call fails, the
        others are cancelled, and no further item is taken. Otherwise as `Worker.run`.

        Parameters
        ----------
        function
            Called with one item. An async function runs on a worker's event loop, any other one in a thread there.
        items
            All of them are taken before the first call.

        Returns
        -------
        list
            The result of each item, in their order.
        """
        left = deque(enumerate(items))
        results: dict[int, Any] = {}

        def of(worker: Worker) -> Callable[[], Awaitable[None]]:
            async def take() -> None:
                while left:
                    number, item = left.popleft()
                    results[number] = await worker.run(function, item)

            return take

        await side_by_side([of(each) for each in self._workers], "worker")
        return [results[number] for number in range(len(results))]

    async def group(self, *, timeout_s: float = 60.0) -> ClusterGroup:
        """Make a group of collectives over all workers; rank n is worker n.

        Parameters
        ----------
        timeout_s
            How long it may take until all have joined, in seconds.

        Returns
        -------
        ClusterGroup
            For ``async with``; given as an argument, it is each worker's own `Group`.

        Raises
        ------
        WorkerLostError
            A worker is lost; restart it first.
        CollectiveError
            Not all have joined in time.
        MissingPackageError
            nccl4py or NCCL is not installed on a worker.
        """
        return await make_group(list(self._workers), checked_timeout(timeout_s), self._answers_within_s)

    async def restart(self, number: int) -> Worker:
        """Give a worker a fresh process, with the same devices. What the old one held is gone.

        Parameters
        ----------
        number
            The worker's. If it is not lost, its calls fail with `WorkerLostError`.

        Returns
        -------
        Worker
            The same worker. *On cancel*: the worker is lost, and can be restarted again.

        Raises
        ------
        WorkerLostError
            The process did not begin within the time of `start`, or the worker was restarted once more meanwhile.
        ClusterError
            It did not, because the machine is gone for Ray, and no other one has so many free GPUs; or the cluster has
            ended.
        ForkedProcessError
            This process was forked from the one that started the cluster.
        """
        runtime.require_not_forked()  # or the child would end the workers of its parent
        worker = self[number]
        self._require_alive(worker.number)
        try:
            await restart(worker, self._started)
        except WorkerLostError as error:
            if await in_thread(ray.has_node, self._reserved, worker.number):
                raise
            raise ClusterError(
                f"worker {worker.number} cannot begin ({error.reason}): the Ray node that it was on is gone, and no "
                f"other one has {self._gpus} free GPUs; start one with `ray start`, and restart the worker"
            ) from error
        return worker

    def _require_alive(self, number: int) -> None:
        if self._is_over:  # or Ray would start once more
            raise ClusterError(
                f"worker {number} cannot be restarted: the cluster has ended, with the block of `start`; start a "
                "new one"
            )

    def _started(self, number: int) -> WorkerProcess:
        self._require_alive(number)
        arguments = number, self._driver, self._environment
        actor = ray.start_actor(WorkerActor, self._reserved, number, self._gpus, arguments)
        return WorkerProcess(number, actor, self._begins_within_s)

    def _end(self) -> None:
        self._is_over = True
        self._watch.close()
        for each in self._workers:
            with each._renewing:
                each._process.end_with_cluster()


@asynccontextmanager
async def start(
    workers: int,
    gpus: int = 1,
    *,
    answers_within_s: float = 30.0,
    begins_within_s: float = 60.0,
    ray_options: Mapping[str, Any] | None = None,
) -> AsyncIterator[Cluster]:
    """Start workers on Ray; the block of ``async with`` gets the `Cluster`.

    Parameters
    ----------
    workers
        How many.
    gpus
        How many GPUs each has. It sees no others. On the emulated driver these are emulated devices.
    answers_within_s
        The event loop of a worker answers within this time, in seconds, or the worker is lost.
    begins_within_s
        Ray answers within this time, in seconds. It has so many free GPUs within as much, and the processes begin
        within as much, also after `Cluster.restart`.
    ray_options
        For ``ray.init``, such as ``{"address": "auto"}`` for a Ray that runs. If they have no address, that of the
        variable ``RAY_ADDRESS`` counts; without one, a Ray is started. If this process uses Ray already, that one is
        used, and the options must be None.

    Returns
    -------
    AsyncContextManager[Cluster]
        At its end the workers' processes are ended; and Ray, if this started it. *On cancel*: what has not begun yet is
        ended by a thread once it has, and this does not wait for that.

    Raises
    ------
    MissingPackageError
        Ray is not installed.
    ArgumentTypeError
        `workers` or `gpus` is no whole number, or `ray_options` are none of Ray's.
    ArgumentValueError
        `workers` or `gpus` is below 1, a time is none, `answers_within_s` is 0, or Ray refuses an option.
    ClusterError
        Ray does not start or answer, or does not have so many GPUs.
    WorkerLostError
        A process did not begin.
    """
    workers, gpus = between(workers, "workers", 1, 1 << 16), between(gpus, "gpus", 1, 1 << 10)
    answers_within_s, begins_within_s = checked_timeout(answers_within_s), checked_timeout(begins_within_s)
    begins_within_s = min(begins_within_s, _LONGEST_S)
    emulated = workers * gpus if runtime.driver_info().is_emulated else None
    if not answers_within_s:
        raise ArgumentValueError("answers_within_s is a number of seconds above 0; 0 was given")
    options = {} if ray_options is None else dict(mapping(ray_options, "ray_options", "arguments of ray.init"))
    keeper, process = Keeper(), os.getpid()
    reserving = making = None
    try:
        try:
            await wait_for(keeper.start(emulated, options), begins_within_s)
        except TimeoutError:
            raise _unanswered(address_of(options), begins_within_s) from None
        reserving = keeper.submit(lambda: ray.reserve(workers, gpus))
        reserved = await wait_for(reserving)
        await in_thread(ray.wait_for_room, reserved, workers, gpus, begins_within_s)
        making = keeper.submit(lambda: Cluster(reserved, workers, gpus, answers_within_s, begins_within_s))
        cluster = await wait_for(making)
        await side_by_side([each._process.begin for each in cluster], "beginning")
        yield cluster
    finally:
        if os.getpid() == process:  # else this is a forked child, and all of it is its parent's
            _end_all(keeper, making, reserving)


def _end_all(
    keeper: Keeper,
    making: concurrent.futures.Future[Cluster] | None,
    reserving: concurrent.futures.Future[Any] | None,
) -> None:
    """End what `start` has begun.

    *Blocks*, since a cancelled task cannot wait: for some milliseconds, and a second or two if Ray ends. The keeper
    ends a cluster that comes later.
    """
    if making is not None:
        making.add_done_callback(_end)
    if reserving is not None:
        reserving.add_done_callback(_unreserve)
    keeper.close()


def _unanswered(address: str, within_s: float) -> ClusterError:
    if address == "local":
        return ClusterError(f"Ray did not start within {within_s:g} s; allow more with begins_within_s")
    return ClusterError(
        f"no Ray answered at {address} within {within_s:g} s; see that it runs there (`ray status`), that its port can "
        "be reached from here, and that ray_options name it"
    )


def _end(making: concurrent.futures.Future[Cluster]) -> None:
    if making.exception() is None:
        making.result()._end()


def _unreserve(reserving: concurrent.futures.Future[Any]) -> None:
    if reserving.exception() is None:
        ray.unreserve(reserving.result())


def _environment(devices: int) -> dict[str, str]:
    """Return what workers have of this process' settings, so that they have the same driver and enough devices."""
    settings = {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}
    if runtime.driver_info().is_emulated:
        settings["AIOCUDA_DRIVER"] = "emulated"
        settings[EMULATED_DEVICES] = str(max(devices, runtime.device_count()))
    return settings
