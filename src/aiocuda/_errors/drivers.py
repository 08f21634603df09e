"""Errors of drivers and devices: which is used, what it answered, what it has no room for, what races on it."""

from __future__ import annotations

from collections.abc import Sequence

from aiocuda._errors.asked import AiocudaError

__all__ = [
    "DriverError",
    "DriverNotFoundError",
    "DriverSelectionError",
    "EmulatedDeviceWarning",
    "ForkedProcessError",
    "KernelCheckError",
    "OutOfMemoryError",
    "RaceError",
]

_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class EmulatedDeviceWarning(UserWarning):
    """No usable NVIDIA device was found, so kernels run on the CPU. Given once per process."""


class DriverSelectionError(AiocudaError):
    """The driver asked for cannot be used in this process."""


class DriverNotFoundError(DriverSelectionError):
    """No usable driver of the kind asked for.

    Parameters
    ----------
    asked
        What was asked for, in words.
    findings
        What was looked for and what was found, one line each.
    advice
        What to do about it.

    Attributes
    ----------
    asked, findings, advice
        As given.
    """

    def __init__(self, asked: str, findings: tuple[str, ...], advice: str) -> None:
        super().__init__(asked, findings, advice)
        self.asked = asked
        self.findings = tuple(findings)
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.asked}: {'; '.join(self.findings)}. {self.advice}"


class ForkedProcessError(AiocudaError):
    """CUDA does not work in a process that was forked from one in which CUDA had been started.

    Start such processes with ``multiprocessing.get_context("spawn")`` or ``"forkserver"``, or fork before aiocuda is
    used for the first time: before anything asks for a device.

    Parameters
    ----------
    parent_pid
        The process in which aiocuda started CUDA; 0 where something else started it.

    Attributes
    ----------
    parent_pid
        As given.
    """

    def __init__(self, parent_pid: int = 0) -> None:
        super().__init__(parent_pid)
        self.parent_pid = parent_pid

    def __str__(self) -> str:
        who = f"aiocuda was used in process {self.parent_pid}" if self.parent_pid else "CUDA was started there"
        return (
            f"this process was forked after {who}, and CUDA does not work in a forked process; "
            'start it with multiprocessing.get_context("spawn"), or fork before the first use'
        )


class DriverError(AiocudaError):
    """A call of the CUDA driver failed.

    Parameters
    ----------
    name
        The driver's name of the error, such as ``"CUDA_ERROR_INVALID_VALUE"``.
    code
        Its number, a ``CUresult``.
    explanation
        The driver's own explanation.
    asked
        What was being done, in words, or the driver's function.

    Attributes
    ----------
    name, code, explanation, asked
        As given.
    """

    def __init__(self, name: str, code: int, explanation: str, asked: str = "") -> None:
        super().__init__(name, code, explanation, asked)
        self.name = name
        self.code = code
        self.explanation = explanation
        self.asked = asked

    def __str__(self) -> str:
        error = f"{self.name} ({self.code}): {self.explanation}"
        return f"{self.asked}: {error}" if self.asked else error


def _format_size(size_bytes: int) -> str:
    """Return a byte count as people read it, exact where the rounded form is not."""
    value = float(size_bytes)
    for unit in _SIZE_UNITS:
        if value < 1024 or unit == _SIZE_UNITS[-1]:
            break
        value /= 1024
    if unit == "B":
        return f"{size_bytes} B"
    return f"{value:.2f} {unit} ({size_bytes} B)"


class OutOfMemoryError(AiocudaError, MemoryError):
    """A device or the page-locked host memory has too little free memory left, or a memory limit leaves too little.

    Parameters
    ----------
    asked_bytes
        Size of the allocation that failed, in bytes.
    free_bytes, total_bytes
        Memory free on the device and the device's memory in all, in bytes; under a limit what it leaves, and the limit.
    device
        The device, in words, such as ``"device 0"``.
    holders
        The holders of the most memory, largest first: pairs of a description, with the lines that made the arrays, and
        a size in bytes.
    is_limit
        Whether it is a limit, of `aiocuda.memory_limit`, that was reached, and not the device's end.

    Attributes
    ----------
    asked_bytes, free_bytes, total_bytes, device, holders, is_limit
        As given.
    """

    def __init__(
        self,
        asked_bytes: int,
        free_bytes: int,
        total_bytes: int,
        device: str,
        holders: tuple[tuple[str, int], ...] = (),
        is_limit: bool = False,
    ) -> None:
        super().__init__(asked_bytes, free_bytes, total_bytes, device, holders, is_limit)
        self.asked_bytes = asked_bytes
        self.free_bytes = free_bytes
        self.total_bytes = total_bytes
        self.device = device
        self.holders = tuple(holders)
        self.is_limit = is_limit

    def __str__(self) -> str:
        message = (
            f"{self.device} has no room for {_format_size(self.asked_bytes)}: "
            f"{_format_size(self.free_bytes)} free of {_format_size(self.total_bytes)}"
        )
        if self.is_limit:
            message += ", which is the limit that memory_limit() sets here"
        if self.holders:
            held = ", ".join(f"{_format_size(size)} by {who}" for who, size in self.holders)
            message += f"; the most is held: {held}"
        return message


class RaceError(AiocudaError):
    """The emulated driver found operations that race.

    Parameters
    ----------
    reports
        One for each pair of operations, which says so in words.

    Attributes
    ----------
    reports
        As given.
    """

    def __init__(self, reports: Sequence[object]) -> None:
        super().__init__(reports)
        self.reports = tuple(reports)

    def __str__(self) -> str:
        count = len(self.reports)
        lines = [f"{count} race{'' if count == 1 else 's'} on the device:"]
        return "\n".join([*lines, *(f"- {report}" for report in self.reports)])


class KernelCheckError(AiocudaError):
    """The emulated driver found kernels that do something wrong (``AIOCUDA_EMULATOR_CHECK``).

    Parameters
    ----------
    reports
        One for each finding, which says so in words.

    Attributes
    ----------
    reports
        As given.
    """

    def __init__(self, reports: Sequence[object]) -> None:
        super().__init__(reports)
        self.reports = tuple(reports)

    def __str__(self) -> str:
        count = len(self.reports)
        lines = [f"{count} finding{'' if count == 1 else 's'} of the checks of kernels:"]
        return "\n".join([*lines, *(f"- {report}" for report in self.reports)])
