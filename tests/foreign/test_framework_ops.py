"""Operations of a framework's functions, beside a framework that has a current stream and an allocator."""

from __future__ import annotations

import functools
import gc
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from framework import Framework, Tensor
from framework_ops import Adapter, InC

import aiocuda as ac

N = 64


@pytest.fixture
def framework() -> Iterator[Framework]:
    made = Framework()
    yield made
    close(made)


@pytest.fixture(params=[InC, Adapter], ids=["exchange", "python"])
def adapter(request: pytest.FixtureRequest, framework: Framework) -> Adapter:
    """Give the stand-in as aiocuda takes PyTorch, and as it takes others: by methods in Python."""
    made: Adapter = request.param(framework)
    return made


@pytest.fixture
def op(adapter: Adapter) -> Callable[..., Any]:
    return adapter.op


def close(framework: Framework) -> None:
    for _ in range(2):  # aiocuda lets go of tensors when somebody next submits
        gc.collect()
        ac.Device(framework.ordinal).synchronize().sync()
        ac.zeros(1).sync()
    framework.close()


@pytest.fixture
def increment(kernels) -> Callable[[Any], ac.DeviceOp]:
    return lambda x: kernels.increment(x, N, threads=N)


def host(x: Any) -> list[int]:
    return ac.to_host(x).sync_on(ac.Device(0).stream(), 60).tolist()


def full(value: int) -> ac.DeviceArray:
    return ac.full(N, value, np.int32).sync()


def hold_framework(latch: Any, framework: Framework) -> None:
    """Hold the framework's current stream, from now on."""
    gate = ac.Device(0).stream()
    latch.hold(gate)
    framework.order(framework.current, gate.handle)


# --- what the function gets, and what it gives ----------------------------------------------------------------------


def test_the_function_gets_tensors_over_the_same_memory_on_the_operations_stream(framework, op, device):
    x, stream = full(3), device.stream()
    seen = []

    def look(t: Tensor) -> None:
        seen.append((t.address, t.items, framework.current))

    assert op(look, x).sync_on(stream, 60) is None
    assert seen == [(x.address, N, stream.handle)]


def test_what_it_returns_is_an_array_that_operations_use(framework, op, increment):
    y = op(lambda t: framework.full(N, 0).copy_(t), full(3))
    assert host(increment(y)) == [4] * N
    assert isinstance(y.sync(60), ac.DeviceArray)


def test_results_go_from_one_framework_to_another(framework, op):
    other = Framework()
    second = Adapter(other).op(lambda t: other.full(N, 0).copy_(t), op(lambda: framework.full(N, 5)))
    assert host(second) == [5] * N
    del second
    close(other)


class Pair(NamedTuple):
    first: Any
    second: Any


def test_structures_go_in_and_come_out(framework, op):
    def function(given: Any) -> Any:
        assert isinstance(given["pair"], Pair)
        assert given["pair"].second == 2
        return [framework.full(N, 0).copy_(given["pair"].first), {"b": Pair(framework.full(N, 8), "text")}, None]

    result = op(function, {"pair": Pair(ac.full(N, 7, np.int32), 2)}).sync(60)
    assert isinstance(result, list)
    assert host(result[0]) == [7] * N
    assert isinstance(result[1]["b"], Pair)
    assert host(result[1]["b"].first) == [8] * N
    assert (result[1]["b"].second, result[2]) == ("text", None)


def test_a_structure_of_results_is_an_argument_of_the_next(framework, op):
    def two(value: int) -> Any:
        return {"a": framework.full(N, value), "b": [framework.full(N, value + 1)]}

    both = op(two, 1)
    assert host(op(lambda given: framework.full(N, 0).copy_(given["b"][0]), both)) == [2] * N
    assert host(both.sync(60)["a"]) == [1] * N


def test_an_argument_that_is_returned_is_that_array_again(op):
    x = full(1)
    assert op(lambda t: t.fill_(6), x, writes=[x]).sync(60) is x
    assert host(x) == [6] * N


