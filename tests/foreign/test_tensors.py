"""Tensors of a framework as plain arguments: ordered both ways, without a word from the program.

The framework is a stand-in that does as PyTorch does, on the driver itself; see `torch_like.py`. Where an order is
missing, a wrong value comes out, and the race oracle sees it.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from framework import CUDA, Framework, Tensor
from torch_like import Torch, close

import aiocuda as ac

N = 64


@pytest.fixture
def increment(kernels) -> Callable[[Any], ac.DeviceOp]:
    return lambda x: kernels.increment(x, N, threads=N)


def is_idle(framework: Torch, stream: int) -> bool:
    """Say whether a stream of the framework's has done its work by the time that other work has come and gone."""
    done = ac.done(stream, framework.ordinal).submit()
    for _ in range(30):
        ac.to_host(ac.ones(8)).sync_on(ac.Device(0).stream(), timeout=60)
    return done.done()


def host(x: Any) -> list[int]:
    return ac.to_host(x).sync_on(ac.Device(0).stream(), 60).tolist()


def first_step(operation: Any) -> None:
    """Await an operation until it first gives up the loop; then give the await up."""
    step = operation.__await__()
    with contextlib.suppress(StopIteration):
        step.send(None)
    assert operation._state == "submitted"
    step.close()


# --- what comes before ----------------------------------------------------------------------------------------------


def test_an_operation_comes_after_what_the_current_stream_holds(torch, increment, held, latch, settle):
    x = torch.tensor(3, N)
    torch.order(torch.current, held.handle)
    x.fill_(7)
    future = increment(x).submit()
    settle()
    assert not future.done()
    latch.release()
    assert host(future.sync(60)) == [8] * N


def test_the_stream_is_the_one_that_is_current_at_the_submission(torch, increment, held, latch):
    """What was current when the operation was built, and what that stream holds, have nothing to do with it."""
    x = torch.tensor(3, N)
    other = torch.other_stream()
    torch.order(other, torch.current)
    blocked = torch.other_stream()
    torch.order(blocked, held.handle)
    with torch.using(blocked):
        operation = increment(x)
    with torch.using(other):
        x.fill_(9)
        future = operation.on(ac.Device(0).stream()).submit()
    assert host(future.sync(60)) == [10] * N
    latch.release()


def test_each_thread_has_a_current_stream_of_its_own(torch, increment, held, latch):
    x, y = torch.tensor(1, N), torch.tensor(2, N)
    free = torch.other_stream()
    torch.order(free, torch.current)
    torch.order(torch.current, held.handle)
    found: list[list[int]] = []

    def work() -> None:
        with torch.using(free):
            y.fill_(5)
            found.append(host(increment(y).on(ac.Device(0).stream()).sync(60)))

    thread = threading.Thread(target=work)
    pending = increment(x).submit()
    thread.start()
    thread.join(60)
    assert found == [[6] * N]
    assert not pending.done()
    latch.release()
    assert host(pending.sync(60)) == [2] * N


def test_awaits_on_every_loop(torch, increment, run, held, latch):
    x = torch.tensor(3, N)
    torch.order(torch.current, held.handle)
    x.fill_(4)

    async def main() -> None:
        with pytest.raises(ac.DeviceTimeoutError):
            await increment(x).within(0.01)
        latch.release()
        y = await increment(x)
        assert y.address == x.address
        x.add_(x)
        assert (await ac.to_host(x)).tolist() == [12] * N

    run(main)
    assert x.tolist() == [12] * N


# --- what comes after -----------------------------------------------------------------------------------------------


def test_what_the_framework_enqueues_next_comes_after_the_operation(torch, increment, held, latch):
    x, y = torch.tensor(3, N), torch.tensor(100, N)
    with ac.use(held):
        future = increment(x).submit()
    y.add_(x)
    assert not is_idle(torch, torch.current)
    latch.release()
    assert y.tolist() == [104] * N
    future.sync(60)


def test_what_is_written_over_by_the_framework_was_read_before(torch, held, latch):
    x = torch.tensor(3, N)
    with ac.use(held):
        copied = ac.dup(x).submit()
    x.fill_(9)
    latch.release()
    assert host(copied.sync(60)) == [3] * N
    assert x.tolist() == [9] * N


