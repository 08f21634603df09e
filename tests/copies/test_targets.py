"""What copies are given: memory to write, memory to free, rows with a pitch; and everything that must not be copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aiocuda as ac
from aiocuda._values.host_data import cut
from aiocuda._verbs import copies

SIZES = [6, 60_000]  # read at submission, and staged


def device_array(data: Any) -> ac.DeviceArray:
    return ac.to_device(data).sync(60)


def contents(x: Any) -> np.ndarray:
    return ac.to_host(x).sync(60)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("out", [lambda n: None, lambda n: np.zeros(n), lambda n: ac.empty_host(n, np.float64).sync()])
def test_reclaim_frees_the_memory_behind_the_copy(out, n, latch, used_bytes):
    before = used_bytes()
    array = device_array(np.arange(float(n)))
    latch.hold()
    future = ac.to_host(array, out(n), reclaim=True).submit()
    assert array.is_closed
    with pytest.raises(ac.ClosedError, match=r"to_host: the array of .* was closed at"):
        ac.to_host(array)
    latch.release()
    np.testing.assert_array_equal(np.asarray(future.sync(60)), np.arange(float(n)))
    assert used_bytes() == before


@pytest.mark.parametrize("n", SIZES)
def test_reclaim_of_an_operation(n, used_bytes, kernels):
    before = used_bytes()
    op = kernels.increment(ac.to_device(np.arange(n, dtype=np.int32)), n, threads=n)
    np.testing.assert_array_equal(ac.to_host(op, reclaim=True).sync(60), np.arange(1, n + 1))
    assert op.sync().is_closed
    assert used_bytes() == before


def test_reclaim_leaves_memory_that_others_hold():
    array = device_array(np.arange(6))
    half = array[3:]
    ac.to_host(array, reclaim=True).sync(60)
    np.testing.assert_array_equal(contents(half), [3, 4, 5])


@pytest.mark.parametrize("reclaim", [False, True])
@pytest.mark.parametrize("out", [None, np.zeros(6, np.int64)])
def test_copies_go_where_they_are_put(device, latch, out, reclaim):
    array = device_array(np.arange(6))
    latch.hold()
    stream = device.stream()
    np.testing.assert_array_equal(ac.to_host(array, out, reclaim=reclaim).on(stream).sync(60), np.arange(6))
    np.testing.assert_array_equal(ac.to_host(ac.to_device(np.arange(6)).on(stream)).on(stream).sync(60), np.arange(6))
    assert latch.is_holding


def test_nothing_is_freed_before_the_operation_runs():
    array = device_array(np.arange(6))
    ac.to_host(array, reclaim=True)
    assert not array.is_closed


@pytest.mark.parametrize(
    ("shape", "dtype", "pitch"),
    [
        ((5, 7), np.float32, 512),
        ((3, 200), np.float64, 2048),
        ((2, 3, 5), np.int8, 512),
        ((4, 128), np.int32, 512),
        ((7, 100, 3), np.uint16, 1024),
        ((2, 3, 4, 5), np.float32, 512),
    ],
)
def test_rows_of_pitched_arrays_begin_at_the_pitch(shape, dtype, pitch):
    array = ac.empty(shape, dtype, pitched=True).sync(60)
    assert (array.shape, array.strides) == (shape, (pitch, *np.empty(shape, dtype).strides[1:]))
    assert array[0].is_contiguous
    assert array.address % 256 == 0


def test_rows_of_several_pitched_images():
    images = ac.empty((2 * 5, 7, 3), np.uint8, pitched=True).sync(60).reshape(2, 5, 7, 3)
    assert images.strides == (5 * 512, 512, 3, 1)
    assert images[1, 2].address - images.address == 7 * 512


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3), (5, 7, 2, 3)])
def test_copies_of_pitched_arrays_are_one_call_of_the_driver(shape):
    """As a graph's nodes are."""
    pitched, packed, host = (
        ac.empty(shape, pitched=True).sync(60),
        ac.zeros(shape).sync(60),
        ac.empty_host(shape).sync(),
    )
    other = ac.empty(shape, pitched=True).sync(60)
    for destination, source in [(pitched, packed), (pitched, host), (other, pitched), (packed, other), (host, pitched)]:
        assert ac.copy(destination, source).graph().statistics().nodes == 1


