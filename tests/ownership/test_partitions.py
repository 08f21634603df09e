"""Partitions as values and as a kernel's arguments: what goes in comes back."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import aiocuda as ac

KERNELS = r"""
#include <aiocuda/tile.cuh>
extern "C" __global__ void add(int by, aiocuda::Partition<int, 1> x) {
    auto tile = x.tile();
    for (long long i = threadIdx.x; i < tile.extent(0); i += blockDim.x) tile(i) += by;
}
extern "C" __global__ void number(aiocuda::Partition<int, 2> x) {
    auto tile = x.tile();
    for (long long i = 0; i < tile.extent(0); ++i)
        for (long long j = threadIdx.x; j < tile.extent(1); j += blockDim.x)
            tile(i, j) = (int)(blockIdx.y * gridDim.x + blockIdx.x);
}
extern "C" __global__ void move_over(aiocuda::View<const int, 1> x, aiocuda::Partition<int, 1> y,
                                     aiocuda::Partition<int, 1> z) {
    auto first = y.tile(), second = z.tile();
    for (long long i = threadIdx.x; i < first.extent(0); i += blockDim.x) {
        first(i) = x(first.origin(0) + i);
        second(i) = -x(second.origin(0) + i);
    }
}
extern "C" __global__ void by_pointer(int* x) { x[0] = 0; }
extern "C" __global__ void by_view(aiocuda::View<const int, 1> x, int* out) { *out = x(0); }
"""
add = ac.kernel(KERNELS, "add")
number = ac.kernel(KERNELS, "number")
move_over = ac.kernel(KERNELS, "move_over")
by_pointer = ac.kernel(KERNELS, "by_pointer")
by_view = ac.kernel(KERNELS, "by_view")


def contents(array):
    return ac.to_host(array).sync()


@pytest.fixture
def array():
    return ac.arange(10, dtype=np.int32).sync()


def test_a_partition_says_what_it_is(array):
    partition = array.reshape(5, 2).partition((2, np.int64(1)))
    assert isinstance(partition, ac.Partition)
    assert (partition.tile_shape, partition.shape, partition.dtype) == ((2, 1), (5, 2), np.int32)
    assert (partition.ndim, partition.size, partition.nbytes, len(partition)) == (2, 10, 40, 5)
    assert partition.device == array.device
    assert not isinstance(partition, ac.DeviceArray)
    assert repr(partition) == "<Partition int32[5, 2] in tiles of [2, 1] on device 0>"


def test_a_partition_gives_its_memory_to_kernels_alone(array):
    partition = array.partition(4)
    for use in (
        lambda p: p[0],
        lambda p: p.reshape(5, 2),
        lambda p: p.view(np.float32),
        lambda p: p.split_at(2),
        lambda p: p.address,
        np.asarray,
        ac.to_host,
        lambda p: ac.dup(p).sync(),
        lambda p: ac.copy(p, np.zeros(10, np.int32)).sync(),
    ):
        with pytest.raises(ac.ArgumentTypeError, match=r"[Pp]artition"):
            use(partition)
    with pytest.raises(ac.ArgumentTypeError, match="truth value"):
        bool(partition)


@pytest.mark.parametrize(
    ("tile", "error", "said"),
    [
        ((2, 2), ac.ArgumentValueError, r"as many axes as the array.*\(2, 2\) was given"),
        ((), ac.ArgumentValueError, "as many axes"),
        (0, ac.ArgumentValueError, "1 or more"),
        (-1, ac.ArgumentValueError, "1 or more"),
        (2**63, ac.ArgumentValueError, "larger than any memory"),
        (2.0, ac.ArgumentTypeError, "an int or a sequence of ints"),
        ("2", ac.ArgumentTypeError, "an int or a sequence of ints"),
        (None, ac.ArgumentTypeError, "an int or a sequence of ints"),
    ],
)
def test_a_tile_shape_that_cannot_be_is_an_error(array, tile, error, said):
    with pytest.raises(error, match=said):
        array.partition(tile)
    contents(array)  # and leaves the array as it was


def test_an_array_without_axes_and_a_host_array_have_no_partition(array):
    with pytest.raises(ac.ArgumentValueError, match="at least one"):
        array[0].partition(())
    with pytest.raises(ac.ArgumentTypeError, match="arrays on a device"):
        ac.empty_host(4).sync().partition(2)


@pytest.mark.parametrize("tile", [1, 3, 10, 64])
def test_a_kernel_yields_the_partition_it_was_given(array, tile):
    partition = array.partition(tile)
    assert add(5, partition, block=2).sync() is partition
    assert add(5, add(1, partition, block=2), block=2).sync() is partition
    assert partition.unpartition() is array
    np.testing.assert_array_equal(contents(array), np.arange(10) + 11)


def test_partitions_are_made_and_ended_within_a_dag():
    op = (
        ac.arange(10, dtype=np.int32)
        .then(lambda whole: add(3, whole.partition(4), block=4))
        .then(lambda partition: partition.unpartition())
    )
    np.testing.assert_array_equal(contents(op), np.arange(10) + 3)


def test_the_grid_is_the_partitions():
    array = ac.zeros((5, 7), np.int32).sync()
    number(array.partition((2, 3)), block=2).sync()
    rows, columns = np.arange(5)[:, None] // 2, np.arange(7) // 3
    np.testing.assert_array_equal(contents(array), rows * 3 + columns)


def test_a_strided_view_is_partitioned():
    array = ac.zeros((5, 7), np.int32).sync()
    number(array[1:, ::2].partition((2, 2)), block=2).sync()
    expected = np.zeros((5, 7), np.int32)
    expected[1:, ::2] = np.arange(4)[:, None] // 2 * 2 + np.arange(4) // 2
    np.testing.assert_array_equal(contents(array), expected)


def test_partitions_of_disjoint_parts_and_a_shared_array_in_one_launch():
    source = ac.arange(4, dtype=np.int32).sync()
    shared = source.share()
    array = ac.zeros(8, np.int32).sync()
    first, second = array[:4].partition(2), array[4:].partition(2)
    assert move_over(shared, first, second, block=2).sync() == (first, second)
    first.unpartition()
    del second
    np.testing.assert_array_equal(contents(array), [0, 1, 2, 3, 0, -1, -2, -3])


def test_parameters_take_partitions_or_arrays_and_say_which(array):
    with pytest.raises(ac.ArgumentTypeError, match=r"add: argument 2 \(x\): a partition.*give array.partition"):
        add(1, array, block=1)
    with pytest.raises(ac.ArgumentTypeError, match="1 axes is expected, a partition of int32"):
        add(1, array.reshape(5, 2).partition((1, 1)), block=1)
    partition = array.partition(2)
    with pytest.raises(ac.ArgumentTypeError, match=r"a partition of int32.*give the array itself"):
        by_pointer(partition, grid=1, block=1)
    with pytest.raises(ac.ArgumentTypeError, match=r"a partition of int32.*give the array itself"):
        by_view(partition, ac.zeros(1, np.int32), grid=1, block=1)


def test_an_ended_partition_is_given_to_no_kernel(array):
    partition = array.partition(2)
    op = add(1, partition, block=1)
    partition.unpartition()
    for use in (op.sync, lambda: add(1, partition, block=1)):
        with pytest.raises(ac.OwnershipError, match="was unpartitioned at"):
            use()
    np.testing.assert_array_equal(contents(array), range(10))


def test_a_partition_is_for_kernels_alone(array):
    partition = array.partition(2)
    uses = {
        "indexing": lambda: partition[0],
        "split_at": lambda: partition.split_at(1),
        "reshape": lambda: partition.reshape(5, 2),
        "view": lambda: partition.view(np.uint32),
        "transpose": partition.transpose,
    }
    for name, use in uses.items():
        with pytest.raises(ac.ArgumentTypeError, match=f"{name}: a Partition is for kernels .* unpartition"):
            use()
    partition.unpartition()
    for name, use in uses.items():
        with pytest.raises(ac.OwnershipError, match=f"{name}: .* was unpartitioned at"):
            use()


def test_a_closed_partition_lets_go_of_its_array():
    array = ac.zeros(4).sync()
    partition = array.partition(2)
    gone = weakref.ref(array)
    del array
    assert gone() is not None
    partition.close()
    assert gone() is None


def test_operations_that_use_partitions_know_who_came_before(latch, array, device):
    """The array read behind a partition's kernel on another stream has what that wrote."""
    latch.hold()
    partition = array.partition(4)
    add(1, partition, block=1).on(device.stream()).submit()
    reading = ac.to_host(partition.unpartition()).on(device.stream()).submit()
    latch.release()
    np.testing.assert_array_equal(reading.sync(), np.arange(10) + 1)


