"""Decode tokens with a small transformer, greedily, in steps that take nothing from the host.

The tokens, the position and the caches stay on the device and are updated in place: a step launches the same kernels
on the same arrays each time, allocates nothing and copies nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import aiocuda as ac

A = TypeVar("A")
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Step = ac.DeviceOp[tuple[ac.DeviceArray, ac.DeviceArray]]  # the tokens and the position

SOURCE = (Path(__file__).parent / "kernels.cu").read_text()
embed = ac.kernel(SOURCE, "embed")
rms_norm = ac.kernel(SOURCE, "rms_norm")
matvec = ac.kernel(SOURCE, "matvec<false>")
add_matvec = ac.kernel(SOURCE, "matvec<true>")
matvec_to_cache = ac.kernel(SOURCE, "matvec_to_cache")
rotate = ac.kernel(SOURCE, "rotate<false>")
rotate_cached = ac.kernel(SOURCE, "rotate<true>")
swiglu = ac.kernel(SOURCE, "swiglu")
choose = ac.kernel(SOURCE, "choose")
WARP, READERS = 32, 16  # threads of a warp, warps of a block of attend
WIDEST_HEAD = 512  # each warp of attend has one in shared memory; a block has 48 KiB of it


def attend_for(head_width: int) -> Any:
    """Make the attention kernel for heads of a width."""
    return ac.kernel(SOURCE, f"attend<{head_width}, {READERS}>")


@dataclass(frozen=True)
class Sizes:
    """How large a decoder is."""

    layers: int
    width: int
    heads: int
    hidden: int
    vocabulary: int

    def __post_init__(self) -> None:
        if min(vars(self).values()) < 1:
            raise ValueError(f"sizes are 1 or more; {self} was asked for")
        if self.width % (2 * self.heads):
            raise ValueError(
                f"{self.heads} heads share a width of {self.width}, and each needs an even part; "
                f"give a width that {2 * self.heads} divides"
            )
        if self.head_width > WIDEST_HEAD:
            raise ValueError(
                f"{self.heads} heads of {self.width} in all are {self.head_width} wide each, and the kernels take "
                f"{WIDEST_HEAD} at most; give {-(-self.width // WIDEST_HEAD)} heads or more"
            )

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in vars(self).items())

    @property
    def head_width(self) -> int:
        """The part of the width that is a head's."""
        return self.width // self.heads


@dataclass(frozen=True)
class Layer(Generic[A]):
    """A layer's weights, NumPy's or a device's arrays; a matrix has a row for each output."""

    attention_gain: A
    query: A
    key: A
    value: A
    output: A
    mlp_gain: A
    gate: A
    up: A
    down: A


@dataclass(frozen=True)
class Weights(Generic[A]):
    """A decoder's weights; the embedding is the output head too."""

    embedding: A
    gain: A
    layers: Sequence[Layer[A]]


HostWeights = Weights[Floats]


@dataclass(frozen=True)
class Model:
    """A decoder on a device, with the attention kernel for its heads."""

    sizes: Sizes
    weights: Weights[ac.DeviceArray]
    attend: Any


@dataclass(frozen=True)
class State:
    """One text on its way, `prompt` tokens of `length` given: all arrays that a step writes, so it allocates none."""

    prompt: int
    length: int
    tokens: ac.DeviceArray
    position: ac.DeviceArray
    turns: ac.DeviceArray  # a cosine and a sine for each pair of a head, for each position
    keys: Sequence[ac.DeviceArray]
    values: Sequence[ac.DeviceArray]
    x: ac.DeviceArray
    normed: ac.DeviceArray
    query: ac.DeviceArray
    mixed: ac.DeviceArray
    gate: ac.DeviceArray
    up: ac.DeviceArray
    logits: ac.DeviceArray


