"""Placement: the placement of an execution is in force in all that it does, and new arrays follow it."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import anyio
import numpy as np
import pytest

import aiocuda as ac

pytestmark = pytest.mark.needs_devices(2)
N = 4
Execute = Any


def placed(array: ac.DeviceArray) -> int:
    return array.device.ordinal


def filled(_: Any) -> ac.DeviceOp[ac.DeviceArray]:
    return ac.full(N, 2.0)


def mean_of_ones() -> ac.DeviceOp[float]:
    return ac.to_host(ac.ones(N)).map(lambda values: float(values.mean()))


# --- an execution's placement is in force in what it does


@pytest.mark.parametrize("target", [lambda: 1, lambda: ac.Device(1), lambda: ac.Device(1).stream()])
def test_a_schedule_puts_arrays_on_its_device(execute: Execute, target):
    assert placed(execute(ac.ones(N).schedule(target()))) == 1
    assert placed(execute(ac.value(N).then(ac.ones).schedule(target()))) == 1


def test_what_a_function_makes_is_where_then_was_put(execute: Execute):
    assert placed(execute(ac.value(16).then(lambda n: ac.ones(n)).on(1))) == 1
    assert placed(execute(ac.value(16).then(lambda n: ac.ones(n).then(ac.dup)).on(ac.Device(1).stream()))) == 1


@pytest.mark.parametrize("is_held", [False, True])
def test_a_future_keeps_its_placement_behind_a_map(execute: Execute, latch, is_held):
    """Whether the map's input was complete when it was submitted, or when somebody awaits it."""
    seen: list[int] = []
    with ac.use(1):
        if is_held:
            latch.hold(1)
        future = mean_of_ones().inspect(lambda _: seen.append(ac.current_device().ordinal)).then(filled).submit()
        if not is_held:
            ac.Device(1).synchronize().sync()
    latch.release()
    assert placed(execute(future)) == 1
    assert seen == [1]


