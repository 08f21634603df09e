"""Arrays of several lengths become one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiocuda as ac


@given(st.lists(st.lists(st.integers(-5, 5), max_size=9), min_size=1, max_size=5), st.integers(0, 5))
def test_rows_are_the_arrays_and_the_padding(given_lists: list[list[int]], value: int) -> None:
    padded, lengths = ac.pad_stack([np.array(each, np.int16) for each in given_lists], value=value)
    assert padded.dtype == np.int16
    assert lengths.tolist() == [len(each) for each in given_lists]
    longest = max(map(len, given_lists))
    assert padded.tolist() == [each + [value] * (longest - len(each)) for each in given_lists]


def test_other_axes_stay_and_dtypes_are_joined() -> None:
    padded, lengths = ac.pad_stack([np.ones((2, 3), np.float32), np.ones((1, 3), np.float64)], length=4, value=-1)
    assert (padded.shape, padded.dtype, lengths.tolist()) == ((2, 4, 3), np.float64, [2, 1])
    assert padded[1, 1:].tolist() == [[-1.0] * 3] * 3


@pytest.mark.parametrize(
    ("arrays", "options", "text"),
    [
        ([], {}, "no arrays"),
        ([np.float32(1)], {}, "one axis at least"),
        ([np.ones((1, 2)), np.ones((1, 3))], {}, "the same shape behind the first"),
        ([[1, 2, 3]], {"length": 2}, "does not fit into length=2"),
        ([[1]], {"value": 0.5}, "int64 does not hold the value 0.5"),
        ([[1]], {"value": float("nan")}, "int64 does not hold the value nan"),
        ([np.ones(1, np.uint8)], {"value": -1}, "value -1 .*uint8"),
        ([[1]], {"value": "x"}, "value 'x' is none of dtype int64"),
    ],
)
def test_what_does_not_fit_is_refused(arrays: list[object], options: dict[str, Any], text: str) -> None:
    with pytest.raises(ac.ArgumentValueError, match=text):
        ac.pad_stack(arrays, **options)


def test_buckets_hold_what_is_asked_for() -> None:
    assert [ac.bucket(n, sizes=(64, 16, 32)) for n in (0, 16, 17, 33)] == [16, 16, 32, 64]
    with pytest.raises(ac.ArgumentValueError, match="65 is more than the largest"):
        ac.bucket(65, sizes=(16, 64))
