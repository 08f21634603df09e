"""Operations compose: each combinator yields what its name says, and runs nothing when it is built."""

from __future__ import annotations

import collections
import inspect
from typing import Any

import numpy as np
import pytest

import aiocuda as ac
from aiocuda import _native

Pair = collections.namedtuple("Pair", ["left", "right"])  # noqa: PYI024 - what a user may have


def ints(n: int = 4, value: int = 1) -> ac.DeviceOp[ac.DeviceArray]:
    return ac.full(n, value, np.int32)


def test_value_yields_the_object_itself():
    thing = object()
    assert ac.value(thing).sync() is thing


def test_value_of_an_operation_is_the_operation():
    op = ints()
    assert ac.value(op) is op


def test_then_gets_the_array_handle_and_its_operation_comes_next(kernels):
    op = ints().then(lambda array: kernels.increment(array, array.size, threads=array.size))
    np.testing.assert_array_equal(ac.to_host(op).sync(), [2, 2, 2, 2])


def test_then_may_return_a_plain_value():
    assert ints(7).then(lambda array: array.shape).sync() == (7,)


def test_then_may_return_none():
    assert ints().then(lambda _: None).sync() is None


def test_then_may_return_an_operation_that_has_run():
    done = ac.value(5)
    done.sync()
    assert ac.value(1).then(lambda _: done).sync() == 5


def test_then_is_called_while_the_device_still_works(latch):
    latch.hold()
    seen: list[bool] = []
    op = ints().then(lambda array: seen.append(latch.is_holding) or array)
    op.submit()
    assert seen == [True]


def test_then_resolves_operations_anywhere_in_what_it_returns():
    def nested(_: object) -> Any:
        return {
            "list": [ac.value(1), 2, [ac.value(3)]],
            "tuple": (ac.value(4), {"deep": ac.value(5)}),
            "named": Pair(ac.value(6), 7),
            "array": ac.to_host(ints(2, 9)),
        }

    found = ac.value(None).then(nested).sync()
    array = found.pop("array")
    assert found == {"list": [1, 2, [3]], "tuple": (4, {"deep": 5}), "named": Pair(6, 7)}
    assert type(found["named"]) is Pair
    np.testing.assert_array_equal(array, [9, 9])


def test_then_leaves_a_structure_without_operations_as_it_is():
    structure = [1, (2, {"three": 3})]
    assert ac.value(0).then(lambda _: structure).sync() is structure


def test_what_then_returns_is_built_from_the_results_once():
    """The same operation in two places is one result; keys and the kinds of containers stay."""
    calls: list[int] = []
    shared = ac.value(1).inspect(calls.append)
    made = ac.value(0).then(lambda _: {(1, 2): [shared, (shared,)], "empty": ([], (), {})}).sync()
    assert made == {(1, 2): [1, (1,)], "empty": ([], (), {})}
    assert calls == [1]


def test_what_a_function_of_then_returns_goes_where_that_was_put(device, kernels):
    """Unless it was put somewhere itself, or has run: so does a call that waits for its arguments."""
    streams = [device.stream() for _ in range(2)]

    def held() -> list[int]:
        return [_native.stream_submitted(stream._index) for stream in streams]

    ac.value(None).then(lambda _: ac.value(None).then(lambda _: ac.ones(3))).on(streams[0]).sync()
    assert held() == [1, 0]
    ac.value(None).then(lambda _: ac.ones(3).on(streams[1])).on(streams[0]).sync()
    assert held() == [1, 1]
    done = ac.ones(3)
    done.sync()
    ac.value(None).then(lambda _: done).on(streams[0]).sync()
    ac.value(None).then(lambda _: ac.ones(3)).sync()
    assert held() == [1, 1]
    ac.value(None).then(lambda _: ac.ones(3)).on(ac.SingleStream()).sync()
    assert held() == [1, 1]
    summed = ac.compile(lambda x: kernels.accumulate(1, x, ac.dup(x), 3, threads=3))
    result = summed(ac.ones(3, np.int32).on(streams[1])).on(streams[0]).sync()
    assert held() == [2, 2]
    assert list(ac.to_host(result).sync()) == [4, 4, 4]


def test_what_comes_to_the_host_in_the_end_goes_where_it_is_put(device):
    """Copies, launches and calls: not what a function makes of the result, but the device's work."""
    stream = device.stream()
    graph = ac.to_host(ac.ones(3)).graph()
    compiled = ac.compile(lambda x: ac.to_host(ac.dup(x)))
    x = ac.ones(3).sync()
    for number, op in enumerate([ac.to_host(x), graph.launch(), compiled(x), compiled(ac.ones(3))]):
        assert list(op.on(stream).sync()) == [1, 1, 1]
        assert _native.stream_submitted(stream._index) == number + 1
        with pytest.raises(ac.ArgumentValueError, match="came too late"):
            op.on(stream)


