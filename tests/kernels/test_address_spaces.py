"""Kernels ask which memory a pointer leads to: constant variables, grid constants, and the other spaces."""

from __future__ import annotations

import numpy as np
import pytest

import aiocuda as ac

CONSTANT, GRID_CONSTANT, GLOBAL, LOCAL, SHARED = 1, 2, 4, 8, 16

QUESTIONS = r"""
__device__ int by_functions(const void* p) {
    return __isConstant(p) + 2 * __isGridConstant(p) + 4 * __isGlobal(p) + 8 * __isLocal(p) + 16 * __isShared(p);
}
__device__ int asked(const void* p, int space) {
    unsigned long long at = (unsigned long long)p;
    int yes = 0;
    if (space == 0) asm("{ .reg .pred q; isspacep.const q, %1; selp.s32 %0, 1, 0, q; }" : "=r"(yes) : "l"(at));
    if (space == 1) asm("{ .reg .pred q; isspacep.param q, %1; selp.s32 %0, 1, 0, q; }" : "=r"(yes) : "l"(at));
    if (space == 2) asm("{ .reg .pred q; isspacep.global q, %1; selp.s32 %0, 1, 0, q; }" : "=r"(yes) : "l"(at));
    if (space == 3) asm("{ .reg .pred q; isspacep.local q, %1; selp.s32 %0, 1, 0, q; }" : "=r"(yes) : "l"(at));
    if (space == 4) asm("{ .reg .pred q; isspacep.shared q, %1; selp.s32 %0, 1, 0, q; }" : "=r"(yes) : "l"(at));
    if (space == 5) asm("{ .reg .pred q; isspacep.param::entry q, %1; selp.s32 %0, 1, 0, q; }" : "=r"(yes) : "l"(at));
    return yes;
}
__device__ int by_assembly(const void* p) {
    int spaces = 0;
    for (int i = 0; i < 5; ++i) spaces += asked(p, i) << i;
    return spaces + (asked(p, 5) != asked(p, 1) ? 1000 : 0);
}
"""

VARIABLES = r"""
struct Pair { int a, b; };
__constant__ int array[4] = {1};
__constant__ Pair pair;
__device__ __constant__ float both[2];
__constant__ const int fixed[3] = {1, 2, 3};
static __constant__ int one, *pointer, several[3] = {1, 2, 3};
__constant__ struct { int a; } unnamed_type = {4};
__constant__ int (*to_array)[3];
__constant__ alignas(16) int aligned = 3;
__constant__ constexpr int known = 3;
__constant__ volatile int changing;
namespace outer {
namespace { __constant__ int hidden = 2; }
namespace inner { __constant__ int braced{3}, list[2]{1, 2}; template <class T> __constant__ T of_type; }
}
template <class T> __constant__ T of_type;
template <> __constant__ int of_type<int> = 3;
__device__ int global[2];
template <class T> __device__ T global_of_type;
template <class T> __device__ const T* in_template() { static __constant__ T kept[2] = {1, 2}; return kept; }
__device__ const int* in_function() {
    static const __constant__ int first = 1, kept[2] = {1, 2};
    return kept + first - 1;
}
"""

PLACES = {
    "array": CONSTANT,
    "array + 3": CONSTANT,
    "&pair.b": CONSTANT,
    "both + 1": CONSTANT,
    "fixed + 2": CONSTANT,
    "&one": CONSTANT,
    "&pointer": CONSTANT,
    "several + 1": CONSTANT,
    "&unnamed_type": CONSTANT,
    "&to_array": CONSTANT,
    "&aligned": CONSTANT,
    "&known": CONSTANT,
    "(void*)&changing": CONSTANT,
    "&outer::hidden": CONSTANT,
    "&outer::inner::braced": CONSTANT,
    "outer::inner::list + 1": CONSTANT,
    "&outer::inner::of_type<int>": CONSTANT,
    "&of_type<float>": CONSTANT,
    "&of_type<int>": CONSTANT,
    "in_template<int>()": CONSTANT,
    "in_template<float>() + 1": CONSTANT,
    "in_function()": CONSTANT,
    "global": GLOBAL,
    "&global_of_type<int>": GLOBAL,
    "&large": GLOBAL | GRID_CONSTANT,
    "&large.values[99]": GLOBAL | GRID_CONSTANT,
    "&number": GLOBAL | GRID_CONSTANT,
    "&copied": LOCAL,
    "out": GLOBAL,
    "(void*)0": GLOBAL,
    "&shared": SHARED,
    "&own": LOCAL,
}

