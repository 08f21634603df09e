"""Launch shapes: threads, grid and block, in up to three dimensions, checked before the device sees them."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aiocuda as ac

WHERE = r"""
extern "C" __global__ void where(int* out, int nx, int ny, int nz) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x < nx && y < ny && z < nz) out[(z * ny + y) * nx + x] = x + 100 * y + 10000 * z;
}
extern "C" __global__ void sizes(unsigned* out) {
    if (threadIdx.x + threadIdx.y + threadIdx.z + blockIdx.x + blockIdx.y + blockIdx.z) return;
    out[0] = gridDim.x; out[1] = gridDim.y; out[2] = gridDim.z;
    out[3] = blockDim.x; out[4] = blockDim.y; out[5] = blockDim.z;
}
extern "C" __global__ void __launch_bounds__(64) narrow(unsigned* out) { out[0] = blockDim.x; }
extern "C" __global__ void reversed(const int* x, int* y) {
    extern __shared__ int kept[];
    kept[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}
"""


NARROW = WHERE.replace("void where", "void __launch_bounds__({}) where")
WHERES = {
    "where": ac.kernel(WHERE, "where"),
    "narrow_where": ac.kernel(NARROW.replace("{}", "64"), "where"),
    "narrower_where": ac.kernel(NARROW.replace("{}", "20"), "where"),
}


def sizes(**shape: object) -> tuple[list[int], list[int]]:
    found = ac.to_host(ac.kernel(WHERE, "sizes")(ac.empty(6, np.uint32), **shape)).sync().tolist()
    return found[:3], found[3:]


@pytest.mark.parametrize("extents", [(5,), (300,), (7, 5), (33, 17), (5, 3, 2), (20, 9, 7)])
def test_every_element_has_its_thread(extents):
    nx, ny, nz = (*extents, 1, 1)[:3]
    out = ac.full(nx * ny * nz, -1, np.int32)
    found = ac.to_host(ac.kernel(WHERE, "where")(out, nx, ny, nz, threads=extents)).sync()
    z, y, x = np.indices((nz, ny, nx))
    np.testing.assert_array_equal(found.reshape(nz, ny, nx), x + 100 * y + 10000 * z)


def test_threads_as_a_number_is_one_dimension():
    assert sizes(threads=1000) == ([4, 1, 1], [256, 1, 1])


def test_threads_are_rounded_up_to_whole_blocks():
    assert sizes(threads=257, block=64) == ([5, 1, 1], [64, 1, 1])
    assert sizes(threads=(9, 9), block=(4, 2)) == ([3, 5, 1], [4, 2, 1])


@pytest.mark.parametrize(
    ("threads", "grid", "block"),
    [
        (4, [1, 1, 1], [32, 1, 1]),
        (33, [1, 1, 1], [64, 1, 1]),
        (256, [1, 1, 1], [256, 1, 1]),
        (257, [2, 1, 1], [256, 1, 1]),
        ((7, 5), [1, 1, 1], [8, 8, 1]),
        ((4, 4), [1, 1, 1], [8, 4, 1]),
        ((100, 100), [7, 7, 1], [16, 16, 1]),
        ((1000, 1), [4, 1, 1], [256, 1, 1]),
        ((1000, 3), [16, 1, 1], [64, 3, 1]),
        ((1, 1000), [1, 4, 1], [1, 256, 1]),
        ((5, 3, 2), [1, 1, 1], [8, 4, 2]),
        ((20, 9, 7), [3, 2, 2], [8, 8, 4]),
        ((1, 1, 1000), [1, 1, 16], [1, 1, 64]),
    ],
)
def test_a_block_that_is_chosen_is_whole_warps_and_no_larger_than_needed(threads, grid, block):
    assert sizes(threads=threads) == (grid, block)


@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=3), st.sampled_from(["where", "narrow_where", "narrower_where"])
)
@example([3, 3, 17], "where")  # nine threads side by side fit no whole warps with 17 behind one another
@settings(max_examples=300)
def test_chosen_blocks_cover_the_threads_and_are_whole_warps_within_the_kernels_bound(threads, name):
    """explain() writes down what would be launched, so no kernel needs to run."""
    kernel = WHERES[name]
    bound = {"where": 1024, "narrow_where": 64, "narrower_where": 20}[name]
    shown = kernel(ac.value(0).then(lambda _: None), 1, 1, 1, threads=tuple(threads)).explain()
    grid, block = (
        [int(extent) for extent in found.split("x")]
        for found in re.search(r"grid (\S+), block ([^;]+);", shown).groups()
    )
    assert all(g * b >= n for g, b, n in zip(grid, block, [*threads, 1, 1], strict=False))
    assert all((g - 1) * b < n for g, b, n in zip(grid, block, [*threads, 1, 1], strict=False))
    assert block[2] <= 64
    assert math.prod(block) <= min(bound, 256)
    assert math.prod(block) % 32 == 0 or bound < 32
    if max(math.prod(threads), 1) <= 32 <= bound and len(threads) == 1:
        assert block == [32, 1, 1]


def test_no_block_is_chosen_for_a_grid():
    with pytest.raises(ac.LaunchError, match=r"grid=\(4, 1, 1\) was given without block=.*give threads="):
        ac.kernel(WHERE, "sizes")(ac.empty(6, np.uint32), grid=4)


def test_grid_and_block_are_taken_as_given():
    assert sizes(grid=(2, 3, 4), block=(8, 4, 2)) == ([2, 3, 4], [8, 4, 2])
    assert sizes(grid=3, block=32) == ([3, 1, 1], [32, 1, 1])
    assert sizes(grid=[2], block=[1, 2]) == ([2, 1, 1], [1, 2, 1])


def test_numpy_integers_are_extents():
    assert sizes(grid=np.int64(2), block=(np.uint8(8),)) == ([2, 1, 1], [8, 1, 1])


def test_default_block_respects_launch_bounds():
    narrow = ac.kernel(WHERE, "narrow")
    assert ac.to_host(narrow(ac.zeros(1, np.uint32), threads=1000)).sync()[0] == 64
    with pytest.raises(ac.LaunchError, match="at most 64"):
        narrow(ac.zeros(1, np.uint32), threads=1000, block=128)


@pytest.mark.parametrize("threads", [0, (0, 5), (4, 0), (1, 1, 0)])
def test_no_threads_is_no_launch_and_the_array_is_as_it_was(threads):
    out = ac.full(4, 7, np.int32)
    op = ac.kernel(WHERE, "where")(out, 4, 1, 1, threads=threads)
    np.testing.assert_array_equal(ac.to_host(op).sync(), [7, 7, 7, 7])


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({}, "no launch shape"),
        ({"block": 32}, "no launch shape"),
        ({"threads": 4, "grid": 2}, "both given"),
        ({"grid": 0, "block": 1}, "no blocks"),
        ({"grid": 1, "block": 0}, "not possible"),
        ({"grid": 1, "block": 1025}, "not possible"),
        ({"grid": 1, "block": (1, 1025)}, "not possible"),
        ({"grid": 1, "block": (1, 1, 65)}, "not possible"),
        ({"grid": 1, "block": (32, 33)}, "at most 1024"),
        ({"grid": (1, 65536), "block": 1}, "too large"),
        ({"grid": (1, 1, 65536), "block": 1}, "too large"),
        ({"grid": 2**31, "block": 1}, "too large"),
        ({"threads": 2**62, "block": 1}, "too large"),
        ({"threads": -1}, "cannot be"),
        ({"threads": 2**64}, "cannot be"),
        ({"threads": ()}, "one to three"),
        ({"threads": (1, 1, 1, 1)}, "one to three"),
        ({"grid": 1, "block": 1, "shared_memory": 2**31}, "too much"),
        ({"grid": 4, "block": 1, "cluster": 3}, "does not divide"),
    ],
)
def test_shapes_that_cannot_be_are_an_error(shape, message):
    with pytest.raises(ac.LaunchError, match=message):
        ac.kernel(WHERE, "sizes")(ac.empty(6, np.uint32), **shape)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"threads": 1.5}, r"sizes: threads takes an int or a tuple of up to three, not 1\.5"),
        ({"grid": "3"}, "sizes: grid takes an int or a tuple of up to three, not '3'"),
        ({"threads": 1, "block": None}, "sizes: block takes an int or a tuple of up to three, not None"),
    ],
)
def test_extents_that_are_no_integers_are_a_type_error(shape, message):
    with pytest.raises(ac.ArgumentTypeError, match=message):
        ac.kernel(WHERE, "sizes")(ac.empty(6, np.uint32), **shape)


def test_an_unknown_keyword_is_an_error_that_names_the_known_ones():
    with pytest.raises(ac.ArgumentTypeError, match=r"'blocks'.*threads, grid, block"):
        ac.kernel(WHERE, "sizes")(ac.empty(6, np.uint32), grid=1, blocks=2)


def test_dynamic_shared_memory():
    x = np.arange(100, dtype=np.int32)
    op = ac.kernel(WHERE, "reversed")(ac.to_device(x), ac.empty(100, np.int32), grid=1, block=100, shared_memory=400)
    np.testing.assert_array_equal(ac.to_host(op).sync(), x[::-1])


def test_more_shared_memory_than_any_device_has_is_an_error_and_the_device_goes_on():
    reverse = ac.kernel(WHERE, "reversed")
    x = ac.to_device(np.arange(4, dtype=np.int32))
    op = reverse(x, ac.empty(4, np.int32), grid=1, block=4, shared_memory=2**30)
    with pytest.raises((ac.LaunchError, ac.DriverError), match="reversed"):
        op.sync()
    again = reverse(x, ac.empty(4, np.int32), grid=1, block=4, shared_memory=16)
    np.testing.assert_array_equal(ac.to_host(again).sync(), [3, 2, 1, 0])


def test_a_cooperative_launch_runs():
    assert sizes(grid=2, block=32, cooperative=True) == ([2, 1, 1], [32, 1, 1])


def test_more_cooperative_blocks_than_fit_at_once_are_an_error():
    op = ac.kernel(WHERE, "sizes")(ac.empty(6, np.uint32), grid=2**20, block=1024, cooperative=True)
    with pytest.raises(ac.LaunchError, match="cooperative"):
        op.sync()
