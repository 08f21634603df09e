"""One end of a link: a communicator of two, by which arrays go from a device here to one of another process, or back.

Always true: arrays go one way, in the order in which they are given here, which is that of the other end. A transfer is
in doubt until the device has passed it, or the link has ended. Then whoever uses what it writes is told why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from aiocuda import _native
from aiocuda._collective.ending import abort
from aiocuda._collective.first_call import call_while
from aiocuda._collective.watch import Flight, Watch
from aiocuda._devices.device import Stream
from aiocuda._driver import nccl
from aiocuda._ops.operation import DeviceOp
from aiocuda._verbs.create import zeros
from aiocuda.errors import ClusterError, CollectiveError

__all__ = ["Link", "transfer_failed"]

# Few, so that the kernels of links, of groups and of the program have room on a device at the same time; not measured.
_MOST_BLOCKS: Final = 4
_BYTE: Final = nccl.DTYPES["uint8"]
_LATE: Final = "the other process has not come in time"


class Link:
    """Makes transfers, all of them to the other end, or all from there.

    Parameters
    ----------
    stream
        Of the device here, for the transfers, and for the memory of what comes: so nothing else delays them.
    identity
        NCCL's id of the link.
    sends
        Whether arrays go from here to there.
    failed
        Called once, on a thread, with what NCCL says is wrong while transfers are under way.
    error_of
        Makes the error of a transfer that was under way when the link ended: of its words, and of the reason.
    """

    def __init__(
        self,
        stream: Stream,
        identity: bytes,
        *,
        sends: bool,
        failed: Callable[[str], object],
        error_of: Callable[[str, str], BaseException],
    ) -> None:
        self.stream, self._sends = stream, sends
        self._error_of = error_of
        device = stream.device.ordinal
        self._events = _native.StreamEvents(device)
        self._lock = threading.Lock()
        self._reason = ""  # why it has ended
        self._communicators = nccl.Communicators([device], [0 if sends else 1], 2, _MOST_BLOCKS)
        self._identity = identity
        self._watch = Watch(self._communicators, failed)

    @property
    def has_ended(self) -> bool:
        """Whether nothing goes this way any more."""
        return bool(self._reason)

    def begin(self, timeout_s: float, give_up: Callable[[], str | None]) -> DeviceOp[Any]:
        """Wait for the other end; return the first transfer, which was submitted. *Blocks*: so long at most.

        NCCL connects two ranks for messages when they first send one, and keeps the caller until then.

        Parameters
        ----------
        timeout_s
            How long it may take.
        give_up
            Why to wait no longer; None: to wait on.

        Raises
        ------
        CollectiveError
            The other end has not come, NCCL does not connect the two, or the link has ended. End it then.
        """
        deadline = time.monotonic() + timeout_s

        def reason() -> str | None:
            return self._reason or give_up() or (_LATE if time.monotonic() > deadline else None)

        self._watch.begin()
        self._communicators.join(self._identity, reason)
        token = zeros(1, "uint8", device=self.stream.device).on(self.stream).sync()
        made = self._operation([token], "the first transfer")
        call_while(made.submit, reason)
        return cast("DeviceOp[Any]", made)

    def transfer(self, arrays: Sequence[Any], words: str) -> None:
        """Send arrays, or fill them with what is sent: in one call, behind what was given before.

        *Blocks*: until it was submitted. The arrays are of the link's device and in one piece, and not all are empty.

        Raises
        ------
        AiocudaError
            It was not submitted. If the other end waits for it by now, the link is to be ended.
        """
        self._operation(arrays, words).submit()

    def end(self, reason: str) -> None:
        """Have all fail that is under way, once, and let go of the device. *Blocks*: for a second at most."""
        with self._lock:
            if self._reason:
                return
            self._reason = reason
        self._watch.fail(lambda words: self._error_of(words, reason))
        abort(self._communicators)

    def _operation(self, arrays: Sequence[Any], words: str) -> Any:
        doubt = _native.Doubt()

        def transfer(stream: Stream, *given: Any) -> None:
            self._perform(stream, given, words, doubt)

        reads, writes = (arrays, ()) if self._sends else ((), arrays)
        return _native.collective_op(transfer, tuple(arrays), reads, writes, doubt).on(self.stream)

    def _perform(self, stream: Stream, arrays: Sequence[Any], words: str, doubt: _native.Doubt) -> None:
        flight = Flight(words, doubt, self._events)
        if not self._watch.add(flight):
            doubt.end()
            raise CollectiveError(f"the link has ended: {self._reason}")
        try:
            calls = [self._call(each) for each in arrays]
            self._communicators.launch([stream.handle], [[each for each in calls if each.count > 0]])
            flight.note_submitted(stream.handle)
        except BaseException as error:
            self.end(f"{words} could not be submitted: {error}")  # a part of it may have been
            raise

    def _call(self, array: Any) -> nccl.NcclCall:
        if self._sends:
            return nccl.NcclCall("send", array._address, None, array._size_bytes, _BYTE, (1,))
        return nccl.NcclCall("recv", None, array._address, array._size_bytes, _BYTE, (0,))


def transfer_failed(words: str, reason: str) -> ClusterError:
    """Return the error of a transfer that was under way when its link ended."""
    return ClusterError(f"{words} did not end: {reason}; ask for it once more")
