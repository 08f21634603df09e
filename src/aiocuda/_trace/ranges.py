"""Ranges of NVTX for Nsight Systems: one for each await, from its begin to its end.

Always true: they are ranges with a start and an end, because awaits of several tasks begin and end in any order; NVTX's
push and pop would mix them up. When the trace ends, no range is open.
"""

from __future__ import annotations

from typing import Any

from aiocuda.errors import MissingPackageError

__all__ = ["Ranges"]

_DOMAIN = "aiocuda"


class Ranges:
    """Starts and ends ranges as it is told.

    Raises
    ------
    MissingPackageError
        The package ``nvtx`` is not installed.
    """

    def __init__(self) -> None:
        try:
            import nvtx  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise MissingPackageError(
                "ranges for Nsight need the package nvtx, which is not installed: pip install nvtx"
            ) from error
        self._nvtx: Any = nvtx
        self._open: dict[int, Any] = {}

    def began(self, number: int, title: str) -> None:
        """Start the range of who asked, by its number."""
        self._open[number] = self._nvtx.start_range(message=title, domain=_DOMAIN)

    def ended(self, number: int, error: BaseException | None = None) -> None:
        """End it, if it was started."""
        if number in self._open:
            self._nvtx.end_range(self._open.pop(number))

    def close(self) -> None:
        """End all that go on."""
        for number in list(self._open):
            self.ended(number)
