"""Results may lie on any input, in any way: all that is read is read before the caller's arrays are written.

Always true: inputs and results are views of one array, and all of its items are compared. So a result that reaches
beyond its view is found, and so is an item behind a selection that does not keep its value.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aiocuda as ac
from aiocuda import algorithms


def bits(x, n):
    """The first bytes of an array as a mask; they are 0 and 1 where its items are."""
    return x.view(np.bool_)[:n]


def by_order(keys, *values):
    order = np.argsort(keys, kind="stable")
    return [keys[order], *(x[order] for x in values)]


def firsts(keys, *moved):
    is_first = np.r_[True, keys[1:] != keys[:-1]]
    return selected(is_first, keys, *moved)


def selected(mask, *moved):
    return [*(x[mask] for x in moved), mask.sum()]


def together(a, b, *values):
    return by_order(np.concatenate([a, b]), *([np.concatenate(values)] if values else []))


# How many inputs of n items; how many results of 2 n, n and 0 axes; the verb; what NumPy makes of the inputs.
CASES = {
    "sort": (1, "n", lambda x, out: algorithms.sort(x, out=out[0]), by_order),
    "sort with values": (2, "nn", lambda k, v, out: algorithms.sort(k, v, out=out), by_order),
    "argsort": (
        1,
        "n",
        lambda x, out: algorithms.argsort(x, out=out[0]),
        lambda x: [np.argsort(x, kind="stable")],
    ),
    "merge": (2, "2", lambda a, b, out: algorithms.merge(a, b, out=out[0]), together),
    "merge with values": (
        4,
        "22",
        lambda a, b, v, w, out: algorithms.merge(a, b, (v, w), out=out),
        together,
    ),
    "reduce": (1, "1", lambda x, out: algorithms.reduce(x, out=out[0]), lambda x: [x.sum()]),
    "argmax": (1, "1", lambda x, out: algorithms.argmax(x, out=out[0]), lambda x: [x.argmax()]),
    "scan": (1, "n", lambda x, out: algorithms.scan(x, out=out[0]), lambda x: [np.cumsum(x)]),
    "select": (
        2,
        "n1",
        lambda x, m, out: algorithms.select(x, bits(m, len(x)), out=out),
        lambda x, m: selected(bits(m, len(x)), x),
    ),
    "select by a condition": (
        1,
        "n1",
        lambda x, out: algorithms.select(x, "x % 2 == 0", out=out),
        lambda x: selected(x % 2 == 0, x),
    ),
    "unique": (1, "n1", lambda k, out: algorithms.unique(k, out=out), firsts),
    "unique with values": (2, "nn1", lambda k, v, out: algorithms.unique(k, v, out=out), firsts),
    "histogram": (
        1,
        "n",
        lambda x, out: algorithms.histogram(x, len(x), (0, 8), out=out[0]),
        lambda x: [np.histogram(x, len(x), (0, 8))[0]],
    ),
    "transform": (
        2,
        "n",
        lambda x, y, out: algorithms.transform("x - 2 * y", x=x, y=y, out=out[0]),
        lambda x, y: [x - 2 * y],
    ),
}


def place_of(random, room, size, step):
    begin = int(random.integers(room - (size - 1) * step))
    return slice(begin, begin + (size - 1) * step + 1, step)


def drawn(random, name, n):
    """Places of inputs and of results in one array: a result lies on one input, on parts of some, or on none."""
    count, results, *_ = CASES[name]
    room = 8 * n
    inputs = [place_of(random, room, n, int(random.integers(1, 4))) for _ in range(count)]
    if name == "select":
        inputs[-1] = place_of(random, room, n, 1)  # a mask is a view of bytes, which needs one piece
    if random.random() < 0.5 and count > 1:  # in line, so that a result can lie on two
        inputs[-1] = slice(inputs[0].stop - 1, inputs[0].stop - 1 + n)
        inputs[0] = slice(inputs[0].stop - 1 - n, inputs[0].stop - 1)
    if any(each.start < 0 or each.stop > room for each in inputs):
        return drawn(random, name, n)
    while True:
        outs = []
        for kind in results:
            size = {"n": n, "2": 2 * n, "1": 1}[kind]
            out = place_of(random, room, size, int(random.integers(1, 4)))
            if random.random() < 0.6:
                on = inputs[random.integers(count)]
                begin = on.start if kind != "1" else int(random.choice(np.arange(room)[on]))
                out = on if kind == "n" else slice(begin, begin + size)
            outs.append(out)
        items = [set(np.arange(room)[out].tolist()) for out in outs]
        fits = all(len(each) == {"n": n, "2": 2 * n, "1": 1}[kind] for each, kind in zip(items, results, strict=True))
        if fits and sum(map(len, items)) == len(set().union(*items)):
            return room, inputs, outs


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=100)
@given(n=st.sampled_from([1, 2, 9, 2100]), seed=st.integers(0, 2**32 - 1))
def test_results_are_right_wherever_they_lie_on_the_inputs(name, n, seed):
    random = np.random.default_rng(seed)
    _, kinds, verb, model = CASES[name]
    room, inputs, outs = drawn(random, name, n)
    whole = random.integers(2 if name == "select" else 8, size=room)
    if "merge" in name:
        whole = np.sort(random.integers(3 * n, size=room))  # any part of it is sorted
    array = ac.to_device(whole).sync()
    targets = [array[out].reshape(()) if kind == "1" else array[out] for out, kind in zip(outs, kinds, strict=True)]
    verb(*(array[each] for each in inputs), out=tuple(targets)).sync()
    for out, result in zip(outs, model(*(whole[each].copy() for each in inputs)), strict=True):
        whole[out][: np.size(result)] = result
    np.testing.assert_array_equal(ac.to_host(array).sync(), whole, err_msg=f"{inputs} {outs}")
