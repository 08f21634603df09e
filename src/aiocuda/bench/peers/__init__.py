"""Other ways to launch a kernel and wait for it: each in one small file, which imports what it measures.

Always true: a peer that is not installed, or does not work here, is left out with the reason; it is never an error.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import Protocol

from aiocuda.bench.work import Work

__all__ = ["PACKAGES", "Peer", "load_peers"]


class Peer(Protocol):
    """A launch as heavy as `Work.launch`, on one stream of its own."""

    @property
    def name(self) -> str:
        """What it is called in tables."""
        ...

    def launch(self) -> None:
        """Submit it."""
        ...

    def wait(self) -> None:
        """Block until all that was launched has passed."""
        ...


@dataclass(frozen=True, slots=True)
class _Known:
    name: str
    package: str  # whose presence says that it is installed
    module: str  # of ours, with `connect(work) -> Peer`
    runs_emulated: bool = False


_KNOWN = (
    _Known("cuda.core", "cuda.core", "cuda_core", runs_emulated=True),
    _Known("CuPy", "cupy", "cupy"),
    _Known("PyTorch", "torch", "torch"),
    _Known("Triton", "triton", "triton"),
    _Known("numba-cuda", "numba_cuda", "numba_cuda"),
)
# What a program imports to use them, by their names.
PACKAGES = {known.name: known.package for known in _KNOWN}


def load_peers(work: Work) -> tuple[list[Peer], dict[str, str]]:
    """Return the peers that work here, and why the others are left out."""
    peers: list[Peer] = []
    left_out: dict[str, str] = {}
    for known in _KNOWN:
        if importlib.util.find_spec(known.package) is None:
            left_out[known.name] = "not installed"
        elif work.device.is_emulated and not known.runs_emulated:
            left_out[known.name] = "does not run on the emulated driver"
        else:
            try:
                peer: Peer = importlib.import_module(f"{__name__}.{known.module}").connect(work)
                peer.launch()
                peer.wait()
            except Exception as error:  # noqa: BLE001 - another library may fail in any way; the table says how
                left_out[known.name] = f"{type(error).__name__}: {' '.join(str(error).split())}"
            else:
                peers.append(peer)
    return peers, left_out
