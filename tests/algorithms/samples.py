"""What tests of algorithms share: dtypes, sizes at the edges of blocks and tiles, and numbers with all that is odd."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import aiocuda as ac

__all__ = ["DTYPES", "FLOATS", "INTEGERS", "SIZES", "dtype_of", "keys_of", "numbers", "on_device", "same", "small"]

DTYPES = [
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float16",
    "bfloat16",
    "float32",
    "float64",
]
INTEGERS = [name for name in DTYPES if "int" in name]
FLOATS = [name for name in DTYPES if "float" in name]

# Nothing, one, around a warp, a block, a tile of a sort and of a scan, and several tiles.
SIZES = [0, 1, 2, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 2047, 2048, 2049, 5000]


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


def numbers(size: int, name: str, seed: int, *, few: bool = False) -> np.ndarray[Any, Any]:
    """Numbers of all magnitudes; a few different ones, if asked for; floats with NaN, infinities and both zeros."""
    random = np.random.default_rng(seed)
    dtype = dtype_of(name)
    if dtype.kind in "biu":
        limits = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        drawn = random.integers(*limits, size, dtype=np.uint8 if dtype.kind == "b" else dtype, endpoint=True)
        return (drawn % 5).astype(dtype) if few and dtype.kind != "b" else drawn.astype(dtype)
    drawn = random.integers(-3, 3, size).astype(float) if few else random.normal(size=size) * 100
    odd = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0])
    where = random.random(size) < 0.2
    drawn[where] = random.choice(odd, where.sum())
    return drawn.astype(dtype)


def small(size: int, name: str, seed: int) -> np.ndarray[Any, Any]:
    """Numbers whose sums are exact in any order, as far as the dtype can hold them."""
    random = np.random.default_rng(seed)
    dtype = dtype_of(name)
    if dtype.kind in "biu":
        return numbers(size, name, seed)
    return random.integers(-2, 3, size).astype(dtype)


def same(found: Any, expected: Any) -> None:
    """Compare to the bit, but for the sign and the payload of NaN; zeros of both signs are different here."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind not in "biu":
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        there = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found[there]), np.signbit(expected[there]))
        found, expected = found[there].astype(float), expected[there].astype(float)
    np.testing.assert_array_equal(found, expected)


def keys_of(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same numbers in a dtype that NumPy orders."""
    return x if x.dtype.kind in "biu" else x.astype(np.float64)


def on_device(x: np.ndarray[Any, Any], step: int) -> ac.DeviceArray:
    """The numbers in an array whose items lie so many items apart."""
    whole = np.zeros(len(x) * step, x.dtype)
    whole[::step] = x
    return ac.to_device(whole).sync()[::step]
