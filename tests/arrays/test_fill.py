"""Fills of arrays that are there: NumPy's to the bit, in any strides and place, ordered like any write."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strided import PLACES, contents, numbers, shapes, views_of

import aiocuda as ac

# Items of 1 to 16 bytes, and two sizes that the device does not fill with.
DTYPES = [
    "bool",
    "int8",
    "uint16",
    "bfloat16",
    "float16",
    "int32",
    "float32",
    "int64",
    "float64",
    "complex64",
    "complex128",
]


def values_of(dtype):
    """Values that a dtype can hold: small ones, and those whose bits are easily lost."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    if kind == np.bool_:
        return st.booleans()
    if kind.kind in "iu":
        return st.integers(int(np.iinfo(kind).min), int(np.iinfo(kind).max))
    if kind.kind == "c":
        part = st.floats(width=kind.itemsize * 4)
        return st.builds(complex, part, part)
    return st.sampled_from([0.0, -0.0, 1.0, -1.5, float("inf"), float("nan")])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", DTYPES)
@given(st.data())
def test_views_are_filled_as_numpy_fills_them(place, dtype, data):
    shape = data.draw(shapes)
    expected = numbers(*shape, dtype=dtype).copy()
    array = PLACES[place](expected)
    part, view = views_of(data.draw, expected, array)
    value = data.draw(values_of(dtype))
    part[...] = np.asarray(value, expected.dtype)
    assert ac.fill(view, value).sync() is view
    assert contents(array).tobytes() == expected.tobytes()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float64", np.float64(-0.0)),
        ("float64", np.uint64(0x7FF8_0000_DEAD_BEEF).view(np.float64)),  # a NaN with something to say
        ("float64", np.uint64(0xFFF0_0000_0000_0001).view(np.float64)),  # a signalling one
        ("float32", np.uint32(0x7FC1_2345).view(np.float32)),
        ("complex128", complex(-0.0, float("nan"))),
        ("int64", -(2**63)),
        ("uint64", 2**64 - 1),
    ],
)
def test_every_bit_of_a_value_is_kept(place, dtype, value):
    array = PLACES[place](np.zeros((5, 7), dtype))
    ac.fill(array[1:4, 2:6], value).sync()
    found = contents(array)
    expected = np.zeros((5, 7), dtype)
    expected[1:4, 2:6] = np.full((), value, dtype)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", [np.dtype("f4,i2,i4"), np.dtype("S3"), np.dtype([("x", "f8", 3)])])
def test_items_of_sizes_that_no_device_fills_with(kind):
    value = np.frombuffer(bytes(range(1, 1 + kind.itemsize)), kind)[0]
    array = ac.empty((4, 3), kind).sync()
    ac.fill(array, np.zeros((), kind)[()]).sync()
    ac.fill(array[1:3, ::2], value).sync()
    expected = np.zeros((4, 3), kind)
    expected[1:3, ::2] = value
    assert contents(array).tobytes() == expected.tobytes()
    assert contents(ac.fill(ac.empty(2, kind), value).sync()).tobytes() == np.full(2, value).tobytes()


@pytest.mark.parametrize("value", [1j, 300, "x", [1, 2], None, float("nan")])
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_it_takes_and_refuses_what_full_does(dtype, value):

    def outcome(make):
        try:
            return contents(make().sync()).tobytes()
        except ac.ArgumentValueError as error:
            return str(error)

    expected = outcome(lambda: ac.full(3, value, dtype))
    assert outcome(lambda: ac.fill(ac.empty(3, dtype), value)) == expected
    assert outcome(lambda: ac.fill(ac.empty(3, dtype).sync(), value)) == expected


def test_operations_are_filled_where_they_are_used(run):
    async def program():
        made = await ac.fill(ac.empty((2, 3), np.float64), 1.5)
        known_later = ac.fill(ac.value(made).then(lambda array: array[:, 1:]), 7)
        assert (await known_later).shape == (2, 2)
        host = await ac.fill(ac.empty_host(3), -1)
        assert isinstance(host, ac.HostArray)
        return (await ac.to_host(made)).tolist(), host.numpy().tolist()

    assert run(program) == ([[1.5, 7, 7], [1.5, 7, 7]], [-1, -1, -1])


