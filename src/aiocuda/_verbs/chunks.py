"""Data that is brought to a device piece by piece, ahead of its use.

Always true: pieces come in the order of their source, each complete on the device; no more than `depth` are ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from aiocuda._arrays.array import DeviceArray
from aiocuda._devices.device import Device, DeviceLike, as_ordinal
from aiocuda._engine.futures import DeviceFuture
from aiocuda._values.host_data import described
from aiocuda._verbs.copies import to_device
from aiocuda.errors import ArgumentTypeError, ArgumentValueError

__all__ = ["stream_chunks"]


def stream_chunks(
    iterable: Iterable[Any], device: DeviceLike | None = None, depth: int = 2
) -> AsyncIterator[DeviceArray]:
    """Iterate over data on a device, which is uploaded ahead while the consumer computes.

    Parameters
    ----------
    iterable
        Yields what `to_device` takes: NumPy arrays, say, of any shapes. Its next item is asked for on the event loop's
        thread, `depth` items ahead; an item must not be written before its array has come out, so one buffer for all
        will not do.
    device
        Where to; None takes the device in force.
    depth
        How many uploads, 1 or more, go on while the consumer has an array. So many arrays, and the consumer's, are on
        the device at once.

    Returns
    -------
    AsyncIterator[DeviceArray]
        For ``async for``, of one task. Each array is complete and the caller's; its memory is freed behind its users
        when nobody holds it. *Stream*: uploads have one of their own, so they run beside the consumer's work.
        *Blocks*: as `to_device`, and for as long as the iterable takes; for room in the driver's queues where more
        than 1 GiB is ahead. *On cancel*: what was submitted goes on; iterating goes on where it was.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        `iterable` is none, `depth` is no whole number of 1 or more. An error of the iterable, or of an upload, is
        raised in its turn, and ends the iteration.

    Notes
    -----
    A download overlaps as well where the consumer does not await it at once: it takes
    ``future = ac.to_host(result, out).submit()``, and awaits that three or four items later, so that one that is late
    holds up nothing.
    """
    if isinstance(depth, bool) or not isinstance(depth, int):
        raise ArgumentTypeError(f"depth is a whole number; {depth!r} was given")
    if depth < 1:
        raise ArgumentValueError(f"depth is 1 or more; {depth} was given")
    try:
        source = iter(iterable)
    except TypeError:
        raise ArgumentTypeError(f"stream_chunks takes an iterable of data; {described(iterable)} was given") from None
    return _Chunks(source, Device(as_ordinal(device)), depth)


class _Chunks:
    def __init__(self, source: Iterator[Any], device: Device, depth: int) -> None:
        self._source: Iterator[Any] | None = source
        self._device = device
        self._stream = device.stream()
        self._depth = depth
        self._ahead: deque[DeviceFuture[DeviceArray]] = deque()
        self._error: BaseException | None = None  # of the source, in its turn

    def __aiter__(self) -> _Chunks:
        return self

    async def __anext__(self) -> DeviceArray:
        self._upload_ahead()
        if not self._ahead:
            self._stream.close()
            error, self._error = self._error, None
            raise error or StopAsyncIteration
        try:
            array = await self._ahead[0]
        except Exception:
            self._source = self._error = None
            self._ahead.clear()
            raise
        self._ahead.popleft()  # not before: a cancelled await leaves it
        return array

    def _upload_ahead(self) -> None:
        while self._source is not None and len(self._ahead) <= self._depth:
            try:
                item = next(self._source)
                self._ahead.append(to_device(item, self._device).on(self._stream).submit())
            except StopIteration:
                self._source = None
            except Exception as error:  # noqa: BLE001 - it comes behind what is ahead of it
                self._source, self._error = None, error
