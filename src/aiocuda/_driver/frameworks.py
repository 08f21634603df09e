"""What frameworks tell of their streams where no protocol does.

Always true: a framework that the program has not imported is not imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

__all__ = ["current_stream"]


def _of_torch(torch: Any, ordinal: int) -> int:
    return int(torch.cuda.current_stream(ordinal).cuda_stream)


def _of_cupy(cupy: Any, ordinal: int) -> int:
    return int(cupy.cuda.get_current_stream(ordinal).ptr)


_CURRENT: Final[dict[str, Callable[[Any, int], int]]] = {"torch": _of_torch, "cupy": _of_cupy}


def current_stream(x: Any, ordinal: int) -> int | None:
    """Return the handle of the stream that an array's framework puts this thread's work on; None if it is not known."""
    name = type(x).__module__.partition(".")[0]
    ask, module = _CURRENT.get(name), sys.modules.get(name)
    return None if ask is None or module is None else ask(module, ordinal)
