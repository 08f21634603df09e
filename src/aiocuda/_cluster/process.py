"""One process of a worker, seen from the driver: how it is called, watched and ended.

Always true: an array that was lent to it is kept until it has passed there, or the process is lost.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import os
import signal
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

from aiocuda._cluster import ray
from aiocuda._cluster.calls import Calls
from aiocuda._cluster.crossing import wait_for
from aiocuda._cluster.driver_links import DriverLinks
from aiocuda._cluster.leases import Leases
from aiocuda._cluster.messages import Facts, Parcel, Pong, Reply, Request, decoded, encoded
from aiocuda.errors import RemoteError

__all__ = ["WorkerProcess", "began", "next_call"]

_numbers = itertools.count(1)


def next_call() -> str:
    """Return a name for a call, different from all others of this process."""
    return f"call {next(_numbers)}"


_TOLD_BY_RAY: Final = 200  # characters of what Ray says of an end


class WorkerProcess:
    """One process; a restart makes another one.

    Parameters
    ----------
    number
        The worker's number.
    actor
        Ray's handle of it.
    begins_within_s
        How long it may take to begin, in seconds.
    """

    def __init__(self, number: int, actor: ray.Actor, begins_within_s: float) -> None:
        self.number = number
        self.actor = actor
        self._begins_within_s = begins_within_s
        self._started = time.monotonic()
        self.facts: Facts | None = None  # once it has begun
        self.calls = Calls(number)
        self.leases = Leases()
        self.links = DriverLinks(self.calls, self._ask_for)
        self.deleted: deque[int] = deque()  # objects there that nobody here has any more; finalizers add to it
        self._abandoned: deque[str] = deque()
        self._ping: Any = None
        self._pinged = 0.0
        self._host = ray.node_id()  # Ray may have ended before the process
        self._ending = threading.Lock()
        self._is_ended = False

    async def begin(self) -> None:
        """Wait until the process has begun.

        Raises
        ------
        WorkerLostError
            It did not, or not in time.
        """
        future = self.calls.add("its beginning")

        def came(done: Any) -> None:
            if (error := done.exception()) is not None:
                self.lose(_told(error))
            else:
                self.facts = done.result()  # also if nobody waits any more: they tell how the process is ended
                self.calls.settle(future, None, None)

        ray.future_of(ray.ask(self.actor, "facts")).add_done_callback(came)
        await wait_for(future)

    # Calls.

    def ask(self, request: Request, doing: str) -> tuple[Any, Any]:
        """Have the process do something; return Ray's reference, and the future of a `Reply`.

        Raises
        ------
        ClusterError
            Ray does not take it.
        """
        future = self.calls.add(doing)
        try:
            reference = ray.ask(self.actor, "call", encoded(request))
        except BaseException:
            self.calls.forget(future)
            raise
        ray.future_of(reference).add_done_callback(lambda done: self._came(future, done, doing))
        return reference, future

    def abandon(self, call: str, reference: Any, future: Any) -> None:
        """Have a call cancelled, whose result nobody wants."""
        self.calls.forget(future)
        self.give_up(call)
        ray.cancel(reference)

    def give_up(self, call: str) -> None:
        """Have the process let go of what was sent there for a call that nobody makes any more."""
        self._abandoned.append(call)

    def _ask_for(self, method: str, what: Any, doing: str) -> concurrent.futures.Future[Any]:
        """Have the process do something for the links."""
        future = self.calls.add(doing)

        def came(done: Any) -> None:
            if (error := done.exception()) is None:
                self.calls.settle(future, done.result(), None)
            else:
                self._fail(future, error, doing)

        ray.future_of(ray.ask(self.actor, method, what)).add_done_callback(came)
        return future

    def _came(self, future: Any, done: Any, doing: str) -> None:
        error = done.exception()
        if error is None:
            reply: Reply = decoded(done.result())
            self.leases.end(reply.closed)
            if not self.calls.settle(future, reply, None) and isinstance(reply.result, Parcel):
                self.leases.discard(reply.result.arrays)  # nobody waits for it any more
        else:
            self._fail(future, error, doing)

    def _fail(self, future: Any, error: BaseException, doing: str) -> None:
        if ray.is_gone(error):
            self.lose(_told(error))
        else:
            what = "CancelledError" if ray.is_cancelled(error) else f"Ray: {type(error).__name__}"
            self.calls.settle(future, None, RemoteError(self.number, doing, what, str(error)))

    # Its life.

    def look(self, answers_within_s: float) -> None:
        """Ask for a sign of life, unless one is awaited; lose the process if it is overdue. Blocks for nothing."""
        if self.facts is None and time.monotonic() - self._started > self._begins_within_s:
            self.lose(f"it did not begin within {self._begins_within_s:g} s")
        if self.calls.lost:
            self.end()
        if self.calls.lost or self.facts is None:
            return
        if self._ping is not None:
            if not self._ping.done():
                if (silent_s := time.monotonic() - self._pinged) > answers_within_s:
                    self.lose(f"it has not answered for {silent_s:.1f} s")
                return
            if (error := self._ping.exception()) is not None:
                self.lose(_told(error))
                return
            pong: Pong = self._ping.result()
            self.leases.end(pong.closed)
            for call in pong.unopened:
                self.leases.end_call(call)
        abandoned = [self._abandoned.popleft() for _ in range(len(self._abandoned))]
        deleted = [self.deleted.popleft() for _ in range(len(self.deleted))]
        self._pinged = time.monotonic()
        self._ping = ray.future_of(ray.ask(self.actor, "ping", self.leases.take_closed(), abandoned, deleted))

    def lose(self, reason: str) -> None:
        """End all calls with an error; the first reason is the one that is told. The watch ends the process.

        Threads of Ray's call this, which must not wait for Ray.
        """
        if self.calls.lose(reason):
            self.leases.end_all()

    def end_with_cluster(self) -> None:
        """Lose the process, and end it, because the cluster ends."""
        if self.calls.end():
            self.leases.end_all()
        self.end()

    def end(self) -> None:
        """End the process, which is lost; once."""
        with self._ending:
            if self._is_ended:
                return
            self._is_ended = True
        with contextlib.suppress(Exception):  # Ray may be at its end, and then so is the process
            ray.kill(self.actor)
        # A process that was stopped does not hear Ray, and would keep its device.
        facts = self.facts
        if facts is not None and facts.host == self._host and began(facts.process_id) == facts.began:
            with contextlib.suppress(ProcessLookupError):
                os.kill(facts.process_id, signal.SIGKILL)
        self.links.end(self.calls.lost)


def began(process_id: int) -> int | None:
    """Return when a process began, as the system counts; None where there is none."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


def _told(error: BaseException) -> str:
    said = str(error).strip()
    _, _, detail = said.partition("Worker exit detail: ")
    words = " ".join((detail or said.rpartition("\n")[2]).split())  # else a traceback, which ends with its reason
    what = "it cannot be reached" if ray.is_unreached(error) else "its process has ended"
    return f"{what}; Ray: {words.partition(' Some common causes')[0][:_TOLD_BY_RAY]}"
