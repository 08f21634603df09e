"""The same transformer in NumPy: a whole text at once, without a cache, rounded to bfloat16 where the kernels round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sizes import BF16, HostWeights, Sizes, turns

Floats = NDArray[np.float32]


def rounded(x: Floats) -> Floats:
    """Round to bfloat16."""
    return x.astype(BF16).astype(np.float32)


def scores(sizes: Sizes, weights: HostWeights, tokens: Sequence[int]) -> Floats:
    """Compute the logits behind each token of a text."""
    length, heads, kv_heads, head_width = len(tokens), sizes.heads, sizes.kv_heads, sizes.head_width
    turned_by = turns(sizes)[:length, None].view(np.complex64)
    future = np.triu(np.full((length, length), -np.inf, np.float32), 1)

    def normal(x: Floats, gain: Floats) -> Floats:
        scale = 1 / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + np.float32(1e-5))
        return rounded(x * scale * gain.astype(np.float32))

    def times(x: Floats, matrix: Floats) -> Floats:
        product: Floats = x @ matrix.astype(np.float32).T
        return product

    def turned(x: Floats) -> Floats:
        pairs = np.ascontiguousarray(x).view(np.complex64) * turned_by
        return rounded(pairs.view(np.float32))

    x = weights.embedding[list(tokens)].astype(np.float32)
    for layer in weights.layers:
        normed = normal(x, layer.attention_gain)
        projected = rounded(times(normed, layer.projection)).reshape(length, heads + 2 * kv_heads, head_width)
        query, key = turned(projected[:, :heads]), turned(projected[:, heads : heads + kv_heads])
        shared = heads // kv_heads
        key, value = (np.repeat(each, shared, axis=1) for each in (key, projected[:, heads + kv_heads :]))
        odds = np.exp(
            (logits := np.einsum("qhd,khd->hqk", query, key) / np.float32(head_width**0.5) + future)
            - logits.max(axis=2, keepdims=True)
        )
        odds /= odds.sum(axis=2, keepdims=True)
        mixed = rounded(np.einsum("hqk,khd->qhd", odds, value).reshape(length, heads * head_width))
        x = rounded(x + times(mixed, layer.output))
        both = rounded(times(normal(x, layer.mlp_gain), layer.gate_and_up))
        gate, up = both[:, : sizes.hidden], both[:, sizes.hidden :]
        x = rounded(x + times(rounded(gate / (1 + np.exp(-gate)) * up), layer.down))
    return rounded(times(normal(x, weights.gain), weights.embedding))


def mixed_up(x: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Hash numbers, as the kernel does."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def noisy(logits: Floats, position: int, temperature: float, seed: int) -> Floats:
    """Add the noise of a choice behind a position, so that each token is the highest as often as its logit says."""
    if temperature == 0:
        return logits
    start = mixed_up(np.array([seed], np.uint32)) ^ np.uint32(position)
    hashed = mixed_up(mixed_up(start) ^ np.arange(logits.size, dtype=np.uint32))
    chances = ((hashed >> np.uint32(8)).astype(np.float32) + np.float32(0.5)) / np.float32(1 << 24)
    noise: Floats = -np.log(-np.log(chances))
    return logits / np.float32(temperature) + noise


def shortfalls(
    sizes: Sizes, weights: HostWeights, prompt: Sequence[int], answer: Sequence[int], temperature: float, seed: int
) -> list[float]:
    """Say by how much each token of an answer scores less than the best one there: 0 if it is the best.

    A product of bfloat16 numbers is known up to its rounding. So a token that is a little worse, by the reference, may
    be the best one by another order of the sums.
    """
    logits = scores(sizes, weights, [*prompt, *answer[:-1]])
    found = []
    for i, token in enumerate(answer):
        position = len(prompt) - 1 + i
        at = noisy(logits[position], position, temperature, seed)
        found.append(float(at.max() - at[token]))
    return found
