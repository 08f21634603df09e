"""``aiocuda/tile.cuh`` as compiled kernels see it: who writes what, where a tile begins and ends, strides, layout."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_launch import OnDevice, grid_of, launch, launch_compiled

import aiocuda as ac
from aiocuda._driver import compiler
from aiocuda._driver.loaded import LoadedModule

# Every block notes, in each item of its tile, its own number and one more writer; and what it knows of its tile.
MARK = r"""
#include <aiocuda/tile.cuh>
template <int N>
__global__ void mark(aiocuda::Partition<long long, N> owner, aiocuda::Partition<int, N> writers,
                     aiocuda::View<long long, 3> known) {
    const auto own = owner.tile();
    const auto written = writers.tile();
    const long long block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    long long items = 1;
    for (int axis = 0; axis < N; ++axis) items *= own.extent(axis);
    for (long long item = threadIdx.x; item < items; item += blockDim.x) {
        long long at[N], rest = item;
        for (int axis = N - 1; axis >= 0; --axis) {
            at[axis] = rest % own.extent(axis);
            rest /= own.extent(axis);
        }
        own[at] = block;
        written[at] += own.contains(at);
    }
    if (threadIdx.x == 0) {
        for (int axis = 0; axis < N; ++axis) {
            const long long all[] = {own.index(axis), own.origin(axis), own.extent(axis), own.shape(axis),
                                     owner.shape(axis), owner.tile_shape(axis)};
            for (int i = 0; i < 6; ++i) known(block, axis, i) = all[i];
        }
    }
}
"""
COPY = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <aiocuda/tile.cuh>
template <class T, int N>
__global__ void copy(aiocuda::View<const T, N> x, aiocuda::View<T, N> y) {
    long long items = 1;
    for (int axis = 0; axis < N; ++axis) items *= y.extent(axis);
    for (long long item = threadIdx.x; item < items; item += blockDim.x) {
        long long at[N], rest = item;
        for (int axis = N - 1; axis >= 0; --axis) {
            at[axis] = rest % y.extent(axis);
            rest /= y.extent(axis);
        }
        y[at] = x[at];
    }
}
"""
HERE = str(Path(__file__).parent)