def test_a_block_ends_a_partition_whoever_holds_it(array):
    with array.partition(4) as tiles:
        kept = add(1, tiles, block=32).sync()
        with pytest.raises(ac.OwnershipError, match="partitioned"):
            ac.fill(array, 0)
        late = add(1, tiles, block=32)
    assert kept is tiles
    assert tiles.is_closed
    ac.fill(array, 5).sync()
    assert contents(array).tolist() == [5] * 10
    with pytest.raises(ac.ClosedError, match=r"add: argument 2 \(x\): the array of .* was closed at"):
        late.sync()


def test_a_block_ends_a_partition_where_it_raises_and_where_it_was_ended_before(array):
    with pytest.raises(ZeroDivisionError), array.partition(4):
        raise ZeroDivisionError
    ac.fill(array, 1).sync()
    with array.partition(4) as tiles:
        assert tiles.unpartition() is array
    ac.fill(array, 2).sync()


def test_an_array_that_a_partition_keeps_is_a_handle_that_is_left():
    array = ac.zeros(4).sync()
    empty = array[:0]
    partition = empty.partition(1)
    shared = empty.share()  # there is nothing that the partition writes
    del empty
    with pytest.raises(ac.OwnershipError, match="1 other handle of it is left"):
        shared.unwrap()
    partition.close()
    assert shared.unwrap() is shared