LARGE = np.dtype([("values", np.int32, 100)])


def large(first: int) -> np.void:
    return np.arange(first, first + 100, dtype=np.int32).view(LARGE)[0]


@pytest.mark.parametrize("question", ["by_functions", "by_assembly"])
@pytest.mark.parametrize("barrier", ["", "__syncthreads();"])
def test_a_pointer_tells_which_memory_it_leads_to(question, barrier):
    source = (
        QUESTIONS
        + VARIABLES
        + r"""
struct Large { int values[100]; };
extern "C" __global__ void ask(const __grid_constant__ Large large, const int __grid_constant__ number, Large copied,
                               int* out) {
    __shared__ int shared;
    int own = copied.values[0];
    const void* places[] = {"""
        + ", ".join(PLACES)
        + "};\n"
        + barrier
        + f"for (int i = 0; i < {len(PLACES)}; ++i) out[i] = {question}(places[i]);\n"
        + "}"
    )
    out = ac.zeros(len(PLACES), np.int32).sync()
    op = ac.kernel(source)(large(0), 7, large(0), out, grid=1, block=1)
    assert dict(zip(PLACES, ac.to_host(op).sync().tolist(), strict=True)) == PLACES


ONE_FOR_ALL = r"""
struct Large { int values[100]; };
template <class P>
__global__ void look(const __grid_constant__ P large, unsigned long long* places, int* seen,
                     __grid_constant__ const int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        BARRIER
        places[i] = (unsigned long long)&large;
        const P* there = &large;
        seen[i] = there->values[i % 100] + (&n)[0];
    }
}
"""


@pytest.mark.parametrize("barrier", ["", "__syncwarp();"])
def test_a_grid_constant_is_one_for_all_threads(barrier):
    look = ac.kernel(ONE_FOR_ALL.replace("BARRIER", barrier), "look<Large>")
    for first in (0, 1000):
        places, seen = ac.zeros(512, np.uint64).sync(), ac.zeros(512, np.int32).sync()
        look(large(first), places, seen, 512, grid=8, block=64).sync()
        assert len(set(ac.to_host(places).sync().tolist())) == 1
        np.testing.assert_array_equal(ac.to_host(seen).sync(), first + 512 + np.arange(512) % 100)


PACKS = r"""
struct Large { int values[100]; };
struct Small { char values[3]; };
template <class... T>
__global__ void look(int* seen, const __grid_constant__ int n, unsigned long long* places,
                     const __grid_constant__ T... packed);
template <class... T>
__global__ void look(int* seen, const __grid_constant__ int n, unsigned long long* places,
                     const __grid_constant__ T... packed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    BARRIER
    const void* at[] = {&packed..., &n};
    for (int k = 0; k < 3; ++k) places[3 * i + k] = (unsigned long long)at[k];
    seen[i] = (0 + ... + packed.values[i % 3]) + n + 1000 * (0 + ... + __isGridConstant(&packed));
}
template __global__ void look<Small, Small>(int*, const __grid_constant__ int, unsigned long long*,
                                            const __grid_constant__ Small, const __grid_constant__ Small b);
template <> __global__ void look<Small>(int* seen, const __grid_constant__ int n, unsigned long long*,
                                        const __grid_constant__ Small small) { *seen = small.values[n]; }
"""


@pytest.mark.parametrize("barrier", ["", "__syncwarp();"])
def test_grid_constants_of_a_pack_are_one_for_all_threads(barrier):
    small = np.array(([97, 98, 99],), np.dtype([("values", np.int8, 3)]))[()]
    source = PACKS.replace("BARRIER", barrier)
    places, seen = ac.zeros(3 * 512, np.uint64).sync(), ac.zeros(512, np.int32).sync()
    ac.kernel(source, "look<Large, Small>")(seen, 7, places, large(10), small, grid=8, block=64).sync()
    assert len(set(map(tuple, ac.to_host(places).sync().reshape(512, 3).tolist()))) == 1
    thread = np.arange(512) % 3
    np.testing.assert_array_equal(ac.to_host(seen).sync(), 10 + thread + ord("a") + thread + 7 + 2000)
    ac.kernel(source, "look<Small, Small>")(seen, 0, places, small, small, grid=8, block=64).sync()
    np.testing.assert_array_equal(ac.to_host(seen).sync(), 2 * (ord("a") + thread) + 2000)
    ac.kernel(source, "look<Small>")(seen, 1, places, small, grid=1, block=1).sync()
    assert ac.to_host(seen).sync()[0] == ord("b")


