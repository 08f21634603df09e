"""Views: parts of an array that share its memory, and wait for one another only where they overlap."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiocuda as ac

INCREMENT = r"""
extern "C" __global__ void increment(int* x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1;
}
extern "C" __global__ void total(const int* x, int* out, unsigned n) {
    int sum = 0;
    for (unsigned i = 0; i < n; ++i) sum += x[i];
    *out = sum;
}
"""
increment = ac.kernel(INCREMENT, "increment")
total = ac.kernel(INCREMENT, "total")


def numbers(*shape):
    data = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    return data, ac.to_device(data).sync()


@st.composite
def shapes_and_parts(draw):
    """A shape, and an index that picks one piece of it."""
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=1, max_size=4)))
    key = []
    for extent in shape:
        if extent and draw(st.booleans()):
            key.append(draw(st.integers(-extent, extent - 1)))
        else:
            break
    if len(key) < len(shape):
        extent = shape[len(key)]
        key.append(slice(draw(st.one_of(st.none(), st.integers(-extent - 2, extent + 2))), draw(st.integers(-7, 7))))
    if draw(st.booleans()):
        key.append(...)
    return shape, tuple(key)


@given(shapes_and_parts())
def test_a_part_is_what_numpy_picks(case):
    shape, key = case
    data, array = numbers(*shape)
    part = array[key]
    assert part.shape == data[key].shape
    np.testing.assert_array_equal(ac.to_host(part).sync(), data[key])


@pytest.mark.parametrize("key", [np.s_[::-1], np.s_[:, ::-2], np.s_[3:2:-1], np.s_[::0], np.s_[0, ::0]])
def test_a_step_that_does_not_go_forward_is_an_error(key):
    _, array = numbers(4, 3)
    with pytest.raises(ac.ArgumentValueError, match="steps of 1 or more"):
        array[key]


@pytest.mark.parametrize("shape", [(12,), (3, 4), (2, 3, 2), (-1,), (6, -1), (1, 12, 1)])
def test_reshape_is_numpys(shape):
    data, array = numbers(4, 3)
    for view in (array.reshape(shape), array.reshape(*shape)):
        assert view.shape == data.reshape(shape).shape
        np.testing.assert_array_equal(ac.to_host(view).sync(), data.reshape(shape))


@pytest.mark.parametrize("shape", [(5,), (-1, -1), (-2, 6), (5, -1), ()])
def test_a_shape_of_another_size_is_an_error(shape):
    _, array = numbers(4, 3)
    with pytest.raises(ac.ArgumentValueError, match="12 items"):
        array.reshape(shape)


def test_reshaping_nothing():
    _, array = numbers(0, 3)
    assert array.reshape(3, 0).shape == (3, 0)
    with pytest.raises(ac.ArgumentValueError, match=r"has 0 items; it cannot have the shape \(0, -1\)"):
        array.reshape(0, -1)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64, np.int16, np.complex64])
def test_a_view_of_another_dtype_has_the_same_bytes(dtype):
    data, array = numbers(3, 4)
    view = array.view(dtype)
    assert view.dtype == dtype
    assert view.shape == data.view(dtype).shape
    np.testing.assert_array_equal(ac.to_host(view).sync().view(np.uint8), data.view(dtype).view(np.uint8))


def test_a_view_of_items_that_do_not_fit_is_an_error():
    _, array = numbers(4, 3)
    with pytest.raises(ac.ArgumentValueError, match="no whole number"):
        array.view(np.int64)
    with pytest.raises(ac.ArgumentValueError, match="one item of 4 bytes"):
        array[0, 0].view(np.int64)
    with pytest.raises(ac.ArgumentTypeError, match="dtype object holds Python objects"):
        array.view(object)


def test_split_at_gives_both_parts():
    data, array = numbers(5, 2)
    for index in range(6):
        head, tail = array.split_at(index)
        np.testing.assert_array_equal(ac.to_host(head).sync(), data[:index])
        np.testing.assert_array_equal(ac.to_host(tail).sync(), data[index:])
    for index in (-1, 6):
        with pytest.raises(IndexError, match="split"):
            array.split_at(index)


def test_a_kernel_writes_only_the_part_it_is_given():
    data, array = numbers(6, 4)
    increment(array[2:4], 8, threads=8).sync()
    data[2:4] += 1
    np.testing.assert_array_equal(ac.to_host(array).sync(), data)


def test_copies_between_parts():
    data, array = numbers(4, 3)
    ac.copy(array[0], array[3]).sync()
    data[0] = data[3]
    np.testing.assert_array_equal(ac.to_host(array).sync(), data)


@pytest.mark.parametrize(
    ("to", "source"), [(np.s_[0:3], np.s_[1:4]), (np.s_[1:4], np.s_[0:3]), (np.s_[2:6], np.s_[5:9])]
)
def test_copying_between_overlapping_parts_is_an_error_and_changes_nothing(to, source):
    data, array = numbers(10)
    with pytest.raises(ac.ArgumentValueError, match="overlap"):
        ac.copy(array[to], array[source]).sync()
    np.testing.assert_array_equal(ac.to_host(array).sync(), data)


def test_copying_between_parts_that_touch_and_onto_itself():
    data, array = numbers(10)
    ac.copy(array[0:5], array[5:10]).sync()
    ac.copy(array[2:4], array[2:4]).sync()
    data[0:5] = data[5:10]
    np.testing.assert_array_equal(ac.to_host(array).sync(), data)


def test_overlapping_parts_are_copied_by_way_of_a_duplicate():
    data, array = numbers(10)
    ac.copy(array[0:5], ac.dup(array[2:7])).sync()
    data[0:5] = data[2:7].copy()
    np.testing.assert_array_equal(ac.to_host(array).sync(), data)


def test_a_view_keeps_the_memory_and_outlives_the_array(used_bytes):
    before = used_bytes()
    data, array = numbers(8)
    part = array[2:4]
    array.close()
    del array
    gc.collect()
    assert used_bytes() > before
    np.testing.assert_array_equal(ac.to_host(part).sync(), data[2:4])
    del part
    gc.collect()
    assert used_bytes() == before


def test_a_closed_array_has_no_views():
    _, array = numbers(4)
    array.close()
    for asked, make in (
        ("indexing", lambda: array[0]),
        ("reshape", lambda: array.reshape(2, 2)),
        ("view", lambda: array.view(np.uint8)),
        ("split_at", lambda: array.split_at(1)),
    ):
        with pytest.raises(ac.ClosedError, match=rf"^{asked}: the array of int32\(4,\) was closed at"):
            make()


def test_views_of_page_locked_memory_are_live():
    host = ac.empty_host((4, 2), np.int32).sync()
    host.numpy()[:] = 0
    host[1].numpy()[:] = 7
    assert isinstance(host[1], ac.HostArray)
    np.testing.assert_array_equal(host.numpy(), [[0, 0], [7, 7], [0, 0], [0, 0]])


def test_only_the_part_in_use_is_refused(latch, device):
    host = ac.empty_host((2, 4), np.int32).sync()
    host.numpy()[:] = 3
    target = ac.empty(4, np.int32).sync()
    latch.hold()
    ac.copy(target, host[0]).submit()
    with pytest.raises(ac.ArgumentValueError, match="still reading"):
        host[0].numpy()
    with pytest.raises(ac.ArgumentValueError, match="still reading"):
        host.numpy()
    host[1].numpy()[:] = 9
    latch.release()
    device.synchronize().sync()
    np.testing.assert_array_equal(host.numpy(), [[3] * 4, [9] * 4])


def steps(op, kind):
    return [line for line in op.explain().splitlines() if kind in line]


def test_disjoint_parts_on_two_streams_do_not_wait(device):
    _, array = numbers(8)
    other = device.stream()
    ac.to_host(array).sync()
    op = ac.zip(increment(array[:4], 4, threads=4), increment(array[4:], 4, threads=4).on(other))
    assert len(steps(op, "launch")) == 2
    assert not steps(op, "wait for")


def test_overlapping_parts_on_two_streams_wait_once(device):
    _, array = numbers(8)
    other = device.stream()
    ac.to_host(array).sync()
    op = ac.zip(
        increment(array[:5], 5, threads=5),
        increment(array[4:], 4, threads=4).on(other),
        increment(array[:4], 4, threads=4).on(other),
    )
    assert len(steps(op, "wait for")) == 1


def test_reading_all_waits_for_every_part_that_was_written(device):
    data, array = numbers(4, 64)
    streams = [device.stream() for _ in range(4)]
    for row, stream in enumerate(streams):
        increment(array[row], 64, threads=64).on(stream).submit()
    out = total(array, ac.zeros(1, np.int32), 256, grid=1, block=1)
    assert ac.to_host(out).sync()[0] == data.sum() + 256


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 15), st.integers(1, 16), st.sampled_from(["add", "copy", "sum"])),
        max_size=25,
    )
)
def test_programs_on_parts_mean_what_they_say(program):
    """Random kernels and copies on random parts and streams, against NumPy in submission order."""
    device = ac.current_device()
    streams = [device.default_stream, *STREAMS.setdefault(device, [device.stream(), device.stream()])]
    data, array = numbers(16)
    sums, expected = [], []
    for stream, begin, length, what in program:
        end = min(16, begin + length)
        n = end - begin
        if what == "add":
            increment(array[begin:end], n, threads=n).on(streams[stream]).submit()
            data[begin:end] += 1
        elif what == "copy":
            source = (begin + 5) % (16 - n) if n < 16 else 0
            if source < end and begin < source + n:
                continue  # parts that overlap cannot be copied to one another
            ac.copy(array[begin:end], array[source : source + n]).on(streams[stream]).submit()
            data[begin:end] = data[source : source + n].copy()
        else:
            op = total(array[begin:end], ac.zeros(1, np.int32), n, grid=1, block=1).on(streams[stream])
            sums.append(ac.to_host(op))
            sums[-1].submit()
            expected.append(data[begin:end].sum())
    assert [int(s.sync()[0]) for s in sums] == expected
    np.testing.assert_array_equal(ac.to_host(array).sync(), data)


STREAMS: dict[ac.Device, list[ac.Stream]] = {}
