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
