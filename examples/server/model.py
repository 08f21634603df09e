"""The transformer on a device: one step of many texts at once, as one operation that becomes a CUDA graph.

A step takes one array of numbers from the host, which says what its rows are (kernels.cu), and gives one back: the
tokens that it has chosen. The last token of each text stays on the device, too, so that the next step needs nothing
that the host would have to read first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sizes import BF16, PAGE, HostWeights, Layer, Sizes, Weights, turns

import aiocuda as ac

SOURCE = (Path(__file__).parent / "kernels.cu").read_text()
embed = ac.kernel(SOURCE, "embed")
rms_norm = ac.kernel(SOURCE, "rms_norm")
rms_norm_picked = ac.kernel(SOURCE, "rms_norm_picked")
rotate_and_keep = ac.kernel(SOURCE, "rotate_and_keep")
swiglu = ac.kernel(SOURCE, "swiglu")
choose = ac.kernel(SOURCE, "choose")
WARP, READERS, SPREAD = 32, 4, 256  # threads of a warp; warps of a block of attend; threads of other blocks, at most
ROW, PICK, TIMES = 3, 4, 4  # numbers of a row and of a pick; numbers behind the tokens that are the step's times

Array = ac.DeviceOp[ac.DeviceArray]


def times(x: Any, matrix: ac.DeviceArray, out: Any, is_added: bool = False) -> Array:
    """Describe rows times a matrix that has a row for each output: `out` becomes it, or it is added."""
    return ac.linalg.matmul(x, matrix.T, out, beta=int(is_added))


def block_for(n: int) -> int:
    """Choose the threads of a block that shares n items out: whole warps."""
    return min(SPREAD, -(-n // WARP) * WARP)


class Decoder:
    """A transformer on a device, with its cache; made by `load`. `step` is a compiled function."""

    def __init__(
        self,
        sizes: Sizes,
        weights: Weights[ac.DeviceArray],
        turns: ac.DeviceArray,
        caches: list[tuple[ac.DeviceArray, ac.DeviceArray]],
        last: ac.DeviceArray,
        clock: ac.DeviceArray,
    ) -> None:
        self.sizes = sizes
        self._weights, self._turns, self._caches = weights, turns, caches
        self._last, self._clock = last, clock
        self._attend = ac.kernel(SOURCE, f"attend<{sizes.head_width}, {READERS}>")
        self.step = ac.compile(max_graphs=len(sizes.buckets))(self.described)

    def described(self, plan: Any) -> Array:
        """Describe a step: what the plan says, for so many rows as it has. `step` is the same as a graph."""
        sizes, width = self.sizes, self.sizes.width
        tables_end = sizes.slots * sizes.pages_each
        picks_end = tables_end + PICK * sizes.slots
        count = (plan.size - picks_end) // ROW
        picked = min(count, sizes.slots)
        told = ac.dup(plan)  # a replay replaces one address, and not those of all kernels that read the plan
        tables, picks, rows = told[:tables_end], told[tables_end:picks_end], told[picks_end:]

        x = ac.empty((count, width), BF16)
        x, clock = embed(
            self._weights.embedding, rows, self._last, x, width, self._clock, grid=count, block=block_for(width)
        )
        for layer, cache in zip(self._weights.layers, self._caches, strict=True):
            x = self._attention(layer, cache, x, rows, tables, count)
            x = self._mlp(layer, x, count)
        normed = ac.empty((picked, width), BF16)
        normed = rms_norm_picked(x, self._weights.gain, picks, normed, width, grid=picked, block=block_for(width))
        logits = ac.empty((picked, sizes.vocabulary), BF16)
        logits = times(normed, self._weights.embedding, logits)
        chosen = ac.empty(picked + TIMES, np.int32)
        block = block_for(sizes.vocabulary)
        return choose(logits, picks, rows, self._last, chosen, sizes.vocabulary, clock, grid=picked, block=block)[1]

    def _normal(self, x: Any, gain: ac.DeviceArray, count: int) -> Any:
        width = self.sizes.width
        return rms_norm(x, gain, ac.empty((count, width), BF16), width, grid=count, block=block_for(width))

    def _attention(self, layer: Layer[ac.DeviceArray], cache: Any, x: Any, rows: Any, tables: Any, count: int) -> Any:
        sizes, (keys, values) = self.sizes, cache
        shared = sizes.heads, sizes.kv_heads
        normed, projected = self._normal(x, layer.attention_gain, count), ac.empty((count, sizes.projected), BF16)
        projected = times(normed, layer.projection, projected)
        projected, keys, values = rotate_and_keep(
            projected, self._turns, rows, tables, keys, values, *shared, sizes.head_width, sizes.pages_each,
            grid=(sizes.heads + 2 * sizes.kv_heads, count), block=block_for(sizes.head_width // 2),
        )  # fmt: skip
        mixed = ac.empty((count, sizes.heads * sizes.head_width), BF16)
        mixed = self._attend(
            projected, rows, tables, keys, values, mixed, *shared, sizes.pages_each,
            grid=(sizes.heads, count), block=READERS * WARP,
        )  # fmt: skip
        return times(mixed, layer.output, x, is_added=True)

    def _mlp(self, layer: Layer[ac.DeviceArray], x: Any, count: int) -> Any:
        hidden, block = self.sizes.hidden, block_for(self.sizes.hidden)
        normed, both = self._normal(x, layer.mlp_gain, count), ac.empty((count, 2 * hidden), BF16)
        both = times(normed, layer.gate_and_up, both)
        through = ac.empty((count, hidden), BF16)
        through = swiglu(both, through, hidden, grid=(-(-hidden // block), count), block=block)
        return times(through, layer.down, x, is_added=True)


async def load(sizes: Sizes, weights: HostWeights) -> Decoder:
    """Bring weights to the device in force, layer by layer, and allocate the cache."""
    embedding, gain, turned = await ac.zip(*map(ac.to_device, (weights.embedding, weights.gain, turns(sizes))))
    layers = [Layer(*await ac.zip(*map(ac.to_device, vars(layer).values()))) for layer in weights.layers]
    kept = (sizes.pages, PAGE, sizes.kv_heads, sizes.head_width)
    caches = [await ac.zip(ac.zeros(kept, BF16), ac.zeros(kept, BF16)) for _ in range(sizes.layers)]
    state = await ac.zip(ac.zeros(sizes.slots, np.int32), ac.zeros(2, np.uint64))
    return Decoder(sizes, Weights(embedding, gain, layers), turned, caches, *state)
