"""The decode example: each of its kernels against NumPy, and its tokens against the reference."""

from __future__ import annotations

import asyncio
from typing import Any

import decode as example
import numpy as np
import pytest

import aiocuda as ac

# Nothing here divides by the threads of a block: 2 warps share the width out, 3 the hidden units, 2 the vocabulary.
UNEVEN = example.Sizes(layers=1, width=300, heads=6, hidden=555, vocabulary=301)
LENGTHS = [1, 33, 257, 9001]  # less than a warp, of two warps, of a block of two, more than a block of 32 takes at once
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}


def normal(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def on_device(x: Any) -> ac.DeviceArray:
    return ac.to_device(np.asarray(x)).sync()


def at(position: int) -> ac.DeviceArray:
    return on_device(np.array([position], np.int32))


def host(op: Any) -> np.ndarray:
    return ac.to_host(op).sync()


@pytest.mark.parametrize("width", [5, 300])
def test_embed_takes_the_row_of_the_token_at_the_position(width):
    embedding, tokens = normal(4, width), np.array([1, 3, 0], np.int32)
    x = example.embed(on_device(embedding), on_device(tokens), at(1), ac.empty(width), width, threads=width)
    np.testing.assert_array_equal(host(x), embedding[3])


@pytest.mark.parametrize("width", LENGTHS)
def test_rms_norm_is_numpys(width):
    x, gain = normal(width), normal(width, seed=4)
    normed = host(example.normalised(on_device(gain), on_device(x), ac.empty(width)))
    np.testing.assert_allclose(normed, x / np.sqrt(np.mean(x.astype(float) ** 2) + 1e-5) * gain, **CLOSE)


@pytest.mark.parametrize("columns", LENGTHS)
def test_matvec_is_numpys_with_and_without_adding(columns):
    matrix, x, y = normal(7, columns), normal(columns, seed=4), normal(7, seed=5)
    given, exact = [on_device(matrix), on_device(x)], matrix.astype(float) @ x
    close = {"rtol": 1e-4, "atol": 1e-6 * columns}
    np.testing.assert_allclose(host(example.product(example.matvec, *given, on_device(y))), exact, **close)
    np.testing.assert_allclose(host(example.product(example.add_matvec, *given, on_device(y))), exact + y, **close)


def test_matvec_to_cache_writes_the_row_at_the_position_alone():
    matrix, x, cache = normal(7, 33), normal(33, seed=4), normal(5, 7, seed=5)
    found = host(example.product(example.matvec_to_cache, on_device(matrix), on_device(x), at(3), on_device(cache)))
    cache[3] = matrix @ x
    np.testing.assert_allclose(found, cache, **CLOSE)


@pytest.mark.parametrize(("heads", "head_width"), [(1, 2), (3, 10), (5, 120)])
def test_rotate_turns_each_pair_by_its_angle_at_the_position(heads, head_width):
    width, angles = heads * head_width, normal(4, head_width // 2)
    turns = np.exp(1j * angles).astype(np.complex64)
    given = [on_device(turns.view(np.float32)), at(2)]

    def turned(x: np.ndarray) -> np.ndarray:
        return (x.view(np.complex64).reshape(heads, -1) * turns[2]).view(np.float32).reshape(width)

    query, cache = normal(width, seed=4), normal(4, width, seed=5)
    found = host(example.rotate(*given, on_device(query), width, head_width, threads=width // 2))
    np.testing.assert_allclose(found, turned(query), **CLOSE)
    found = host(example.rotate_cached(*given, on_device(cache), width, head_width, threads=width // 2))
    cache[2] = turned(cache[2])
    np.testing.assert_allclose(found, cache, **CLOSE)


# Of a position alone, fewer than the warps, and several a warp; heads below a warp, of one and a half, of four.
@pytest.mark.parametrize("position", [0, 6, 40])
@pytest.mark.parametrize("head_width", [2, 50, 128])
@pytest.mark.parametrize("sharpness", [1, 300])  # exp() of a score of 300 is no float32
def test_attend_mixes_the_values_up_to_the_position(position, head_width, sharpness):
    heads, length = 3, 44
    width = heads * head_width
    query, keys, values = sharpness * normal(width), normal(length, width, seed=4), normal(length, width, seed=5)
    keys[position + 1 :] = values[position + 1 :] = np.nan
    given = [on_device(x) for x in (query, keys, values)]
    attend = example.attend_for(head_width)
    mixed = host(attend(*given, at(position), ac.empty(width), width, grid=heads, block=example.READERS * example.WARP))

    def by_head(x: np.ndarray) -> np.ndarray:
        return x[: position + 1].reshape(-1, heads, head_width).astype(float)

    scores = np.einsum("hd,khd->hk", query.reshape(heads, head_width).astype(float), by_head(keys)) / head_width**0.5
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = np.einsum("hk,khd->hd", odds / odds.sum(axis=1, keepdims=True), by_head(values))
    # A score of some hundreds is known to 1e-5 or so, and so is what follows from it.
    np.testing.assert_allclose(mixed, expected.reshape(width), rtol=1e-3, atol=1e-5 * sharpness)


def test_swiglu_is_numpys_for_small_and_large_gates():
    gate, up = np.concatenate([normal(300), np.float32([-200, 200, 0])]), normal(303, seed=4)
    found = host(example.swiglu(on_device(gate), on_device(up), 303, threads=303))
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(found, gate / (1 + np.exp(-gate)) * up, **CLOSE)


def chosen(logits: Any, position: int, *, prompt: int = 1, length: int = 4) -> tuple[list[int], int]:
    """The choice of `choose` for a text of zeros."""
    logits, n = np.asarray(logits, np.float32), len(logits)
    given = [on_device(logits), on_device(np.zeros(length, np.int32)), at(position), n, prompt, length]
    tokens, position = example.choose(*given, grid=1, block=example.block_for(n)).sync()
    return host(tokens).tolist(), int(host(position)[0])


@pytest.mark.parametrize("vocabulary", LENGTHS)
def test_choose_takes_the_first_of_the_highest_and_goes_on(vocabulary):
    logits = normal(vocabulary) - 100
    best = {0, vocabulary // 2, vocabulary - 1}
    while best:  # each is the first of those that are left
        logits[list(best)] = -1
        assert chosen(logits, 1) == ([0, 0, min(best), 0], 2)
        logits[min(best)] = -np.inf
        best.remove(min(best))


def test_choose_leaves_the_prompt_as_it_is():
    assert chosen([1, 2], 1, prompt=3) == ([0, 0, 0, 0], 2)
    assert chosen([1, 2], 2, prompt=3) == ([0, 0, 0, 1], 3)


def test_choose_stays_at_the_last_position():
    assert chosen([1, 2], 3) == ([0, 0, 0, 0], 3)


def loaded(sizes: example.Sizes) -> tuple[example.HostWeights, example.Model, list[int]]:
    weights = example.draw_weights(sizes, 20)
    prompt = np.random.default_rng(20).integers(sizes.vocabulary, size=5).tolist()
    return weights, asyncio.run(example.load(sizes, weights)), prompt


@pytest.fixture(scope="module")
def small() -> tuple[example.HostWeights, example.Model, list[int]]:
    return loaded(example.SMALL)


@pytest.mark.parametrize("mode", example.MODES)
def test_the_tokens_are_the_references(run, small, mode):
    weights, model, prompt = small
    tokens, seconds = run(example.decode, mode, model, prompt, 30)
    expected = list(prompt)
    while len(expected) < len(tokens):
        expected.append(int(example.reference_logits(model.sizes, weights, np.array(expected))[-1].argmax()))
    assert tokens.tolist() == expected
    assert seconds > 0
    assert len(set(expected)) > 15  # a decoder that says the same again and again would prove little


@pytest.mark.parametrize("sizes", [example.SMALL, UNEVEN], ids=["small", "uneven"])
def test_the_logits_are_the_references_at_every_position(sizes):
    weights, model, prompt = loaded(sizes)

    async def all_logits() -> tuple[np.ndarray, list[np.ndarray]]:
        state, logits = await example.start(model, prompt, 12), []
        for _ in range(11):
            await example.step(model, state)
            logits.append(await ac.to_host(state.logits))
        return await ac.to_host(state.tokens), logits

    tokens, logits = asyncio.run(all_logits())
    np.testing.assert_allclose(logits, example.reference_logits(sizes, weights, tokens[:-1]), rtol=1e-3, atol=1e-4)
    assert example.agrees(sizes, weights, len(prompt), tokens)


def test_one_other_token_does_not_agree(small):
    weights, model, prompt = small
    tokens, _ = asyncio.run(example.decode("eager", model, prompt, 12))
    for index in range(len(prompt), 12):
        other = tokens.copy()
        other[index] = (other[index] + 1) % model.sizes.vocabulary
        assert not example.agrees(model.sizes, weights, len(prompt), other)


def test_texts_that_are_decoded_at_once_do_not_meet(small):
    _, model, prompt = small
    prompts = [prompt, prompt[::-1], prompt[:1]]

    async def decode(*texts: list[int]) -> list[list[int]]:
        found = await asyncio.gather(*(example.decode("eager", model, text, 14) for text in texts))
        return [tokens.tolist() for tokens, _ in found]

    assert asyncio.run(decode(*prompts)) == [asyncio.run(decode(text))[0] for text in prompts]


def test_a_step_at_the_end_changes_nothing(small):
    _, model, prompt = small

    async def decode(steps: int) -> tuple[list[int], int]:
        state = await example.start(model, prompt, 8)
        for _ in range(steps):
            await example.step(model, state)
        return (await ac.to_host(state.tokens)).tolist(), int((await ac.to_host(state.position))[0])

    assert asyncio.run(decode(7)) == asyncio.run(decode(9))


def launches(op: Any) -> list[tuple[str, str]]:
    """The stream and the launch of each line that explains an operation; nothing but waits may stand between."""
    lines = [line.split(" /")[0].split() for line in op.explain().splitlines()]
    assert {words[3] for words in lines} == {"launch", "wait"}
    return [(words[2], " ".join(words[3:])) for words in lines if words[3] == "launch"]


def test_a_step_is_the_same_launches_at_every_position_and_nothing_else(small):
    _, model, prompt = small

    async def steps() -> list[list[str]]:
        state, seen = await example.start(model, prompt, 8), []
        for _ in range(7):
            op = example.step(model, state)
            seen.append([launch for _, launch in launches(op)])
            await op
        return seen

    first, *others = asyncio.run(steps())
    assert len(first) == 4 + 13 * model.sizes.layers
    assert all(other == first for other in others)


def test_what_does_not_depend_on_one_another_is_on_streams_of_its_own(small):
    _, model, prompt = small
    state = asyncio.run(example.start(model, prompt, 8))
    found = [stream for stream, launch in launches(example.step(model, state)) if "matvec" in launch]
    query, key, value, _, gate, up, *_ = found  # the first layer's products, in the order of submission
    assert len({query, key, value}) == 3
    assert gate != up


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((0, 8, 1, 8, 8), "sizes are 1 or more; layers 0, width 8"),
        ((1, 12, 4, 8, 8), "4 heads share a width of 12, and each needs an even part; give a width that 8 divides"),
        ((1, 1200, 1, 8, 8), "are 1200 wide each, and the kernels take 512 at most; give 3 heads or more"),
    ],
)
def test_sizes_that_cannot_be_are_refused(sizes, said):
    with pytest.raises(ValueError, match=said):
        example.Sizes(*sizes)


@pytest.mark.parametrize("prompt", [[], [0] * 9, [256], [-1]])
def test_prompts_that_cannot_be_are_refused(small, prompt):
    with pytest.raises(ValueError, match=r"a prompt has 1 to 8 tokens, .* each from 0 to 255; \[.*\] was given"):
        asyncio.run(example.start(small[1], prompt, 8))


def test_the_program_prints_a_line_for_each_mode(capsys):
    sizes = ["--layers", "1", "--width", "16", "--heads", "2", "--hidden", "24", "--vocabulary", "40"]
    assert example.run_example([*sizes, "--tokens", "3", "--prompt", "2"]) == 0
    shown = capsys.readouterr().out
    assert "layers 1, width 16, heads 2, hidden 24, vocabulary 40" in shown
    for mode in example.MODES:
        (line,) = [line for line in shown.splitlines() if mode in line]
        assert line.strip("│ ").endswith("yes")


def test_the_program_fails_when_a_token_differs(capsys, monkeypatch):
    monkeypatch.setattr(example, "agrees", lambda *_: False)
    assert example.run_example(["--layers", "1", "--tokens", "1", "--prompt", "1", "--modes", "eager"]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "eager" in line]
    assert line.strip("│ ").endswith("no")


@pytest.mark.parametrize("arguments", [["--width", "7"], ["--tokens", "0"], ["--prompt", "0"], ["--modes", "other"]])
def test_the_program_refuses_what_cannot_be(capsys, arguments):
    with pytest.raises(SystemExit, match="2"):
        example.run_example(arguments)
    assert "decode.py: error:" in capsys.readouterr().err