KINDS = {
    "then": lambda look: ac.value(1).then(look),
    "inspect": lambda look: ac.value(1).inspect(look),
    "map": lambda look: ac.value(1).map(look),
    "map of an array": lambda look: ac.ones(N).map(look),
    "call": lambda look: ac.call(lambda stream: look(stream)),
    "after a map": lambda look: mean_of_ones().then(look),
    "in what then returned": lambda look: ac.value(1).then(lambda one: ac.value(one).map(look)),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_function_is_told_the_placement(execute: Execute, kind):
    policy = ac.RoundRobin(2)
    stream = ac.Device(1).stream()
    seen: list[Any] = []

    def look(_: Any) -> None:
        seen.append((ac.current_device().ordinal, ac.current_policy()))

    def build() -> Any:
        return KINDS[kind](look)

    usual = ac.current_policy()
    with ac.use(policy):
        execute(build().schedule(1))
    execute(build().schedule(policy))
    execute(build().on(1))
    execute(build().on(policy))
    build().sync_on(stream)
    with ac.use(policy), ac.use(stream):
        execute(build())
        future = build().submit()
    execute(future)
    assert seen == [(1, policy), (0, policy), (1, usual), (0, policy), (1, usual), (1, policy), (1, policy)]
    assert (ac.current_device().ordinal, ac.current_policy()) == (0, usual)


def test_on_in_the_middle_is_for_what_it_wraps(execute: Execute):
    seen: list[int] = []

    def look(value: Any) -> Any:
        seen.append(ac.current_device().ordinal)
        return value

    inner = ac.value(1).then(look).then(lambda _: ac.ones(N).inspect(look)).on(1)
    outer = inner.then(lambda array: ac.to_host(array).map(look)).inspect(look)
    execute(outer)
    assert seen == [0, 1, 0, 0]


def test_what_then_returned_runs_on_the_policy_where_that_was_put(kernels):
    stream = ac.Device(1).stream()

    def chain(n: int) -> Any:
        return kernels.increment(kernels.increment(ac.zeros(n, np.int32), n, threads=n), n, threads=n)

    with ac.use(0):
        ac.value(N).then(chain).on(stream).sync()
    assert repr(stream).endswith("3 submitted>")


def test_an_error_in_a_function_leaves_the_callers_placement(execute: Execute):
    def fail(_: Any) -> None:
        assert ac.current_device().ordinal == 1
        raise ZeroDivisionError

    for build in (
        lambda: ac.value(1).then(fail),
        lambda: ac.value(1).map(fail),
        lambda: ac.call(fail),
        lambda: mean_of_ones().inspect(fail),
    ):
        with pytest.raises(ZeroDivisionError):
            execute(build().schedule(1))
        assert ac.current_device().ordinal == 0


def test_a_function_may_execute_with_the_placement_and_with_others(execute: Execute):
    seen: list[int] = []

    def look(_: Any) -> None:
        seen.append(placed(ac.ones(N).sync()))
        with ac.use(0):
            seen.append(placed(ac.ones(N).sync()))
        seen.append(placed(ac.ones(N).sync()))

    execute(ac.value(1).inspect(look).schedule(1))
    execute(ac.value(1).map(look).schedule(1))
    assert seen == [1, 0, 1] * 2


def test_callbacks_of_a_future_drive_it_with_its_placement(execute: Execute, latch):
    """On the library's own thread."""
    latch.hold(1)
    done = threading.Event()
    future = mean_of_ones().then(filled).schedule(1)
    future.add_done_callback(lambda _: done.set())
    latch.release()
    assert done.wait(60)
    assert placed(future.result()) == 1


def test_many_tasks_keep_their_placements(run):
    async def work(ordinal: int, found: list[int]) -> None:
        with ac.use(ordinal):
            for _ in range(5):
                found.append(placed(await mean_of_ones().then(filled)))

    async def main() -> dict[int, list[int]]:
        found: dict[int, list[int]] = {0: [], 1: []}
        async with anyio.create_task_group() as group:
            for ordinal in (0, 1, 0, 1):
                group.start_soon(work, ordinal, found[ordinal])
        return found

    assert run(main) == {0: [0] * 10, 1: [1] * 10}


def test_limits_and_policies_hold_in_functions(execute: Execute):
    with ac.memory_limit(0, device=1):
        limited = ac.value(N).then(ac.ones).schedule(1)
        free = ac.value(N).then(ac.ones).schedule(0)
    with pytest.raises(ac.OutOfMemoryError, match="device 1"):
        execute(limited)
    assert placed(execute(free)) == 0


class Asked(ac.SchedulingPolicy):
    def __init__(self) -> None:
        super().__init__(1)
        self.seen: list[tuple[int, bool]] = []

    def choose(self, op, producers, candidates):
        self.seen.append((ac.current_device().ordinal, ac.current_policy() is self))
        return candidates[0]


def test_a_policy_of_ones_own_is_told_the_placement(execute: Execute):
    policy = Asked()
    with ac.use(policy):
        future = ac.ones(N).schedule(1)
    execute(future)
    execute(ac.ones(N).on(1).on(policy))
    assert policy.seen == [(1, True)] * 2


# --- creation that names no device


CREATIONS = {
    "empty": lambda: ac.empty(N),
    "pitched": lambda: ac.empty((3, 5), pitched=True),
    "zeros": lambda: ac.zeros(N),
    "ones": lambda: ac.ones(N),
    "full": lambda: ac.full(N, 3),
    "full of 16 bytes": lambda: ac.full(N, 1j, np.complex128),
    "arange": lambda: ac.arange(N),
    "linspace": lambda: ac.linspace(0, 1, N),
    "eye": lambda: ac.eye(N),
    "rand": lambda: ac.rand(N, seed=1),
    "randn": lambda: ac.randn(N, seed=1),
    "randint": lambda: ac.randint(0, 5, N, seed=1),
    "to_device": lambda: ac.to_device(np.ones(N, np.float32)),
    "to_device of what is strided": lambda: ac.to_device(np.ones((N, N), np.float32).T),
    "to_device of page-locked memory": lambda: ac.to_device(ac.empty_host(N)),
    "to_device of a value": lambda: ac.to_device(ac.value(np.ones(N, np.float32))),
    "to_device of an operation": lambda: ac.to_device(ac.ones(N)),
    "dup": lambda: ac.dup(ac.ones(N)),
    "fill": lambda: ac.fill(ac.empty(N), 2),
    "copy": lambda: ac.copy(ac.empty(N), np.ones(N, np.float32)),
    "copy of two": lambda: ac.copy(ac.empty(N), ac.ones(N)),
    "convert": lambda: ac.convert(ac.ones(N), np.float64),
    "matmul": lambda: ac.linalg.matmul(ac.ones((N, N)), ac.eye(N)),
    "sort": lambda: ac.algorithms.sort(ac.ones(N)),
    "scan": lambda: ac.algorithms.scan(ac.ones(N)),
    "transform": lambda: ac.algorithms.transform("x + y", x=ac.ones(N), y=ac.ones(N)),
    "gather": lambda: ac.gather([ac.ones(N), ac.ones(N)]),
    "a view": lambda: ac.ones(N).then(lambda array: array[1:]),
    "interprocess": lambda: ac.empty(N, interprocess=True),
    "managed": lambda: ac.empty(N, managed=True),
}
MOST = sorted(set(CREATIONS))


@pytest.mark.parametrize("name", MOST)
def test_creation_takes_the_device_of_its_execution(name, set_device):
    make = CREATIONS[name]
    assert placed(make().sync()) == 0
    assert placed(make().schedule(1).sync()) == 1
    assert placed(make().sync_on(ac.Device(1).stream())) == 1
    with ac.use(1):
        future = make().submit()
        assert placed(make().sync()) == 1
    assert placed(future.sync()) == 1
    assert placed(make().on(1).sync()) == 1
    op = make()
    with ac.use(1):
        assert placed(op.sync()) == 1
    set_device(1)
    assert placed(make().sync()) == 1
    assert placed(make().schedule(0).sync()) == 0


@pytest.mark.parametrize("name", MOST)
def test_creation_inside_of_use_is_placed_there(name):
    with ac.use(1):
        op, other = CREATIONS[name](), CREATIONS[name]()
    with ac.use(0):
        assert placed(op.sync()) == 1
    assert placed(other.schedule(0).sync()) == 1


@pytest.mark.parametrize("name", [name for name in MOST if name != "managed"])
def test_creation_goes_where_its_consumers_arrays_are(name):
    x = ac.zeros(1, np.int32, device=1).sync()
    for reads, writes in (([x], []), ([], [x])):
        made = CREATIONS[name]()
        op = ac.call(lambda stream, array: array, made, reads=[made, *reads], writes=writes)
        assert placed(op.sync()) == 1
    flat = CREATIONS[name]().then(ac.dup).then(lambda array: array.view(np.uint8))
    both = ac.kernel('extern "C" __global__ void both(const unsigned char* made, int* known) {}')
    known, made = ac.zip(both(flat, x, threads=1), flat).sync()
    assert [placed(made), placed(known)] == [1, 1]


def test_arrays_that_are_known_only_at_submission_count(execute: Execute, kernels):
    x = ac.ones(N, device=1).sync()
    late = ac.value(x).then(lambda array: array)
    assert placed(execute(kernels.scale(2.0, late, ac.zeros(N), N, threads=N))) == 1
    assert placed(execute(kernels.scale(2.0, ac.value(x).then(ac.dup), ac.rand(N), N, threads=N))) == 1


def test_what_several_use_is_where_the_first_needs_it(kernels):
    x = ac.ones(N, device=1).sync()
    shared = ac.rand(N, seed=3)
    first = kernels.scale(1.0, shared, x, N, threads=N)
    arrays = ac.zip(first, shared, ac.to_host(shared.to(0))).sync()
    assert [placed(arrays[0]), placed(arrays[1])] == [1, 1]


def test_a_copy_says_nothing_of_its_source(kernels):
    """It reaches every device; so what else takes the source decides."""
    x = ac.ones(N, device=0).sync()
    shared = ac.rand(N, seed=3)
    moved, scaled = ac.zip(ac.dup(shared.to(1)), kernels.scale(1.0, shared, x, N, threads=N)).sync()
    assert [placed(moved), placed(scaled)] == [1, 0]


def test_a_copys_destination_is_beside_its_source_where_nothing_else_is_said():
    x = ac.ones(N, device=1).sync()
    assert placed(ac.copy(ac.empty(N), x).sync()) == 1
    assert placed(ac.copy(ac.empty(N), x).schedule(0).sync()) == 0


def test_to_device_without_a_device_moves_to_that_of_its_execution():
    x = ac.ones(N, device=1).sync()
    assert placed(ac.to_device(x).sync()) == 0
    assert ac.to_device(x).schedule(1).sync() is x
    assert placed(ac.to_device(x).on(0).sync()) == 0
    with ac.use(1):
        assert ac.to_device(x).sync() is x


def test_zipped_operations_each_go_where_they_belong(execute: Execute):
    with ac.use(1):
        pinned = ac.ones(N)
    arrays = execute(ac.zip(ac.ones(N, device=0), pinned, ac.ones(N), ac.ones(N).on(1)).schedule(0))
    assert [placed(array) for array in arrays] == [0, 1, 0, 1]


def test_on_a_structure_is_for_what_is_made_for_it(execute: Execute):
    arrays = execute(ac.zip(ac.ones(N), ac.rand(N, seed=1), ac.ones(N, device=0)).on(1))
    assert [placed(array) for array in arrays] == [1, 1, 0]


def test_a_deep_chain_of_structures_is_linear():
    op: Any = ac.ones(1)
    for _ in range(20_000):
        op = ac.zip(op, ac.value(1))
    op = op.on(1)
    found = op.sync()
    while isinstance(found, tuple):
        found = found[0]
    assert placed(found) == 1


# --- contradictions


def test_two_explicit_places_are_an_error_that_names_both(kernels, execute: Execute):
    x = ac.ones(N, device=0).sync()
    with ac.use(0):
        built = ac.ones(N)
    message = r"device 0.*device 1.*\.to\([01]\)|device 1.*device 0.*\.to\([01]\)"
    with pytest.raises(ac.DeviceMismatchError, match=r"on\(1\).*device 0.*\.to\(1\)"):
        ac.ones(N, device=0).on(1)
    with pytest.raises(ac.DeviceMismatchError, match=r"on\(1\).*device 0.*\.to\(1\)"):
        built.on(1)
    with pytest.raises(ac.DeviceMismatchError, match=r"on\(1\).*device 0.*\.to\(1\)"):
        execute(kernels.scale(1.0, ac.value(x).then(lambda array: array), ac.zeros(N), N, threads=N).on(1))
    with pytest.raises(ac.DeviceMismatchError, match="stream of device 1"):
        execute(ac.ones(N, device=0).on(ac.Device(1).stream()))
    with pytest.raises(ac.DeviceMismatchError, match=message):
        kernels.scale(1.0, x, ac.zeros(N, device=1), N, threads=N)
    with pytest.raises(ac.DeviceMismatchError, match=message):
        execute(kernels.scale(1.0, x, ac.zeros(N).on(1), N, threads=N))


def test_a_device_that_a_function_names_is_no_contradiction(execute: Execute):
    """`on` of a `then` is in force in its function; what says more there is nearer."""
    assert placed(execute(ac.value(1).then(lambda _: ac.ones(N, device=0)).on(1))) == 0


# --- explain, graphs, compiled functions


def test_explain_shows_the_device_and_decides_nothing(set_device):
    op = ac.dup(ac.ones(N))
    with ac.use(1):
        assert op.explain().count("in device 1") >= 2
    assert "in device 0" in op.explain()
    set_device(1)
    assert "in device 1" in op.explain()
    assert placed(op.schedule(0).sync()) == 0


def test_a_graph_is_made_where_its_execution_would_be(kernels, set_device):
    def build() -> Any:
        return kernels.increment(ac.zeros(N, np.int32), N, threads=N)

    assert placed(build().graph().launch().sync()) == 0
    assert placed(build().on(1).graph().launch().sync()) == 1
    with ac.use(1):
        op = build().graph()
        with ac.graph_scope() as scope:
            seen: list[int] = []
            scope.record(ac.value(1).then(lambda n: (seen.append(ac.current_device().ordinal), ac.ones(n))[1]))
    assert seen == [1]
    assert placed(op.launch().sync()) == placed(scope.graph.launch().sync()) == 1
    with ac.graph_scope(ac.Device(1).stream()) as scope:
        scope.record(build())
    assert placed(scope.graph.launch().sync()) == 1
    set_device(1)
    assert placed(build().graph().launch().sync()) == 1
    with pytest.raises(ac.DeviceMismatchError, match=r"on\(0\)"):
        op.launch().on(0)


def test_a_compiled_function_is_traced_where_it_is_called(set_device):
    compiled = ac.compile(lambda n: ac.ones(N))
    assert placed(compiled(1).sync()) == 0
    with ac.use(1):
        assert placed(compiled(1).sync()) == 1
    set_device(1)
    assert placed(compiled(1).sync()) == 1


# --- the process's default


def test_set_device_is_what_is_in_force_by_itself(set_device):
    assert set_device(1) == ac.Device(0)
    assert ac.current_device() == ac.Device(1)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(placed(ac.ones(N).sync())))
    thread.start()
    thread.join()
    assert seen == [1]
    with ac.use(0):
        assert ac.current_device() == ac.Device(0)
    assert set_device(ac.Device(0)) == ac.Device(1)


@pytest.mark.parametrize("wrong", [None, 1.0, True])
def test_set_device_takes_a_device(wrong):
    with pytest.raises(ac.ArgumentTypeError, match="device"):
        ac.set_device(wrong)


def test_set_device_takes_a_device_that_is_there():
    with pytest.raises(ac.ArgumentValueError, match="no device 99"):
        ac.set_device(99)
    assert ac.current_device() == ac.Device(0)


def test_a_placement_in_a_circle_is_collected():
    class Kept(ac.SchedulingPolicy):
        pass

    policy = Kept()
    with ac.use(policy):
        policy.future = ac.ones(N).schedule(0)
    gone = weakref.ref(policy)
    del policy
    gc.collect()
    assert gone() is None