def test_the_first_step_of_an_await_is_enough(torch, increment, run, held, latch):
    """A task that is suspended in an await has ordered the framework's stream already, on a busy loop too."""
    x, y = torch.tensor(3, N), torch.tensor(100, N)

    async def main() -> None:
        with ac.use(held):
            first_step(increment(x))
        y.add_(x)
        assert not is_idle(torch, torch.current)
        latch.release()

    run(main)
    assert y.tolist() == [104] * N


def test_an_await_in_a_turn_without_time_submits_first(torch, increment, run_asyncio, turn_us, held, latch):
    turn_us(0)
    x, y = torch.tensor(3, N), torch.tensor(100, N)

    async def main() -> None:
        with ac.use(held):
            first_step(increment(x))
        y.add_(x)

    run_asyncio(main)
    latch.release()
    assert y.tolist() == [104] * N


def test_operations_on_two_tensors_overlap(torch, increment, latch):
    """The framework's stream waits for both, but neither for the other."""
    x, y = torch.tensor(1, N), torch.tensor(2, N)
    held, free = ac.Device(0).stream(), ac.Device(0).stream()
    latch.hold(held)
    both = ac.zip(increment(x).on(held), increment(y).on(free)).submit()
    seen = ac.Device(0).stream()
    seen.wait(free)
    seen.synchronize().sync(60)  # the second has run
    assert not both.done()
    assert not is_idle(torch, torch.current)
    latch.release()
    x.add_(y)
    assert x.tolist() == [5] * N
    both.sync(60)


def test_the_framework_is_asked_once_for_an_execution(torch, increment):
    x, y = torch.tensor(1, N), torch.tensor(2, N)
    torch.asked_streams = 0
    ac.zip(increment(x), increment(y), increment(x)).sync(60)
    assert torch.asked_streams == 1