def test_pitched_arrays_of_three_byte_items_and_of_one_axis():
    triple = np.dtype([("rgb", np.uint8, 3)])
    assert ac.empty((4, 5), triple, pitched=True).sync(60).strides == (1536, 3)
    assert ac.empty(5, pitched=True).sync(60).is_contiguous
    assert ac.empty((0, 5), pitched=True).sync(60).shape == (0, 5)
    assert ac.empty((5, 0), pitched=True).sync(60).shape == (5, 0)


@pytest.mark.parametrize("shape", [(5, 7), (300, 77), (7, 5, 300)])
def test_pitched_arrays_are_copied_in_every_pair(shape):
    data = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    pitched = ac.copy(ac.empty(shape, pitched=True), data).sync(60)
    np.testing.assert_array_equal(contents(pitched), data)
    np.testing.assert_array_equal(ac.to_host(pitched, np.zeros(shape, np.float32)).sync(60), data)
    other = ac.copy(ac.empty(shape, pitched=True), pitched).sync(60)
    np.testing.assert_array_equal(contents(ac.dup(other)), data)
    np.testing.assert_array_equal(contents(ac.copy(ac.empty(shape), other)), data)
    host = ac.empty_host(shape).sync()
    np.testing.assert_array_equal(ac.copy(host, other).sync(60).numpy(), data)


def test_a_pitched_array_is_the_target_of_parts():
    pitched = ac.copy(ac.empty((4, 6), pitched=True), np.zeros((4, 6), np.float32)).sync(60)
    ac.copy(pitched[1:3, ::2], np.ones((2, 3), np.float32)).sync(60)
    expected = np.zeros((4, 6))
    expected[1:3, ::2] = 1
    np.testing.assert_array_equal(contents(pitched), expected)


# --- what must not be copied


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("source", [lambda n: device_array(np.zeros(n)), lambda n: ac.empty_host(n, np.float64).sync()])
def test_targets_that_cannot_be_written_are_an_error(source, n):
    out = np.zeros(n)
    out.flags.writeable = False
    with pytest.raises(ac.ArgumentValueError, match="is read-only; give one that can be written"):
        ac.to_host(source(n), out)
    with pytest.raises(ac.ArgumentValueError, match="read-only"):
        ac.copy(np.broadcast_to(np.zeros(1), n), source(n))


def test_a_shared_host_array_is_no_target():
    shared = ac.empty_host(6, np.float64).sync()
    kept = shared.share()
    with pytest.raises(ac.OwnershipError, match="shared"):
        ac.to_host(device_array(np.zeros(6)), shared)
    assert kept.shape == (6,)


def test_targets_with_several_items_in_one_place_are_an_error():
    out = np.lib.stride_tricks.as_strided(np.zeros(5), (3, 5), (0, 8))
    with pytest.raises(ac.ArgumentValueError, match="lie in one place"):
        ac.to_host(device_array(np.zeros((3, 5))), out)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(
    "out", [lambda n: np.zeros(n + 1), lambda n: np.zeros((n, 1)), lambda n: np.zeros(n, np.float32)]
)
def test_targets_that_do_not_match_are_an_error_and_stay_as_they_are(out, n):
    target = out(n)
    with pytest.raises(ac.ArgumentValueError, match="destination and source differ"):
        ac.to_host(device_array(np.ones(n)), target)
    with pytest.raises(ac.ArgumentValueError, match="destination and source differ"):
        ac.to_host(ac.value(0).then(lambda _: ac.to_device(np.ones(n))), target).sync(60)
    assert not target.any()


