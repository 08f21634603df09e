"""The bytes that steps move, and the least time that the device needs for that: an estimate, and said to be one.

Always true: bytes are counted once for each step that reads or writes them, so a kernel that reads its input twice, or
computes for long, takes longer than what is said here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from aiocuda import _native
from aiocuda._driver import runtime
from aiocuda._values.durations import duration_text

__all__ = ["Cost", "bandwidths_text", "cost_of", "cost_text", "totals"]

# What 16 lanes of PCIe 4.0 carry in one direction, after what the protocol takes. The driver does not tell what a
# device is connected by.
_LINK_BYTES_PER_S: Final = 25e9
_LINK_TEXT: Final = "25 GB/s for copies to and from it (assumed: PCIe 4.0, 16 lanes)"


class Cost(NamedTuple):
    """What a step moves.

    Attributes
    ----------
    read_bytes, written_bytes
        Of arrays, each byte once.
    device
        Which device's memory, or link, is kept busy; None for the host.
    is_link
        Whether the bytes leave the device, or come to it.
    """

    read_bytes: int
    written_bytes: int
    device: int | None
    is_link: bool = False

    @property
    def moved_bytes(self) -> int:
        """What goes through the device's memory, or through the link."""
        return max(self.read_bytes, self.written_bytes) if self.is_link else self.read_bytes + self.written_bytes

    @property
    def seconds(self) -> float:
        """The least time that the device needs."""
        if self.device is None:
            return 0.0
        return self.moved_bytes / (_LINK_BYTES_PER_S if self.is_link else _memory_bytes_per_s(self.device))


def cost_of(written: tuple[Any, ...], uses: Sequence[tuple[int, int, int, bool]]) -> Cost | None:
    """Return what a step costs the device, as the walk wrote it down; None where it does not concern the device."""
    kind, *rest = written
    if kind == "create":
        stream, device, _, size_bytes, fill, _ = rest
        return None if stream is None else Cost(0, 0 if fill is None else size_bytes, device)
    if kind == "copy":
        stream, _, _, source, destination, size_bytes, _ = rest
        if stream is None:
            return None
        devices = [device for device in (source, destination) if device != _native.HOST]
        return Cost(size_bytes, size_bytes, devices[0] if devices else None, source != destination)
    if kind in ("launch", "call", "replay"):
        return Cost(_size(uses, writes=False), _size(uses, writes=True), rest[1])
    if kind == "fill" and rest[0] is not None and rest[1] != _native.HOST:
        return Cost(0, rest[3], rest[1])
    return None


def _size(uses: Iterable[tuple[int, int, int, bool]], *, writes: bool) -> int:
    """Return how many bytes are read, or written; what several parameters name counts once."""
    total, last_buffer, last_end = 0, -1, 0
    for buffer, begin, end in sorted(
        (buffer, begin, end) for buffer, begin, end, is_write in uses if is_write == writes
    ):
        if buffer != last_buffer:
            last_buffer, last_end = buffer, 0
        total += max(0, end - max(begin, last_end))
        last_end = max(last_end, end)
    return total


def cost_text(cost: Cost | None) -> str:
    """Say what a step costs."""
    if cost is None:
        return ""
    moved = [
        f"{size_bytes} B {verb}"
        for size_bytes, verb in ((cost.read_bytes, "read"), (cost.written_bytes, "written"))
        if size_bytes
    ]
    if not moved or cost.device is None:
        return ""
    return f"{', '.join(moved)}, {'about' if cost.is_link else 'at least'} {duration_text(cost.seconds * 1e9)}"


def totals(costs: Iterable[Cost]) -> list[str]:
    """Return a line for each device: what all steps move, and how long its memory and its link are busy at least."""
    by_device: dict[int, list[Cost]] = {}
    for cost in costs:
        if cost.device is not None and cost.moved_bytes:
            by_device.setdefault(cost.device, []).append(cost)
    lines = []
    for device, its in sorted(by_device.items()):
        parts = []
        for is_link, what in ((False, "in its memory, at least"), (True, "to or from it, about")):
            these = [cost for cost in its if cost.is_link == is_link]
            if these:
                moved = sum(cost.moved_bytes for cost in these)
                parts.append(f"{moved} B {what} {duration_text(sum(cost.seconds for cost in these) * 1e9)}")
        lines.append(f"device {device}: {'; '.join(parts)}")
        lines.append(f"  estimated with {bandwidths_text(device)}")
    return lines


def bandwidths_text(device: int) -> str:
    """Say which rates the estimates of a device are made with, and where they come from."""
    memory = _memory_bytes_per_s(device) / 1e9
    source = (
        "nominal: the device is emulated"
        if runtime.driver_info().is_emulated
        else "its clock and bus width, as the driver tells"
    )
    return f"{memory:.0f} GB/s for its memory ({source}), {_LINK_TEXT}"


def _memory_bytes_per_s(device: int) -> float:
    kilohertz = runtime.device_attribute(device, "MEMORY_CLOCK_RATE")
    bits = runtime.device_attribute(device, "GLOBAL_MEMORY_BUS_WIDTH")
    return 2 * kilohertz * 1e3 * bits / 8  # two transfers in each cycle of the clock
