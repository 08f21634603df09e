"""Algorithms are operations like others: lazy, composed, in graphs, beside their arrays, and checked when built."""

from __future__ import annotations

import numpy as np
import pytest

import aiocuda as ac
from aiocuda import algorithms

X = np.array([5, 3, 3, 9, 1, 1, 1, 7], np.int32)
VALUES = np.arange(8, dtype=np.float32)
MASK = X > 2

# Each with arrays made by `make`; the expected results; where one is a tuple with a count, that many count.
ALGORITHMS = {
    "sort": (lambda make, **out: algorithms.sort(make(X), **out), [np.sort(X)]),
    "sort with values": (
        lambda make, **out: algorithms.sort(make(X), make(VALUES), **out),
        [np.sort(X), VALUES[np.argsort(X, kind="stable")]],
    ),
    "argsort": (lambda make, **out: algorithms.argsort(make(X), **out), [np.argsort(X, kind="stable")]),
    "merge": (
        lambda make, **out: algorithms.merge(make(X[:2][::-1]), make(X[2:4]), **out),
        [np.array([3, 3, 5, 9], np.int32)],
    ),
    "merge with values": (
        lambda make, **out: algorithms.merge(make(X[:1]), make(X[1:2]), (make(VALUES[:1]), make(VALUES[1:2])), **out),
        [np.array([3, 5], np.int32), np.array([1, 0], np.float32)],
    ),
    "reduce": (lambda make, **out: algorithms.reduce(make(X), **out), [np.asarray(X.sum())]),
    "argmax": (lambda make, **out: algorithms.argmax(make(X), **out), [np.asarray(3)]),
    "argmin": (lambda make, **out: algorithms.argmin(make(X), **out), [np.asarray(4)]),
    "scan": (lambda make, **out: algorithms.scan(make(X), **out), [np.cumsum(X)]),
    "select": (lambda make, **out: algorithms.select(make(X), make(MASK), **out), [X[MASK], np.asarray(5)]),
    "select by a condition": (lambda make, **out: algorithms.select(make(X), "x > 2", **out), [X[MASK], np.asarray(5)]),
    "unique": (
        lambda make, **out: algorithms.unique(make(X), **out),
        [np.array([5, 3, 9, 1, 7], np.int32), np.asarray(5)],
    ),
    "unique with values": (
        lambda make, **out: algorithms.unique(make(X), make(VALUES), **out),
        [np.array([5, 3, 9, 1, 7], np.int32), np.array([0, 1, 3, 4, 7], np.float32), np.asarray(5)],
    ),
    "histogram": (lambda make, **out: algorithms.histogram(make(X), [0, 4, 8, 12], **out), [np.array([5, 2, 1])]),
    "transform": (lambda make, **out: algorithms.transform("2 * x", x=make(X), **out), [2 * X]),
}
COUNTED = {"select", "select by a condition", "unique", "unique with values"}
every = pytest.mark.parametrize("name", ALGORITHMS)


def on_device(x):
    return ac.to_device(x).sync()


def check(name, found, expected):
    found = found if isinstance(found, tuple) else (found,)
    hosts = [np.asarray(ac.to_host(x).sync()) for x in found]
    assert len(hosts) == len(expected)
    if name in COUNTED:
        hosts = [*(x[: int(hosts[-1])] for x in hosts[:-1]), hosts[-1]]
    for host, right in zip(hosts, expected, strict=True):
        assert host.dtype == right.dtype
        np.testing.assert_array_equal(host, right)


@every
def test_operations_are_taken_where_arrays_are_and_nothing_runs_before_it_is_awaited(name, run):
    build, expected = ALGORITHMS[name]
    given = []

    def operation(x):
        given.append(ac.to_device(x.copy()))
        return given[-1]

    async def program():
        op = build(operation)
        if len(expected) > 1:
            op = ac.zip(*op)  # of which all results can be taken apart before they are there
        assert [each._state for each in given] == ["pending"] * len(given)
        return await op

    check(name, run(program), expected)