def block_for(n: int) -> int:
    """Choose the threads of a block that shares n items out: whole warps, eight items a thread where it can."""
    return WARP * min(-(-n // (8 * WARP)), 32)


def normalised(gain: ac.DeviceArray, x: Any, y: Any) -> Any:
    """Describe the normalisation of a vector."""
    return rms_norm(x, gain, y, gain.size, grid=1, block=block_for(gain.size))


def product(kernel: Any, matrix: ac.DeviceArray, *vectors: Any) -> Any:
    """Describe a matrix-vector product, by one of the kernels that make a block of each row."""
    rows, columns = matrix.shape
    return kernel(matrix, *vectors, columns, grid=rows, block=block_for(columns))


def attention(model: Model, state: State, index: int, x: Any) -> Any:
    """Describe a layer's attention, added to x; query, key and value overlap."""
    layer, width, head_width = model.weights.layers[index], model.sizes.width, model.sizes.head_width
    normed = normalised(layer.attention_gain, x, state.normed)
    query = product(matvec, layer.query, normed, state.query)
    query = rotate(state.turns, state.position, query, width, head_width, threads=width // 2)
    keys = product(matvec_to_cache, layer.key, normed, state.position, state.keys[index])
    keys = rotate_cached(state.turns, state.position, keys, width, head_width, threads=width // 2)
    values = product(matvec_to_cache, layer.value, normed, state.position, state.values[index])
    grid, block = model.sizes.heads, READERS * WARP
    mixed = model.attend(query, keys, values, state.position, state.mixed, width, grid=grid, block=block)
    return product(add_matvec, layer.output, mixed, x)


def mlp(model: Model, state: State, index: int, x: Any) -> Any:
    """Describe a layer's gated network, added to x; gate and up overlap."""
    layer, hidden = model.weights.layers[index], model.sizes.hidden
    normed = normalised(layer.mlp_gain, x, state.normed)
    gate = product(matvec, layer.gate, normed, state.gate)
    up = product(matvec, layer.up, normed, state.up)
    return product(add_matvec, layer.down, swiglu(gate, up, hidden, threads=hidden), x)


def step(model: Model, state: State) -> Step:
    """Describe one step: from the token at the position to the next one, and on to there.

    Its result is the tokens and the position. At the last position it chooses nothing and stays.
    """
    sizes, weights = model.sizes, model.weights
    x = embed(weights.embedding, state.tokens, state.position, state.x, sizes.width, threads=sizes.width)
    for index in range(sizes.layers):
        x = attention(model, state, index, x)
        x = mlp(model, state, index, x)
    logits = product(matvec, weights.embedding, normalised(weights.gain, x, state.normed), state.logits)
    goal, block = (sizes.vocabulary, state.prompt, state.length), block_for(sizes.vocabulary)
    chosen: Step = choose(logits, state.tokens, state.position, *goal, grid=1, block=block)
    return chosen


def draw_weights(sizes: Sizes, seed: int) -> HostWeights:
    """Draw weights that decode to no monotony: attention is sharp, and the layers outweigh the embedding."""
    rng = np.random.default_rng(seed)
    width, hidden = sizes.width, sizes.hidden

    def matrix(rows: int, columns: int, scale: float = 1) -> Floats:
        return rng.standard_normal((rows, columns), np.float32) * np.float32(scale / columns**0.5)

    def gain() -> Floats:
        return rng.uniform(0.8, 1.2, width).astype(np.float32)

    layers = [
        Layer(
            attention_gain=gain(),
            query=matrix(width, width, 3),
            key=matrix(width, width),
            value=matrix(width, width),
            output=matrix(width, width, 2),
            mlp_gain=gain(),
            gate=matrix(hidden, width),
            up=matrix(hidden, width),
            down=matrix(width, hidden),
        )
        for _ in range(sizes.layers)
    ]
    return Weights(matrix(sizes.vocabulary, width, 0.2), gain(), layers)


def angles(sizes: Sizes, length: int) -> Doubles:
    """Compute by how much each pair of a head is turned at each position (J. Su et al., "RoFormer", 2021)."""
    pairs = np.arange(0, sizes.head_width, 2) / sizes.head_width
    return np.arange(length)[:, None] * 10_000.0**-pairs


async def load(sizes: Sizes, weights: HostWeights) -> Model:
    """Bring weights to the device in force, layer by layer."""
    embedding, gain = await ac.zip(ac.to_device(weights.embedding), ac.to_device(weights.gain))
    layers = [Layer(*await ac.zip(*map(ac.to_device, vars(layer).values()))) for layer in weights.layers]
    return Model(sizes, Weights(embedding, gain, layers), attend_for(sizes.head_width))


async def start(model: Model, prompt: Sequence[int], length: int) -> State:
    """Allocate what a text of `length` tokens needs, with its first ones."""
    sizes = model.sizes
    if not 1 <= len(prompt) <= length or not 0 <= min(prompt) <= max(prompt) < sizes.vocabulary:
        raise ValueError(
            f"a prompt has 1 to {length} tokens, as the text has {length}, each from 0 to {sizes.vocabulary - 1}; "
            f"{list(prompt)} was given"
        )
    turned = np.exp(1j * angles(sizes, length)).astype(np.complex64).view(np.float32)
    tokens = np.zeros(length, np.int32)
    tokens[: len(prompt)] = prompt
    first = await ac.zip(ac.to_device(tokens), ac.zeros(1, np.int32), ac.to_device(turned))
    keys = [await ac.zeros((length, sizes.width)) for _ in range(sizes.layers)]
    values = [await ac.zeros((length, sizes.width)) for _ in range(sizes.layers)]
    extents = [sizes.width] * 4 + [sizes.hidden] * 2 + [sizes.vocabulary]
    return State(len(prompt), length, *first, keys, values, *[await ac.empty(extent) for extent in extents])


def reference_logits(sizes: Sizes, weights: HostWeights, tokens: NDArray[np.int32]) -> Doubles:
    """Compute the logits after each token with NumPy in float64: all positions at once, without caches."""
    length, heads = len(tokens), (len(tokens), sizes.heads, sizes.head_width)
    turns = np.exp(1j * angles(sizes, length))[:, None]
    future = np.triu(np.full((length, length), -np.inf), 1)

    def normal(x: Doubles, gain: Floats) -> Doubles:
        scaled: Doubles = x * gain / np.sqrt(np.mean(x**2, axis=1, keepdims=True) + 1e-5)
        return scaled

    def turned(x: Doubles) -> Doubles:
        pairs: NDArray[np.complex128] = x.reshape(heads).view(np.complex128) * turns
        return pairs.view(np.float64)

    x = weights.embedding[tokens].astype(np.float64)
    for layer in weights.layers:
        normed = normal(x, layer.attention_gain)
        query, key = turned(normed @ layer.query.T), turned(normed @ layer.key.T)
        value = (normed @ layer.value.T).reshape(heads)
        odds = np.exp(np.einsum("qhd,khd->hqk", query, key) / sizes.head_width**0.5 + future)
        odds /= odds.sum(axis=2, keepdims=True)
        x += np.einsum("hqk,khd->qhd", odds, value).reshape(x.shape) @ layer.output.T
        normed = normal(x, layer.mlp_gain)
        gate = normed @ layer.gate.T
        x += (gate / (1 + np.exp(-gate)) * (normed @ layer.up.T)) @ layer.down.T
    logits: Doubles = normal(x, weights.gain) @ weights.embedding.T
    return logits


def agrees(sizes: Sizes, weights: HostWeights, prompt: int, tokens: NDArray[np.int32]) -> bool:
    """Say whether each token behind the prompt is the likeliest, given those before it, by NumPy's account."""
    likeliest = reference_logits(sizes, weights, tokens[:-1]).argmax(axis=1)
    return np.array_equal(tokens[prompt:], likeliest[prompt - 1 :])


Advance = Callable[[], Awaitable[Any]]


def eager(model: Model, state: State) -> Advance:
    """Build each step, and await it."""
    return lambda: step(model, state)


def replayed(model: Model, state: State) -> Advance:
    """Make one CUDA graph of a step, and launch it."""
    return step(model, state).graph().launch


def compiled(model: Model, state: State) -> Advance:
    """Compile the function of the state; the weights are a part of its graph."""
    compiled_step = ac.compile(partial(step, model))
    return lambda: compiled_step(state)


MODES: dict[str, Callable[[Model, State], Advance]] = {"eager": eager, "graph": replayed, "compiled": compiled}


async def decode(mode: str, model: Model, prompt: Sequence[int], length: int) -> tuple[NDArray[np.int32], float]:
    """Decode up to `length` tokens; return them, and the seconds that those behind the prompt took."""
    state = await start(model, prompt, length)
    advance = MODES[mode](model, state)
    for _ in range(len(prompt) - 1):
        await advance()
    began = time.perf_counter()
    for _ in range(length - len(prompt)):
        await advance()
    seconds = time.perf_counter() - began
    return await ac.to_host(state.tokens), seconds


SMALL = Sizes(layers=2, width=64, heads=4, hidden=176, vocabulary=256)
LARGE = Sizes(layers=16, width=1024, heads=16, hidden=2816, vocabulary=8192)


async def compare(modes: Sequence[str], sizes: Sizes, prompt_length: int, tokens: int, seed: int) -> bool:
    """Decode in each mode, print what it took, and say whether all tokens are NumPy's."""
    device, weights = ac.current_device(), draw_weights(sizes, seed)
    model = await load(sizes, weights)
    prompt = np.random.default_rng(seed).integers(sizes.vocabulary, size=prompt_length).tolist()
    await decode("eager", model, prompt, prompt_length + 1)  # compiles the kernels

    driver = "emulated" if device.is_emulated else "NVIDIA"
    table = Table(title=f"{driver}, {device.name}", caption=str(sizes))
    for column in ("mode", "tokens", "seconds", "tokens/s", "same as NumPy's"):
        table.add_column(column, justify="left" if column == "mode" else "right")
    all_agree = True
    for mode in modes:
        found, seconds = await decode(mode, model, prompt, prompt_length + tokens)
        is_same = agrees(sizes, weights, prompt_length, found)
        table.add_row(mode, str(tokens), f"{seconds:.3f}", f"{tokens / seconds:,.1f}", "yes" if is_same else "no")
        all_agree = all_agree and is_same
    Console().print(table)
    return all_agree


def run_example(arguments: Sequence[str] | None = None) -> int:
    """Run the example; the exit status is 0 when all tokens are those of the reference."""
    is_emulated = ac.current_device().is_emulated
    usual, tokens = (SMALL, 32) if is_emulated else (LARGE, 128)
    parser = argparse.ArgumentParser(prog="decode.py", description=(__doc__ or "").partition("\n")[0])
    for field in fields(Sizes):
        default = getattr(usual, field.name)
        parser.add_argument(f"--{field.name}", type=int, default=default, help=f"of the decoder; {default}")
    parser.add_argument("--tokens", type=int, default=tokens, help=f"to decode behind the prompt; {tokens}")
    parser.add_argument("--prompt", type=int, default=8, help="tokens that are given; 8")
    parser.add_argument("--seed", type=int, default=20, help="of the weights and the prompt; 20")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES), help="how to run the steps; all")
    given = parser.parse_args(arguments)
    if min(given.tokens, given.prompt) < 1:
        parser.error(f"--tokens {given.tokens} --prompt {given.prompt}: at least one of each is needed")
    try:
        sizes = Sizes(*(getattr(given, field.name) for field in fields(Sizes)))
    except ValueError as error:
        parser.error(str(error))
    return 0 if asyncio.run(compare(given.modes, sizes, given.prompt, given.tokens, given.seed)) else 1


if __name__ == "__main__":
    raise SystemExit(run_example())