def test_a_dtype_that_is_known_only_at_submission():
    with pytest.raises(ac.ArgumentValueError, match="dtype int8"):
        ac.fill(ac.value(None).then(lambda _: ac.empty(3, np.int8)), 300).sync()
    array = ac.to_device(ac.ones(3, np.int8).then(lambda array: array))  # a device array, of whatever dtype
    assert ac.to_host(ac.fill(array, 5)).sync().tolist() == [5] * 3
    with pytest.raises(ac.ArgumentTypeError, match="fill takes"):
        ac.fill(ac.value(3), 1).sync()


@pytest.mark.parametrize("wrong", [np.zeros(3), [1.0], 3, None])
def test_only_arrays_are_filled(wrong):
    with pytest.raises(ac.ArgumentTypeError, match="fill takes a DeviceArray"):
        ac.fill(wrong, 1)


def test_what_must_not_be_written_is_not():
    array = ac.zeros(4).sync()
    shared = array.share()
    with pytest.raises(ac.OwnershipError, match=r"fill: the destination.*shared at"):
        ac.fill(shared, 1)
    shared.close()
    array = array.unwrap()
    late = ac.fill(ac.value(array), 1)
    parts = array.partition(2)
    with pytest.raises(ac.ArgumentTypeError, match="Partition"):
        ac.fill(parts, 1)
    with pytest.raises(ac.OwnershipError, match=r"fill: the destination: .* was partitioned at .*unpartition\(\)"):
        late.sync()
    array = parts.unpartition()
    assert contents(array).tolist() == [0] * 4
    array.close()
    with pytest.raises(ac.ClosedError, match=r"fill: the destination: the array of float32\(4,\) was closed at"):
        ac.fill(array, 1)


def test_a_partition_that_an_operation_yields():
    parts = ac.zeros(4).sync().partition(2)
    with pytest.raises(ac.ArgumentTypeError, match=r"fill.*Partition"):
        ac.fill(ac.value(None).then(lambda _: parts), 1).sync()


def test_it_waits_for_readers_and_writers_of_its_part_alone(device, latch, kernels, settle, run):
    array = ac.to_device(np.arange(8, dtype=np.int32)).sync()
    copies = ac.zeros(4, np.int32).sync()
    streams = device.stream(), device.stream()

    async def program():
        latch.hold(streams[0])
        held = ac.copy(copies, array[:4]).on(streams[0]).submit()
        await ac.fill(array[4:], -1).on(streams[1])  # which nobody reads
        assert not held.done()
        behind = ac.fill(array[:4], -1).on(streams[1]).submit()
        settle()
        assert not behind.done()
        latch.release()
        await behind
        return (await ac.to_host(copies)).tolist(), (await ac.to_host(array)).tolist()

    assert run(program) == ([0, 1, 2, 3], [-1] * 8)


@pytest.mark.parametrize("value", [7, 1 << 40])
def test_others_wait_for_it(value, device, latch, settle, run):
    array = ac.zeros((4, 6), np.int64).sync()
    streams = device.stream(), device.stream()

    async def program():
        latch.hold(streams[0])
        ac.fill(array[:, 2:5], value).on(streams[0]).submit()
        reading = ac.to_host(array[1]).on(streams[1]).submit()
        settle()
        assert not reading.done()
        latch.release()
        return (await reading).tolist()

    assert run(program) == [0, 0, value, value, value, 0]