@pytest.mark.parametrize("n", SIZES)
def test_sources_that_do_not_match_are_an_error(n):
    array = device_array(np.ones(n))
    for data in (np.zeros(n - 1), np.zeros((1, n)), np.zeros(n, np.int64)):
        with pytest.raises(ac.ArgumentValueError, match="destination and source differ"):
            ac.copy(array, data)
        with pytest.raises(ac.ArgumentValueError, match="destination and source differ"):
            ac.copy(ac.empty(n, np.float64), data).sync(60)
    assert contents(array).all()


def test_copies_between_parts_that_overlap_are_an_error():
    array = device_array(np.arange(10))
    with pytest.raises(ac.ArgumentValueError, match="overlap"):
        ac.copy(array[1:], array[:-1]).sync(60)
    host = ac.empty_host(10, np.int64).sync()
    with pytest.raises(ac.ArgumentValueError, match="overlap"):
        ac.to_host(host[1:], host[:-1]).sync(60)


def test_numpys_memory_is_not_copied_to_numpys():
    with pytest.raises(ac.ArgumentTypeError, match="takes an array on a device or in page-locked memory"):
        ac.copy(np.zeros(3), np.ones(3))


@pytest.mark.parametrize("out", [[0, 0], "text", bytearray(8), 5])
def test_targets_that_are_no_arrays_are_an_error(out):
    with pytest.raises(ac.ArgumentTypeError, match="to_host writes to a NumPy array or a HostArray"):
        ac.to_host(device_array(np.zeros(2)), out)


def test_a_partition_is_not_copied():
    array = device_array(np.zeros(8))
    partition = array.partition(4)
    with pytest.raises(ac.ArgumentTypeError, match=r"copy to a NumPy array takes an array .* Partition"):
        ac.copy(np.zeros(8), partition)
    with pytest.raises(ac.ArgumentTypeError, match="unpartition"):
        ac.copy(partition, np.zeros(8)).sync(60)
    with pytest.raises(ac.OwnershipError, match="partitioned"):
        ac.to_host(array, np.zeros(8))


@pytest.mark.parametrize("n", SIZES)
def test_closed_arrays_are_an_error_before_anything_is_copied(n):
    array, out = device_array(np.ones(n)), np.zeros(n)
    early = ac.to_host(array, out), ac.copy(array, out)
    array.close()
    for use in (
        lambda: ac.to_host(array, out),
        lambda: ac.copy(array, out),
        *(lambda op=op: op.sync(60) for op in early),
    ):
        with pytest.raises(ac.ClosedError, match="closed"):
            use()
    assert not out.any()


@pytest.mark.parametrize("shape", [-1, (3, -2), (0, -1)])
def test_negative_shapes_are_an_error(shape):
    for make in (ac.empty, ac.empty_host, lambda s: ac.empty(s, pitched=True)):
        with pytest.raises(ac.ArgumentValueError, match="negative"):
            make(shape)


@pytest.mark.parametrize("shape", [2**62, (2**32, 2**32), (2**31, 2**31, 2**31), 2**70, (1, 2**62)])
def test_shapes_that_no_memory_holds_are_an_error(shape):
    for make in (ac.empty, ac.empty_host, lambda s: ac.empty(s, pitched=True)):
        with pytest.raises(ac.ArgumentValueError, match="larger than any memory"):
            make(shape)


@pytest.mark.driver_refuses("cuMemAllocFromPoolAsync")
def test_memory_that_there_is_not_is_an_error():
    with pytest.raises(ac.OutOfMemoryError, match=r"has no room for 1024\.00 TiB"):
        ac.empty(2**50, np.uint8).sync(60)


def test_data_of_a_foreign_byte_order_is_an_error_that_says_what_to_do():
    swapped = np.arange(3, dtype=np.dtype(np.int32).newbyteorder())
    for use in (ac.to_device, lambda data: ac.to_host(device_array(np.zeros(3, np.int32)), data)):
        with pytest.raises(ac.ArgumentTypeError, match="foreign byte order; convert it"):
            use(swapped)