def test_views_of_what_an_operation_yields_are_the_tensors_still(torch, increment, held, latch):
    x, y = torch.tensor(3, N), torch.tensor(100, N)
    yielded = increment(x).sync(60)
    with ac.use(held):
        ac.fill(yielded[: N // 2], 9).submit()
    y.add_(x)
    latch.release()
    assert y.tolist() == [109] * (N // 2) + [104] * (N // 2)


def test_work_in_a_function_of_then_is_in_order(torch, increment, held, latch):
    """What the program enqueues there comes after what stands before it, and before what it returns."""
    x, y = torch.tensor(3, N), torch.tensor(100, N)

    def go_on(_: Any) -> Any:
        y.add_(x)
        return increment(y)

    with ac.use(held):
        future = increment(x).then(go_on).submit()
    x.fill_(0)
    latch.release()
    assert host(future.sync(60)) == [105] * N


def test_functions_of_call(torch, held, latch):
    """Their own work on tensors is ordered like a kernel's; what they have the framework do comes in between."""
    from cuda.bindings import driver

    x, y, seen = torch.tensor(3, N), torch.tensor(4, N), torch.tensor(100, N)

    def enqueue(stream: ac.Stream) -> None:
        seen.add_(y)
        driver.cuMemsetD32Async(x.address, 6, N, stream.handle)

    with ac.use(held):
        ac.zip(ac.fill(y, 5), ac.call(enqueue, writes=[x])).submit()
    seen.add_(x)
    assert not is_idle(torch, torch.current)
    latch.release()
    assert seen.tolist() == [111] * N
    assert (x._version, y._version) == (1, 1)


# --- constants ------------------------------------------------------------------------------------------------------


def test_nobody_waits_for_who_reads_a_constant(torch, held, latch):
    weight = torch.tensor(7, N)
    constant = ac.constant(weight)
    with ac.use(held):
        copied = ac.dup(constant).submit()
    ac.done(torch.current, 0).sync(60)
    latch.release()
    assert host(copied.sync(60)) == [7] * N


def test_a_constant_comes_after_what_its_owner_had_enqueued(torch, held, latch, settle):
    weight = torch.tensor(7, N)
    torch.order(torch.current, held.handle)
    weight.fill_(8)
    constant = ac.constant(weight)
    copied = ac.dup(constant).on(ac.Device(0).stream()).submit()
    settle()
    assert not copied.done()
    latch.release()
    assert host(copied.sync(60)) == [8] * N


def test_a_constant_is_not_written(torch, increment):
    with pytest.raises(ac.OwnershipError, match="read-only"):
        increment(ac.constant(torch.tensor(7, N)))
    shared = ac.constant(ac.zeros(N, np.int32).sync())
    with pytest.raises(ac.OwnershipError, match="shared"):
        increment(shared)


# --- submitted whole ------------------------------------------------------------------------------------------------


def test_a_full_stream_lets_no_framework_run_ahead(torch, increment):
    x, y = torch.tensor(0, N), torch.tensor(100, N)
    operation: Any = x
    for _ in range(20):
        operation = increment(operation)
    with ac.use(max_in_flight=1):
        operation.submit()
        y.add_(x)
    assert y.tolist() == [120] * N


def test_a_full_stream_lets_none_run_ahead_of_an_await(torch, increment, run):
    x, y = torch.tensor(0, N), torch.tensor(100, N)
    operation: Any = x
    for _ in range(20):
        operation = increment(operation)

    async def main() -> None:
        with ac.use(max_in_flight=1):
            first_step(operation)
            y.add_(x)

    run(main)
    assert y.tolist() == [120] * N


def test_a_full_stream_lets_none_run_ahead_of_a_future_that_is_asked_first(torch, increment, run):
    x, y = torch.tensor(0, N), torch.tensor(100, N)
    operation: Any = x
    for _ in range(20):
        operation = increment(operation)

    async def main() -> None:
        with ac.use(max_in_flight=1):
            scheduled = operation.schedule(ac.Device(0))
            step = ac.wait([scheduled])
            with contextlib.suppress(StopIteration):
                step.send(None)
            assert operation._state == "submitted"
            y.add_(x)
            step.close()

    run(main)
    assert y.tolist() == [120] * N


def test_an_operation_behind_a_map_is_refused_and_nothing_is_lost(torch, kernels, increment, run, latches):
    x = torch.tensor(2, N)

    def build() -> tuple[Any, Any, Any]:
        latch, stream = latches(), ac.Device(0).stream()
        latch.hold(stream)  # the value is not there by the time that it is asked for
        number = ac.to_host(increment(x).on(stream)).map(lambda value: int(value[0]))
        return latch, number, kernels.accumulate(number, ac.zeros(N, np.int32), x, N, threads=N)

    latch, number, operation = build()
    with pytest.raises(ac.ArgumentValueError, match="after a map"):
        operation.submit()
    assert operation._state == "pending"
    latch.release()
    assert x.tolist() == [3] * N  # what stands before the map has run

    async def main() -> None:
        latch, number, operation = build()
        with pytest.raises(ac.ArgumentValueError, match="after a map"):
            await operation
        latch.release()
        assert await number == 4
        await operation  # 3 · 4 + 4 · 0

    assert number.sync(60) == 3
    operation.sync(60)
    assert x.tolist() == [9] * N
    x.fill_(3)
    run(main)
    assert x.tolist() == [12] * N


def test_what_a_map_yields_is_refused_too_where_it_has_a_tensor(torch, increment, run):
    x = torch.tensor(2, N)

    async def main() -> None:
        late = ac.to_host(ac.zeros(4)).map(lambda _: 5).then(lambda _: increment(x))
        with pytest.raises(ac.ArgumentValueError, match="after a map"):
            await late

    run(main)
    assert x.tolist() == [2] * N


def test_a_thread_that_waits_may_have_maps_in_the_middle(torch, kernels, increment):
    x = torch.tensor(2, N)
    number = ac.to_host(increment(x)).map(lambda value: int(value[0]))
    kernels.accumulate(number, ac.ones(N, np.int32), x, N, threads=N).sync(60)
    x.add_(x)
    assert x.tolist() == [24] * N


# --- what is kept, and what is told ---------------------------------------------------------------------------------


def test_a_block_is_not_given_out_again_before_it_was_used(torch, held, latch, let_go):
    x = torch.tensor(5, N)
    address = x.address
    with ac.use(held):
        copied = ac.dup(x).submit()
    del x
    gc.collect()
    assert torch.tensor(6, N).address != address
    latch.release()
    assert host(copied.sync(60)) == [5] * N
    assert let_go(lambda: address in torch._free[torch.current, N])


def test_writes_are_counted_and_reads_are_not(torch, kernels, increment):
    x, y = torch.tensor(5, N), torch.tensor(6, N)
    kernels.accumulate(2, x, y, N, threads=N).submit()
    assert (x._version, y._version) == (0, 1)
    ac.fill(x, 1).sync(60)
    ac.copy(x, y).sync(60)
    ac.to_host(x).sync(60)
    ac.to_device(np.zeros(N, np.int32)).then(lambda zeros: ac.copy(x, zeros)).sync(60)
    assert (x._version, y._version) == (3, 1)
    x.inference = True
    increment(x).sync(60)
    assert x._version == 3


def test_a_use_that_is_refused_leaves_the_rest_in_order(torch, increment, held, latch):
    x, y = torch.tensor(3, N), torch.tensor(100, N)
    closed = ac.zeros(N, np.int32).sync()
    refused_later = increment(closed)
    closed.close()
    with ac.use(held), pytest.raises(ac.ClosedError, match="was closed"):
        ac.zip(increment(x), refused_later).submit()
    y.add_(x)
    assert not is_idle(torch, torch.current)
    latch.release()
    assert y.tolist() == [104] * N


def test_an_operation_that_fails_leaves_the_rest_in_order(torch, increment, held, latch):
    x, y = torch.tensor(3, N), torch.tensor(100, N)

    def fail(_: Any) -> Any:
        raise ValueError("as asked")

    with ac.use(held), pytest.raises(ValueError, match="as asked"):
        ac.zip(increment(x), ac.zeros(1).then(fail)).submit()
    y.add_(x)
    assert not is_idle(torch, torch.current)
    latch.release()
    assert y.tolist() == [104] * N


def test_many_tensors_at_one_address(torch, increment):
    for turn in range(200):
        x = torch.tensor(turn, N)
        increment(x).submit()
        assert x.tolist() == [turn + 1] * N
        del x
    assert torch.allocations < 20


# --- two libraries --------------------------------------------------------------------------------------------------


def test_the_same_memory_through_two_libraries_has_one_order(torch, increment, held, latch, settle):
    x = torch.tensor(3, N)
    with ac.use(held):
        first = increment(x).submit()
    second = increment(ac.external(Shown(x))).on(ac.Device(0).stream()).submit()
    settle()
    assert not second.done()
    latch.release()
    assert host(second.sync(60)) == [5] * N
    first.sync(60)


class Shown:
    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (N,), "typestr": "<i4", "data": (self.tensor.address, False), "version": 3, "stream": None}


def test_an_array_that_was_lent_comes_back_as_a_tensor(torch, increment, held, latch):
    """Its memory is ours: one place, whoever names it."""
    ours = ac.full(N, 3, np.int32).sync()
    borrowed = torch.from_dlpack(ours)
    x, y = torch.Tensor(torch, borrowed.address, N), torch.tensor(100, N)
    with ac.use(held):
        increment(ours).submit()
    second = increment(x).on(ac.Device(0).stream()).submit()
    y.add_(x)
    assert not second.done()
    latch.release()
    assert y.tolist() == [105] * N
    del borrowed


def test_a_borrowers_stream_waits_for_later_work_on_what_it_borrowed(torch, increment, held, latch):
    ours = ac.full(N, 3, np.int32).sync()
    borrowed, y = torch.from_dlpack(ours), torch.tensor(100, N)
    with ac.use(held):
        future = increment(ours).submit()
    y.add_(borrowed)
    assert not is_idle(torch, torch.current)
    latch.release()
    assert y.tolist() == [104] * N
    future.sync(60)
    del borrowed


# --- libraries without a current stream -----------------------------------------------------------------------------


@pytest.fixture
def jax(monkeypatch) -> Iterator[Framework]:
    """Give a framework whose arrays never change, and say nothing of that."""
    made = Framework()
    monkeypatch.setitem(sys.modules, "jax", types.ModuleType("jax"))
    yield made
    close(made)


def array_of_jax(framework: Framework, value: int) -> Any:
    made = type("Array", (Tensor,), {"__module__": "jax"})(framework, framework.allocate(N), N)
    made.stream, made.free = framework.current, framework._free
    return made.fill_(value)


def test_an_array_of_jax_is_read_and_not_written(jax, kernels, increment, held, latch, settle):
    x, y = array_of_jax(jax, 3), ac.zeros(N, np.int32).sync()
    jax.order(jax.current, held.handle)
    x.fill_(4)
    future = kernels.accumulate(2, x, y, N, threads=N).on(ac.Device(0).stream()).submit()
    settle()
    assert not future.done()
    with pytest.raises(ac.OwnershipError, match="read-only"):
        increment(x)
    latch.release()
    assert host(future.sync(60)) == [8] * N


def test_a_capsule_that_was_taken_already(jax, increment):
    x = array_of_jax(jax, 3)
    capsule = x.__dlpack__(stream=-1)
    Tensor.taken(jax, capsule)
    taken = type("Array", (), {"__module__": "jax", "__dlpack__": lambda *_, **__: capsule})
    taken.__dlpack_device__ = lambda _: (CUDA, 0)
    with pytest.raises(ac.ArgumentTypeError, match="Array"):
        increment(taken())


def test_an_array_of_jax_in_host_memory(jax, increment):
    class Array:
        def __dlpack__(self, **_: Any) -> Any:
            raise AssertionError

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    Array.__module__ = "jax"
    with pytest.raises(ac.ArgumentTypeError, match=r"argument 1 \(x\): .*host memory"):
        increment(Array())


def test_a_buffer_of_cuda_core(kernels):
    import cuda.core

    core = cuda.core.Device(0)
    core.set_current()
    stream = core.create_stream()
    buffer = core.allocate(N, stream=stream)
    buffer.fill(7, stream=stream)
    stream.sync()
    assert host(ac.dup(buffer)) == [7] * N
    ac.fill(buffer, 9).sync(60)
    assert ac.to_host(buffer).sync(60).tolist() == [9] * N


# --- where arrays are taken -----------------------------------------------------------------------------------------


def test_everything_that_takes_arrays_takes_tensors(torch, device):
    x, y = torch.tensor(3, N), torch.tensor(4, N)
    assert ac.to_host(x).sync(60).tolist() == [3] * N
    assert host(ac.dup(x)) == [3] * N
    assert host(ac.convert(x, np.int16)) == [3] * N
    assert host(ac.concatenate([x, y])) == [3] * N + [4] * N
    assert host(ac.gather([x, y])) == [3] * N + [4] * N
    assert host(ac.full_like(x, 9)) == [9] * N
    assert host(ac.asarray(y)) == [4] * N
    assert [host(each) for each in ac.replicate(x, [device])] == [[3] * N]
    assert [host(each) for each in ac.shard(x, [device])] == [[3] * N]
    target = np.zeros(N, np.int32)
    ac.copy(target, x).sync(60)
    assert target.tolist() == [3] * N
    ac.copy(y, np.arange(N, dtype=np.int32)).sync(60)
    assert y.tolist() == list(range(N))
    seen = ac.call(lambda stream: None, reads=[x], writes=[y]).sync(60)
    assert seen.address == y.address
    assert ac.to_device(x).sync(60).address == x.address


def test_tensors_by_name_and_as_a_strided_view(torch, kernels):
    x = torch.tensor(3, N)
    ac.copy(x, np.arange(N, dtype=np.int32)).sync(60)
    assert host(x[1:9:2]) == [1, 3, 5, 7]
    kernels.increment(n=N, x=x, threads=N).sync(60)
    assert x.tolist() == list(range(1, N + 1))
    with pytest.raises(ac.ArgumentTypeError, match="strided"):
        kernels.increment(x[::2], N // 2, threads=N // 2)


def test_graphs(torch, kernels, increment, held, latch):
    """A graph has tensors for good, or takes one in place of another; each launch is ordered both ways."""
    x, y, z, seen = (torch.tensor(value, N) for value in (1, 2, 3, 100))
    graph = kernels.accumulate(10, x, y, N, threads=N).graph(x=x)  # y = 3 y + 10 x
    x.fill_(2)
    graph.launch().sync(60)
    assert y.tolist() == [26] * N
    with ac.use(held):
        graph.launch(x=z).submit()
    seen.add_(y)
    latch.release()
    assert seen.tolist() == [208] * N
    assert y._version == 2


def test_compiled_functions(torch, kernels, held, latch):
    @ac.compile
    def triple(a: Any, b: Any) -> Any:
        return kernels.accumulate(1, a, b, N, threads=N)

    x, y, seen = (torch.tensor(value, N) for value in (1, 2, 100))
    for _ in range(3):
        triple(x, y).sync(60)
    assert y.tolist() == [67] * N
    other = torch.tensor(2, N)
    with ac.use(held):
        triple(other, y).submit()
    seen.add_(y)
    assert triple.cache_info().graphs == 1
    latch.release()
    assert seen.tolist() == [303] * N
    assert (triple.cache_info().hits, triple.cache_info().misses) == (3, 1)


# --- what is refused ------------------------------------------------------------------------------------------------


def refused(
    torch: Torch, increment: Any, match: str, error: type[Exception] = ac.ArgumentTypeError, **having: Any
) -> None:
    x = torch.tensor(3, N)
    for name, value in having.items():
        setattr(x, name, value)
    with pytest.raises(error, match=match):
        increment(x)
    for name in having:
        vars(x).pop(name)
    x.dtype, x.is_sparse, x.conj, x.neg = torch.int32, False, False, False
    assert host(increment(x).sync(60)) == [4] * N


def test_tensors_that_cannot_be_used(torch, increment):
    refused(torch, increment, r"argument 1 \(x\): .*in host memory; to_device", device_ordinal=-1)
    refused(torch, increment, r"argument 1 \(x\): .*requires a gradient.*detach", requires_grad=True)
    refused(torch, increment, "conjugated.*resolve_conj", conj=True, dtype=type(torch.int32)("complex64"))
    refused(torch, increment, "negated.*resolve_neg", neg=True)
    refused(torch, increment, "a Tensor: sparse tensors do not", is_sparse=True)
    refused(torch, increment, "int32.* is expected, float32", dtype=type(torch.int32)("float32"))
    refused(torch, increment, "its dtype nonsense", dtype=type(torch.int32)("nonsense"))


def test_a_tensor_that_stands_for_others(torch, increment):
    wrapper = type("Wrapper", (torch.Tensor,), {"__torch_dispatch__": len, "__module__": "mine"})
    with pytest.raises(ac.ArgumentTypeError, match="keeps its items elsewhere"):
        increment(wrapper(torch, 0, N))


def test_a_class_of_the_programs_own(torch, increment):
    kind = type("Named", (torch.Tensor,), {"__module__": "mine"})
    x = torch.tensor(3, N)
    increment(kind(torch, x.address, N)).sync(60)
    assert x.tolist() == [4] * N


def test_what_a_framework_raises_is_the_reason(torch, increment):
    def fail() -> int:
        raise RuntimeError("it has no storage")

    refused(torch, increment, "a Tensor: it has no storage", data_ptr=fail)


@pytest.mark.needs_devices(2)
def test_a_tensor_of_another_device(torch, kernels):
    other = Torch(1)
    with other.imported():
        y = other.tensor(4, N)
        with pytest.raises(ac.DeviceMismatchError, match=r"\.to\("):
            kernels.accumulate(1, ac.zeros(N, np.int32).sync(), y, N, threads=N)
        kernels.increment(y, N, threads=N).sync(60)
        assert y.tolist() == [5] * N
        del y
    close(other)


def test_a_captured_stream(torch, increment):
    from cuda.bindings import driver

    x = torch.tensor(3, N)
    stream = torch.other_stream()
    driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    with torch.using(stream):
        operation = increment(x)
        with pytest.raises(ac.CaptureError, match="captured"):
            operation.submit()
    result, _ = driver.cuStreamEndCapture(stream)
    assert result == driver.CUresult.CUDA_SUCCESS
    operation.sync(60)
    assert x.tolist() == [4] * N


@pytest.mark.emulated_only
def test_a_freed_stream(torch, increment):
    x = torch.tensor(3, N)
    stream = torch.other_stream()
    torch.destroy(stream)
    with torch.using(stream), pytest.raises(ac.DriverError, match="increment"):
        increment(x).submit()
    increment(x).sync(60)
    assert x.tolist() == [4] * N


def test_what_has_no_framework_is_no_tensor(increment):
    with pytest.raises(ac.ArgumentTypeError, match="ndarray was given; bring host data"):
        increment(np.zeros(N, np.int32))
    with pytest.raises(ac.ArgumentTypeError, match="object was given"):
        increment(object())