@pytest.mark.needs_devices(2)
def test_what_a_function_of_then_returns_goes_to_the_device_where_that_was_put(kernels):
    """It does so if no array ties it to a device."""
    flag = ac.empty_host(1, np.int32).sync()
    flag.numpy()[0] = 1
    for device in (0, 1):
        op = ac.value(None).then(lambda _: kernels.hold(flag.address, grid=1, block=1)).on(device)
        op.sync()
        assert [_native.stream_device(stream) for stream, _ in op._ready] == [device]
    assert ac.value(None).then(lambda _: ac.zeros(3, device=0)).on(1).sync().device.ordinal == 0


def test_then_may_return_a_structure_of_arrays_and_operations_on_them(kernels):
    def several(array: ac.DeviceArray) -> dict[str, Any]:
        return {
            "handle": array,
            "next": kernels.increment(array, 4, threads=4),
            "more": (array.shape, ac.to_host(array)),
        }

    made = ints().then(several).sync()
    assert made["handle"] is made["next"]
    assert made["more"][0] == (4,)
    np.testing.assert_array_equal(made["more"][1], [2, 2, 2, 2])


def test_then_within_then_is_resolved_to_the_end():
    def again(value: int) -> Any:
        return value if value == 5 else [ac.value(value + 1).then(again)]

    assert ac.value(0).then(again).sync() == [[[[[5]]]]]


def test_an_operation_that_fails_inside_what_then_returned_is_its_error():
    op = ac.value(0).then(lambda _: {"fine": ac.value(1), "bad": [ac.value(1).map(lambda _: 1 / 0)]})
    with pytest.raises(ZeroDivisionError):
        op.sync()
    assert "failed" in repr(op)


def test_a_map_inside_what_then_returned_waits_for_its_value(latch, device):
    stream = device.stream()
    latch.hold(stream)
    with ac.use(stream):
        op = ac.value(0).then(lambda _: (ac.to_host(ints()).map(lambda host: int(host.sum())), 2))
        future = op.submit()
    assert not future.done()
    latch.release()
    assert future.sync() == (4, 2)


@pytest.mark.needs_devices(2)
def test_to_brings_an_array_to_a_device(kernels):
    op = kernels.increment(ints(), 4, threads=4).to(1)
    assert op.sync().device == ac.Device(1)
    np.testing.assert_array_equal(ac.to_host(op).sync(), [2, 2, 2, 2])


@pytest.mark.needs_devices(2)
def test_to_takes_what_is_known_only_when_it_runs():
    op = ac.value(3).then(lambda n: ints(n)).to(ac.Device(1))
    assert op.sync().device == ac.Device(1)


def test_to_of_what_is_there_is_itself():
    array = ints().sync()
    assert ac.value(array).to(0).sync() is array
    assert ac.empty_host(3).to(0).sync().shape == (3,)


def test_to_of_what_is_no_array_is_an_error():
    with pytest.raises(ac.ArgumentTypeError, match=r"object .* is no array data in host memory"):
        ac.value(object()).to(0).sync()
    with pytest.raises(ac.ArgumentTypeError, match=r"a device is a Device, its ordinal, or a name .* was given"):
        ints().to(b"nowhere")  # type: ignore[arg-type]


def test_map_gets_the_complete_value():
    assert ac.to_host(ints(5, 3)).map(lambda host: int(host.sum())).sync() == 15


def test_map_result_is_taken_as_it_is():
    inner = ac.value(3)
    assert ac.value(1).map(lambda _: inner).sync() is inner


def test_map_is_not_called_before_the_device_is_done(latch):
    latch.hold()
    called: list[bool] = []
    future = ints().map(called.append).submit()
    assert not future.done()
    assert called == []
    latch.release()
    future.sync()
    assert len(called) == 1


def test_work_may_follow_a_map(kernels):
    op = ac.to_host(ints(3, 5)).map(lambda host: host * 2).then(ac.to_device)
    op = kernels.increment(op, 3, threads=3)
    np.testing.assert_array_equal(ac.to_host(op).sync(), [11, 11, 11])


def test_number_from_a_map_is_a_kernel_argument(kernels):
    two = ac.to_host(ac.full(1, 2.0)).map(lambda host: float(host[0]))
    op = kernels.scale(two, ac.ones(4), ac.empty(4), 4, threads=4)
    np.testing.assert_array_equal(ac.to_host(op).sync(), [2, 2, 2, 2])