def test_the_declared_type_of_a_grid_constant_is_that_of_its_parameter():
    tell = ac.kernel(r"""
template <class T, class U> constexpr bool same = false;
template <class T> constexpr bool same<T, T> = true;
struct P { int a; };
__global__ void tell(const __grid_constant__ P p, const __grid_constant__ int n, int* out) {
    const P* there = &p;
    out[0] = same<decltype(p), const P> && same<decltype((p)), const P&> && same<decltype(p.a), int>;
    out[1] = same<decltype(n), const int>;
    { float n = 0; out[2] = same<decltype(n), float> && n == 0; }
    decltype(p) again = p;
    out[3] = there->a + again.a;
}""")
    given = np.array((4,), np.dtype([("a", np.int32)]))[()]
    assert ac.to_host(tell(given, 1, ac.zeros(4, np.int32), grid=1, block=1)).sync().tolist() == [1, 1, 1, 8]


def test_a_kernel_that_was_split_at_its_barriers_has_grid_constants():
    turn = ac.kernel(r"""
struct Large { int values[100]; };
__global__ void turn(const __grid_constant__ Large large, int* y) {
    __shared__ int kept[64];
    kept[threadIdx.x] = large.values[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = kept[63 - threadIdx.x] + large.values[1];
}""")
    y = ac.to_host(turn(large(10), ac.zeros(64, np.int32), grid=1, block=64)).sync()
    np.testing.assert_array_equal(y, 10 + np.arange(64)[::-1] + 11)


def test_addresses_of_constants_are_converted_and_loaded_from():
    convert = ac.kernel(r"""
__constant__ int weight = 5;
__global__ void convert(const __grid_constant__ int n, int* out) {
    size_t weight_at = __cvta_generic_to_constant(&weight), n_at = __cvta_generic_to_grid_constant(&n);
    out[0] = __cvta_constant_to_generic(weight_at) == &weight;
    out[1] = __cvta_grid_constant_to_generic(n_at) == &n;
    size_t again;
    asm("cvta.to.const.u64 %0, %1;" : "=l"(again) : "l"(&weight));
    asm("ld.const.s32 %0, [%1];" : "=r"(out[2]) : "l"(again));
    asm("cvta.const.u64 %0, %1;" : "=l"(again) : "l"(weight_at));
    out[3] = again == (size_t)&weight;
    asm("ld.param.s32 %0, [%1];" : "=r"(out[4]) : "l"(n_at));
    asm("cvta.param.u64 %0, %1;" : "=l"(again) : "l"(n_at));
    out[5] = again == (size_t)&n;
}""")
    out = convert(7, ac.zeros(6, np.int32), grid=1, block=1)
    assert ac.to_host(out).sync().tolist() == [1, 1, 5, 1, 7, 1]


def test_one_past_the_end_is_constant_as_well():
    ask = ac.kernel("__constant__ int own[3]; __global__ void ask(int* out) { out[0] = __isConstant(own + 3); }")
    assert ac.to_host(ask(ac.zeros(1, np.int32), grid=1, block=1)).sync().tolist() == [1]


def test_the_constants_of_another_module_are_global_memory():
    # So it is on an H100: a module's constant memory is known to its own kernels alone.
    others = ac.Module.from_source(
        '__constant__ int weights[4]; extern "C" __global__ void k(int* x) { x[0] = weights[0]; }'
    )
    ask = ac.kernel(
        QUESTIONS + "__constant__ int own; __global__ void ask(const int* x, int* out) {"
        "out[0] = by_functions(x); out[1] = by_assembly(x); out[2] = by_functions(&own); }"
    )
    out = ask(others.constant("weights"), ac.zeros(3, np.int32), grid=1, block=1)
    assert ac.to_host(out).sync().tolist() == [GLOBAL, GLOBAL, CONSTANT]


def test_what_a_graph_launches_has_its_own_grid_constants():
    look = ac.kernel(ONE_FOR_ALL.replace("BARRIER", ""), "look<Large>")
    compiled = ac.compile(lambda n, places, seen: look(large(3), places, seen, n, grid=1, block=4))
    for n in (4, 5, 6):
        places, seen = compiled(n, ac.zeros(4, np.uint64), ac.zeros(4, np.int32)).sync()
        assert len(set(ac.to_host(places).sync().tolist())) == 1
        assert ac.to_host(seen).sync().tolist() == [3 + n + i for i in range(4)]
