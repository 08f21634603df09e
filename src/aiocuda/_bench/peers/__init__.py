"""Other ways to launch a kernel and wait for it: each in one small file, which imports what it measures."""

from __future__ import annotations

from typing import Protocol

from aiocuda._bench.peers.loading import Known, load
from aiocuda._bench.work import Work

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


_KNOWN = (
    Known("cuda.core", "cuda.core", "cuda_core", runs_emulated=True),
    Known("CuPy", "cupy", "cupy"),
    Known("PyTorch", "torch", "torch"),
    Known("Triton", "triton", "triton"),
    Known("numba-cuda", "numba_cuda", "numba_cuda"),
)
# The modules that a program imports to use them, by their names.
PACKAGES = {known.name: known.package for known in _KNOWN}


def load_peers(work: Work) -> tuple[list[Peer], dict[str, str]]:
    """Return the peers that work here, and why the others are left out."""

    def try_out(peer: Peer) -> None:
        peer.launch()
        peer.wait()

    return load(_KNOWN, work, try_out)
