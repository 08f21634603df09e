"""Random numbers are NumPy's Philox stream; each depends on the seed and its place alone."""

from __future__ import annotations

import hashlib
import statistics
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiocuda as ac
from aiocuda._verbs import randomness

SEEDS = [0, 1, 20_26, 2**63, 2**64 - 1]
FLOATS = ["float64", "float32", "float16", "bfloat16"]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
ALL = 2**64 - 1


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


def host(op: Any) -> np.ndarray[Any, Any]:
    return ac.to_host(op).sync()


def philox(seed: int) -> np.random.Philox:
    return np.random.Philox(key=seed)


def bits(x: np.ndarray[Any, Any]) -> bytes:
    return x.tobytes()


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [  # the known answers of Random123, https://github.com/DEShawResearch/random123, tests/kat_vectors
        ((0, 0), (0, 0, 0, 0), (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B)),
        ((ALL,) * 2, (ALL,) * 4, (0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0)),
        (
            (0x452821E638D01377, 0xBE5466CF34E90C6C),
            (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
            (0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6),
        ),
    ],
)
def test_the_generator_gives_the_known_answers(key, counter, words):
    block = ac.kernel(
        "#include <aiocuda/philox.cuh>\n"
        'extern "C" __global__ void block(const unsigned long long* in, unsigned long long* out) {\n'
        "    const aiocuda::Philox draw(in[0], in[1], in[2], in[3], in[4], in[5]);\n"
        "    for (int i = 0; i < 4; ++i) out[i] = draw.words[i];\n"
        "}"
    )
    found = host(block(on_device(key + counter), ac.empty(4, np.uint64), grid=1, block=1))
    assert found.tolist() == list(words)


def on_device(numbers: tuple[int, ...]) -> ac.DeviceOp[ac.DeviceArray]:
    return ac.to_device(np.array(numbers, np.uint64))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", [(), 0, 1, 7, 4096, (3, 0), (5, 7, 9)], ids=str)
def test_rand_is_the_stream_of_numpys_philox(seed, dtype, shape):
    found = host(ac.rand(shape, dtype, seed=seed))
    expected = np.asarray(np.random.Generator(philox(seed)).random(shape, np.dtype(dtype)))
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert bits(found) == bits(expected)


