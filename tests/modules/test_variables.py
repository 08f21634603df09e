"""Constants and variables of modules as arrays: their dtypes and shapes, their order with launches, their lives."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import aiocuda as ac

SOURCE = r"""
#define N 6
__constant__ float weights[3];
namespace deep { __constant__ int depth; __device__ float2 pairs[2][2]; }
__device__ int count;
__device__ double many[N];
struct Point { float x; int n; };
__device__ Point points[2];
struct Node { Node* next; };
__device__ Node nodes;
extern "C" __global__ void weigh(float* y) { y[threadIdx.x] = weights[threadIdx.x] + deep::depth; }
extern "C" __global__ void tick() {
    atomicAdd(&count, 1);
    many[0] += 1;
    deep::pairs[1][0].y = 7;
    points[1].n = 9;
    nodes.next = 0;
}
extern "C" __global__ void slow_tick(unsigned long long flag) { while (*(volatile int*)flag == 0) {} count = 5; }
"""


@pytest.fixture
def module() -> ac.Module:
    return ac.Module.from_source(SOURCE)


def test_a_constant_is_set_by_a_copy_to_it_and_read_by_later_launches(module, run):
    weigh, weights, depth = module.kernel("weigh"), module.constant("weights"), module.constant("deep::depth")

    async def program():
        await ac.copy(depth, np.array(100, np.int32))
        seen = []
        for factor in (1, 2):
            await ac.copy(weights, np.float32([1, 2, 3]) * factor)
            seen.append((await ac.to_host(weigh(ac.empty(3), grid=1, block=3))).tolist())
        return seen

    assert run(program) == [[101, 102, 103], [102, 104, 106]]


def test_dtype_and_shape_are_the_declarations(module):
    weights, depth = module.constant("weights"), module.constant("depth")
    assert (weights.dtype, weights.shape) == (np.float32, (3,))
    assert (depth.dtype, depth.shape) == (np.int32, ())
    pairs, many = module.variable("pairs"), module.variable("many")
    assert (pairs.dtype, pairs.shape) == (np.float32, (2, 2, 2))
    assert (many.dtype, many.shape) == (np.float64, (6,))
    points = module.variable("points")
    assert (points.dtype, points.shape) == (np.dtype([("x", "f4"), ("n", "i4")]), (2,))


def test_what_the_source_does_not_say_is_the_compilers():
    source = """
    #define real double
    #define COLUMNS 3
    const int ROWS = 4;
    typedef real row[COLUMNS];
    __constant__ real scale;
    __constant__ row table[ROWS];
    __device__ float plain[ROWS + 1][2];
    __global__ void k() {}
    """
    module = ac.Module.from_source(source)
    scale, table, plain = module.constant("scale"), module.constant("table"), module.variable("plain")
    assert [(each.dtype, each.shape) for each in (scale, table, plain)] == [
        (np.float64, ()),
        (np.float64, (4, 3)),
        (np.float32, (5, 2)),
    ]


def test_dtype_and_shape_may_be_given(module):
    assert module.constant("weights", dtype=np.int32).dtype == np.int32
    assert module.variable("many", shape=(2, 3)).shape == (2, 3)
    assert module.variable("points", dtype=np.int32, shape=(2, 2)).shape == (2, 2)
    assert module.variable("nodes", dtype=np.uint64).shape == (1,)


def test_launches_write_variables(module):
    tick = module.kernel("tick")
    count, pairs, points = (
        module.variable(name, **more)
        for name, more in [
            ("count", {}),
            ("pairs", {}),
            ("points", {"dtype": np.int32, "shape": (2, 2)}),
        ]
    )
    ac.copy(count, np.array(40, np.int32)).sync()
    tick(grid=2, block=1).sync()
    assert ac.to_host(count).sync() == 42
    assert ac.to_host(pairs).sync()[1, 0, 1] == 7
    assert ac.to_host(points).sync()[1, 1] == 9


def test_a_launch_is_ordered_before_a_later_read_of_a_variable_on_another_stream(module, device, latch):
    """The launch names no array; what it may write is known all the same."""
    slow_tick, count, flag = module.kernel("slow_tick"), module.variable("count"), latch._flag
    slow_tick.compile()
    first, second = device.stream(), device.stream()
    ac.copy(count, np.array(0, np.int32)).sync()
    with ac.use(first):
        slow_tick(flag.address, grid=1, block=1).submit()
    with ac.use(second):
        read = ac.to_host(count).submit()
    assert not read.done()
    latch.release()
    assert read.sync() == 5


def test_what_was_launched_before_the_variable_was_asked_for_comes_before_it(module, device, latch):
    slow_tick = module.kernel("slow_tick")
    slow_tick.compile()
    with ac.use(device.stream()):
        slow_tick(latch._flag.address, grid=1, block=1).submit()
    with ac.use(device.stream()):
        read = ac.to_host(module.variable("count")).submit()
    assert not read.done()
    latch.release()
    assert read.sync() == 5


def test_launches_that_read_constants_do_not_wait_for_one_another(module, device, latch, kernels):
    weigh, weights = module.kernel("weigh"), module.constant("weights")
    ac.copy(weights, np.float32([1, 1, 1])).sync()
    held = device.stream()
    latch.hold(held)
    with ac.use(held):
        behind = weigh(ac.empty(3), grid=1, block=3).submit()
    with ac.use(device.stream()):
        weigh(ac.empty(3), grid=1, block=3).sync(timeout=60)
    assert not behind.done()
    latch.release()
    behind.sync()


def test_a_write_of_a_constant_waits_for_launches_that_read_it(module, device, latch):
    weigh, weights = module.kernel("weigh"), module.constant("weights")
    ac.copy(module.constant("depth"), np.array(0, np.int32)).sync()
    ac.copy(weights, np.float32([1, 1, 1])).sync()
    y = ac.empty(3).sync()
    held = device.stream()
    latch.hold(held)
    with ac.use(held):
        weigh(y, grid=1, block=3).submit()
    with ac.use(device.stream()):
        copied = ac.copy(weights, np.float32([2, 2, 2])).submit()
    assert not copied.done()
    latch.release()
    copied.sync()
    assert ac.to_host(y).sync().tolist() == [1, 1, 1]


def test_a_graph_of_a_modules_kernels_is_ordered_with_its_variables(module):
    count = module.variable("count")
    ac.copy(count, np.array(0, np.int32)).sync()
    graph = module.kernel("tick")(grid=1, block=1).graph()
    for _ in range(3):
        graph.launch().submit()
    assert ac.to_host(count).sync() == 3


def test_an_array_of_a_variable_outlives_its_module(module, used_bytes):
    count = module.variable("count")
    ac.copy(count, np.array(3, np.int32)).sync()
    del module
    gc.collect()
    assert ac.to_host(count).sync() == 3


@pytest.mark.needs_devices(2)
def test_each_device_has_its_own(module):
    tick = module.kernel("tick")
    counts = [module.variable("count", device) for device in (0, 1)]
    assert [count.device.ordinal for count in counts] == [0, 1]
    for count in counts:
        ac.copy(count, np.array(0, np.int32)).sync()
    with ac.use(1):
        tick(grid=3, block=1).sync()
    assert [int(ac.to_host(count).sync()) for count in counts] == [0, 3]


@pytest.mark.needs_devices(2)
def test_a_variable_waits_for_no_other_device(module, latch):
    module.variable("many")  # loads the module, which may wait for every device
    latch.hold(1)
    count = module.variable("count", 0)
    ac.copy(count, np.array(3, np.int32)).sync(30)
    assert latch.is_holding


def test_handles_of_one_variable_know_of_one_another(module):
    first, second = module.variable("many"), module.variable("many")
    assert first.address == second.address
    shared = first.share()
    with pytest.raises(ac.OwnershipError, match="was shared"):
        ac.copy(second, np.zeros(6)).sync()
    shared.close()


def test_a_variable_that_was_moved_can_be_had_again_once_nobody_holds_it(module):
    moved = ac.move(module.variable("many"))
    with pytest.raises(ac.OwnershipError, match="was moved"):
        ac.copy(module.variable("many"), np.zeros(6)).sync()
    del moved
    many = module.variable("many")
    ac.copy(many, np.ones(6)).sync()
    assert ac.to_host(many).sync().tolist() == [1] * 6


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m: m.constant("missing"), r"(?s)no variable 'missing'; found:.*constant weights.*variable count"),
        (lambda m: m.constant("count"), r"'count' is a __device__ variable: module\.variable\('count'\)"),
        (lambda m: m.variable("weights"), r"'weights' is a __constant__ variable: module\.constant\('weights'\)"),
        (lambda m: m.variable("nodes"), "dtype of 'nodes' is not known: 'Node::next': it holds a pointer.*pass dtype="),
        (lambda m: m.constant("weights", dtype=np.float64), r"'weights' of module\.cu has 12 bytes"),
        (lambda m: m.constant("weights", shape=4), r"has 12 bytes, and float32\[4\] has 16"),
        (lambda m: m.variable("nowhere", dtype="f4"), "no variable 'nowhere' on the device"),
    ],
)
@pytest.mark.driver_refuses("cuLibraryGetGlobal")
def test_what_cannot_be_is_an_error_that_says_what_there_is(module, ask, message):
    with pytest.raises(ac.ArgumentValueError, match=message):
        ask(module)


def test_pieces_of_a_module_do_not_share_a_variable():
    """No declaration shows the variable; of a module in two pieces, nobody knows which one is meant."""
    source = """
        #define VARIABLE(type, name) __device__ type name
        VARIABLE(int, hidden);
        template <class T> __global__ void k(T* x) { x[0] = hidden; }
    """
    module = ac.Module.from_source(source)
    module.kernel("k<int>").compile()
    module.kernel("k<float>").compile()
    with pytest.raises(ac.ArgumentValueError, match="each of the 2 pieces"):
        module.variable("hidden", dtype=np.int32)
    module = ac.Module.from_source(source)
    module.kernel("k<int>").compile()
    assert module.variable("hidden", dtype=np.int32).shape == (1,)
    with pytest.raises(ac.ArgumentValueError, match="ask for all kernels"):
        module.kernel("k<float>")
