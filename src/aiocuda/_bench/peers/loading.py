"""Which peers there are in this process.

Always true: a peer that is not installed, or does not work here, is left out with the reason; it is never an error.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from aiocuda._bench.work import Work

__all__ = ["Known", "load"]

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Known:
    """A peer that may be installed.

    Attributes
    ----------
    name
        What it is called in tables.
    package
        Whose presence says that it is installed.
    module
        Of `aiocuda._bench.peers`, with ``connect(work)``, which returns the peer.
    runs_emulated
        Whether it runs on the emulated driver.
    """

    name: str
    package: str
    module: str
    runs_emulated: bool = False


def load(known: Iterable[Known], work: Work, try_out: Callable[[P], object]) -> tuple[list[P], dict[str, str]]:
    """Return the peers that work here, and why the others are left out."""
    peers: list[P] = []
    left_out: dict[str, str] = {}
    for each in known:
        if importlib.util.find_spec(each.package) is None:
            left_out[each.name] = "not installed"
        elif work.device.is_emulated and not each.runs_emulated:
            left_out[each.name] = "does not run on the emulated driver"
        else:
            try:
                peer: Any = importlib.import_module(f"aiocuda._bench.peers.{each.module}").connect(work)
                try_out(peer)
            except Exception as error:  # noqa: BLE001 - another library may fail in any way; the table says how
                left_out[each.name] = f"{type(error).__name__}: {' '.join(str(error).split())}"
            else:
                peers.append(peer)
    return peers, left_out
