"""A loop on the device refuses what cannot run there when it is built, by name, and says what to do."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from loop_programs import less

import aiocuda as ac
from aiocuda._driver import compiler, runtime

N = 8


@pytest.fixture
def increment(kernels):
    return lambda x: kernels.increment(x, N, threads=N)


@pytest.fixture
def x():
    return ac.zeros(N, np.int32).sync()


def whole(x):
    return ac.zip(x, ac.empty_host(N, np.int32)).first()


REFUSED = [
    (lambda x: ac.copy(x, np.ones(N, np.int32)), "reads the host's memory", "to_device"),
    (lambda x: ac.to_device(np.ones(N, np.int32), 0), "reads the host's memory", "to_device"),
    (lambda x: ac.to_host(x).then(lambda _: x), "makes an array in the host's memory", "before"),
    (whole, "makes an array in the host's memory", "before"),
    (lambda x: ac.value(x).map(lambda y: y), "calls a function on the host", r"map\(\) the result"),
    (lambda x: ac.zeros(N, np.int32, managed=True), "managed memory cannot be made", "make it before"),
]


@pytest.mark.parametrize(("body", "does", "instead"), REFUSED)
def test_work_of_the_host_is_refused_in_bodies(x, body, does, instead):
    with pytest.raises(ac.CaptureError, match=does) as refused:
        ac.repeat(3, body, x)
    assert re.search(instead, str(refused.value))
    for build in (
        lambda: ac.while_(lambda y: less(y, 3), body, x, max_iterations=3),
        lambda: ac.cond(ac.ones(()).sync(), body, state=x),
        lambda: ac.cond(ac.ones(()).sync(), lambda y: y, body, x),
    ):
        with pytest.raises(ac.CaptureError, match=does):
            build()


def test_what_only_an_operation_yields_is_refused_at_submission(x):
    looped = ac.repeat(3, lambda y: ac.value(y).map(lambda z: z), ac.dup(x))
    with pytest.raises(ac.CaptureError, match=r"repeat: .* calls a function on the host"):
        looped.sync()


def test_a_copy_within_page_locked_memory_goes_by_way_of_the_device(x, kernels):
    a, b = (ac.empty_host(N, np.int32).sync() for _ in range(2))
    a.numpy()[:], b.numpy()[:] = 0, 7
    added = ac.repeat(2, lambda y: kernels.accumulate(1, ac.to_device(ac.copy(a, b), 0), y, N, threads=N), x)
    assert ac.to_host(added).sync().tolist() == [28] * N
    assert a.numpy().tolist() == [7] * N


def test_page_locked_memory_is_read_by_each_iteration(x, kernels):
    page_locked = ac.empty_host(N, np.int32).sync()
    page_locked.numpy()[:] = 4
    added = ac.repeat(2, lambda y: kernels.accumulate(1, ac.to_device(page_locked, 0), y, N, threads=N), x)
    assert ac.to_host(added).sync().tolist() == [16] * N


def test_executing_in_a_body_is_refused(x):
    with pytest.raises(ac.CaptureError, match="inside repeat, which is traced"):
        ac.repeat(3, lambda y: ac.dup(y).sync(), x)


def test_another_device_is_refused(x, kernels):
    if len(ac.devices()) < 2:
        pytest.skip("there is one device")
    other = ac.zeros(N, np.int32, 1).sync()
    with pytest.raises(ac.DeviceMismatchError, match=r"repeat: the launch of increment works on device 1, .* device 0"):
        ac.repeat(3, lambda y: ac.zip(y, kernels.increment(other, N, threads=N)).first(), x)
    with pytest.raises(ac.DeviceMismatchError, match="repeat runs on one device"):
        ac.repeat(3, lambda s: s, (x, other))
    with pytest.raises(ac.DeviceMismatchError, match=r"while_: .* is on device 1, and the loop on device 0"):
        ac.while_(lambda _: ac.ones((), device=1), lambda y: y, x, max_iterations=1)
    looped = ac.repeat(3, lambda y: kernels.increment(y, N, threads=N), other).sync()
    assert looped.device.ordinal == 1
    assert ac.to_host(looped).sync().tolist() == [3] * N


def test_captured_work_with_other_nodes_is_refused(x):
    def records_an_event(stream, y):
        cuda = pytest.importorskip("cuda.bindings.driver")
        _, event = cuda.cuEventCreate(0)
        made.append(event)
        (answer,) = cuda.cuEventRecordWithFlags(event, stream.handle, 1)  # as a node of its own
        assert int(answer) == 0

    made = []
    with pytest.raises(ac.CaptureError, match="puts an event on its stream"):
        ac.repeat(3, lambda y: ac.zip(y, ac.call(records_an_event, y, writes=[y])).first(), x)


def test_captured_work_within_captured_graphs_is_refused(x):
    cuda = pytest.importorskip("cuda.bindings.driver")

    def check(answer):
        assert int(answer[0]) == 0
        return answer[1:]

    kept = []

    def with_a_child(stream, fill_child):
        """Put a graph in a graph, which `fill_child` fills, on a stream that is captured."""
        (outer,), (inner,) = check(cuda.cuGraphCreate(0)), check(cuda.cuGraphCreate(0))
        fill_child(inner)
        check(cuda.cuGraphAddChildGraphNode(outer, None, 0, inner))
        status, _, captured, *_ = check(cuda.cuStreamGetCaptureInfo(stream.handle))
        assert int(status) == 1
        (node,) = check(cuda.cuGraphAddChildGraphNode(captured, None, 0, outer))
        check(cuda.cuStreamUpdateCaptureDependencies(stream.handle, [node], None, 1, 0))

    def puts_an_event(stream, y):
        (event,) = check(cuda.cuEventCreate(0))
        kept.append(event)
        with_a_child(stream, lambda graph: check(cuda.cuGraphAddEventRecordNode(graph, None, 0, event)))

    with pytest.raises(ac.CaptureError, match="puts an event on its stream"):
        ac.repeat(3, lambda y: ac.zip(y, ac.call(puts_an_event, y, writes=[y])).first(), x)


@pytest.mark.parametrize("kind", ["pageable", "page-locked"])
def test_captured_copies_of_pageable_memory_are_refused(x, kind):
    cuda = pytest.importorskip("cuda.bindings.driver")
    memory = np.full(N, 4, np.int32) if kind == "pageable" else ac.empty_host(N, np.int32).sync().numpy()
    memory[:] = 4

    def uploads(stream, y):
        address = y.__cuda_array_interface__["data"][0]
        (answer,) = cuda.cuMemcpyHtoDAsync(address, memory.ctypes.data, 4 * N, stream.handle)
        assert int(answer) == 0

    def build():
        return ac.repeat(3, lambda y: ac.zip(y, ac.call(uploads, y, writes=[y])).first(), x)

    if kind == "pageable":
        with pytest.raises(ac.CaptureError, match="puts a copy from or to pageable memory on its stream"):
            build()
    else:
        assert ac.to_host(build()).sync(60).tolist() == [4] * N


@pytest.mark.parametrize("state", [1, "text", None, np.ones(3), (1.5,)])
def test_a_state_is_arrays_on_a_device(state):
    if state is None:
        assert ac.repeat(3, lambda s: s, None).sync() is None
        return
    with pytest.raises(ac.ArgumentTypeError, match=r"repeat: state.* is an array on a device"):
        ac.repeat(3, lambda s: s, state)


@dataclasses.dataclass
class Named:
    a: object


def test_a_body_returns_what_it_was_given(x, increment):
    for state, body, said in (
        (x, lambda y: ac.convert(y, np.float32), r"float32\(8,\) on device 0 for state, where int32\(8,\)"),
        (x, lambda y: y[:3], r"int32\(3,\) on device 0 for state, where int32\(8,\)"),
        ((x, x), lambda s: s[0], r"returned 1 array instead of 2 arrays: state\[0\], state\[1\]"),
        ({"a": x}, lambda s: {"a": 5}, r"returned 5 for state\['a'\]"),
        (Named(x), lambda s: Named(s.a[:2]), r"for state\.a, where"),
        (x, lambda y: None, "returned 0 arrays instead of 1 array: state"),
        (
            ((x, x), x),
            lambda s: (s[0][0], (s[0][1], s[1])),
            r"returned 3 arrays \(state\[0\], state\[1\]\[0\], state\[1\]\[1\]\) instead of 3 arrays: state\[0\]\[0\]",
        ),
        ({"a": x, "b": x}, lambda s: {"a": s["a"], "c": s["b"]}, r"\(state\['a'\], state\['c'\]\) instead of 2"),
    ):
        with pytest.raises((ac.ArgumentTypeError, ac.ArgumentValueError), match=f"repeat: the body .*{said}"):
            ac.repeat(2, body, state)


def test_branches_return_the_same(x):
    one = ac.ones(()).sync()
    with pytest.raises(ac.ArgumentValueError, match="cond: the second branch returned float32"):
        ac.cond(one, lambda: ac.zeros(3, np.int32), lambda: ac.zeros(3))
    with pytest.raises(ac.ArgumentValueError, match="give a second branch, or a state"):
        ac.cond(one, lambda: ac.zeros(3, np.int32))
    with pytest.raises(ac.ArgumentTypeError, match="cond: the first branch returned 5"):
        ac.cond(one, lambda: 5, lambda: 6)


def test_a_condition_is_one_number_on_the_device(x):
    def loop(condition):
        return ac.while_(condition, lambda y: y, x, max_iterations=2)

    with pytest.raises(ac.ArgumentTypeError, match=r"the result of the condition is an array of one number .* True"):
        loop(lambda y: True)
    with pytest.raises(ac.ArgumentValueError, match=r"it has the shape \(8,\): reduce it first"):
        loop(lambda y: y)
    with pytest.raises(ac.ArgumentTypeError, match="complex64"):
        loop(lambda y: ac.zeros((), np.complex64))
    with pytest.raises(ac.ArgumentValueError, match=r"the predicate is an array of one number; .*\(8,\)"):
        ac.cond(x, lambda y: y, state=x)


def test_limits_and_functions_are_checked(x):
    with pytest.raises(TypeError, match="max_iterations"):
        ac.while_(lambda y: y, lambda y: y, x)
    with pytest.raises(ac.ArgumentValueError, match="max_iterations"):
        ac.while_(lambda y: y, lambda y: y, x, max_iterations=-1)
    for n in (1.5, "3", True, None):
        with pytest.raises((ac.ArgumentTypeError, ac.ArgumentValueError), match="repeat: n"):
            ac.repeat(n, lambda y: y, x)

    async def body(y):
        return y

    with pytest.raises(ac.ArgumentTypeError, match="is async"):
        ac.repeat(3, body, x)
    with pytest.raises(ac.ArgumentTypeError, match="cond takes a function of nothing"):
        ac.cond(ac.ones(()), 5)


def test_an_error_of_a_body_is_the_callers_own(x):
    def body(y):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ac.repeat(3, body, x)
    assert ac.to_host(ac.dup(x)).sync().tolist() == [0] * N  # nothing is recorded any more


@pytest.mark.parametrize(("version", "has_loops", "has_branches"), [(12020, 0, 0), (12030, 1, 0), (12080, 1, 1)])
def test_older_drivers_are_refused(monkeypatch, x, increment, version, has_loops, has_branches):
    info = dataclasses.replace(runtime.driver_info(), version=version)
    monkeypatch.setattr(runtime, "driver_info", lambda: info)
    one = ac.ones(()).sync()
    for build, is_possible in (
        (lambda: ac.repeat(3, increment, x), has_loops),
        (lambda: ac.while_(lambda _: one, increment, x, max_iterations=2), has_loops),
        (lambda: ac.cond(one, increment, state=x), has_loops),
        (lambda: ac.cond(one, increment, increment, x), has_branches),
    ):
        if is_possible:
            build()
        else:
            with pytest.raises(ac.CaptureError, match=r"the driver is of CUDA 12\.\d.*update it to CUDA 12\.[38]"):
                build()


def test_only_ptx_can_have_a_function_of_the_driver(monkeypatch):
    info = dataclasses.replace(runtime.driver_info(), kind="nvidia")
    monkeypatch.setattr(runtime, "driver_info", lambda: info)
    setting = compiler.Source("a.cu", "... cudaGraphSetConditional(handle, 1); ...")
    assert compiler._output([setting]) == "PTX"
    assert compiler._output([compiler.Source("a.cu", "...")]) == "CUBIN"