@every
def test_a_graph_has_them_and_its_launches_read_what_is_there_then(name):
    build, expected = ALGORITHMS[name]
    arrays = []

    def array(x):
        arrays.append((ac.zeros(x.shape, x.dtype).sync(), x))
        return arrays[-1][0]

    graph = build(array).graph()
    for there, x in arrays:
        ac.copy(there, x).sync()
    for _ in range(2):
        check(name, graph.launch().sync(), expected)


@every
def test_a_compiled_function_replays_them_with_other_arrays(name):
    build, expected = ALGORITHMS[name]
    given: list[np.ndarray] = []
    build(lambda x: given.append(x) or ac.to_device(x))

    def traced(*arrays):
        left = list(arrays)
        return build(lambda _: left.pop(0))

    function = ac.compile(traced)
    function(*(ac.ones(x.shape, x.dtype).sync() for x in given)).sync()
    check(name, function(*map(on_device, given)).sync(), expected)
    assert function.cache_info().graphs == 1


@pytest.mark.needs_devices(2)
@every
def test_the_results_are_beside_the_arrays(name):
    build, expected = ALGORITHMS[name]
    found = build(lambda x: ac.to_device(x, 1).sync()).sync()
    for each in found if isinstance(found, tuple) else (found,):
        assert each.device == ac.Device(1)
    check(name, found, expected)


@every
def test_they_run_on_the_stream_in_force(name):
    build, expected = ALGORITHMS[name]
    stream = ac.Device(0).stream()
    with ac.use(stream):
        op = build(on_device)
        text = op.explain()
        check(name, op.sync(), expected)
    assert "launch" in text
    assert len({line.split()[1] + line.split()[2] for line in text.splitlines() if "launch" in line}) == 1


def as_tuple(found):
    return found if isinstance(found, tuple) else (found,)


def out_of(arrays):
    return tuple(arrays) if len(arrays) > 1 else arrays[0]


@every
def test_results_go_where_out_says(name):
    """Into arrays in one piece, into strided ones, and into what operations yield."""
    build, expected = ALGORITHMS[name]
    like = [(x.shape, x.dtype) for x in as_tuple(build(on_device).sync())]
    in_one_piece = [ac.zeros(*each).sync() for each in like]
    strided = [ac.zeros((*shape, 2), dtype).sync()[..., 1] for shape, dtype in like]
    for outs in (in_one_piece, strided):
        found = build(on_device, out=out_of(outs)).sync()
        assert all(one is other for one, other in zip(as_tuple(found), outs, strict=True))
        check(name, found, expected)
    check(name, build(on_device, out=out_of([ac.zeros(*each) for each in like])).sync(), expected)


def test_out_may_be_an_argument():
    for verb, result in [
        (lambda x: algorithms.sort(x, out=x), np.sort(X)),
        (lambda x: algorithms.transform("x + 1", x=x, out=x), X + 1),
        (lambda x: algorithms.scan(x, "max", out=x), np.maximum.accumulate(X)),
    ]:
        array = on_device(X)
        assert verb(array).sync() is array
        np.testing.assert_array_equal(ac.to_host(array).sync(), result)
    array = on_device(X)
    count = ac.zeros((), np.int64).sync()
    algorithms.select(array, "x > 2", out=(array, count)).sync()
    np.testing.assert_array_equal(ac.to_host(algorithms.trim(array, count)).sync(), X[MASK])


@every
def test_an_out_that_does_not_fit_is_an_error(name):
    build, _ = ALGORITHMS[name]
    like = [(x.shape, x.dtype) for x in as_tuple(build(on_device).sync())]
    good = [ac.zeros(*each).sync() for each in like]
    for i, (shape, dtype) in enumerate(like):
        for bad, error, message in [
            (ac.zeros(shape, np.complex64).sync(), ac.ArgumentTypeError, "out is of dtype complex64"),
            (ac.zeros((*shape, 2), dtype).sync(), ac.ArgumentValueError, "out has the shape"),
            (np.zeros(shape, dtype), ac.ArgumentTypeError, "out.* is an array on a device"),
            (ac.zeros(shape, dtype).sync().share(), ac.OwnershipError, "shared"),
        ]:
            with pytest.raises(error, match=message):
                build(on_device, out=out_of([*good[:i], bad, *good[i + 1 :]]))
    if len(like) > 1:
        with pytest.raises(ac.ArgumentTypeError, match=f"tuple of {len(like)}"):
            build(on_device, out=good[0])


