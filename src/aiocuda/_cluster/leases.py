"""Arrays that are kept for another process, and those of other processes that this one has opened.

Always true: an array that was lent is kept until the other process has passed it, or is gone. Each lease that ends here
is told once, whichever thread asks. An array that has come for a call is kept until the call takes it, ends, or is
given up.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray
from aiocuda._arrays.interprocess import open_for
from aiocuda._cluster.messages import Carried, Lease, Lent
from aiocuda.errors import ClusterError

__all__ = ["Leases"]

# A call that its caller has given up begins within moments, or not at all.
_MOST_REFUSED: Final = 4096


class _Keeper:
    """Kept by an opened array until the device has passed all that used it."""

    __slots__ = ("__weakref__",)


class Leases:
    """Those between this process and one other."""

    def __init__(self) -> None:
        self._lent: dict[Lease, Any] = {}
        self._arrived: dict[Lease, DeviceArray] = {}
        self._closed: deque[Lease] = deque()  # finalizers add to it, on any thread
        self._counting = threading.Lock()  # held while `_open` changes; no finalizer takes it
        self._open: Counter[str] = Counter()  # how many arrays of each call are open here
        self._refused: deque[str] = deque(maxlen=_MOST_REFUSED)

    @property
    def lent_count(self) -> int:
        """How many arrays are kept for the other process."""
        return len(self._lent)

    def lend(self, lease: Lease, array: DeviceArray) -> Lent:
        """Keep an array for the other process, and return what that opens it with."""
        made = Lent(lease, array.ipc_handle())
        self._lent[lease] = array
        return made

    def keep(self, lease: Lease, array: DeviceArray) -> None:
        """Keep an array until it is taken, or the other process does not want it."""
        self._lent[lease] = array

    def take_kept(self, carried: Iterable[Carried]) -> list[DeviceArray]:
        """Return arrays that were kept, and keep them no more.

        Raises
        ------
        ClusterError
            One was let go of.
        """
        found = [self._lent.pop(each.lease, None) for each in carried]
        if None in found:
            raise ClusterError("an array of the call was let go of before it was sent")
        return found

    def arrive(self, carried: Sequence[Carried], arrays: Sequence[DeviceArray]) -> None:
        """Keep arrays that come for a call, unless it was given up."""
        for each, array in zip(carried, arrays, strict=True):
            if each.lease[0] not in self._refused:
                self._arrived[each.lease] = array

    def take_arrived(self, carried: Carried) -> DeviceArray:
        """Return an array that has come for a call."""
        if (array := self._arrived.pop(carried.lease, None)) is None:
            raise ClusterError(f"the caller gave up {carried.lease[0]} before it took its arrays")
        return array

    def forget_arrived(self, call: str) -> None:
        """Let go of what has come for a call, and was not taken."""
        for lease in [each for each in self._arrived if each[0] == call]:
            del self._arrived[lease]

    def open(self, lent: Lent) -> DeviceArray:
        """Open an array of the other process, which is told when it has passed here."""
        call = lent.lease[0]
        if call in self._refused:
            raise ClusterError(f"the caller gave up {call} before its arrays were opened")
        keeper = _Keeper()
        weakref.finalize(keeper, self._closed.append, lent.lease).atexit = False
        with self._counting:
            self._open[call] += 1
        return open_for(lent.handle, keeper)

    def end(self, leases: Iterable[Lease]) -> None:
        """Let go of what the other process has passed."""
        for lease in leases:
            self._lent.pop(lease, None)

    def end_call(self, call: str) -> None:
        """Let go of all that was lent for a call, which nobody will open."""
        self.end([lease for lease in list(self._lent) if lease[0] == call])

    def end_all(self) -> None:
        """Let go of everything: the other process is gone."""
        self._lent.clear()

    def refuse(self, call: str) -> bool:
        """Open no array of a call from now on; return whether none is open."""
        if call in self._open:
            return False
        self._refused.append(call)
        self.forget_arrived(call)
        return True

    def discard(self, arrays: Iterable[object]) -> None:
        """Say that arrays have passed that are not opened here."""
        for each in arrays:
            if isinstance(each, (Lent, Carried)):
                with self._counting:
                    self._open[each.lease[0]] += 1
                self._closed.append(each.lease)

    def take_closed(self) -> Sequence[Lease]:
        """Return the leases that have ended here since the last time."""
        if not self._open:
            return ()
        _native.collect()  # what the device has passed is let go of when somebody asks
        taken = []
        with self._counting:
            while self._closed:
                lease = self._closed.popleft()
                taken.append(lease)
                self._open[lease[0]] -= 1
                if not self._open[lease[0]]:
                    del self._open[lease[0]]
        return taken
