"""Every exception and warning of aiocuda, in one tree under `AiocudaError`.

Each exception keeps what it knows as attributes and builds its message from them, so its
``args`` are its constructor's arguments and it survives pickling. This module imports nothing
of aiocuda; native code raises these classes by importing it.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Sequence

__all__ = [
    "AiocudaError",
    "ArgumentIndexError",
    "ArgumentRangeError",
    "ArgumentTypeError",
    "ArgumentValueError",
    "CancelledError",
    "CaptureError",
    "ClosedError",
    "CompilationError",
    "DeviceLostError",
    "DeviceMismatchError",
    "DeviceTimeoutError",
    "DriverError",
    "DriverNotFoundError",
    "DriverSelectionError",
    "EmulatedDeviceWarning",
    "ForkedProcessError",
    "LaunchError",
    "MissingAttributeError",
    "MissingPackageError",
    "OperationInterruptedError",
    "OutOfMemoryError",
    "OwnershipError",
    "RaceError",
    "SignatureError",
    "UndeclaredKernelError",
]

_MOST_NAMED = 4  # of operations in one message
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


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


class EmulatedDeviceWarning(UserWarning):
    """No usable NVIDIA device was found, so kernels run on the CPU. Given once per process."""


class AiocudaError(Exception):
    """The base of every exception that aiocuda raises itself."""


class ArgumentTypeError(AiocudaError, TypeError):
    """An argument has the wrong type, dtype or count; found before the device saw it."""


class ArgumentValueError(AiocudaError, ValueError):
    """An argument has the right type and a value that cannot be; found before the device saw it."""


class ArgumentRangeError(ArgumentValueError, OverflowError):
    """An integer does not fit the C type of the kernel's parameter."""


class ArgumentIndexError(AiocudaError, IndexError):
    """An index lies outside of what it is an index of."""


class MissingAttributeError(AiocudaError, AttributeError):
    """An array, an operation or another object has no such attribute; the message says how aiocuda does it."""


class LaunchError(AiocudaError, ValueError):
    """A launch configuration that no device accepts; found before the device saw it."""


class MissingPackageError(AiocudaError, ImportError):
    """A package is needed that is not installed; the message says how to install it."""


class OwnershipError(AiocudaError):
    """An array was used in a way its owner does not allow: moved away, shared, partitioned."""


class DeviceMismatchError(AiocudaError, ValueError):
    """Arrays, streams or operations of different devices were mixed where one is needed."""


class CaptureError(AiocudaError):
    """Something was done that cannot be part of a CUDA graph while one was being captured."""


class ClosedError(OwnershipError):
    """The array, stream, loop or device was closed before this use of it."""


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
        Who holds the most, largest first: pairs of a description, with the lines that made the arrays, and a size in
        bytes.
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


class CancelledError(AiocudaError, concurrent.futures.CancelledError):
    """A `DeviceFuture` was cancelled before its result was there; a cancelled *task* is told by its event loop.

    Parameters
    ----------
    operation
        The future's operation, in words.
    origin
        Where it was built, as ``"file:line"``; empty where that is not known.

    Attributes
    ----------
    operation, origin
        As given.
    """

    def __init__(self, operation: str, origin: str = "") -> None:
        super().__init__(operation, origin)
        self.operation = operation
        self.origin = origin

    def __str__(self) -> str:
        built = f" (built at {self.origin})" if self.origin else ""
        return (
            f"the future of {self.operation}{built} was cancelled before the result was there; "
            "the operation itself can still be executed, or awaited"
        )


class OperationInterruptedError(AiocudaError):
    """A function that an operation called was interrupted, so that the operation has no result.

    The interruption itself (`KeyboardInterrupt`, `SystemExit`, a task's cancellation) goes to whoever ran the function;
    this is what all others are told who wait for the operation, then or later.

    Parameters
    ----------
    operation
        The operation, in words.
    origin
        Where it was built, as ``"file:line"``; empty where that is not known.
    interruption
        The name of the interruption's class. The interruption is the exception's ``__cause__``.

    Attributes
    ----------
    operation, origin, interruption
        As given.
    """

    def __init__(self, operation: str, origin: str, interruption: str) -> None:
        super().__init__(operation, origin, interruption)
        self.operation = operation
        self.origin = origin
        self.interruption = interruption

    def __str__(self) -> str:
        return (
            f"{_with_origin(self.operation, self.origin)} was interrupted: {self.interruption} came out of a function "
            "that was called for it, and went on to whoever ran that function. An operation runs once: build it again"
        )


