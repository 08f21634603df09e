"""The ranks of a group that this process has: connected, called, and ended together.

Always true: a call that was submitted is in doubt until the device has passed it, or the group has failed. Then whoever
waits for it, or for what was made of it, is told why.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

from aiocuda import _native
from aiocuda._collective.calls import CONNECT, Call, Part
from aiocuda._collective.ending import abort, destroy
from aiocuda._collective.first_call import call_while
from aiocuda._collective.meeting import Place
from aiocuda._collective.others import Others, Promise
from aiocuda._collective.preparing import Prepared, prepared
from aiocuda._collective.watch import Flight, Watch
from aiocuda._devices.device import Device, Stream
from aiocuda._driver import nccl, runtime
from aiocuda._values import dtypes
from aiocuda._verbs.create import zeros
from aiocuda.errors import ArgumentValueError, CaptureError, ClosedError, CollectiveError, DeviceMismatchError

__all__ = ["Members"]

_REASON_S: Final = 1.0
_BRIEFLY_S: Final = 0.1
_TELLING_S: Final = 2.0
_CLOSED: Final = "the group was closed before this use of it; make another one"


class Members:
    """One rank for each of some devices.

    Parameters
    ----------
    devices, ranks
        The ordinals of the devices, and the rank of each.
    size
        How many ranks the group has.
    identity
        NCCL's id of the group.
    place
        Where the processes of the group meet; None if all ranks are here.
    timeout_s
        How long it may take until all ranks have joined.

    Attributes
    ----------
    tokens
        A small array on each device. All calls write the first one. So it orders them, also in graphs, whose launches
        the group hears of by it. And whatever is to use the group once it has ended raises why.
    """

    def __init__(
        self,
        devices: Sequence[int],
        ranks: Sequence[int],
        size: int,
        identity: bytes,
        place: Place | None,
        timeout_s: float,
    ) -> None:
        self.devices, self.ranks, self.size = tuple(devices), tuple(ranks), size
        self.is_local = place is None
        self._timeout_s = timeout_s
        self.streams: list[Stream] = [Device(each).stream() for each in devices]
        self._handles = [each.handle for each in self.streams]
        self._events = [_native.StreamEvents(each) for each in devices]
        # Each device has passed its mark, unless it is lost.
        self._marks = [each.record(handle) for each, handle in zip(self._events, self._handles, strict=True)]
        self.tokens = [zeros(1, "int32", device=each).sync() for each in devices]
        # A graph with calls of the group keeps it. The token must not: the group has the token.
        _native.make_token(self.tokens[0], functools.partial(Members.look_after, weakref.proxy(self)))
        self._lock = threading.Lock()
        self._error: CollectiveError | None = None
        self._has_failed = threading.Event()
        self._have_told = threading.Event()  # the other ranks why this one has failed
        self._is_closing = self._is_closed = False
        self._communicators = nccl.Communicators(devices, ranks, size)
        self._identity = identity
        self._is_aborting = False
        # Both have threads once they have begun, which is when somebody has this group who ends it.
        self._watch = Watch(self._communicators, self._watch_has_found, self._look)
        self._others = Others(place, ranks[0], size, devices[0], self.fail, timeout_s) if place is not None else None

    def wait_until_ready(self, deadline: float) -> None:
        """Wait until all ranks have joined and made a first call; `deadline` is a time of `time.monotonic`.

        If it raises, the group must be closed.
        """

        def give_up() -> str | None:
            if self._error is not None:
                return str(self._error)
            return self._late_to_join() if time.monotonic() > deadline else None

        try:
            self._watch.begin()
            if self._others is not None:
                self._others.join(self._timeout_s)
                self._raise_failure()
            call_while(functools.partial(self._join, give_up), give_up)
        except CollectiveError as error:
            self._wait_for_reason()
            if self._error is None:
                raise
            raise CollectiveError(*self._error.args) from error

    def _join(self, give_up: Callable[[], str | None]) -> None:
        self._communicators.join(self._identity, give_up)
        self._connect()

    def _connect(self) -> None:
        """Make one small call of each kind, and wait until it has ended.

        It is no operation: NCCL may keep the thread until other ranks have come, and a thread that is kept in a
        submission keeps all other submissions of the process.
        """
        call = Call(CONNECT, self.size)
        sends, receives = ([[zeros(self.size, "int32", device=each).sync()] for each in self.devices] for _ in range(2))
        self._communicators.keep((sends, receives))
        with runtime.context_of(self.devices[0]):
            self.perform(self.streams[0], call, "the first call", self.promise(call), _native.Doubt(), sends, receives)
        self._watch.wait_until_idle(threading.TIMEOUT_MAX)
        self._raise_failure()
        self._communicators.keep(None)

    def _late_to_join(self) -> str:
        """Return in words that the time is over, and who has not joined."""
        absent = self._others.absent() if self._others is not None else ""
        if absent is None:
            return f"not all of {self.size} ranks have joined the group within {self._timeout_s:g} s"
        if absent:
            return (
                f"rank {absent} of {self.size} has not joined the group within {self._timeout_s:g} s, or not by the "
                "same id"
            )
        return f"NCCL has not connected the {self.size} ranks within {self._timeout_s:g} s, which have all joined"

    def _look(self) -> str | None:
        """On the watch's thread: tell the others what is called; return in words if a device is lost.

        Such a device never does its part, so what is under way does not end on any rank.
        """
        if self._others is not None:
            self._others.look()
        for events, mark in zip(self._events, self._marks, strict=True):
            if events.has_passed(mark) is None:
                return f"device {events.device} was lost"
        return None

    def _watch_has_found(self, wrong: str) -> None:
        self._wait_for_reason()
        self.fail(wrong if self.is_local else f"rank {self.ranks[0]}: {wrong}")

    def _wait_for_reason(self) -> None:
        # If another rank has failed, NCCL says only that there was an error, and that rank says which on the channel.
        if self._others is not None:
            self._has_failed.wait(_REASON_S)

    def state_in_words(self) -> str:
        """Return ", failed" or ", closed"; nothing if neither is so."""
        return ", failed" if self._error is not None else ", closed" if self._is_closing else ""

    def waits_for(self) -> str:
        """Return in words which call is under way, and for which ranks it waits; empty if there is none."""
        waiting = self._others.waits_for() if self._others is not None else ""
        if waiting and self._others is not None and (kept := self._others.kept_by()):
            waiting += f"; {kept}"
        first = self._watch.first()
        return waiting or (first.words if first is not None else "")

    def waits_for_now(self) -> str:
        """Return the same for a wait that is over. *Blocks*: a tenth of a second at most."""
        return self._others.waits_for(_BRIEFLY_S) if self._others is not None else ""

    def close(self, timeout_s: float) -> None:
        """Wait for the calls under way, unless the group has failed, and let go of the ranks. Once.

        Raises
        ------
        CollectiveError
            They have not ended in time, and were aborted.
        """
        if _native.forked_from():
            return  # the ranks are the parent's
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
        try:
            is_in_time = self._error is not None or self._watch.wait_until_idle(timeout_s, and_close=True)
        except BaseException:  # a signal's: it can be closed again
            self._is_closing = False
            raise
        if not is_in_time:
            first = self._watch.first() if self.is_local else None
            under_way = f", under way: {first.words}" if first is not None else ""
            self.fail(f"close() waited for {timeout_s:g} s, and aborted the group{under_way}")
        with self._lock:
            self._is_closed = True
            error = self._error
        self._end()
        if not is_in_time and error is not None:
            raise CollectiveError(*error.args)

    def drop(self) -> None:
        """Let go of the ranks, which nobody uses any more: in peace, unless something is under way."""
        self._watch.settle()
        if not self._watch.wait_until_idle(0, and_close=True):
            self.fail(f"rank {self.ranks[0]} has dropped the group, and not closed it")
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = self._is_closed = True
        self._end()

    def _end(self) -> None:
        """Let go of what the group has, once nothing is under way or it has failed."""
        if self._error is None:
            self._refuse_use(ClosedError(_CLOSED))
        else:  # by another thread, perhaps, just now; if this one ends the process, the others do not hear why
            self._have_told.wait(_TELLING_S)
        self._watch.close()
        if self._others is not None:
            self._others.leave(in_peace=self._error is None)
        if self._error is None:
            destroy(self._communicators)
        else:
            self._abort_ranks()
        for events, mark in zip(self._events, self._marks, strict=True):
            events.put_back(mark)
        for stream in self.streams:
            stream.close()

    def _refuse_use(self, error: Exception) -> None:
        """Have what was built, and launches of graphs that have calls of the group, raise an error from now on."""
        _native.refuse_use(self.tokens[0], error)

    @property
    def has_ended(self) -> bool:
        """Whether the group has failed, or somebody closes it."""
        return self._error is not None or self._is_closing

    def require_usable(self) -> None:
        """Raise `CollectiveError` if the group has failed, `ClosedError` if it was closed."""
        self._raise_failure()
        if self._is_closing:
            raise ClosedError(_CLOSED)

    def _raise_failure(self) -> None:
        if self._error is not None:
            raise CollectiveError(*self._error.args)  # each gets one of its own

    def promise(self, call: Call, origin: str = "") -> Promise | None:
        """Give the next call its place in the order of the process; None where there are no other processes."""
        return self._others.promise(call, origin) if self._others is not None else None

    def refuse(self, promise: Promise | None, error: Exception) -> None:
        """Tell other ranks that a call of this rank is refused, which would wait for it otherwise."""
        if self._others is not None and promise is not None:
            self._others.refuse(promise, error)

    def _part(self, call: Call, array: Any, rank: int, device: int) -> Part:
        if array._device == _native.HOST or (array._device != device and not array._is_managed):
            where = "the host" if array._device == _native.HOST else f"device {array._device}"
            raise DeviceMismatchError(
                f"{call.kind}: rank {rank} of the group is device {device}, and its array is of {where}; bring it over "
                f"with .to({device})"
            )
        if not array._is_contiguous:
            raise ArgumentValueError(
                f"{call.kind}: an array of {array._shape} with strides {array._strides} is not in one piece; dup() it"
            )
        return Part(array._address, tuple(array._shape), *_name_and_size(array._dtype))

    def _prepared(
        self, call: Call, name: str, sends: Sequence[Sequence[Any]], receives: Sequence[Sequence[Any]]
    ) -> Prepared:
        """Return what is called in words, and the calls of each rank."""
        sent, received = [], []
        for row, into, rank, device in zip(sends, receives, self.ranks, self.devices, strict=True):
            parts = [self._part(call, each, rank, device) for each in row]
            sent.append(tuple(parts))
            received.append(
                tuple(
                    [
                        # In place, as a rule.
                        part if each is array else None if each is None else self._part(call, each, rank, device)
                        for each, array, part in zip(into, row, parts, strict=True)
                    ]
                )
            )
        return prepared(call, name, self.ranks, tuple(sent), tuple(received))

    def perform(
        self,
        stream: Stream,
        call: Call,
        name: str,
        promise: Promise | None,
        doubt: _native.Doubt,
        sends: Sequence[Sequence[Any]],
        receives: Sequence[Sequence[Any]],
    ) -> None:
        """Submit a call behind what a stream has, with a list of arrays for each device.

        The doubt has ended if it raises before anything was submitted; else the watch ends it.
        """
        first = stream.handle
        handles = [first, *self._handles[1:]]
        try:
            self.require_usable()
            captured = _native.is_captured(first)
            try:
                if captured and self._others is not None:
                    raise CaptureError(
                        f"{name or call.kind} of a group of processes cannot be part of a graph: at each launch the "
                        "ranks would have to agree first; local groups can be captured"
                    )
                words, calls = self._prepared(call, name, sends, receives)
            except Exception as error:
                self.refuse(promise, error)
                raise
            flight = Flight(words, doubt, self._events[0])
            if captured:
                doubt.end()  # each launch has one of its own
            elif not self._watch.add(flight):
                self.require_usable()  # which it is no more
        except BaseException:
            doubt.end()
            raise
        try:
            if self._others is not None and promise is not None:
                self._others.agree(first, promise, words)
            for handle in handles[1:]:
                self._events[0].order(handle, first)
            try:
                self._communicators.launch(handles, calls)
            finally:
                for events, handle in zip(self._events[1:], handles[1:], strict=True):
                    events.order(first, handle)
            if not captured:
                flight.note_submitted(first)
        except BaseException as error:
            # Some ranks may have begun.
            self.fail(f"{words} could not be launched: {error}")
            if isinstance(error, Exception) and self._error is not None:
                raise CollectiveError(*self._error.args) from error  # it may have been another rank's, just now
            raise

    def look_after(self, device: int, place: str) -> tuple[_native.Doubt, Callable[[int], None]]:
        """Look after a launch of a graph that has calls of the group, from before it is submitted.

        `device`: on one of whose streams it will be. `place`: where the graph was made. Return the doubt about what it
        writes, and what is called with the stream's handle once it is submitted.
        """
        self.require_usable()
        events = next((each for each in self._events if each.device == device), None)
        flight = Flight(
            f"a launch of the graph made at {place}", _native.Doubt(), events or _native.StreamEvents(device)
        )
        if not self._watch.add(flight):
            self.require_usable()  # which it is no more

        def launched(stream: int) -> None:
            try:
                flight.note_submitted(stream)
            except Exception as error:  # noqa: BLE001 - it is submitted all the same
                self.fail(f"{flight.words} could not be looked after: {error}")

        return flight.doubt, launched

    def fail(self, reason: str, are_told: bool = False, waiting: str | None = None) -> None:
        """Have all fail that has not ended. `waiting`: for whom this rank waits; None: the hub is asked."""
        if _native.forked_from():
            return  # the ranks are the parent's
        others = self._others
        if self._is_over():
            return
        if waiting is None:
            waiting = others.waits_for() if others is not None else ""
        with self._lock:
            if self._is_over():
                return
            self._error = error = CollectiveError(reason, waiting)
        self._refuse_use(error)
        self._has_failed.set()
        # First those who wait must learn of it, then NCCL's kernels may end, and then what waits for an agreement.
        self._watch.fail(lambda _: error)
        if others is not None and not are_told:
            others.tell(reason)
        self._have_told.set()
        self._abort_ranks()
        if others is not None:
            others.leave(in_peace=False)  # its threads keep this group

    def _is_over(self) -> bool:
        return self._error is not None or self._is_closed

    def _abort_ranks(self) -> None:
        let_go = self._others.let_go if self._others is not None else lambda: None
        with self._lock:
            is_first, self._is_aborting = not self._is_aborting, True
        if is_first:
            abort(self._communicators, let_go)
        else:
            let_go()


@functools.cache
def _name_and_size(dtype: int) -> tuple[str, int]:
    """Return the name of a dtype and the bytes of an item: NumPy makes up the name whenever it is asked."""
    found = dtypes.dtype_of(dtype)
    return found.name, found.itemsize