@pytest.mark.parametrize("data", [np.array([object()]), [None, 1], np.array(["a", None], dtype=object)])
def test_python_objects_are_an_error(data):
    with pytest.raises(ac.ArgumentTypeError, match=r"(holds|makes) Python objects"):
        ac.to_device(data)
    with pytest.raises(ac.ArgumentTypeError, match="holds Python objects"):
        ac.to_host(device_array(np.zeros(1)), np.array([None]))


@pytest.mark.parametrize("shape", [0, (0, 3), (3, 0, 2), (0, 0)])
def test_arrays_without_items_are_copied_like_others(shape):
    nothing = np.empty(shape, np.int16)
    array = device_array(nothing)
    assert array.shape == nothing.shape
    assert ac.to_host(array, nothing).sync(60) is nothing
    assert ac.copy(array, nothing).sync(60) is array
    host = ac.empty_host(shape, np.int16).sync()
    assert ac.copy(host, nothing).sync(60) is host
    assert ac.copy(nothing, host).sync(60) is nothing
    assert ac.to_host(host, nothing, reclaim=True).sync(60) is nothing
    assert contents(ac.to_device(b"")).shape == (0,)


def test_arrays_without_axes_are_copied_like_others():
    out = np.zeros(())
    assert ac.to_host(ac.to_device(np.array(3.5)), out).sync(60) is out
    assert out == 3.5


@pytest.mark.parametrize("n", SIZES)
def test_a_graph_reads_host_data_when_it_is_made(n):
    data = np.arange(n)
    op = ac.to_device(data)
    graph = op.graph()
    data[:] = 0
    np.testing.assert_array_equal(contents(graph.launch()), np.arange(n))


@pytest.mark.parametrize("n", SIZES)
def test_a_graph_reads_page_locked_numpy_memory_when_it_is_made(n):
    data = contents(device_array(np.arange(n)))
    graph = ac.to_device(data).graph()
    data[:] = 0
    np.testing.assert_array_equal(contents(graph.launch()), np.arange(n))


def test_a_graph_does_not_write_numpys_memory():
    array = device_array(np.arange(6))
    with pytest.raises(ac.CaptureError, match="pageable host memory"):
        ac.to_host(array, np.zeros(6, np.int64)).graph()


@pytest.mark.parametrize("n", SIZES)
def test_explain_tells_of_the_copy_and_copies_nothing(n):
    data, out = np.arange(n), np.zeros(n, np.int64)
    text = ac.to_host(ac.to_device(data), out).explain()
    assert "host memory" in text
    assert not out.any()


# --- copies of more than the driver's queues have room for


@pytest.mark.parametrize("shape", [(700,), (7, 100), (3, 2, 301), (1, 1, 500), (2, 0, 5), ()])
@pytest.mark.parametrize("most_bytes", [8, 100, 1000, 10**6])
def test_parts_of_an_array_are_all_of_it_and_none_is_too_large(shape, most_bytes):
    seen = np.zeros(shape, np.int64)
    for part in cut(shape, seen.nbytes, most_bytes):
        assert np.asarray(seen[part]).nbytes <= max(most_bytes, 8)
        seen[part] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("layout", [lambda a: a, lambda a: np.asfortranarray(a), lambda a: a[::-1]])
def test_copies_in_parts_are_whole(layout, monkeypatch):
    monkeypatch.setattr(copies, "_MOST_BYTES", 100_000)
    data = layout(np.arange(3 * 70_000, dtype=np.int32).reshape(3, 70_000))
    there = device_array(data)
    np.testing.assert_array_equal(ac.to_host(there, np.zeros_like(data)).sync(60), data)
    assert ac.copy(there, data[::-1]).sync(60) is there
    out = layout(np.zeros(data.shape, np.int32))
    assert ac.to_host(ac.dup(there), out).sync(60) is out
    np.testing.assert_array_equal(out, data[::-1])
    np.testing.assert_array_equal(contents(ac.copy(ac.empty(data.shape, np.int32), data)), data)
