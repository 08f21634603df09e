"""Kernels with views and partitions, called from Python: packing, the grid, what is checked, what comes back."""

from __future__ import annotations

from pathlib import Path

import head_permutation as heads
import numpy as np
import pytest

import aiocuda as ac

X = np.arange(np.prod(heads.SHAPE), dtype=np.float32).reshape(heads.SHAPE)

SCALE = r"""
#include <aiocuda/tile.cuh>
extern "C" __global__ void scale(float a, aiocuda::View<const float, 2> x, aiocuda::Partition<float, 2> y) {
    auto tile = y.tile();
    for (int i = threadIdx.y; i < tile.extent(0); i += blockDim.y)
        for (int j = threadIdx.x; j < tile.extent(1); j += blockDim.x)
            tile(i, j) = a * x(tile.origin(0) + i, tile.origin(1) + j);
}
"""


@pytest.fixture(scope="module")
def scale():
    return ac.kernel(SCALE)


def partition(array, *tile):
    return array.then(lambda whole: whole.partition(tile))


def test_the_head_permutation_through_a_partition(run):
    permute = ac.kernel(heads.PARTITION, heads.PARTITION_NAME)

    async def main():
        out = await ac.empty(heads.SHAPE)
        parts = out.partition(heads.TILE_SHAPE)
        done = await permute(ac.to_device(X), parts, ac.to_device(heads.inverse()), block=heads.BLOCK)
        assert done is parts
        assert parts.unpartition() is out
        return await ac.to_host(out)

    np.testing.assert_array_equal(run(main), heads.reference(X))