class DeviceTimeoutError(AiocudaError, TimeoutError):
    """An operation was not complete within the time given to it; what was submitted of it goes on.

    Parameters
    ----------
    operation
        What was waited for, in words.
    origin
        Where it was built, as ``"file:line"``; empty where that is not known.
    waited_s
        How long the wait lasted, in seconds.
    running
        What of it had been submitted and had not passed, with where it was built and its stream, in words.
    in_flight
        Submissions, on all streams, that were not known to have passed.

    Attributes
    ----------
    operation, origin, waited_s, running, in_flight
        As given.
    """

    def __init__(self, operation: str, origin: str, waited_s: float, running: tuple[str, ...], in_flight: int) -> None:
        # Not OSError's __init__, which takes the second of several arguments for the text of an errno.
        Exception.__init__(self, operation, origin, waited_s, running, in_flight)
        self.operation = operation
        self.origin = origin
        self.waited_s = waited_s
        self.running = tuple(running)
        self.in_flight = in_flight

    def __str__(self) -> str:
        built = f" (built at {self.origin})" if self.origin else ""
        still = (
            "nothing of it was on a device: it waits for room in a stream, for memory under a limit, for a kernel that "
            "is being compiled, or for a function of map()"
        )
        if self.running:
            still = f"still running: {', '.join(self.running[:_MOST_NAMED])}"
        if len(self.running) > _MOST_NAMED:
            still += f" and {len(self.running) - _MOST_NAMED} more"
        return (
            f"{self.operation}{built} was not complete after {self.waited_s:.3g} s; {still}; submissions in flight on "
            f"all streams: {self.in_flight}; what was submitted goes on, and it can be awaited again"
        )


class SignatureError(ArgumentValueError):
    """A kernel's signature cannot be read, or the kernel asked for cannot be told.

    Parameters
    ----------
    message
        What was asked, what was found, what to do.
    line
        Line of the source, from 1; 0 where no line is to blame.

    Attributes
    ----------
    message, line
        As given.
    """

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message, line)
        self.message = message
        self.line = line

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


class UndeclaredKernelError(SignatureError):
    """The source declares no kernel of the name asked for; a macro may write one."""


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


class CompilationError(AiocudaError):
    """CUDA C++ source did not compile.

    Parameters
    ----------
    source_name
        The name under which the source was compiled; the log's line numbers are lines of it.
    log
        The compiler's log.

    Attributes
    ----------
    source_name, log
        As given.
    """

    def __init__(self, source_name: str, log: str) -> None:
        super().__init__(source_name, log)
        self.source_name = source_name
        self.log = log

    def __str__(self) -> str:
        log = self.log.strip() or "the compiler left no log"
        return f"{self.source_name} does not compile:\n{log}"


class DeviceLostError(AiocudaError):
    """A fault ended everything pending on a device's context; the context takes no more work.

    Parameters
    ----------
    operation
        The operation that failed, in words.
    origin
        Where it was built, as ``"file:line"``; empty where that is not known.
    error
        What the driver answered.
    device
        The device, in words, such as ``"device 0"``.
    first_operation, first_origin
        Which operation was the first to fail, and where that was built, where it was another one; else empty. CUDA does
        not say which operation causes a fault: it is this one, or one that was on the device together with it.
    is_earlier
        Whether the device was lost before this operation came to it.
    blocks
        How ``threads=`` became a grid of blocks, in words: of a launch, its own; of another operation, those of the
        launches that it waited for, with the lines that built them; empty where there are none.

    Attributes
    ----------
    operation, origin, error, device, first_operation, first_origin, is_earlier, blocks
        As given. `error` is also the exception's ``__cause__``.
    """

    def __init__(
        self,
        operation: str,
        origin: str,
        error: DriverError,
        device: str = "",
        first_operation: str = "",
        first_origin: str = "",
        is_earlier: bool = False,
        blocks: str = "",
    ) -> None:
        super().__init__(operation, origin, error, device, first_operation, first_origin, is_earlier, blocks)
        self.operation = operation
        self.origin = origin
        self.error = error
        self.device = device
        self.first_operation = first_operation
        self.first_origin = first_origin
        self.is_earlier = is_earlier
        self.blocks = blocks
        self.__cause__ = error

    def __str__(self) -> str:
        asked = _with_origin(self.operation, self.origin)
        first = _with_origin(self.first_operation, self.first_origin)
        device = self.device or "the device"
        if self.is_earlier:
            return (
                f"{asked} did not complete: {device} was lost earlier, when {first} failed with {self.error}. "
                "A lost device takes no more work from this process: start a new one"
            )
        message = f"{asked} did not complete: {device} was lost: {self.error}"
        if first:
            message += f"; {first} was the first to fail"
        if self.blocks:
            message += f"; {self.blocks}"
        return message


def _with_origin(operation: str, origin: str) -> str:
    return f"{operation} (built at {origin})" if origin else operation
