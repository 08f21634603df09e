"""`sync` and `submit` of operations, which native code takes where it can, are the methods that Python's code says."""

from __future__ import annotations

import inspect
import types

import pytest

import aiocuda as ac


@pytest.mark.parametrize("name", ["sync", "submit"])
def test_they_look_like_methods(name):
    method = getattr(ac.DeviceOp, name)
    op = ac.value(3)
    assert inspect.getdoc(method)
    assert next(iter(inspect.signature(method).parameters)) == "self"
    bound = getattr(op, name)
    assert isinstance(bound, types.MethodType)
    assert bound.__self__ is op
    assert bound.__name__ == name


def test_however_sync_is_called_it_gives_the_result():
    assert ac.value(3).sync() == 3
    assert ac.value(3).sync(None) == 3
    assert ac.value(3).sync(60) == 3
    assert ac.value(3).sync(timeout=60) == 3
    assert ac.DeviceOp.sync(ac.value(3)) == 3
    bound = ac.value(3).sync
    assert bound() == 3


def test_however_submit_is_called_it_gives_a_future():
    assert ac.value(3).submit().sync() == 3
    assert ac.DeviceOp.submit(ac.value(3)).sync() == 3


@pytest.mark.parametrize("call", [lambda op: op.sync(1, 2), lambda op: op.sync(later=1), lambda op: op.submit(1)])
def test_what_they_do_not_take_is_refused_as_by_python(call):
    with pytest.raises(TypeError, match=r"sync\(\)|submit\(\)"):
        call(ac.value(3))


@pytest.mark.parametrize("name", ["sync", "submit"])
def test_they_are_of_operations_alone(name):
    with pytest.raises(TypeError, match="an operation is expected"):
        getattr(ac.DeviceOp, name)(3)


@pytest.mark.needs_devices(2)
@pytest.mark.parametrize("name", ["sync", "submit"])
def test_the_placement_in_force_is_theirs(name):
    with ac.use(ac.Device(1)):
        array = getattr(ac.ones(4), name)()
        if name == "submit":
            array = array.sync()
    assert array.device == ac.Device(1)


@pytest.mark.parametrize("name", ["sync", "submit"])
def test_an_error_of_the_program_comes_as_it_is(name):
    def fail(_: object) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        getattr(ac.value(3).then(fail), name)()
