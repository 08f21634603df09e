"""Features that users of cuda-async know, row by row: operations, futures, policies, devices, ownership, graphs,
kernels.

Always true: a test is named after its row, in the words of its newer interface or of its older one, and shows how the
row is written here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

import aiocuda as ac

N = 24
DATA = np.arange(N, dtype=np.float32)
SOURCE = r"""
#include <aiocuda/tile.cuh>
__constant__ float factors[2];
extern "C" __global__ void plus(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + a;
}
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
extern "C" __global__ void twice(aiocuda::Partition<float, 1> y) {
    auto tile = y.tile();
    if (tile.contains(threadIdx.x)) tile(threadIdx.x) *= 2;
}
extern "C" __global__ void layer(
    const float* x, const float* w, float* y, int rows, int inner, int columns, bool relu) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * columns) return;
    float sum = 0;
    for (int k = 0; k < inner; ++k) sum += x[i / columns * inner + k] * w[k * columns + i % columns];
    y[i] = relu && sum < 0 ? 0 : sum;
}
"""


@pytest.fixture(scope="module")
def module() -> ac.Module:
    return ac.Module.from_source(SOURCE)


def plus(module: ac.Module, a: float, x: Any, y: Any = None) -> Any:
    return module.kernel("plus")(a, x, ac.empty(N) if y is None else y, N, threads=N)


def contents(x: Any) -> list[Any]:
    return list(ac.to_host(x).sync())


# --- operations -----------------------------------------------------------------------------------------------------


def test_device_op_is_lazy_and_runs_once():
    called: list[int] = []
    op = ac.zeros(N).inspect(lambda _: called.append(1))
    assert called == []
    assert op.sync() is op.sync()
    assert called == [1]


def test_value(run):
    async def program():
        return await ac.value((3, "three"))

    assert run(program) == (3, "three")


def test_empty_with_a_closure():
    """An operation that is made when it is executed, not before."""
    made: list[int] = []
    op = ac.value(5.0).then(lambda fill: made.append(1) or ac.full(3, fill))
    assert made == []
    assert contents(op) == [5, 5, 5]


def test_then_and_and_then(module, run):
    async def program():
        return await ac.to_host(
            ac.to_device(DATA).then(lambda x: plus(module, 1, x)).then(lambda y: plus(module, 2, y))
        )

    np.testing.assert_array_equal(run(program), DATA + 3)


def test_operations_of_a_chain_share_a_stream_and_run_in_order(module):
    chain = ac.to_device(DATA)
    for _ in range(20):
        chain = plus(module, 1, chain)
    launches = [line.split() for line in chain.explain().splitlines() if "launch" in line]
    assert len(launches) == 20
    assert len({words[words.index("stream") + 1] for words in launches}) == 1
    assert contents(chain) == list(DATA + 20)


def test_and_then_with_context(device, run):
    """A function that is given the stream which the operation before it ran on."""
    seen: list[int] = []

    async def program():
        stream = device.stream()
        x = await ac.zeros(N)
        await ac.call(lambda given, _: seen.append(given.handle), x, writes=[x]).on(stream)
        return stream.handle

    assert [run(program)] == seen


def test_with_context():
    seen: list[ac.Device] = []
    last = ac.devices()[-1]
    with ac.use(last):
        ac.value(None).then(lambda _: seen.append(ac.current_device())).sync()
    assert seen == [last]


def test_map(run):
    async def program():
        return await ac.to_host(ac.to_device(DATA)).map(lambda found: float(found.sum()))

    assert run(program) == float(DATA.sum())


def test_inspect():
    seen: list[tuple[int, ...]] = []
    assert ac.zeros((2, 3)).inspect(lambda x: seen.append(x.shape)).sync().shape == (2, 3)
    assert seen == [(2, 3)]


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_zip_and_unzip(count: int):
    zipped = ac.zip(*(ac.full(2, float(i)) for i in range(count)))
    assert [contents(part) for part in zipped.unzip(count)] == [[i, i] for i in range(count)]


def test_zip_apply(module):
    """The older ``zip!(a, b).apply(f)``: ``then`` takes the tuple."""
    x, y = ac.to_device(DATA), ac.ones(N)
    op = ac.zip(x, y).then(lambda both: module.kernel("saxpy")(3.0, *both, N, threads=N))
    assert contents(op) == list(3 * DATA + 1)


def test_first_and_last():
    zipped = ac.zip(ac.full(1, 1.0), ac.full(1, 2.0), ac.full(1, 3.0))
    assert contents(zipped.first()) == [1]
    assert contents(zipped.last()) == [3]


def test_boxed():
    """Operations of all kinds are of one class, and stand in one list."""
    ops: list[ac.DeviceOp[Any]] = [ac.zeros(1), ac.value(2), ac.ones(1).map(lambda _: 3)]
    assert all(isinstance(op, ac.DeviceOp) for op in ops)
    assert [op.sync() for op in ops[1:]] == [2, 3]


def test_shared(module, run):
    """Each operation may be consumed by several, and runs once."""
    called: list[int] = []

    async def program():
        called.clear()
        shared = ac.to_device(DATA).inspect(lambda _: called.append(1))
        return await ac.zip(ac.to_host(plus(module, 1, shared)), ac.to_host(plus(module, 2, shared)), shared)

    one, two, _ = run(program)
    np.testing.assert_array_equal(one + 1, two)
    assert called == [1]


def test_into_device_op(module):
    """Arrays, shared handles, numbers and operations are arguments alike."""
    array = ac.to_device(DATA).sync()
    for x in (array, ac.to_device(DATA), array.share(), ac.value(array)):
        assert contents(plus(module, 1, x)) == list(DATA + 1)
    assert contents(plus(module, ac.value(1.0), array)) == list(DATA + 1)


def test_device_op_vec():
    ops = [ac.full(1, float(i)) for i in range(8)]
    ops.append(ac.full(1, 8.0))
    del ops[0]
    assert [contents(each) for each in ac.zip(*ops).sync()] == [[i] for i in range(1, 9)]


def test_sync():
    assert contents(ac.arange(3)) == [0, 1, 2]


def test_sync_on(device, module):
    stream = device.stream()
    op = plus(module, 1, ac.to_device(DATA))
    assert contents(op.sync_on(stream)) == list(DATA + 1)


def test_await(module, run):
    async def program():
        return await ac.to_host(await plus(module, 1, ac.to_device(DATA)))

    np.testing.assert_array_equal(run(program), DATA + 1)


def test_async_on(device, module, run):
    async def program():
        return await ac.to_host(await plus(module, 1, ac.to_device(DATA)).on(device.stream()))

    np.testing.assert_array_equal(run(program), DATA + 1)


# --- futures --------------------------------------------------------------------------------------------------------


def test_device_future_is_lazy_until_it_is_polled(run):
    called: list[int] = []

    async def program():
        called.clear()
        future = ac.zeros(3).inspect(lambda _: called.append(1)).schedule(ac.current_policy())
        before = list(called)
        await future
        return before, list(called)

    assert run(program) == ([], [1])


def test_device_future_completes_when_the_device_is_done(device, latch, kernels, waits_for, run):
    stream, x = device.stream(), ac.zeros(1, np.int32).sync()

    async def program():
        latch.hold(stream)
        future = kernels.increment(x, 1, threads=1).on(stream).submit()
        assert not future.done()
        return await waits_for(future, latch, future.done)

    assert run(program)


def test_device_future_failed(run):
    async def program():
        def fail(_: Any) -> None:
            raise ValueError("no")

        future = ac.value(1).then(fail).schedule(ac.current_policy())
        with pytest.raises(ValueError, match="no"):
            await future
        assert isinstance(future.exception(), ValueError)

    run(program)


def test_spawned_tasks_overlap_and_each_has_its_result(module, run):
    async def program():
        found: dict[int, Any] = {}

        async def task(i: int) -> None:
            found[i] = await ac.to_host(plus(module, float(i), ac.to_device(DATA)))

        async with anyio.create_task_group() as group:
            for i in range(8):
                group.start_soon(task, i)
        return found

    for i, each in run(program).items():
        np.testing.assert_array_equal(each, DATA + i)


def test_a_future_that_is_dropped_leaves_its_work_and_memory_whole(device, latch, kernels, run):
    stream, x = device.stream(), ac.zeros(1, np.int32).sync()

    async def program():
        latch.hold(stream)
        kernels.increment(x, 1, threads=1).on(stream).submit()
        latch.release()
        return int((await ac.to_host(x))[0])

    assert run(program) == 1


def test_operations_and_futures_are_sent_between_threads(module):
    future, found = plus(module, 1, ac.to_device(DATA)).submit(), []
    thread = threading.Thread(target=lambda: found.append(contents(future.sync())))
    thread.start()
    thread.join()
    assert found == [list(DATA + 1)]


def test_a_future_that_is_dropped_before_it_was_submitted_submits_nothing():
    called: list[int] = []
    ac.zeros(3).inspect(lambda _: called.append(1)).schedule(ac.current_policy())
    assert called == []


def test_cancelling_a_task_leaves_what_it_submitted(device, latch, kernels, run):
    stream, x = device.stream(), ac.zeros(1, np.int32).sync()

    async def program():
        latch.hold(stream)
        entered = anyio.Event()

        async def task() -> None:
            future = kernels.increment(x, 1, threads=1).on(stream).submit()
            entered.set()
            await future

        async with anyio.create_task_group() as group:
            group.start_soon(task)
            await entered.wait()
            group.cancel_scope.cancel()
        latch.release()
        return int((await ac.to_host(x))[0])

    assert run(program) == 1


# --- policies and devices -------------------------------------------------------------------------------------------


class Chosen(ac.SchedulingPolicy):
    """Takes the last of two streams, and counts how often it was asked."""

    def __init__(self) -> None:
        super().__init__(2)
        self.asked = 0

    def choose(self, op: Any, producers: Any, candidates: Sequence[Any]) -> Any:
        self.asked += 1
        return candidates[-1]


def test_scheduling_policy(module):
    policy = Chosen()
    with ac.use(policy):
        assert contents(plus(module, 1, ac.to_device(DATA))) == list(DATA + 1)
    assert policy.asked >= 1


@pytest.mark.parametrize(
    "policy", [lambda: ac.RoundRobin(n=4), ac.SingleStream], ids=["StreamPoolRoundRobin", "SingleStream"]
)
def test_policies(policy: Callable[[], Any], module, run):
    async def program():
        made = policy()
        ops = [plus(module, float(i), ac.to_device(DATA)).schedule(made) for i in range(6)]
        return [await ac.to_host(await op) for op in ops], len(made.streams(ac.Device(0)))

    found, streams = run(program)
    for i, each in enumerate(found):
        np.testing.assert_array_equal(each, DATA + i)
    assert streams == (4 if policy is not ac.SingleStream else 1)


def test_global_policy_and_with_device_policy():
    before, policy = ac.current_policy(), ac.SingleStream()
    with ac.use(policy):
        assert ac.current_policy() is policy
    assert ac.current_policy() is before


def test_get_default_device():
    assert ac.current_device() == ac.Device(0)


@pytest.mark.needs_devices(2)
def test_with_device():
    with ac.use(1):
        assert ac.zeros(1).sync().device == ac.Device(1)
    assert ac.zeros(1).sync().device == ac.Device(0)


@pytest.mark.needs_devices(2)
@pytest.mark.parametrize("ordinal", [0, 1])
def test_schedule_on_a_device(ordinal: int, module, run):
    async def program():
        with ac.use(ordinal):
            op = plus(module, 1, ac.to_device(DATA))
        array = await op.schedule(ac.Device(ordinal))
        return array.device.ordinal, await ac.to_host(array)

    where, found = run(program)
    assert where == ordinal
    np.testing.assert_array_equal(found, DATA + 1)


@pytest.mark.needs_devices(2)
def test_one_task_on_each_device_and_a_copy_between_them(module, run):
    async def program():
        with ac.use(0):
            first = plus(module, 1, ac.to_device(DATA))
        with ac.use(1):
            second = plus(module, 2, ac.to_device(DATA))
            total = module.kernel("saxpy")(1.0, first.to(1), second, N, threads=N)
        array = await total
        return array.device.ordinal, await ac.to_host(array)

    where, found = run(program)
    assert where == 1
    np.testing.assert_array_equal(found, 2 * DATA + 3)


@pytest.mark.needs_devices(2)
def test_arrays_of_another_device_are_an_error(module):
    with pytest.raises(ac.DeviceMismatchError, match=r"\.to\("):
        plus(module, 1, ac.zeros(N, device=0).sync(), ac.zeros(N, device=1).sync()).sync()


# --- ownership ------------------------------------------------------------------------------------------------------


def test_arc_is_share(module):
    shared = ac.to_device(DATA).sync().share()
    again = shared.share()
    assert contents(plus(module, 1, shared)) == contents(plus(module, 1, again))
    with pytest.raises(ac.OwnershipError, match=r"saxpy: argument 3 \(y\): .* was shared at .* read-only"):
        module.kernel("saxpy")(1.0, ac.ones(N), shared, N, threads=N).sync()


def test_unwrap_arc(module):
    shared = ac.to_device(DATA).sync().share()
    again = shared.share()
    with pytest.raises(ac.OwnershipError, match=r"unwrap: .* 1 other handle of it is left"):
        shared.unwrap()
    del again
    owned = shared.unwrap()
    assert contents(plus(module, 1, ac.ones(N), owned)) == [2] * N


def test_partition_and_unpartition(module):
    array = ac.to_device(DATA).sync()
    parts = array.partition((8,))
    assert module.kernel("twice")(parts, block=8).sync() is parts
    assert contents(parts.unpartition()) == list(2 * DATA)


def test_partition_infers_the_grid_and_clips_at_the_edge(module):
    parts = ac.to_device(DATA[:21]).sync().partition((8,))
    module.kernel("twice")(parts, block=8).sync()
    assert contents(parts.unpartition()) == list(2 * DATA[:21])


def test_a_partition_of_an_array_that_stays_where_it_is(module):
    """The borrowed form: the array is written in place, and is usable when its partition has ended."""
    array = ac.to_device(DATA).sync()
    module.kernel("twice")(array.partition((4,)), block=4).sync().unpartition()
    assert contents(array) == list(2 * DATA)


def test_you_get_back_what_you_put_in(module):
    array = ac.zeros(N).sync()
    assert plus(module, 1, ac.ones(N), array).sync() is array


# --- graphs ---------------------------------------------------------------------------------------------------------


def test_cuda_graph_capture_and_launch(module, run):
    async def program():
        x = await ac.to_device(DATA)
        graph = plus(module, 1, plus(module, 1, x)).graph(x=x)
        await graph.launch()
        return await ac.to_host(graph.result)

    np.testing.assert_array_equal(run(program), DATA + 2)


def test_cuda_graph_take_output(module):
    x = ac.to_device(DATA).sync()
    graph = plus(module, 1, x).graph(x=x)
    assert contents(graph.launch()) == contents(graph.result)


def test_cuda_graph_stream(device, module):
    stream = device.stream()
    graph = plus(module, 1, ac.to_device(DATA).sync()).graph_on(stream)
    assert contents(graph.launch()) == list(DATA + 1)


def test_cuda_graph_update(module, run):
    """New data into the arrays that a graph was made for; or, without a copy, other arrays in their place."""

    async def program():
        x = await ac.zeros(N)
        graph = plus(module, 1, x).graph(x=x)
        await ac.copy(x, DATA)
        copied = await ac.to_host(await graph.launch())
        other = await ac.to_device(2 * DATA)
        return copied, await ac.to_host(await graph.launch(x=other))

    copied, bound = run(program)
    np.testing.assert_array_equal(copied, DATA + 1)
    np.testing.assert_array_equal(bound, 2 * DATA + 1)


def test_cuda_graph_scope_and_record(module, run):
    async def program():
        x = await ac.to_device(DATA)
        with ac.graph_scope() as scope:
            y = scope.record(plus(module, 1, x))
            z = scope.record(plus(module, 2, y))
        await scope.graph.launch()
        return await ac.to_host(z)

    np.testing.assert_array_equal(run(program), DATA + 3)


def test_scope_refuses_to_execute(module):
    with ac.graph_scope() as scope:
        y = scope.record(plus(module, 1, ac.ones(N)))
        with pytest.raises(ac.CaptureError, match=r"inside the graph_scope that was entered at"):
            ac.zeros(3).sync()
    scope.graph.launch().sync()
    assert contents(y) == [2] * N


def test_graph_launch_is_an_operation(module):
    x = ac.to_device(DATA).sync()
    graph = plus(module, 1, x).graph(x=x)
    assert contents(graph.launch().then(lambda y: plus(module, 1, y))) == list(DATA + 2)


def test_graphs_are_recorded_in_several_threads_at_once(module):
    arrays = [ac.full(N, float(i)).sync() for i in range(4)]
    found: list[Any] = [None] * 4

    def record(i: int) -> None:
        found[i] = contents(plus(module, 1, arrays[i]).graph().launch())

    threads = [threading.Thread(target=record, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[i + 1] * N for i in range(4)]


# --- memory, modules, kernels, errors -------------------------------------------------------------------------------


def test_set_get_and_clear_device_pool(device):
    assert device.memory_pool.release_threshold is None
    try:
        device.set_memory_pool(release_threshold=1 << 20)
        assert device.memory_pool.release_threshold == 1 << 20
        assert contents(ac.ones(3)) == [1, 1, 1]
    finally:
        device.set_memory_pool(release_threshold=None)
    assert device.memory_pool.release_threshold is None


def test_device_buffer_foreign(module):
    """Memory of another library is an argument, and its owner lives as long as the array."""

    class Foreign:
        def __init__(self, array: ac.DeviceArray) -> None:
            self.array = array

        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {"shape": (N,), "typestr": "<f4", "data": (self.array.address, False), "version": 3, "stream": None}

    owner = Foreign(ac.to_device(DATA).sync())
    ac.Device(0).synchronize().sync()
    assert contents(plus(module, 1, ac.external(owner))) == list(DATA + 1)


def test_load_module_from_file(tmp_path: Path):
    file = tmp_path / "kernels.cu"
    file.write_text(SOURCE)
    assert contents(plus(ac.Module.from_file(file), 1, ac.to_device(DATA))) == list(DATA + 1)


def test_async_kernel_launch(module):
    """Arguments and a configuration are one call; what does not fit is an error before the device sees it."""
    launch = module.kernel("plus")(1.0, ac.to_device(DATA), ac.empty(N), N, grid=1, block=32, shared_memory=0)
    assert contents(launch) == list(DATA + 1)
    with pytest.raises(
        ac.ArgumentTypeError,
        match=r"plus: argument 2 \(x\): a device array of float32 is expected, an operation that yields int32 was",
    ):
        plus(module, 1, ac.zeros(N, np.int32))


def test_kernel_launch_assert(module):
    with pytest.raises(ac.LaunchError, match=r"plus: block=\(2048, 1, 1\) is not possible"):
        module.kernel("plus")(1.0, ac.zeros(N), ac.empty(N), N, grid=1, block=2048).sync()


def test_device_error_names_the_device():
    with pytest.raises(ac.ArgumentValueError, match="no device"):
        ac.Device(len(ac.devices()))


def test_mlp(module, run):
    """Two layers, awaited by several tasks over shared weights, as the system's own example has it."""
    generator = np.random.default_rng(3)
    weights = [
        generator.integers(-2, 3, (6, 8)).astype(np.float32),
        generator.integers(-2, 3, (8, 4)).astype(np.float32),
    ]
    images = [generator.integers(-2, 3, (5, 6)).astype(np.float32) for _ in range(4)]
    layer = module.kernel("layer")

    async def program():
        first, second = [array.share() for array in await ac.zip(*map(ac.to_device, weights))]
        found: dict[int, Any] = {}

        async def infer(i: int) -> None:
            hidden = layer(ac.to_device(images[i]), first, ac.empty((5, 8)), 5, 6, 8, True, threads=40)
            found[i] = await ac.to_host(layer(hidden, second, ac.empty((5, 4)), 5, 8, 4, False, threads=20))

        async with anyio.create_task_group() as group:
            for i in range(len(images)):
                group.start_soon(infer, i)
        return found

    for i, logits in run(program).items():
        np.testing.assert_array_equal(logits, np.maximum(images[i] @ weights[0], 0) @ weights[1])
