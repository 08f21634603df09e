"""How large a transformer and its server are, and the weights: the same numbers for every way to run it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

A = TypeVar("A")
B = TypeVar("B")
BF16 = np.dtype(ml_dtypes.bfloat16)
PAGE = 16  # positions, as in kernels.cu


@dataclass(frozen=True)
class Sizes:
    """How large a transformer is, and how many texts and tokens its server takes at once.

    Attributes
    ----------
    kv_heads
        Heads of the cache; `heads` of queries share them.
    slots
        Texts that are decoded at once.
    pages
        Of the cache, `PAGE` positions each, for all texts together.
    positions
        That a text may have, its prompt and its answer together.
    buckets
        Rows of a step: a step with fewer is filled up to the next of these. There is a graph for each.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    slots: int
    pages: int
    positions: int
    buckets: tuple[int, ...]

    @property
    def head_width(self) -> int:
        """The part of the width that is a head's."""
        return self.width // self.heads

    @property
    def projected(self) -> int:
        """Queries, keys and values of a row, together."""
        return (self.heads + 2 * self.kv_heads) * self.head_width

    @property
    def pages_each(self) -> int:
        """The most pages that a text has."""
        return -(-self.positions // PAGE)

    @property
    def parameters(self) -> int:
        """Numbers in all weights."""
        matrices = self.projected + self.width + 3 * self.hidden
        return self.vocabulary * self.width + self.layers * (matrices + 2) * self.width + self.width

    @property
    def cache_bytes(self) -> int:
        """Bytes of all keys and values."""
        return 2 * self.layers * self.pages * PAGE * self.kv_heads * self.head_width * int(BF16.itemsize)

    @property
    def workspace_bytes(self) -> int:
        """Bytes that cuBLAS has in aiocuda's graphs: 32 MiB in each, on Hopper and newer, for one product at a time."""
        return len(self.buckets) * (32 << 20)


TINY = Sizes(
    layers=2, width=64, heads=4, kv_heads=2, hidden=96, vocabulary=101,
    slots=6, pages=24, positions=96, buckets=(2, 6, 12),
)  # fmt: skip
SMALL = Sizes(
    layers=12, width=768, heads=12, kv_heads=4, hidden=2048, vocabulary=32000,
    slots=64, pages=2048, positions=1024, buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
)  # fmt: skip
MEDIUM = Sizes(
    layers=22, width=2048, heads=32, kv_heads=4, hidden=5632, vocabulary=32000,
    slots=64, pages=4096, positions=1024, buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
)  # fmt: skip
SIZES = {"tiny": TINY, "small": SMALL, "medium": MEDIUM}


@dataclass(frozen=True)
class Layer(Generic[A]):
    """A layer's weights; a matrix has a row for each output."""

    attention_gain: A
    projection: A  # to queries, keys and values
    output: A
    mlp_gain: A
    gate_and_up: A
    down: A


@dataclass(frozen=True)
class Weights(Generic[A]):
    """A transformer's weights; the embedding is the output head too."""

    embedding: A
    gain: A
    layers: Sequence[Layer[A]]


HostWeights = Weights[NDArray[Any]]


def draw_weights(sizes: Sizes, seed: int = 20) -> HostWeights:
    """Draw bfloat16 weights that answer with no monotony: attention is sharp, layers outweigh the embedding."""
    chance = np.random.default_rng(seed)
    width, hidden, heads = sizes.width, sizes.hidden, sizes.heads * sizes.head_width

    def matrix(rows: int, columns: int, scale: float = 1) -> NDArray[Any]:
        drawn = chance.standard_normal((rows, columns), np.float32)
        drawn *= np.float32(scale / columns**0.5)
        return drawn.astype(BF16)

    def gain() -> NDArray[Any]:
        return chance.uniform(0.8, 1.2, width).astype(BF16)

    def layer() -> Layer[NDArray[Any]]:
        queries, others = matrix(heads, width, 3), matrix(sizes.projected - heads, width)
        return Layer(
            attention_gain=gain(),
            projection=np.concatenate([queries, others]),
            output=matrix(width, heads, 2),
            mlp_gain=gain(),
            gate_and_up=matrix(2 * hidden, width),
            down=matrix(width, hidden),
        )

    return Weights(matrix(sizes.vocabulary, width, 0.2), gain(), [layer() for _ in range(sizes.layers)])


def turns(sizes: Sizes) -> NDArray[np.float32]:
    """Return a cosine and a sine for each pair of a head, for each position (J. Su et al., "RoFormer", 2021)."""
    pairs = np.arange(0, sizes.head_width, 2) / sizes.head_width
    angles = np.arange(sizes.positions)[:, None] * 10_000.0**-pairs
    turned: NDArray[np.float32] = np.exp(1j * angles).astype(np.complex64).view(np.float32)
    return turned