def check_marks(
    shape: Sequence[int],
    tile_shape: Sequence[int],
    *,
    beyond: tuple[int, int, int] = (0, 0, 0),
    base: np.ndarray | None = None,
    part: np.ndarray | None = None,
) -> None:
    """Launch `mark` over an array, or a strided part of one, and compare with what NumPy says."""
    rank = len(shape)
    base = np.full(shape, -1, np.int64) if base is None else base
    part = base if part is None else part
    grid = tuple(max(blocks, 1) + more for blocks, more in zip(grid_of(shape, tile_shape), beyond, strict=True))
    known = np.full((math.prod(grid), rank, 6), -1, np.int64)
    with OnDevice(base) as owner, OnDevice(np.zeros(shape, np.int32)) as writers, OnDevice(known) as seen:
        launch(
            MARK,
            f"mark<{rank}>",
            owner.partition(tile_shape, part),
            writers.partition(tile_shape),
            seen.view(),
            grid=grid,
            block=(8, 1, 1),
        )
        owners, counts, geometry = owner.back(), writers.back(), seen.back()

    tiles = [-(-extent // tile) for extent, tile in zip(shape, tile_shape, strict=True)]
    blocks = {number_of_block(at, tiles, grid): at for at in np.ndindex(*tiles)}
    assert (counts == 1).all()
    expected = base.copy()
    expected_part = same_part(expected, base, part)
    for block, at in blocks.items():
        own = tuple(slice(i * tile, (i + 1) * tile) for i, tile in zip(at, tile_shape, strict=True))
        expected_part[own] = block
    np.testing.assert_array_equal(owners, expected)
    for block in range(math.prod(grid)):
        for axis, (extent, tile) in enumerate(zip(shape, tile_shape, strict=True)):
            at = blocks[block][axis] if block in blocks else 0
            own_extent = min(tile, extent - at * tile) if block in blocks else 0
            assert tuple(geometry[block, axis]) == (at, at * tile, own_extent, extent, extent, tile)


def number_of_block(at: Sequence[int], tiles: Sequence[int], grid: Sequence[int]) -> int:
    """Say which block has a tile: x counts along the last axis, y the one before, z all others, row by row."""
    z = 0
    for index, count in zip(at[:-2], tiles[:-2], strict=True):
        z = z * count + index
    y = at[-2] if len(at) > 1 else 0
    return (z * grid[1] + y) * grid[0] + at[-1]


def same_part(of: np.ndarray, base: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Take of one array what `part` is of `base`."""
    first = (part.ctypes.data - base.ctypes.data) // base.itemsize
    return np.lib.stride_tricks.as_strided(of.reshape(-1)[first:], part.shape, part.strides)


@pytest.mark.parametrize(
    ("shape", "tile_shape"),
    [
        ((10,), (4,)),
        ((3,), (8,)),
        ((8,), (4,)),
        ((5, 7), (2, 3)),
        ((4, 4), (1, 4)),
        ((3, 5, 7), (2, 2, 4)),
        ((2, 3, 4, 5), (1, 2, 4, 2)),
        ((2, 3, 2, 4, 5), (1, 2, 1, 3, 2)),
        ((2, 1, 3, 1, 2, 1, 3, 3), (1, 1, 2, 1, 1, 1, 2, 2)),
    ],
)
def test_each_item_is_written_once_by_the_block_of_its_tile(
    shape: tuple[int, ...], tile_shape: tuple[int, ...]
) -> None:
    check_marks(shape, tile_shape)


@pytest.mark.parametrize("beyond", [(2, 0, 0), (0, 3, 0), (0, 0, 4), (1, 1, 1)])
@pytest.mark.parametrize(("shape", "tile_shape"), [((5,), (2,)), ((5, 3), (2, 2)), ((3, 2, 3), (2, 1, 2))])
def test_blocks_beyond_the_tiles_get_empty_ones(shape, tile_shape, beyond) -> None:
    check_marks(shape, tile_shape, beyond=beyond)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3), (2, 0, 3, 3), (2, 3, 0, 0)])
def test_an_array_without_items_has_only_empty_tiles(shape: tuple[int, ...]) -> None:
    check_marks(shape, (2,) * len(shape), beyond=(1, 1, 1))


extents = st.lists(st.tuples(st.integers(1, 7), st.integers(1, 9)), min_size=1, max_size=4)


@given(extents, st.tuples(*[st.integers(0, 2)] * 3))
def test_any_tiling_of_any_array_covers_it_once(drawn, beyond) -> None:
    check_marks([extent for extent, _ in drawn], [tile for _, tile in drawn], beyond=beyond)


def test_partitions_of_strided_arrays_write_their_items_alone() -> None:
    base = np.arange(-400, 0, dtype=np.int64).reshape(20, 20)
    for part in (base[3:15:2, 19:2:-3], base.T[1:6, 4:], base[::-1, ::-1]):
        check_marks(part.shape, (2, 4), base=base, part=part)


STRIDED = {
    1: lambda base: base.reshape(-1)[500:3:-7],
    2: lambda base: base[0, 0, ::2, ::-1].T,
    3: lambda base: base[:, 1, 1:4, ::2].transpose(2, 0, 1),
    4: lambda base: base[::-1, :, ::3, 2:].transpose(3, 1, 0, 2),
}


@pytest.mark.parametrize("rank", STRIDED)
def test_views_follow_any_strides(rank: int) -> None:
    base = np.arange(3 * 4 * 7 * 9, dtype=np.float32).reshape(3, 4, 7, 9)
    part = STRIDED[rank](base)
    with OnDevice(base) as x, OnDevice(np.zeros(part.shape, np.float32)) as y:
        launch(COPY, f"copy<float, {rank}>", x.view(part), y.view(), block=(16, 1, 1))
        np.testing.assert_array_equal(y.back(), part)


@pytest.mark.parametrize(
    ("spelled", "dtype"),
    [
        ("bool", np.bool_),
        ("signed char", np.int8),
        ("unsigned short", np.uint16),
        ("int", np.int32),
        ("long long", np.int64),
        ("unsigned long", np.uint64),
        ("double", np.float64),
        ("__half", np.float16),
        ("__nv_bfloat16", ml_dtypes.bfloat16),
    ],
)
def test_items_may_be_of_any_built_in_type(spelled: str, dtype) -> None:
    host = np.arange(24).reshape(4, 6).astype(dtype)
    with OnDevice(host) as x, OnDevice(np.zeros((6, 4), dtype)) as y:
        launch(COPY, f"copy<{spelled}, 2>", x.view(host.T), y.view(), block=(8, 1, 1))
        np.testing.assert_array_equal(y.back(), host.T)


def test_items_may_be_vectors() -> None:
    host = np.arange(3 * 5 * 4, dtype=np.float32).reshape(3, 5, 4)
    vector = np.dtype((np.void, 16))
    with OnDevice(host) as x, OnDevice(np.zeros((5, 3, 4), np.float32)) as y:
        source, target = host.view(vector)[..., 0].T, y.host.view(vector)[..., 0]
        launch(COPY, "copy<float4, 2>", x.view(source), y.view(target), block=(8, 1, 1))
        np.testing.assert_array_equal(y.back(), host.transpose(1, 0, 2))


LAYOUT = r"""
#include <aiocuda/tile.cuh>
template <class X> constexpr bool is_plain = __is_standard_layout(X) && __is_trivially_copyable(X) && alignof(X) == 8;
template <int N>
__global__ void layout(aiocuda::View<const float, N> x, aiocuda::Partition<float, N> y,
                       aiocuda::View<long long, 2> out) {
    static_assert(is_plain<decltype(x)> && sizeof(x) == 8 + 16 * N);
    static_assert(is_plain<decltype(y)> && sizeof(y) == 8 + 24 * N);
    for (int axis = 0; axis < N; ++axis) {
        out(axis, 0) = x.extent(axis);
        out(axis, 1) = x.stride(axis);
        out(axis, 2) = y.shape(axis);
        out(axis, 3) = y.tile_shape(axis);
    }
    out(N, 0) = reinterpret_cast<long long>(x.data());
}
"""


@pytest.mark.parametrize("rank", range(1, 9))
def test_the_layout_is_what_the_host_packs(rank: int) -> None:
    shape = tuple(range(2, 2 + rank))
    tile_shape = tuple(range(1, 1 + rank))
    x_host = np.lib.stride_tricks.as_strided(np.zeros(400, np.float32), shape, tuple(range(4, 4 + 4 * rank, 4)))
    told = np.zeros((rank + 1, 4), np.int64)
    with OnDevice(np.zeros(400, np.float32)) as data, OnDevice(told) as out:
        packed = data.view(data.host)[:8] + np.array([*shape, *x_host.strides], "<i8").tobytes()
        partition = packed + np.array(tile_shape, "<i8").tobytes()
        launch(LAYOUT, f"layout<{rank}>", packed, partition, out.view())
        told = out.back()
        assert told[rank, 0] == data.address
    np.testing.assert_array_equal(told[:rank].T, [shape, x_host.strides, shape, tile_shape])


def with_body(body: str) -> str:
    return (
        "#include <aiocuda/tile.cuh>\n"
        "__global__ void k(aiocuda::View<const float, 2> x, aiocuda::Partition<float, 2> y) {\n"
        f"{body}\n"
        "}"
    )


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("y.data();", "data"),
        ("y.data_[0] = 1;", "data_"),
        ("y.tile().data();", "data"),
        ("y.tile().data_[0] = 1;", "data_"),
        ("y(0, 0) = 1;", r"operator\s?\(\)|does not provide a call|no match for call"),
        ("y[{0, 0}] = 1;", r"\[\]|subscript"),
        ("aiocuda::Tile<float, 2> tile;", "private|inaccessible"),
        ("x(0, 0) = 1;", "const|read-only|modifiable"),
        ("y.tile()(1) = 1;", "an index has one number an axis"),
        ("y.tile()[{1}] = 1;", "an index has one number an axis"),
        ("y.tile()(1, 2, 3) = 1;", "an index has one number an axis"),
        ("y.tile()(1.0f, 2) = 1;", "an index consists of integers"),
        ("aiocuda::Partition<const float, 1>* p; p->shape(0);", "read through a View"),
        ("aiocuda::Partition<float, 9>* p; p->shape(0);", "1 to 8 dimensions"),
        ("aiocuda::View<float, 0>* p; p->extent(0);", "1 to 8 dimensions"),
    ],
)
def test_what_must_not_be_written_does_not_compile(body: str, complaint: str) -> None:
    with pytest.raises(ac.CompilationError, match=complaint) as raised:
        launch(with_body(body), "k")
    assert "k.cu" in str(raised.value)


STOP = r"""
#include <aiocuda/tile.cuh>
extern "C" __global__ void stop(aiocuda::View<const float, 2> x, aiocuda::View<float, 2> w,
                                aiocuda::Partition<float, 2> y) {
    const auto tile = y.tile();
    if (blockIdx.x == 1 && blockIdx.y == 0 && threadIdx.x == 3) { STATEMENT; }
}
"""


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("tile(2, 0) = 1", "index 2 is outside axis 0 of a Tile, whose extent there is 2"),
        ("tile[{0, 1}] = 1", "index 1 is outside axis 1 of a Tile, whose extent there is 1"),
        ("tile(-1, 0) = 1", "index -1 is outside axis 0 of a Tile, whose extent there is 2"),
        ("float sum = x(0, 5); w(0, 0) = sum", "index 5 is outside axis 1 of a View, whose extent there is 5"),
        ("w[{-3, 0}] = 1", "index -3 is outside axis 0 of a View, whose extent there is 3"),
        ("w(0, 0) = tile.origin(2)", "there is no axis 2 in a Tile of 2 dimensions"),
        ("w(0, 0) = x.extent(-1)", "there is no axis -1 in a View of 2 dimensions"),
        ("w(0, 0) = y.shape(2)", "there is no axis 2 in a Partition of 2 dimensions"),
    ],
)
def test_an_index_outside_says_which_and_loses_the_device(in_process, statement: str, told: str) -> None:
    assert_stops(in_process, statement, told, ("-DAIOCUDA_CHECK_BOUNDS",))


UNCHECKED = "-UAIOCUDA_EMULATED"  # the emulated driver's compiler defines it; on a GPU this changes nothing


@pytest.mark.parametrize(
    "options",
    [
        (UNCHECKED, "-G"),
        (UNCHECKED, "-DAIOCUDA_CHECK_BOUNDS"),
        pytest.param((), marks=pytest.mark.emulated_only),
    ],
)
def test_each_way_to_check_bounds_is_enough(in_process, options: tuple[str, ...]) -> None:
    assert_stops(in_process, "tile(0, 4) = 1", "index 4 is outside axis 1 of a Tile, whose extent there is 1", options)


def test_bounds_are_checked_nowhere_else() -> None:
    source = STOP.replace("STATEMENT", "tile(0, -1) = x(-1, 5)")  # both inside their arrays' memory
    numbers = np.arange(1, 16, dtype=np.float32).reshape(3, 5)
    expected = np.zeros((3, 5), np.float32)
    expected[0, 3] = numbers[0, 0]  # the item before the tile's first; the item 5 behind the end of the row before
    with OnDevice(numbers) as x, OnDevice(np.zeros((3, 5), np.float32)) as y:
        parameters = (x.view(), x.view(), y.partition((2, 4)))
        launch(source, "stop", *parameters, grid=(2, 2, 1), block=(4, 1, 1), options=(UNCHECKED,))
        np.testing.assert_array_equal(y.back(), expected)


CONTAINS = r"""
#include <aiocuda/tile.cuh>
extern "C" __global__ void contains(aiocuda::Partition<float, 2> y, aiocuda::View<const int, 2> at,
                                    aiocuda::View<int, 1> answer) {
    const auto tile = y.tile();
    const int i = threadIdx.x;
    const long long listed[2] = {at(i, 0), at(i, 1)};
    answer(i) = tile.contains(at(i, 0), at(i, 1)) + tile.contains({at(i, 0), at(i, 1)}) + tile.contains(listed);
}
"""


def test_a_tile_contains_what_lies_between_its_first_item_and_its_edge() -> None:
    at = np.array([(i, j) for i in range(-2, 4) for j in range(-2, 6)], np.int32)
    with (
        OnDevice(np.zeros((3, 3), np.float32)) as y,
        OnDevice(at) as asked,
        OnDevice(np.zeros(len(at), np.int32)) as answer,
    ):
        launch(CONTAINS, "contains", y.partition((2, 4)), asked.view(), answer.view(), block=(len(at), 1, 1))
        inside = ((at >= 0) & (at < (2, 3))).all(axis=1)
        np.testing.assert_array_equal(answer.back(), 3 * inside)


def assert_stops(in_process, statement: str, told: str, options: tuple[str, ...]) -> None:
    done = in_process(
        f"""
        import sys
        sys.path.insert(0, {HERE!r})
        import numpy as np, aiocuda as ac
        from raw_launch import OnDevice, launch
        host = np.zeros((3, 5), np.float32)
        x, w, y = OnDevice(host), OnDevice(host), OnDevice(host)
        source = {STOP!r}.replace("STATEMENT", {statement!r})
        parameters = (x.view(), w.view(), y.partition((2, 4)))
        try:
            launch(source, "stop", *parameters, grid=(2, 2, 1), block=(4, 1, 1), options={options!r})
        except ac.DriverError as error:
            print(error.code, flush=True)
        """
    )
    lines = done.stdout.splitlines()
    assert lines[0] == f"aiocuda: {told}: block (1, 0, 0), thread (3, 0, 0)", done.stdout + done.stderr
    assert int(lines[-1]) in (715, 719)


@pytest.mark.emulated_only
@pytest.mark.parametrize("command", ["g++", "clang++", "zig"])
def test_every_compiler_of_the_emulated_driver_takes_it(in_process, command: str) -> None:
    if shutil.which(command) is None:
        pytest.skip(f"there is no {command}")
    done = in_process(
        f"""
        import sys
        sys.path.insert(0, {HERE!r})
        import test_tiles as tests
        tests.check_marks((3, 5, 7), (2, 2, 4))
        tests.check_marks((2, 3, 4, 5), (1, 2, 4, 2), beyond=(1, 0, 1))
        tests.test_the_layout_is_what_the_host_packs(8)
        print("end")
        """,
        AIOCUDA_CXX=command,
    )
    assert done.stdout.splitlines() == ["end"], done.stdout + done.stderr


ANSWER = """#include <aiocuda/answer.cuh>
template <class T> __global__ void answer(aiocuda::View<T, 1> x) { x(0) = ANSWER; }
"""


def test_an_edited_header_is_not_served_from_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes from neither cache: not from the process's own, and not, as on an NVIDIA driver, from a store that knows
    what the key tells it.
    """
    stored: dict[bytes, bytes] = {}
    monkeypatch.setattr(compiler, "_HEADERS", tmp_path)
    monkeypatch.setattr(compiler, "_disk_cache", lambda: stored)
    (tmp_path / "aiocuda").mkdir()
    tile = Path(compiler.__file__).resolve().parents[1] / "include" / "aiocuda" / "tile.cuh"
    for number in (41, 42, 41):
        text = f"#pragma once\n{tile.read_text()}\n#define ANSWER {number}\n"
        (tmp_path / "aiocuda" / "answer.cuh").write_text(text)
        image = compiler.compile_sources([compiler.Source("k.cu", ANSWER, ("answer<int>",))], (), 0)
        kernel = LoadedModule(image, 0).kernel("answer<int>")
        with OnDevice(np.zeros(1, np.int32)) as x:
            launch_compiled(kernel, x.view())
            assert x.back()[0] == number
    assert len(stored) == 2