def test_a_part_of_an_argument_that_is_returned_shares_its_memory_and_its_order(op, latch, device, increment, settle):
    x = full(1)
    part = op(lambda t: t.part(N // 2, N // 2), x).sync(60)
    assert (part.address, part.shape) == (x.address + N * 2, (N // 2,))
    held = device.stream()
    latch.hold(held)
    increment(x).on(held).submit()
    later = ac.dup(part).on(device.stream())
    future = later.submit()
    settle()
    assert not future.done()
    latch.release()
    assert ac.to_host(later).sync(60).tolist() == [2] * (N // 2)


def test_a_function_that_returns_none_gives_what_it_writes(op):
    x, y = full(1), full(2)
    assert op(lambda a: None, x, writes=[x]).sync(60) is x
    assert op(lambda a: None, x, writes=[x, y]).sync(60) == (x, y)


def test_an_empty_array_goes_in_and_comes_out(op, framework):
    empty = ac.empty(0, np.int32).sync()
    assert op(lambda t: t.items, empty).sync(60) == 0
    assert op(lambda: Tensor(framework, 0, 0)).sync(60).shape == (0,)


# --- order ----------------------------------------------------------------------------------------------------------


def test_it_comes_after_what_the_frameworks_current_stream_holds(framework, op, latch, settle):
    """Such as weights that were just loaded, which no argument names."""
    weight = framework.full(N, 1)
    hold_framework(latch, framework)
    weight.fill_(9)
    copied = op(lambda: framework.full(N, 0).copy_(weight))
    future = copied.submit()
    settle()
    assert not future.done()
    latch.release()
    assert host(copied) == [9] * N


def test_it_waits_for_who_writes_what_it_reads_and_is_waited_for(framework, op, latch, device, settle, increment):
    x = full(1)
    held = device.stream()
    latch.hold(held)
    increment(x).on(held).submit()
    read = op(lambda t: framework.full(N, 0).copy_(t), x).on(device.stream())
    used = increment(read).on(device.stream())
    pending = [read.submit(), ac.fill(x, 50).on(device.stream()).submit(), used.submit()]
    settle()
    assert [each.done() for each in pending] == [False] * 3
    latch.release()
    assert host(used) == [3] * N
    assert host(x) == [50] * N


def test_what_it_writes_is_written_before_who_reads_it(op, latch, device, settle):
    x = full(1)
    held = device.stream()
    latch.hold(held)
    op(lambda t: t.fill_(4), x, writes=[x]).on(held).submit()
    copied = ac.dup(x).on(device.stream())
    future = copied.submit()
    settle()
    assert not future.done()
    latch.release()
    assert host(copied) == [4] * N


def test_calls_of_one_function_run_one_after_another_and_stateless_ones_overlap(framework, op, latch, device, settle):
    cache = framework.full(N, 0)

    def function(value: int) -> Any:
        cache.fill_(value)
        return framework.full(N, 0).copy_(cache)

    held = device.stream()
    latch.hold(held)
    first, second = op(function, 1).on(held), op(function, 2).on(device.stream())
    first.submit()
    future = second.submit()
    alone = op(lambda: framework.full(N, 3), stateless=True).on(device.stream())
    assert host(alone) == [3] * N
    settle()
    assert not future.done()
    latch.release()
    assert (host(first), host(second)) == ([1] * N, [2] * N)


def test_functions_that_replace_what_they_keep_do_so_on_one_stream(framework, op, latch, device):
    """The allocator gives what one lets go of to the next function on its stream, whoever still uses it elsewhere."""
    kept = [framework.full(N, 0)]

    def add(t: Tensor) -> Any:
        kept[0] = framework.full(N, 0).copy_(t)
        return framework.full(N, 0).copy_(kept[0])

    def other(value: int) -> Any:
        return framework.full(N, value)

    sources = [full(value) for value in range(12)]
    seen: list[int] = []
    results = []
    for i, source in enumerate(sources):
        results += [op(add, source), op(other, 100 + i)]
        op(lambda: seen.append(framework.current)).submit()
    for each in results:
        each.submit()
    assert len(set(seen)) == 1
    assert [host(each)[0] for each in results[::2]] == list(range(12))
    assert [host(each)[0] for each in results[1::2]] == list(range(100, 112))
    with ac.use(device.stream()) as _:
        chosen = device.stream()
        op(lambda: seen.append(framework.current)).on(chosen).sync(60)
    assert seen[-1] == chosen.handle


class Model:
    """A module with a buffer."""

    def __init__(self, framework: Framework) -> None:
        self.framework = framework
        self.buffer = framework.full(N, 0)

    def __call__(self, value: int) -> Any:
        self.buffer.fill_(value)
        return self.framework.full(N, 0).copy_(self.buffer)

    def forward(self, value: int) -> Any:
        return self(value)


@pytest.mark.parametrize(
    ("which", "other"),
    [("called", "called"), ("called", "method"), ("method", "partial"), ("partial", "called"), ("closure", "closure")],
)
def test_functions_of_one_object_share_what_it_keeps(framework, op, latch, device, settle, which, other):
    model = Model(framework)

    def one(which: str) -> Any:
        return {
            "called": model,
            "method": model.forward,
            "partial": functools.partial(model.forward),
            "closure": lambda value: model(value),
        }[which]

    held = device.stream()
    latch.hold(held)
    first, second = op(one(which), 1).on(held), op(one(other), 2).on(device.stream())
    first.submit()
    future = second.submit()
    settle()
    assert not future.done()
    latch.release()
    assert (host(first), host(second)) == ([1] * N, [2] * N)


def test_what_functions_keep_is_forgotten_with_them(framework, op):
    model = Model(framework)
    seen = weakref.ref(model)
    op(model, 1).sync(60)
    del model
    gc.collect()
    ac.zeros(1).sync()
    assert seen() is None


def test_functions_that_cannot_be_told_apart_run_one_after_another(framework, op, latch, device, settle):
    class Slots:
        __slots__ = ("framework", "shared")

        def __call__(self, value: int) -> Any:
            self.shared.fill_(value)
            return self.framework.full(N, 0).copy_(self.shared)

    one, two = Slots(), Slots()
    one.framework = two.framework = framework
    one.shared = two.shared = framework.full(N, 0)
    held = device.stream()
    latch.hold(held)
    first, second = op(one, 1).on(held), op(two, 2).on(device.stream())
    first.submit()
    future = second.submit()
    settle()
    assert not future.done()
    latch.release()
    assert (host(first), host(second)) == ([1] * N, [2] * N)


# --- lifetime -------------------------------------------------------------------------------------------------------


def test_a_result_is_kept_until_the_device_has_passed_its_uses(framework, op, latch, device, increment, let_go):
    """Else the allocator would give it to the next function on its stream, which would overwrite it."""
    producing, held = device.stream(), device.stream()
    y = op(lambda: framework.full(N, 5)).sync_on(producing, 60)
    latch.hold(held)
    copied = ac.dup(y).on(held)
    copied.submit()
    seen = weakref.ref(y)
    del y
    gc.collect()
    assert seen() is None
    others = [op(lambda value: framework.full(N, value), value).sync_on(producing, 60) for value in range(4)]
    latch.release()
    assert host(copied) == [5] * N
    assert [host(other)[0] for other in others] == [0, 1, 2, 3]


def test_a_results_memory_comes_back(framework, op, device, let_go):
    stream = device.stream()
    for _ in range(50):
        ac.to_host(op(lambda: framework.full(N, 5))).sync_on(stream, 60)
        gc.collect()
    assert framework.allocations < 10


def test_a_tensor_that_the_function_keeps_keeps_the_memory(framework, op, used_bytes, let_go):
    gc.collect()
    before = used_bytes()
    kept: list[Tensor] = []
    op(kept.append, ac.full(N, 3, np.int32)).sync(60)
    gc.collect()
    ac.zeros(1).sync()
    assert used_bytes() > before
    assert kept[0].tolist() == [3] * N
    kept.clear()
    assert let_go(lambda: ac.zeros(1).sync() is not None and used_bytes() == before)


def test_arguments_live_until_the_work_has_passed(framework, op, latch, device, let_go):
    held = device.stream()
    latch.hold(held)
    weight = framework.full(N, 2)
    seen = weakref.ref(weight)
    copied = op(lambda theirs: framework.full(N, 0).copy_(theirs), weight).on(held)
    copied.submit()
    del weight
    gc.collect()
    assert seen() is not None
    latch.release()
    assert host(copied) == [2] * N
    del copied
    assert let_go(lambda: ac.zeros(1).sync() is not None and seen() is None)


# --- the current stream ---------------------------------------------------------------------------------------------


def test_the_current_stream_comes_back_also_after_an_error(framework, op):
    with framework.device_current():
        mine = framework.stream()
    with framework.using(mine):
        op(lambda: None).sync(60)
        assert framework.current == mine
        with pytest.raises(ZeroDivisionError):
            op(lambda: 1 / 0).sync(60)
        assert framework.current == mine


def test_the_current_device_comes_back(framework, device):
    adapter, seen = InC(framework), []
    adapter.device = 7
    adapter.op(lambda: seen.append(adapter.device)).sync(60)
    assert seen == [0]
    assert adapter.device == 7


def test_an_operation_within_a_function_has_a_stream_of_its_own(framework, op, device):
    inner, outer = device.stream(), device.stream()
    seen = []

    def function() -> None:
        seen.append(framework.current)
        op(lambda: seen.append(framework.current)).on(inner).submit()
        seen.append(framework.current)

    op(function).sync_on(outer, 60)
    assert seen == [outer.handle, inner.handle, outer.handle]


def test_threads_and_tasks_have_current_streams_of_their_own(framework, op, device, run):
    streams = [device.stream() for _ in range(3)]
    seen: list[Any] = []

    def work(stream: ac.Stream) -> None:
        for _ in range(20):
            op(lambda: seen.append((stream, framework.current))).sync_on(stream, 60)

    async def main() -> None:
        threads = [threading.Thread(target=work, args=(stream,)) for stream in streams]
        for thread in threads:
            thread.start()
        for _ in range(20):
            op_ = op(lambda: framework.full(N, 4))
            assert (await ac.to_host(op_)).tolist() == [4] * N
        while any(thread.is_alive() for thread in threads):
            await ac.zeros(1)
        for thread in threads:
            thread.join()

    run(main)
    assert len(seen) == 60
    assert all(current == stream.handle for stream, current in seen)


# --- errors ---------------------------------------------------------------------------------------------------------


def test_an_error_has_the_functions_traceback_and_names_the_line_of_the_operation(op):
    def fails(t: Tensor) -> None:
        raise ZeroDivisionError("mine")

    made = op(fails, full(1))
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        made.sync(60)
    assert any(frame.name == "fails" for frame in traceback.extract_tb(caught.value.__traceback__))
    assert any("framework_ops.py" in note and "fails" in note for note in caught.value.__notes__)


def test_an_error_reaches_whoever_awaits_and_later_work_goes_on(op, run):
    async def main() -> None:
        x = await ac.full(N, 1, np.int32)
        with pytest.raises(ZeroDivisionError):
            await op(lambda t: t.fill_(5) and 1 / 0, x, writes=[x])
        assert (await ac.to_host(x)).tolist() == [5] * N

    run(main)


def test_writing_in_place_what_is_not_named_is_an_error(op):
    x, y = full(1), full(2)
    with pytest.raises(ac.ArgumentValueError, match=r"<lambda> has written .* in place.*writes="):
        op(lambda a, b: b.fill_(3), x, y, writes=[x]).sync(60)
    op(lambda a: a.fill_(3), x[: N // 2], writes=[x]).sync(60)
    assert host(x) == [3] * (N // 2) + [1] * (N // 2)


def test_writing_what_is_shared_is_an_error_before_the_function_is_called(op):
    x = full(1)
    shared = x.share()
    calls: list[Any] = []
    with pytest.raises(ac.OwnershipError, match="shared at"):
        op(calls.append, x, writes=[x]).sync(60)
    y = full(2)
    made = op(calls.append, y)
    y.close()
    with pytest.raises(ac.ClosedError, match="call: what is read"):
        made.sync(60)
    assert calls == []
    assert op(lambda t: t.items, shared).sync(60) == N


def test_page_locked_memory_and_partitions_are_errors(op):
    with pytest.raises(ac.ArgumentTypeError, match=r"op: Stand-in gets arrays on a device.*to_device"):
        op(lambda t: None, ac.empty_host(N, np.int32).sync()).sync(60)
    with full(1).partition(8) as tiles, pytest.raises(ac.ArgumentTypeError, match="unpartition"):
        op(lambda t: None, tiles).sync(60)


def test_what_cannot_be_a_result_is_an_error(framework, op):
    def backwards() -> Tensor:
        tensor = framework.full(N, 1)
        tensor.strides = (-4,)
        return tensor

    with pytest.raises(ac.ArgumentValueError, match="strides of"):
        op(backwards).sync(60)


@pytest.mark.needs_devices(2)
def test_arrays_of_another_device_are_errors(framework, op):
    x, there = full(1), ac.full(N, 1, np.int32, device=1).sync()
    with pytest.raises(ac.DeviceMismatchError, match="bring one over"):
        op(lambda *_: None, x, there).sync(60)
    other = Framework(1)
    with pytest.raises(ac.DeviceMismatchError, match="returned an array on device 1, and runs on device 0"):
        op(lambda t: other.full(N, 1), x).sync(60)
    close(other)


@pytest.mark.needs_devices(2)
def test_it_runs_on_the_device_of_its_arrays(op):
    there = ac.full(N, 1, np.int32, device=1).sync()
    adapter = Adapter(Framework(1))
    made = adapter.op(lambda t: adapter.framework.full(N, 0).copy_(t[0]), [there]).sync(60)
    assert made.device.ordinal == 1
    assert ac.to_host(made).sync(60).tolist() == [1] * N
    del made
    close(adapter.framework)


def test_what_cannot_be_called_is_an_error(op):
    with pytest.raises(ac.ArgumentTypeError, match="takes a function"):
        op(3)
    with pytest.raises(ac.ArgumentTypeError, match=r"writes= takes a list of arrays"):
        op(len, writes=full(1))


def test_explain_shows_it(op):
    x, y = full(1), full(2)
    text = op(lambda a, b: None, x, [y], writes=[y]).explain()
    assert "call test_explain_shows_it.<locals>.<lambda> on device 0" in text
    assert f"reads int32({N},)" in text
    assert f"writes int32({N},)" in text
    assert "page-locked" not in text  # what it keeps is no array of the program's


# --- graphs ---------------------------------------------------------------------------------------------------------


def doubled(framework: Framework) -> Callable[[Any], Any]:
    def function(t: Tensor) -> Any:
        scratch = framework.full(N, 0).copy_(t)
        result = framework.full(N, 0).copy_(scratch)
        return {"result": result}

    return function


def test_results_of_a_compiled_function_are_the_callers(framework, op, increment):
    compiled = ac.compile(lambda x: op(doubled(framework), x).then(lambda made: made["result"]))
    results = [compiled(full(value)).sync(60) for value in range(5)]
    assert compiled.cache_info().misses == 1
    assert [host(result)[0] for result in results] == [0, 1, 2, 3, 4]


def test_operations_of_a_graph_are_ordered_by_what_a_framework_returned(framework, op, increment, kernels):
    @ac.compile
    def compiled(x: Any) -> Any:
        made = op(lambda t: framework.full(N, 0).copy_(t), increment(x))
        again = op(lambda t: framework.full(N, 0).copy_(t), increment(made))
        return increment(again)

    assert [host(compiled(full(value)))[0] for value in (1, 5)] == [4, 8]


def test_memory_of_a_graphs_functions_is_given_to_nobody_else(framework, op, device):
    x = full(1)
    graph = op(doubled(framework), x).graph()
    gc.collect()
    others = [framework.full(N, 77) for _ in range(8)]
    for value in (3, 4):
        ac.fill(x, value).sync(60)
        result = graph.launch().sync(60)
        assert host(result["result"]) == [value] * N
        assert all(other.tolist() == [77] * N for other in others)


def test_the_pool_of_a_graph_lives_as_long_as_the_graph(framework, op, adapter):
    x = full(1)
    graph = op(lambda t: t.copy_(framework.full(N, 5)) and None, x, writes=[x]).graph()
    pool = weakref.ref(adapter.pools.pop())
    gc.collect()
    assert pool() is not None
    graph.close()
    del graph
    gc.collect()
    for _ in range(2):
        ac.zeros(1).sync()
        gc.collect()
    assert pool() is None


def test_a_graph_comes_after_what_the_framework_held_when_it_was_made(framework, op, latch, settle):
    weight = framework.full(N, 1)
    hold_framework(latch, framework)
    weight.fill_(9)
    for stateless in (True, False):
        graph = op(lambda: framework.full(N, 0).copy_(weight), stateless=stateless).graph()
        launched = graph.launch()
        future = launched.submit()
        settle()
        assert not future.done(), stateless
        if not stateless:
            latch.release()
            assert host(launched) == [9] * N


def test_calls_in_a_graph_and_beside_it_share_what_a_function_keeps(framework, op, latch, device, settle):
    model = Model(framework)
    graph = op(model, 1).graph()
    held = device.stream()
    latch.hold(held)
    first, second = graph.launch().on(held), op(model, 2).on(device.stream())
    first.submit()
    future = second.submit()
    settle()
    assert not future.done()
    latch.release()
    assert (host(first), host(second)) == ([1] * N, [2] * N)


def test_an_error_in_a_graph_has_the_functions_traceback(framework, op):
    def fails() -> None:
        raise ZeroDivisionError("mine")

    before = framework.current
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        op(fails).graph()
    assert any(frame.name == "fails" for frame in traceback.extract_tb(caught.value.__traceback__))
    assert framework.current == before
