"""An array that is not aligned as a kernel's items need is an error before the device sees it: a GPU would be lost.

Bytes are viewed at addresses of every kind, so each test says for itself how far they are beyond a multiple.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aiocuda as ac

# Of each type: the alignment that CUDA C++ gives it ("Built-in Vector Types", CUDA C++ Programming Guide), the
# dtype of its numbers, and how many it has.
TYPES = {
    "char": (1, np.int8, 1),
    "uchar2": (2, np.uint8, 2),
    "uchar3": (1, np.uint8, 3),
    "char4": (4, np.int8, 4),
    "short": (2, np.int16, 1),
    "short3": (2, np.int16, 3),
    "ushort4": (8, np.uint16, 4),
    "int": (4, np.int32, 1),
    "int2": (8, np.int32, 2),
    "float3": (4, np.float32, 3),
    "float4": (16, np.float32, 4),
    "double": (8, np.float64, 1),
    "double2": (16, np.float64, 2),
    "longlong4": (16, np.int64, 4),
    "double4_32a": (32, np.float64, 4),
}
STRUCTS = r"""
struct Small { char a; short b; };
struct Point { char tag; float4 at; };
struct Linked { int value; Linked* next; };
struct Nested { Small each[3]; union { char c; double d; } either; };
struct __align__(32) Wide { int x; };
struct alignas(8) Asked { char c; };
struct __attribute__((aligned(16))) Attributed { char c; };
struct __attribute__((packed)) Packed { char c; double d; };
struct Derived : Point { int more; };
typedef Point Alias;
#pragma pack(push, 1)
struct Tight { char c; double d; };
#pragma pack(pop)
"""
OF_STRUCTS = {
    "Small": 2,
    "Point": 16,
    "Linked": 8,
    "Nested": 8,
    "Wide": 32,
    "Asked": 8,
    "Attributed": 16,
    "Packed": 1,
    "Derived": 4,  # at least: what it inherits is not read
    "Alias": 16,
    "Tight": 1,
}


def bytes_of(n: int = 512) -> ac.DeviceArray:
    return ac.zeros(n, np.uint8).sync()


@pytest.mark.parametrize("kind", TYPES)
def test_pointers_take_multiples_of_what_their_items_need_and_nothing_else(kind):
    alignment, dtype, width = TYPES[kind]
    take = ac.kernel(f'extern "C" __global__ void take({kind}* x) {{}}')
    memory, size = bytes_of(), 4 * width * np.dtype(dtype).itemsize
    for start in range(33):
        view = memory[start : start + size].view(dtype)
        if start % alignment:
            message = (
                rf"take: argument 1 \(x\): .* multiple of {alignment} bytes; .* begins {start % alignment} beyond .*dup"
            )
            with pytest.raises(ac.ArgumentValueError, match=message):
                take(view, grid=1, block=1)
        else:
            take(view, grid=1, block=1)


@pytest.mark.parametrize("name", OF_STRUCTS)
def test_pointers_to_structs_take_multiples_of_their_alignment(name):
    take = ac.kernel(f'{STRUCTS}extern "C" __global__ void take(const {name}* x) {{}}')
    assert take.signature.parameters[0].alignment == OF_STRUCTS[name]
    memory = bytes_of()
    take(memory[32:64], grid=1, block=1)
    if OF_STRUCTS[name] > 1:
        with pytest.raises(ac.ArgumentValueError, match=f"a multiple of {OF_STRUCTS[name]} bytes"):
            take(memory[31:64], grid=1, block=1)


def test_structures_that_are_described_have_the_alignment_of_their_numbers():
    aligned = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    for dtype, alignment in ((aligned, 8), (np.dtype([("a", "i1"), ("b", "f8")]), 1)):
        take = ac.kernel('#include "far.h"\nextern "C" __global__ void take(Far* x) {}', structures={"Far": dtype})
        assert take.signature.parameters[0].alignment == alignment


def test_void_pointers_take_any_address():
    take = ac.kernel('extern "C" __global__ void take(const void* x, unsigned char* y) { y[0] = ((const char*)x)[0]; }')
    memory = ac.to_device(np.arange(64, dtype=np.uint8)).sync()
    assert ac.to_host(take(memory[3:7].view(np.int32), ac.zeros(1, np.uint8), grid=1, block=1)).sync()[0] == 3


def test_what_an_operation_yields_is_checked_before_the_launch(kernels, run):
    memory = bytes_of(64)

    async def program():
        late = ac.value(None).then(lambda _: memory[1:33].view(np.int32))
        with pytest.raises(ac.ArgumentValueError, match=r"argument 1 \(x\).* begins 1 beyond"):
            await kernels.increment(late, 8, threads=8)
        return (await ac.to_host(kernels.increment(memory[4:36].view(np.int32), 8, threads=8))).tolist()

    assert run(program) == [1] * 8
    assert ac.to_host(memory).sync()[:4].tolist() == [0] * 4


def test_no_items_are_anywhere(kernels):
    kernels.increment(bytes_of()[1:1].view(np.int32), 0, threads=0).sync()


VIEWS = r"""
#include <aiocuda/tile.cuh>
extern "C" __global__ void rows(aiocuda::View<const int, 2> x, int* y) { y[threadIdx.x] = x(threadIdx.x, 0); }
extern "C" __global__ void tiles(aiocuda::Partition<int, 1> x) { x.tile()(threadIdx.x) = 5; }
extern "C" __global__ void vectors(aiocuda::View<const float4, 1> x) {}
"""


def test_views_are_checked_with_their_steps():
    rows = ac.kernel(VIEWS, "rows")
    table = bytes_of(60).reshape(6, 10)

    def column(start, step=1):
        return table[::step, start : start + 4].view(np.int32)

    with pytest.raises(
        ac.ArgumentValueError, match=r"begins at a multiple, and takes steps that are 2 beyond a multiple"
    ):
        rows(column(0), ac.zeros(6, np.int32), grid=1, block=6)
    with pytest.raises(ac.ArgumentValueError, match="begins 1 beyond a multiple"):
        rows(column(1, 2), ac.zeros(3, np.int32), grid=1, block=3)
    rows(column(4, 2), ac.zeros(3, np.int32), grid=1, block=3).sync()
    rows(column(4)[:1], ac.zeros(1, np.int32), grid=1, block=1).sync()  # one row, so no step is taken


def test_partitions_are_checked():
    tiles = ac.kernel(VIEWS, "tiles")
    memory = bytes_of(64)
    with pytest.raises(ac.ArgumentValueError, match=r"\(x\).* begins 2 beyond"):
        tiles(memory[2:34].view(np.int32).partition(4))
    tiles(memory[4:36].view(np.int32).partition(4)).sync()
    assert ac.to_host(memory[4:36].view(np.int32)).sync().tolist() == [5] * 8


def test_items_of_several_numbers_in_views_are_checked():
    vectors = ac.kernel(VIEWS, "vectors")
    x = ac.zeros(32).sync()
    vectors(x[4:12].reshape(2, 4), grid=1, block=1)
    with pytest.raises(ac.ArgumentValueError, match=r"a multiple of 16 bytes; .* begins 8 beyond"):
        vectors(x[2:10].reshape(2, 4), grid=1, block=1)
    with pytest.raises(ac.ArgumentValueError, match="steps that are 8 beyond"):
        vectors(x[:18].reshape(3, 6)[:, :4], grid=1, block=1)


class Lender:
    def __init__(self, array: ac.DeviceArray, beyond: int) -> None:
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": (4,), "typestr": "<i4", "data": (array.address + beyond, False), "version": 3, "stream": 1
        }  # fmt: skip


def test_memory_of_other_libraries_is_checked(kernels):
    memory = bytes_of(64)
    with pytest.raises(ac.ArgumentValueError, match="begins 3 beyond"):
        kernels.increment(ac.external(Lender(memory, 3)), 4, threads=4)
    kernels.increment(ac.external(Lender(memory, 8)), 4, threads=4).sync()
    assert ac.to_host(memory).sync()[8] == 1


def test_variables_of_modules_are_checked(kernels):
    module = ac.Module.from_source("__device__ unsigned char held[64]; __global__ void use() { held[0] = 0; }")
    held = module.variable("held")
    aligned = -held.address % 4
    kernels.increment(held[aligned : aligned + 16].view(np.int32), 4, threads=4).sync()
    with pytest.raises(ac.ArgumentValueError, match="begins 1 beyond"):
        kernels.increment(held[aligned + 1 : aligned + 17].view(np.int32), 4, threads=4)


# --- what needs no alignment of its own


@pytest.mark.parametrize("dtype", [np.int16, np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("start", range(9))
def test_fills_and_copies_take_any_address(dtype, start):
    kind = np.dtype(dtype)
    memory, value = bytes_of(8 * 16 + 16), np.array(258, kind)
    view = memory[start : start + 8 * kind.itemsize].view(kind)
    expected = np.zeros(8 * 16 + 16, np.uint8)
    ac.fill(view[::2], 258).sync()
    expected[start : start + 8 * kind.itemsize].reshape(8, kind.itemsize)[::2] = value.reshape(1).view(np.uint8)
    np.testing.assert_array_equal(ac.to_host(memory).sync(), expected)
    ac.fill(view, 258).sync()
    np.testing.assert_array_equal(ac.to_host(ac.dup(view)).sync(), np.full(8, value))


@pytest.mark.parametrize(
    ("source", "target"), [(np.float32, np.int16), (np.float64, np.float32), (np.complex64, np.complex128)]
)
def test_conversions_take_any_address(source, target):
    values = np.arange(6).astype(source)
    for start in (1, 2, 4, 8):
        memory = bytes_of(64)
        view = memory[start : start + values.nbytes].view(source)
        ac.copy(view, values).sync()
        np.testing.assert_array_equal(ac.to_host(ac.convert(view, target)).sync(), values.astype(target))
        np.testing.assert_array_equal(ac.to_host(ac.convert(view[::2], target)).sync(), values[::2].astype(target))


def test_matrix_products_take_any_address():
    memory, values = bytes_of(96), np.arange(4, dtype=np.float32).reshape(2, 2)
    left, right = (memory[start : start + 16].view(np.float32).reshape(2, 2) for start in (1, 34))
    ac.copy(left, values).sync()
    ac.copy(right, values).sync()
    np.testing.assert_array_equal(ac.to_host(ac.linalg.matmul(left, right)).sync(), values @ values)


# --- graphs

TOUCH = r"""
extern "C" __global__ void touch(int* x, int n) { int i = threadIdx.x; if (i < n) x[i] += 1; }
extern "C" __global__ void touch4(float4* x) { x->y += 1; }
"""


@pytest.fixture(scope="module")
def touch() -> dict[str, Any]:
    module = ac.Module.from_source(TOUCH)
    return {name: module.kernel(name) for name in ("touch", "touch4")}


def test_views_of_arrays_that_a_graph_makes_are_checked(touch):
    def made(start):
        return ac.zeros(64, np.uint8).then(lambda x: touch["touch"](x[start : start + 16].view(np.int32), 4, threads=4))

    with pytest.raises(ac.ArgumentValueError, match="begins 1 beyond"):
        made(1).graph()
    assert ac.to_host(made(4).graph().launch()).sync().tolist() == [1] * 4


@pytest.mark.parametrize("is_late", [False, True])
def test_what_a_launch_of_a_graph_is_given_must_be_aligned_as_its_nodes_need(touch, is_late):
    memory = ac.zeros(64).sync()
    graph = touch["touch4"](memory[:4], grid=1, block=1).graph(x=memory[:4])

    def given(start):
        view = memory[start : start + 4]
        return ac.value(None).then(lambda _: view) if is_late else view

    with pytest.raises(ac.ArgumentValueError, match=r"launch: x: .* begins 8 bytes beyond .* a multiple of 16"):
        graph.launch(x=given(6)).sync()
    graph.launch(x=given(8)).sync()
    assert ac.to_host(memory).sync().nonzero()[0].tolist() == [9]


def test_a_fill_of_a_graph_keeps_to_the_alignment_that_it_was_made_for():
    memory = bytes_of(64)
    graph = ac.fill(memory[:16].view(np.int32), 1).graph(x=memory[:16].view(np.int32))
    with pytest.raises(ac.ArgumentValueError, match=r"launch: x: .* begins 3 bytes beyond .* a multiple of 4"):
        graph.launch(x=memory[3:19].view(np.int32))
    graph.launch(x=memory[20:36].view(np.int32)).sync()
    loose = ac.fill(memory[41:57].view(np.int32), 1).graph(x=memory[41:57].view(np.int32))
    loose.launch(x=memory[2:18].view(np.int32)).sync()
    expected = np.zeros(64, np.uint8)
    expected[20:36:4] = 1
    expected[2:18:4] = 1
    np.testing.assert_array_equal(ac.to_host(memory).sync(), expected)


def test_an_update_is_checked_and_what_it_needs_counts_from_then_on(touch):
    memory = bytes_of(64)
    words = memory[:16].view(np.int32)
    graph = ac.fill(words, 1).graph(x=words)
    with pytest.raises(ac.ArgumentValueError, match="begins 2 beyond"):
        graph.update(touch["touch"](memory[2:18].view(np.int32), 4, threads=4))
    loose = memory[1:17].view(np.int32)
    graph = touch["touch"](words, 4, threads=4).graph(x=words)
    with pytest.raises(ac.ArgumentValueError, match="begins 1 bytes beyond"):
        graph.launch(x=loose)


def test_a_graph_within_a_graph_keeps_its_alignment(touch):
    memory = ac.zeros(64).sync()
    inner = touch["touch4"](memory[:4], grid=1, block=1).graph(x=memory[:4])
    outer = inner.launch(x=memory[8:12]).graph(y=memory[8:12])
    with pytest.raises(ac.ArgumentValueError, match=r"launch: y: .* begins 4 bytes beyond"):
        outer.launch(y=memory[17:21])
    outer.launch(y=memory[20:24]).sync()
    assert ac.to_host(memory).sync().nonzero()[0].tolist() == [21]


def test_a_compiled_function_gives_what_the_function_gives_at_each_address(touch):
    @ac.compile
    def second(x):
        return touch["touch4"](x[2:6], grid=1, block=1)

    memory = ac.zeros(64).sync()
    second(memory[2:10]).sync()
    for start in (0, 1, 3, 4):
        with pytest.raises(ac.ArgumentValueError, match=rf"begins {(start + 2) % 4 * 4} beyond"):
            second(memory[start : start + 8])
    second(memory[6:14]).sync()
    second(memory[2:10]).sync()
    assert second.cache_info().graphs == 1
    found = ac.to_host(memory).sync()
    assert {int(i): found[i] for i in found.nonzero()[0]} == {5: 2.0, 9: 1.0}


def test_a_compiled_function_is_traced_for_each_alignment_that_it_tells_apart():
    traced = []

    @ac.compile
    def to_shorts(x):
        traced.append(x)
        return ac.convert(x, np.int16)

    values = np.arange(4, dtype=np.float32)
    for start in (0, 4, 3, 7, 8, 1):
        memory = bytes_of(64)
        view = memory[start : start + 16].view(np.float32)
        ac.copy(view, values).sync()
        np.testing.assert_array_equal(ac.to_host(to_shorts(view)).sync(), values)
    assert len(traced) == 2
