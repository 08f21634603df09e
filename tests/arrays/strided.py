"""Arrays that hold what NumPy's hold, in each place that there is, and the same random views of both."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

import aiocuda as ac

__all__ = ["PLACES", "contents", "in_page_locked", "numbers", "on_device", "shapes", "views_of"]


def on_device(data):
    return ac.to_device(data).sync()


def in_page_locked(data):
    array = ac.empty_host(data.shape, data.dtype).sync()
    array.numpy()[...] = data
    return array


PLACES = {"device": on_device, "page-locked": in_page_locked}


def numbers(*shape, dtype="int32"):
    return np.arange(math.prod(shape)).astype(np.int64).reshape(shape).astype(ac.empty(0, dtype).sync().dtype)


def contents(array):
    return ac.to_host(array).sync()


@st.composite
def indices(draw, shape):
    """A basic index of an array: integers, and slices that go forward."""
    key = []
    for extent in shape:
        if extent and draw(st.integers(0, 3)) == 0:
            key.append(draw(st.integers(-extent, extent - 1)))
        else:
            ends = st.one_of(st.none(), st.integers(-extent - 1, extent + 1))
            key.append(slice(draw(ends), draw(ends), draw(st.sampled_from([None, 1, 2, 3, 10**20]))))
    if draw(st.booleans()):
        at = draw(st.integers(0, len(key)))
        key[at : at + draw(st.integers(0, 2))] = [...]
    return tuple(key)


shapes = st.lists(st.sampled_from([0, 1, 2, 3, 5, 7]), max_size=4).map(tuple)


def views_of(draw, data, array, depth=2):
    """The same part of a NumPy array and of an array like it."""
    for _ in range(draw(st.integers(1, depth))):
        key = draw(indices(data.shape))
        array = array[key]
        data = data[key if ... in key else (*key, ...)]  # a view of one item, and no copy of it
    return data, array
