"""The driver's ends of the links with one process of a worker, made when the first array goes that way.

Always true: the driver tells the worker of each transfer, and makes its own half once the worker's was submitted. The
next transfer of a link comes after that, so both ends have one order. A transfer that was begun goes on, whoever waits.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import queue
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

from aiocuda._arrays.array import DeviceArray
from aiocuda._cluster.calls import Calls
from aiocuda._cluster.crossing import wait_for
from aiocuda._cluster.links import Link, transfer_failed
from aiocuda._cluster.messages import Carried, Connection, Raised, Transfer, Transferred
from aiocuda._cluster.raised import error_from
from aiocuda._devices.device import Device
from aiocuda._devices.placing import current_device
from aiocuda._driver import nccl
from aiocuda._verbs.copies import to_device
from aiocuda._verbs.create import empty
from aiocuda.errors import AiocudaError, ClusterError, WorkerLostError

__all__ = ["DriverLinks"]

_CONNECT_S: Final = 30.0
_CONNECTING: Final = "the connection of a link"
_REASON_S: Final = 1.0  # until Ray says that a process has ended, of which NCCL has heard


class Asks(Protocol):
    """Has the worker do something; gives the future of its answer."""

    def __call__(self, method: str, what: Any, doing: str) -> concurrent.futures.Future[Any]: ...


class _Job(NamedTuple):
    """A transfer, and the future of whether there is a link for it; it ends when the transfer was submitted."""

    arrays: Sequence[DeviceArray]
    carried: Sequence[Carried]
    words: str
    future: concurrent.futures.Future[bool]


class DriverLinks:
    """Those with one process.

    Parameters
    ----------
    calls
        The process' calls.
    asks
        Makes some.
    """

    def __init__(self, calls: Calls, asks: Asks) -> None:
        self._calls, self._asks = calls, asks
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._ways: dict[tuple[bool, int, bytes], _Way] = {}

    async def send(self, arrays: Sequence[DeviceArray], carried: Sequence[Carried], words: str) -> bool:
        """Have arrays go to the worker; return False where there is no link. Waits until they were submitted."""
        for device in sorted({each.device.ordinal for each in arrays}):
            places = [place for place, each in enumerate(arrays) if each.device.ordinal == device]
            way = self._way(True, device, b"")
            if not await way.carry([arrays[place] for place in places], [carried[place] for place in places], words):
                return False
        return True

    async def receive(self, carried: Sequence[Carried], words: str) -> list[DeviceArray]:
        """Have the worker send arrays, and return them: on the device in force."""
        here = current_device()
        arrays: dict[int, DeviceArray] = {}
        for device in sorted({each.device for each in carried}):
            places = [place for place, each in enumerate(carried) if each.device == device]
            asked = [carried[place] for place in places]
            way = self._way(False, here.ordinal, device)
            made = [await empty(each.shape, each.dtype, device=here).on(way.stream) for each in asked]
            if not await way.carry(made, asked, words):
                made = await self._fetched(asked, here, words)
            arrays.update(zip(places, made, strict=True))
        return [arrays[place] for place in range(len(carried))]

    def end(self, reason: str) -> None:
        """End all links: the process is lost. *Blocks*: for a second at most, for each that was used."""
        with self._lock:
            ways = list(self._ways.values())
        for each in ways:
            each.end(reason)

    async def _fetched(self, carried: Sequence[Carried], here: Device, words: str) -> list[DeviceArray]:
        """Return arrays that come through the object store, because there is no link."""
        answer = await wait_for(self._asks("fetch", carried, words))
        if isinstance(answer, Raised):
            raise error_from(answer, self._calls.worker, words)
        return [await to_device(each, here) for each in answer]

    def _way(self, is_to_worker: bool, here: int, there: bytes) -> _Way:
        with self._lock:
            key = is_to_worker, here, there
            if (way := self._ways.get(key)) is None:
                way = self._ways[key] = _Way(self._calls, self._asks, self._numbers, is_to_worker, here, there)
            return way


class _Way:
    """The link between two devices in one direction, and its thread."""

    def __init__(
        self, calls: Calls, asks: Asks, numbers: Iterator[int], is_to_worker: bool, here: int, there: bytes
    ) -> None:
        self._calls, self._asks, self._numbers = calls, asks, numbers
        self._is_to_worker, self._there = is_to_worker, there
        self.stream = Device(here).stream()
        self._lock = threading.Lock()
        self._is_over = False
        self._is_hopeless = False
        self._link: Link | None = None
        self._number = 0  # of the link
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="aiocuda-link", daemon=True).start()

    async def carry(self, arrays: Sequence[DeviceArray], carried: Sequence[Carried], words: str) -> bool:
        job = _Job(arrays, carried, words, concurrent.futures.Future())
        with self._lock:
            if self._is_over:
                raise self._calls.error(words)
            self._jobs.put(job)
        return await wait_for(job.future)

    def end(self, reason: str) -> None:
        with self._lock:
            if not self._is_over:
                self._is_over = True
                self._jobs.put(None)
            link = self._link
        if link is not None:
            link.end(reason)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                has_link = self._make(job)
            except BaseException as error:  # noqa: BLE001 - who waits for the transfer gets it
                job.future.set_exception(error)
            else:
                job.future.set_result(has_link)
            del job  # with its arrays

    def _make(self, job: _Job) -> bool:
        if (link := self._usable_link()) is None:
            return False
        number = self._number
        try:
            answer: Transferred = self._asks("transfer", Transfer(number, job.carried, job.words), job.words).result()
            if answer.raised is None:
                link.transfer(job.arrays, job.words)
        except BaseException as error:  # one of the two halves may be there
            self._drop(link, number, f"{job.words} could not be submitted: {error}")
            raise
        if answer.raised is not None:
            if answer.has_ended:
                self._drop(link, number, f"worker {self._calls.worker}: {answer.raised.words}")
            raise error_from(answer.raised, self._calls.worker, job.words)
        return True

    def _usable_link(self) -> Link | None:
        """Return the link, or a new one where that has ended; None where there can be none."""
        if self._link is not None and not self._link.has_ended:
            return self._link
        if self._is_hopeless:
            return None
        try:
            return self._connected()
        except WorkerLostError:
            raise
        except (AiocudaError, TimeoutError) as error:
            if self._calls.lost:
                raise self._calls.error(_CONNECTING) from error
            self._is_hopeless = True
            warnings.warn(
                f"arrays between this process and worker {self._calls.worker} go through Ray's object store, which is "
                f"slower: NCCL does not connect the two ({error}). See to that, and restart the worker",
                RuntimeWarning,
                stacklevel=1,
            )
            return None

    def _connected(self) -> Link:
        identity, number = nccl.new_id(), next(self._numbers)
        connection = Connection(number, identity, self._is_to_worker, self._there, _CONNECT_S)
        asked = self._asks("connect", connection, _CONNECTING)

        def give_up() -> str | None:
            if self._calls.lost:
                return f"worker {self._calls.worker} is lost"
            return "the worker could not do its part" if asked.done() and _refusal(asked) is not None else None

        def failed(wrong: str) -> None:
            self._calls.wait_until_lost(_REASON_S)
            self._drop(link, number, wrong)

        try:
            link = Link(self.stream, identity, sends=self._is_to_worker, failed=failed, error_of=self._error_of)
        except BaseException as error:
            self._disconnect(number, str(error))
            raise
        with self._lock:
            self._link, self._number, is_over = link, number, self._is_over
        try:
            first = link.begin(_CONNECT_S, give_up)
            if (raised := asked.result(_CONNECT_S)) is not None:
                raise error_from(raised, self._calls.worker, _CONNECTING)
            first.sync(_CONNECT_S)
            if is_over:
                raise self._calls.error(_CONNECTING)
        except BaseException as error:
            self._drop(link, number, f"it did not begin: {error}")
            if asked.done() and isinstance(refusal := _refusal(asked), Raised):
                raise error_from(refusal, self._calls.worker, _CONNECTING) from error  # the first cause
            raise
        return link

    def _drop(self, link: Link, number: int, reason: str) -> None:
        """End a link here and there."""
        link.end(reason)
        self._disconnect(number, reason)

    def _disconnect(self, number: int, reason: str) -> None:
        with contextlib.suppress(ClusterError, WorkerLostError):  # then there is nothing left there
            self._asks("disconnect", (number, reason), "the end of a link")

    def _error_of(self, words: str, reason: str) -> BaseException:
        if self._calls.lost:
            return self._calls.error(words)
        return transfer_failed(f"{words}, by NCCL with worker {self._calls.worker},", reason)


def _refusal(answered: concurrent.futures.Future[Any]) -> object:
    """Return why a worker did not do what it was asked for; None if it did."""
    return answered.exception() or answered.result()