def test_out_may_lie_partly_on_an_argument():
    """The result is made beside it then, and copied: a kernel would read what it has written."""
    x = np.arange(5000, dtype=np.int64)
    for verb, expected in [
        (lambda a, out: algorithms.transform("x + 1", x=a[:-1], out=out[1:]), x[:-1] + 1),
        (lambda a, out: algorithms.scan(a[:-1], out=out[1:]), np.cumsum(x[:-1])),
        (lambda a, out: algorithms.sort(a[:-1], descending=True, out=out[1:]), x[-2::-1]),
    ]:
        array = on_device(x)
        verb(array, array).sync()
        np.testing.assert_array_equal(ac.to_host(array).sync()[1:], expected)
    halves = on_device(np.concatenate([x[::2], x[1::2]]))
    algorithms.merge(halves[:2500], halves[2500:], out=halves).sync()
    np.testing.assert_array_equal(ac.to_host(halves).sync(), x)


@every
def test_items_that_lie_askew_are_copied_first(name):
    """A GPU takes an address that is no multiple of an item's size for a fault."""
    build, expected = ALGORITHMS[name]

    def askew(x):
        whole = ac.zeros(x.nbytes + 1, np.uint8).sync()
        part = whole[1:].view(x.dtype)
        ac.copy(part, x).sync()
        return part

    op = build(askew)
    assert "copy" in op.explain()
    check(name, op.sync(), expected)


def test_two_results_in_one_place_are_an_error():
    x, out = on_device(VALUES), on_device(VALUES)
    with pytest.raises(ac.ArgumentValueError, match="two arrays of out share memory"):
        algorithms.sort(x, x, out=(out, out))


@every
def test_what_is_not_on_a_device_is_an_error(name):
    build, _ = ALGORITHMS[name]
    for wrong in (np.asarray, lambda x: ac.empty_host(x.shape, x.dtype).sync(), lambda _: None, lambda _: [1]):
        with pytest.raises(ac.ArgumentTypeError, match="is an array on a device"):
            build(wrong)
    with pytest.raises(ac.ArgumentTypeError, match="is an array on a device"):
        build(lambda x: ac.empty_host(x.shape, x.dtype)).sync()


@every
def test_a_closed_array_is_an_error(name):
    build, _ = ALGORITHMS[name]

    def closed(x):
        array = on_device(x)
        array.close()
        return array

    with pytest.raises(ac.ClosedError, match="was closed at"):
        build(closed)


@pytest.mark.needs_devices(2)
@pytest.mark.parametrize("name", ["sort with values", "merge", "select", "unique with values"])
def test_arrays_on_two_devices_are_an_error(name):
    build, _ = ALGORITHMS[name]
    places = iter((0, 1, 0, 1))
    with pytest.raises(ac.DeviceMismatchError, match=r"\.to\(device\)"):
        build(lambda x: ac.to_device(x, next(places)).sync())


def test_an_algorithm_waits_for_what_writes_its_array_and_later_work_waits_for_it(kernels, latch):
    """On several streams, by hazards alone."""
    x = on_device(np.arange(5000, dtype=np.int32)[::-1].copy())
    latch.hold()
    written = kernels.increment(x, 5000, threads=5000).submit()
    found = algorithms.sort(x).submit()
    rewritten = ac.fill(x, 0).submit()
    assert latch.is_holding
    latch.release()
    np.testing.assert_array_equal(ac.to_host(found.sync()).sync(), np.arange(1, 5001))
    written.sync()
    rewritten.sync()


def test_memory_of_passes_is_freed(used_bytes):
    x = ac.rand(50_000, seed=1).sync()
    before = used_bytes()
    for build, _ in ALGORITHMS.values():
        build(on_device).sync()
    algorithms.sort(x).sync()
    assert used_bytes() == before