def test_the_wrong_index_of_the_head_permutation_ends_the_await(in_process):
    """The racing store leaves the block's tile, which is seen on the emulated driver and with the checks on."""
    done = in_process(
        f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import aiocuda as ac, head_permutation as heads, numpy as np
        permute = ac.kernel(heads.PARTITION_SWAPPED, heads.PARTITION_SWAPPED_NAME, options=["-DAIOCUDA_CHECK_BOUNDS"])
        parts = ac.empty(heads.SHAPE).sync().partition(heads.TILE_SHAPE)
        x, inverse = ac.zeros(heads.SHAPE), ac.to_device(heads.inverse())
        try:
            permute(x, parts, inverse, block=heads.BLOCK).sync()
        except ac.DeviceLostError as error:
            print("lost:", error.operation, flush=True)
        """
    )
    assert "lost: the launch of permute_heads_partition_swapped" in done.stdout, done.stderr


@pytest.mark.parametrize(("shape", "tile"), [((5, 7), (2, 3)), ((8, 8), (8, 8)), ((1, 9), (4, 4)), ((6, 4), (1, 1))])
def test_the_grid_is_a_block_for_each_tile_and_edges_are_clipped(scale, shape, tile):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    op = scale(2.0, ac.to_device(x), partition(ac.full(shape, -1.0), *tile), block=(4, 4))
    result = op.then(lambda parts: parts.unpartition())
    np.testing.assert_array_equal(ac.to_host(result).sync(), 2 * x)


EACH = r"""
#include <aiocuda/tile.cuh>
extern "C" __global__ void each2(aiocuda::View<const float, 2> x, aiocuda::Partition<float, 2> y) {
    auto tile = y.tile();
    if (tile.contains(threadIdx.y, threadIdx.x))
        tile(threadIdx.y, threadIdx.x) = 2 * x(tile.origin(0) + threadIdx.y, tile.origin(1) + threadIdx.x);
}
extern "C" __global__ void each4(aiocuda::Partition<float, 4> y) {
    auto tile = y.tile();
    int k = threadIdx.z % (int)y.tile_shape(1), h = threadIdx.z / (int)y.tile_shape(1);
    if (tile.contains(h, k, threadIdx.y, threadIdx.x)) tile(h, k, threadIdx.y, threadIdx.x) += 1;
}
extern "C" __global__ void __launch_bounds__(64) block_of(aiocuda::Partition<int, 1> y) {
    if (threadIdx.x == 0) y.tile()(0) = blockDim.x;
}
extern "C" __global__ void two(aiocuda::Partition<int, 1> a, aiocuda::Partition<int, 1> b) {
    a.tile()(threadIdx.x) += 1;
    b.tile()(threadIdx.x) += 2;
}
"""


@pytest.fixture(scope="module")
def each():
    module = ac.Module.from_source(EACH)
    return {name: module.kernel(name) for name in ("each2", "each4", "block_of", "two")}


@pytest.mark.parametrize(
    ("shape", "tile"), [((16, 16), (4, 4)), ((5, 70), (2, 33)), ((1, 9), (4, 4)), ((3, 3), (8, 128))]
)
@pytest.mark.parametrize("is_late", [False, True])
def test_without_a_block_there_is_a_thread_for_each_item_of_a_tile(each, shape, tile, is_late):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    y = ac.full(shape, -1.0)
    parts = partition(y, *tile) if is_late else y.sync().partition(tile)
    result = each["each2"](ac.to_device(x), parts).then(lambda parts: parts.unpartition())
    np.testing.assert_array_equal(ac.to_host(result).sync(), 2 * x)


def test_axes_before_the_last_two_lie_along_z(each):
    y = ac.zeros((2, 6, 3, 5)).sync()
    each["each4"](y.partition((2, 3, 2, 4))).sync()
    np.testing.assert_array_equal(ac.to_host(y).sync(), np.ones((2, 6, 3, 5)))


def test_a_grid_that_is_given_leaves_the_block_to_the_tile(each):
    parts = ac.zeros(40, np.int32).sync().partition(20)
    for given in (parts, partition(ac.zeros(40, np.int32), 20)):
        launch = each["block_of"](given, grid=2)
        done = launch.then(lambda parts: parts.unpartition())
        assert ac.to_host(done).sync()[[0, 20]].tolist() == [20, 20]


def test_a_tile_of_more_items_than_a_block_has_threads_needs_a_block(each):
    y = ac.zeros(200, np.int32).sync()
    with pytest.raises(ac.LaunchError, match=r"\(y\) has tiles of \(65, 1, 1\) items, more .* \(64, .*give block="):
        each["block_of"](y.partition(65))
    with pytest.raises(ac.LaunchError, match=r"tiles of \(65, 1, 1\) items"):
        each["block_of"](partition(ac.zeros(200, np.int32), 65)).sync()
    each["block_of"](y.partition(65), block=64).sync()
    with pytest.raises(ac.LaunchError, match=r"tiles of \(1, 1, 65\) items"):
        each["each4"](ac.zeros((1, 65, 1, 1)).sync().partition((1, 65, 1, 1)))


def test_partitions_with_other_tiles_need_a_block(each):
    def parts(n, tile):
        return ac.zeros(n, np.int32).sync().partition(tile)

    a, b = each["two"](parts(8, 2), parts(8, 2)).sync()
    assert (ac.to_host(a.unpartition()).sync().tolist(), ac.to_host(b.unpartition()).sync().tolist()) == (
        [1] * 8,
        [2] * 8,
    )
    with pytest.raises(
        ac.LaunchError, match=r"\(b\) has tiles of \(4, 1, 1\) .* another partition .*\(2, 1, 1\).*give block="
    ):
        each["two"](parts(8, 2), parts(16, 4))
    each["two"](parts(8, 2), parts(16, 4), block=2).sync()


def test_explain_says_that_a_partition_is_not_known_yet(each):
    op = each["block_of"](partition(ac.zeros(40, np.int32), 20))
    assert "grid and block of a partition that is known only at submission" in op.explain()
    assert "grid 2x1x1, block 20x1x1" in each["block_of"](ac.zeros(40, np.int32).sync().partition(20)).explain()


def test_a_view_takes_strided_arrays_and_views_of_them(scale):
    x = np.arange(200, dtype=np.float32).reshape(10, 20)
    on_device = ac.to_device(x).sync()
    y = ac.zeros((5, 4)).sync().partition((2, 2))
    scale(3.0, on_device[::2, 1:18:5], y, block=(2, 2)).sync()
    np.testing.assert_array_equal(ac.to_host(y.unpartition()).sync(), 3 * x[::2, 1:18:5])


def test_a_partition_of_a_strided_part_writes_only_that(scale):
    whole = ac.full((6, 8), -1.0).sync()
    part = whole[1:5, ::2]
    scale(1.0, ac.ones((4, 4)), part.partition((3, 3)), block=(4, 4)).sync()
    expected = np.full((6, 8), -1.0, np.float32)
    expected[1:5, ::2] = 1
    np.testing.assert_array_equal(ac.to_host(whole).sync(), expected)


def test_partitions_of_disjoint_parts_do_not_wait_for_one_another(scale, device):
    a, b = device.stream(), device.stream()
    whole = ac.zeros((8, 4)).sync()
    device.synchronize().sync()
    ops = [scale(1.0, ac.ones((4, 4)).sync(), part.partition((2, 2)), block=(2, 2)) for part in whole.split_at(4)]
    both = ac.zip(ops[0].on(a), ops[1].on(b))
    assert "wait" not in both.explain()
    both.sync()


def test_an_empty_partition_launches_nothing(scale):
    parts = ac.empty((0, 4)).sync().partition((2, 2))
    assert scale(1.0, ac.empty((0, 4)), parts).sync() is parts


def test_a_grid_that_is_given_must_be_the_partitions(scale):
    x, parts = ac.ones((4, 4)).sync(), ac.zeros((4, 4)).sync().partition((2, 2))
    scale(1.0, x, parts, grid=(2, 2), block=(2, 2)).sync()
    with pytest.raises(ac.LaunchError, match=r"\(2, 2, 1\) tiles"):
        scale(1.0, x, parts, grid=(4, 1), block=(2, 2))
    with pytest.raises(ac.LaunchError, match="leave it out"):
        scale(1.0, x, parts, threads=(4, 4))


def test_partitions_of_one_launch_have_as_many_tiles():
    two = ac.kernel(
        "#include <aiocuda/tile.cuh>\n"
        'extern "C" __global__ void two(aiocuda::Partition<int, 1> a, aiocuda::Partition<int, 1> b) {}'
    )
    a, b = ac.zeros(8, np.int32).sync().partition(2), ac.zeros(8, np.int32).sync().partition(4)
    with pytest.raises(ac.LaunchError, match="another partition"):
        two(a, b)
    late = ac.value(None).then(lambda _: b)
    with pytest.raises(ac.LaunchError, match="another partition"):
        two(a, late).sync()


def test_what_is_no_partition_or_has_other_axes_is_an_error(scale):
    x, y = ac.ones((4, 4)).sync(), ac.zeros((4, 4)).sync()
    with pytest.raises(ac.ArgumentTypeError, match=r"give array\.partition"):
        scale(1.0, x, y, block=1)
    with pytest.raises(ac.ArgumentTypeError, match="2 axes"):
        scale(1.0, x.reshape(16), y.partition((2, 2)), block=1)
    with pytest.raises(ac.ArgumentTypeError, match="float32"):
        scale(1.0, x.view(np.int32), y.partition((2, 2)), block=1)


def test_vectors_are_the_last_axis():
    vectors = ac.kernel(
        "#include <aiocuda/tile.cuh>\n"
        'extern "C" __global__ void swap(aiocuda::View<const float2, 1> x, aiocuda::Partition<float2, 1> y) {\n'
        "  auto tile = y.tile();\n"
        "  if (tile.contains(threadIdx.x)) {\n"
        "    float2 v = x(tile.origin(0) + threadIdx.x);\n"
        "    tile(threadIdx.x) = make_float2(v.y, v.x);\n"
        "  }\n"
        "}"
    )
    x = np.arange(14, dtype=np.float32).reshape(7, 2)
    y = ac.zeros((7, 2)).sync()
    vectors(ac.to_device(x), y.partition((3, 2)), block=3).sync()
    np.testing.assert_array_equal(ac.to_host(y).sync(), x[:, ::-1])
    with pytest.raises(ac.ArgumentTypeError, match="2 items in one piece"):
        vectors(ac.zeros((7, 3)), y.partition((3, 2)), block=3).sync()