@pytest.mark.parametrize(("dtype", "places"), [("float16", 11), ("bfloat16", 8)])
def test_narrow_floats_are_those_of_float32_rounded_down(dtype, places):
    wide = host(ac.rand(10_000, np.float32, seed=5)).astype(np.float64)
    found = host(ac.rand(10_000, dtype, seed=5))
    assert bits(found) == bits((np.floor(wide * 2**places) / 2**places).astype(dtype_of(dtype)))
    assert found.astype(np.float64).max() == 1 - 2.0**-places


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_the_upper_half_of_a_product(dtype):
    limits = np.iinfo(dtype)
    ranges = [(0, 1), (0, 3), (5, 100), (limits.min, int(limits.max) + 1), (limits.max // 2, limits.max)]
    for low, high in ranges:
        words = [int(word) for word in philox(9).random_raw(1001)]
        expected = np.array([low + (word * (high - low) >> 64) for word in words], dtype)
        assert bits(host(ac.randint(low, high, 1001, dtype, seed=9))) == bits(expected)


def test_integers_of_large_ranges_are_numpys():
    expected = np.random.Generator(philox(3)).integers(-5, 2**40, 10_000)
    assert bits(host(ac.randint(-5, 2**40, 10_000, seed=3))) == bits(expected)


def test_integers_of_one_number_begin_at_0():
    assert bits(host(ac.randint(10, shape=100, seed=1))) == bits(host(ac.randint(0, 10, 100, seed=1)))
    assert ac.randint(10).sync().shape == ()
    assert ac.randint(10).sync().dtype == np.int64


def test_randn_is_the_inverse_of_the_normal_distribution_at_the_words_of_the_stream():
    found = host(ac.randn(20_000, np.float64, seed=4))
    shares = ((philox(4).random_raw(20_000) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    inverse = statistics.NormalDist().inv_cdf  # the same algorithm, with the roundings of the machine's library
    expected = np.array([inverse(share) for share in shares])
    assert np.max(np.abs(found - expected) / np.spacing(np.abs(expected))) <= 12


# Of the least word and of others in each of the algorithm's three parts; found with the error function in 40 digits.
QUANTILES = {
    0: -8.2095361516013869,
    1 << 20: -7.4236815096522834,
    1 << 40: -5.2947040845142037,
    1 << 60: -1.5341205443525454,
    1 << 62: -0.67448975019608139,
}


def test_randn_at_the_ends_of_the_distribution():
    quantile = ac.kernel(
        "#include <aiocuda/philox.cuh>\n"
        'extern "C" __global__ void quantile(const unsigned long long* words, double* out, unsigned n) {\n'
        "    for (unsigned i = 0; i < n; ++i) out[i] = aiocuda::normal(words[i]);\n"
        "}"
    )
    both = (*QUANTILES, *(ALL - word for word in QUANTILES))
    found = host(quantile(on_device(both), ac.empty(len(both), np.float64), len(both), grid=1, block=1))
    np.testing.assert_allclose(found[:5], list(QUANTILES.values()), rtol=6e-16)
    assert found[5:].tolist() == (-found[:5]).tolist()


def test_randn_has_the_bits_that_every_driver_gives():
    digest = hashlib.sha256(bits(host(ac.randn(100_000, np.float64, seed=11)))).hexdigest()
    assert digest == "cd671596d3974b893a65abad7543469d7c6eae06aea2e04fb1cac10e08fb7aba"


@pytest.mark.parametrize("dtype", FLOATS)
def test_randn_of_every_dtype_is_the_same_rounded(dtype):
    wide = host(ac.randn((101, 3), np.float64, seed=6))
    assert bits(host(ac.randn((101, 3), dtype, seed=6))) == bits(wide.astype(dtype_of(dtype)))


def test_mean_and_variance_are_those_of_the_distributions():
    n = 1_000_000
    uniform, normal = host(ac.rand(n, seed=1)).astype(float), host(ac.randn(n, seed=2)).astype(float)
    six_sigma = 6 / np.sqrt(n)
    assert abs(uniform.mean() - 0.5) < six_sigma * np.sqrt(1 / 12)
    assert abs(normal.mean()) < six_sigma
    assert abs(normal.var() - 1) < six_sigma * np.sqrt(2)
    assert abs((normal**4).mean() - 3) < six_sigma * np.sqrt(96)


MAKERS = [
    lambda shape, seed: ac.rand(shape, np.float64, seed=seed),
    lambda shape, seed: ac.rand(shape, np.float32, seed=seed),
    lambda shape, seed: ac.randn(shape, seed=seed),
    lambda shape, seed: ac.randint(1000, shape=shape, dtype=np.int16, seed=seed),
]


@given(st.sampled_from(MAKERS), st.integers(0, ALL), st.integers(0, 100), st.integers(0, 100))
def test_an_item_depends_on_the_seed_and_its_place_alone(make, seed, n, more):
    assert bits(host(make(n, seed))) == bits(host(make(n + more, seed))[:n])
    assert bits(host(make((n, 3), seed))) == bits(host(make(3 * n, seed)))


@pytest.mark.parametrize("shape", [{"grid": 40, "block": 32}, {"grid": 3, "block": 1024}, {"threads": 1500}])
def test_an_item_does_not_depend_on_the_launch(shape):
    n = 5000
    out = ac.empty(n, np.float64)
    found = randomness._kernel()(out, n, 8, randomness._NORMAL, 0, 0, 0, **shape)
    assert bits(host(found)) == bits(host(ac.randn(n, np.float64, seed=8)))


@pytest.mark.needs_devices(2)
def test_every_device_gives_the_same():
    assert ac.rand(5, device=1).sync().device == ac.Device(1)
    for make in (ac.rand, ac.randn):
        assert bits(host(make(1000, seed=1, device=0))) == bits(host(make(1000, seed=1, device=1)))


def test_without_a_seed_they_are_others_each_time():
    drawn = [bits(host(make(8))) for make in (ac.rand, ac.randn) for _ in range(4)]
    drawn += [bits(host(ac.randint(2**62, shape=8))) for _ in range(4)]
    assert len(set(drawn)) == 12
    op = ac.rand(8)
    assert bits(host(op)) == bits(host(op))


def test_they_are_operations_like_others(run):
    async def program():
        return await ac.zip(*(ac.to_host(make((4,), ac.value(3))) for make in MAKERS))

    for found, make in zip(run(program), MAKERS, strict=True):
        assert bits(found) == bits(host(make(4, 3)))


def test_launches_of_a_graph_take_other_seeds():
    seed = ac.value(1)
    graph = ac.randn(100, seed=seed).graph(seed=seed)
    for other in (1, 2, 2**64 - 1):
        assert bits(host(graph.launch(seed=other))) == bits(host(ac.randn(100, seed=other)))


def test_a_compiled_function_takes_other_seeds():
    @ac.compile
    def noise(seed: int) -> Any:
        return ac.zip(ac.rand(5, seed=seed), ac.randint(100, shape=5, seed=seed))

    for seed in (1, 2, 3):
        uniform, integers = noise(seed).sync()
        assert bits(host(uniform)) == bits(host(ac.rand(5, seed=seed)))
        assert bits(host(integers)) == bits(host(ac.randint(100, shape=5, seed=seed)))
    assert noise.cache_info().graphs == 1


@pytest.mark.parametrize("make", [ac.rand, ac.randn, lambda shape, **other: ac.randint(5, shape=shape, **other)])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"shape": -1}, ac.ArgumentValueError, r"no negative extents; \(-1,\) was given"),
        ({"shape": (2**62, 2**62)}, ac.ArgumentValueError, "larger than any memory"),
        ({"shape": 2**80}, ac.ArgumentValueError, "larger than any memory"),
        ({"shape": 2.0}, ac.ArgumentTypeError, r"a shape is an int or a sequence of ints; 2\.0 was given"),
        ({"shape": 3, "dtype": object}, ac.ArgumentTypeError, "dtype object holds Python objects"),
        ({"shape": 3, "dtype": "complex64"}, ac.ArgumentTypeError, "makes .*; dtype complex64 was asked for"),
        ({"shape": 3, "dtype": ">f4"}, ac.ArgumentTypeError, "dtype >f4 is of a foreign byte order"),
        ({"shape": 3, "dtype": "bool"}, ac.ArgumentTypeError, "makes .*; dtype bool was asked for"),
        ({"shape": 3, "seed": -1}, ac.ArgumentRangeError, r"rand\w*: the seed is 0 or more .*; -1 was given"),
        ({"shape": 3, "seed": 2**64}, ac.ArgumentRangeError, rf"rand\w*: the seed is .*; {2**64} was given"),
        ({"shape": 3, "seed": 1.5}, ac.ArgumentTypeError, r"rand\w*: seed=1\.5: a whole number is wanted"),
        ({"shape": 3, "seed": "1"}, ac.ArgumentTypeError, r"rand\w*: seed='1': a whole number is wanted"),
        ({"shape": 3, "device": 99}, ac.ArgumentValueError, "there is no device 99"),
    ],
)
def test_what_cannot_be_is_an_error_when_it_is_built(make, arguments, error, message):
    with pytest.raises(error, match=message):
        make(**arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0,), ac.ArgumentValueError, "draws integers from 0 up to, and not including, 0"),
        ((5, 5), ac.ArgumentValueError, "draws integers from 5 up to, and not including, 5"),
        ((7, 5), ac.ArgumentValueError, "draws integers from 7 up to, and not including, 5"),
        ((-1, 5, 3, "uint8"), ac.ArgumentValueError, r"from -1 up .* dtype uint8 must hold them \(it holds 0 to 255\)"),
        ((0, 257, 3, "uint8"), ac.ArgumentValueError, r"including, 257: .* dtype uint8 must hold them \(it holds 0 to"),
        ((0, 2**63 + 1), ac.ArgumentValueError, f"including, {2**63 + 1}: .* dtype int64 must hold them"),
        ((0, 2.5), ac.ArgumentTypeError, r"between two integers; 0 and 2\.5 were given"),
        ((None, 3), ac.ArgumentTypeError, "between two integers; None and 3 were given"),
        ((0, 3, 3, "float32"), ac.ArgumentTypeError, "randint makes integers; dtype float32 was asked for"),
    ],
)
def test_ranges_that_cannot_be_are_an_error_when_it_is_built(arguments, error, message):
    with pytest.raises(error, match=message):
        ac.randint(*arguments)
