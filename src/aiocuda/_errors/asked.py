"""Errors of what a program asked for: found before a device saw it.

Always true: nothing was submitted because of what such an error is about.
"""

from __future__ import annotations

__all__ = [
    "AiocudaError",
    "ArgumentIndexError",
    "ArgumentRangeError",
    "ArgumentTypeError",
    "ArgumentValueError",
    "CaptureError",
    "ClosedError",
    "CompilationError",
    "DeviceMismatchError",
    "ExchangeError",
    "LaunchError",
    "MissingAttributeError",
    "MissingPackageError",
    "OwnershipError",
    "SignatureError",
    "UndeclaredKernelError",
]


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


class ExchangeError(AiocudaError, BufferError):
    """Another library cannot have an array, or memory, in the way in which it asked (DLPack, ``share_memory_pool``)."""


class ClosedError(OwnershipError):
    """The array, stream, loop or device was closed before this use of it."""


class SignatureError(ArgumentValueError):
    """A kernel's signature cannot be read, or the kernel asked for cannot be told.

    Parameters
    ----------
    message
        It names the request, the finding, and a way out.
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