@pytest.mark.parametrize("value", [7.0, -0.5, 1 / 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_in_a_graph_it_is_run_at_each_launch(dtype, value):
    x = ac.to_device(np.arange(24).reshape(4, 6).astype(dtype)).sync()
    graph = ac.fill(x[1:3, ::2], value).then(lambda _: ac.fill(x[0, 1:5], value)).graph(x=x)
    assert "fill" in graph.to_dot()
    for seed in range(3):
        data = np.random.default_rng(seed).random((4, 6)).astype(dtype)
        given = x if seed == 0 else ac.empty((4, 6), dtype).sync()
        ac.copy(given, data).sync()
        graph.launch(x=given).sync()
        expected = data.copy()
        expected[1:3, ::2] = expected[0, 1:5] = value
        assert contents(given).tobytes() == expected.tobytes()


@given(st.data(), shapes, st.sampled_from(["int16", "int32", "float64", "complex128"]), st.sampled_from(list(PLACES)))
def test_graphs_fill_views_as_numpy_fills_them(data, shape, dtype, place):
    before = numbers(*shape, dtype=dtype)
    array, expected = PLACES[place](before), before.copy()
    part, view = views_of(data.draw, expected, array)
    first, second = data.draw(st.tuples(values_of(dtype), values_of(dtype)))
    graph = ac.fill(ac.fill(view, first), second).graph()
    part[...] = np.asarray(second, expected.dtype)
    for _ in range(2):
        ac.copy(array, before).sync()
        graph.launch().sync()
        assert contents(array).tobytes() == expected.tobytes()


def test_arrays_of_a_graphs_own_are_filled_behind_those_that_use_them(kernels):
    x = ac.to_device(np.arange(8, dtype=np.int32)).sync()

    def program(start):
        made = ac.dup(start)
        return made.then(
            lambda array: ac.zip(ac.dup(array), ac.fill(array[::2], -1)).then(lambda both: (both[0], array))
        )

    before, after = program(x).graph(x=x).launch().sync()
    assert contents(before).tolist() == list(range(8))
    assert contents(after).tolist() == [-1, 1, -1, 3, -1, 5, -1, 7]


def test_page_locked_memory_in_a_graph():
    host = ac.empty_host((3, 4), np.float64).sync()
    host.numpy()[...] = 0
    graph = ac.fill(host[:, 1:3], 0.1).graph()
    for _ in range(2):
        graph.launch().sync()
        assert host.numpy().tolist() == [[0, 0.1, 0.1, 0]] * 3
        host.numpy()[...] = 0


def test_managed_memory():
    array = ac.empty((3, 4), np.float64, managed=True).sync()
    ac.fill(array, 0).sync()
    ac.fill(array[:, 1:3], 0.1).sync()
    assert array.numpy().tolist() == [[0, 0.1, 0.1, 0]] * 3


def test_explain_says_what_is_filled():
    array = ac.zeros((4, 6)).sync()
    text = ac.fill(array[1:3], 2.5).explain()
    assert "fill float32(2, 6) in device 0, 48 bytes, with 2.5" in text
    assert "test_fill.py" in text
    assert "filled" not in ac.fill(array, 1).explain()
    assert "fill" in ac.fill(ac.value(array).then(lambda x: x), 1).explain()


def test_it_is_refused_where_the_memory_is_gone(kernels):
    op = ac.fill(ac.value(ac.zeros(3).sync()), 1)
    assert op.sync() is op.sync()  # once
    assert repr(op).startswith("<DeviceOp: ")


def test_memory_that_a_fill_goes_through_is_free_behind_it(used_bytes):
    array = ac.zeros((64, 64), np.float64).sync()
    before = used_bytes()
    ac.fill(array[:, :32], 0.1).sync()
    assert used_bytes() == before


@pytest.mark.needs_devices(2)
def test_arrays_of_other_devices(device):
    x, host = ac.zeros(3, device=1).sync(), ac.empty_host(3).sync()
    ac.fill(x, 2).sync()
    with ac.use(1):
        ac.fill(host, 3).sync()
    assert contents(x).tolist() == [2] * 3
    assert host.numpy().tolist() == [3] * 3
    ac.fill(host, 4).on(1).sync()
    assert host.numpy().tolist() == [4] * 3
    with pytest.raises(ac.DeviceMismatchError, match=r"on\(\d\): a fill works on device \d"):
        ac.fill(x, 1).on(device)


@pytest.mark.parametrize(("narrow", "wide"), [(np.uint8, np.int16), (np.uint8, np.float64), (np.int32, np.float64)])
def test_items_that_lie_on_no_multiple_of_their_size(narrow, wide):
    """As those of views of another dtype may."""
    step = np.dtype(wide).itemsize // np.dtype(narrow).itemsize
    expected = np.zeros((5, step + 1), narrow)
    array = ac.zeros(expected.shape, narrow).sync()
    value = 3 if wide is np.int16 else 0.1
    ac.fill(array[1:4, 1:].view(wide), value).sync()
    expected[1:4, 1:] = np.full(1, value, wide).view(narrow)
    assert contents(array).tolist() == expected.tolist()


def test_items_that_lie_partly_upon_one_another(device):
    class Sliding:
        def __init__(self) -> None:
            self.memory = ac.zeros(16).sync()
            self.__cuda_array_interface__ = {
                "version": 3,
                "shape": (3, 4),
                "strides": (4, 4),
                "typestr": "<f4",
                "data": (self.memory.address, False),
            }

    lent = Sliding()
    windows = ac.external(lent)
    ac.fill(windows, 1).sync()  # the same items several times
    device.synchronize().sync()
    assert contents(lent.memory).tolist() == [1] * 6 + [0] * 10
    with pytest.raises(ac.ArgumentValueError, match="partly upon one another"):
        ac.fill(windows.view(np.float64), 0.1).sync()
