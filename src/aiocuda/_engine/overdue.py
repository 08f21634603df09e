"""The error of an operation that did not complete in time, which says what it still waits for.

Always true: looking submits nothing, waits for no device, and changes nothing but what is known of completions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from aiocuda import _native
from aiocuda._engine import faults
from aiocuda._engine.story import with_story
from aiocuda.errors import DeviceTimeoutError

__all__ = ["overdue", "overdue_streams"]

# While calls are on their way to the driver no stream counts as idle. A driver that takes longer is itself what runs.
_DRIVER_PATIENCE_S = 0.1


def overdue(op: _native.Op, waited_s: float) -> BaseException:
    """Return the error for a wait that was given up after so many seconds.

    It is the operation's own where looking finds that the operation has failed, as on a lost device.
    """
    _native.await_calls(_DRIVER_PATIENCE_S)
    answers: dict[Callable[[], str], str] = {}
    running = tuple(_described(each) + _others_of(each, answers) for each in _submitted(op) if not _has_ended(each))
    if op._state == "failed":
        failure: BaseException = op._outcome
        return failure.with_traceback(None)
    in_flight: int = _native.statistics()["in_flight"]
    return with_story(DeviceTimeoutError(faults.describe(op), faults.origin_text(op), waited_s, running, in_flight))


def overdue_streams(asked: str, streams: list[int], waited_s: float) -> DeviceTimeoutError:
    """Return the error for a wait for streams that was given up after so many seconds; `asked` says what for."""
    _native.await_calls(_DRIVER_PATIENCE_S)
    running = tuple(_stream_title(stream) for stream in _native.streams_at_work(streams))
    in_flight: int = _native.statistics()["in_flight"]
    return with_story(DeviceTimeoutError(asked, "", waited_s, running, in_flight))


def _submitted(op: _native.Op) -> Iterator[_native.Op]:
    """Yield the operations, among an operation and all that it needs, that are the last ones submitted of it."""
    seen: set[int] = set()
    left = [op]
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if each._state == "pending":
            left.extend(reversed(each._consumed()))
        else:
            yield each


def _has_ended(op: _native.Op) -> bool:
    try:
        return _native.has_passed(op)
    except Exception:
        if op._state != "failed":
            raise
        return True  # its device was lost: those who wait for it are being told


def _described(op: _native.Op) -> str:
    origin = faults.origin_text(op)
    built = f" (built at {origin})" if origin else ""
    streams = {_stream_title(stream) for stream, _ in op._ready}
    return f"{faults.describe(op)}{built} on {' and '.join(sorted(streams))}"


def _others_of(op: _native.Op, answers: dict[Callable[[], str], str]) -> str:
    """Return which ranks have not come to a collective that an operation depends on; each group is asked once."""
    groups = dict.fromkeys(_native.asked(op))
    answers |= {group: group() for group in groups if group not in answers}
    return "".join(f", which waits for {answers[group]}" for group in groups if answers[group])


def _stream_title(stream: int) -> str:
    return (
        f"stream {stream & 0xFFFFFFFF} of device {_native.stream_device(stream)} "
        f"({_native.stream_in_flight(stream)} in flight)"
    )