def test_inspect_shows_the_handle_and_passes_it_on():
    seen: list[Any] = []
    array = ints(6).inspect(seen.append).sync()
    assert seen == [array]
    assert seen[0] is array


def test_zip_yields_a_tuple_of_results_values_and_arrays():
    array = ints(2).sync()
    assert ac.zip(ac.value(1), "two", array).sync() == (1, "two", array)


def test_zip_of_nothing_is_an_empty_tuple():
    assert ac.zip().sync() == ()


def test_zip_takes_operations_out_of_tuples_lists_and_dicts():
    zipped = ac.zip(ac.value(1), (ac.value(2), [3]), [ac.value(4)], {"five": (ac.value(5),)})
    assert zipped.sync() == (1, (2, [3]), [4], {"five": (5,)})


def test_zip_submits_from_left_to_right():
    order: list[int] = []
    ops = [ac.value(i).inspect(order.append) for i in range(5)]
    ac.zip(*ops).sync()
    assert order == [0, 1, 2, 3, 4]


def test_unzip_gives_an_operation_for_each_item():
    a, b, c = ac.zip(ac.value(1), ac.value(2), ac.value(3)).unzip()
    assert (c.sync(), a.sync(), b.sync()) == (3, 1, 2)


def test_unzip_of_a_kernel_with_two_outputs(kernels):
    x = ac.to_device(np.array([7, 8, 9], np.int32))
    quotient, remainder = kernels.divmod(x, 4, ac.empty(3, np.int32), ac.empty(3, np.int32), 3, threads=3).unzip()
    np.testing.assert_array_equal(ac.to_host(remainder).sync(), [3, 0, 1])
    np.testing.assert_array_equal(ac.to_host(quotient).sync(), [1, 2, 2])


def test_unzip_after_then_needs_the_number_of_items():
    op = ac.value(1).then(lambda _: (1, 2))
    with pytest.raises(ac.ArgumentValueError, match=r"unzip\(n\)"):
        op.unzip()
    first, second = op.unzip(2)
    assert (first.sync(), second.sync()) == (1, 2)


def test_unzip_with_a_wrong_number_is_an_error_when_it_is_known():
    with pytest.raises(ac.ArgumentValueError, match=r"2 items.*unzip\(3\)"):
        ac.zip(ac.value(1), ac.value(2)).unzip(3)


def test_first_and_last():
    op = ac.zip(ac.value("a"), ac.value("b"), ac.value("c"))
    assert op.first().sync() == "a"
    assert op.last().sync() == "c"


def test_first_and_last_of_a_run_time_sequence():
    op = ac.value(0).then(lambda _: [1, 2, 3])
    assert (op.first().sync(), op.last().sync()) == (1, 3)


def test_first_of_what_has_no_items_is_an_error():
    with pytest.raises(IndexError, match=r"item 0"):
        ac.zip().first().sync()
    with pytest.raises(TypeError, match="item 0 was asked of a result that is no sequence, but 3"):
        ac.value(3).first().sync()


def test_operations_are_arguments_to_any_depth(kernels):
    def tree(depth: int) -> ac.DeviceOp[ac.DeviceArray]:
        if depth == 0:
            return ac.ones(4)
        return kernels.add(tree(depth - 1), tree(depth - 1), ac.empty(4), 4, threads=4)

    np.testing.assert_array_equal(ac.to_host(tree(6)).sync(), [64, 64, 64, 64])


def test_building_runs_nothing(kernels, used_bytes):
    before = used_bytes()
    calls: list[object] = []
    x = ac.ones(1 << 20).inspect(calls.append).then(calls.append).map(calls.append)
    y = ac.zip(x, kernels.scale(1.0, ac.ones(9), ac.empty(9), 9, threads=9), ac.to_device([1]))
    assert used_bytes() == before
    assert calls == []
    assert "pending" in repr(y)


@pytest.mark.parametrize("method", ["then", "map", "inspect"])
def test_a_callback_must_be_callable(method):
    with pytest.raises(ac.ArgumentTypeError, match=rf"{method}\(\) takes a function"):
        getattr(ints(), method)(3)


def test_an_operation_has_no_truth_value():
    with pytest.raises(ac.ArgumentTypeError, match="await it"):
        bool(ints())


def test_repr_says_what_it_is_its_state_and_its_line():
    op, line = ac.value(1).map(str), inspect.currentframe().f_lineno
    assert "map() callback, pending" in repr(op)
    assert f"test_algebra.py:{line}>" in repr(op)
    op.sync()
    assert "submitted" in repr(op)
