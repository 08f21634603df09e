"""What the habits of NumPy, PyTorch and CuPy ask of arrays and operations is an error that says how aiocuda does it."""

from __future__ import annotations

import asyncio
import collections.abc
import copy
import doctest
import functools
import inspect
import operator
import pickle

import numpy as np
import pytest

import aiocuda as ac
from aiocuda._instruments.advice import advised_names

SOURCE = 'extern "C" __global__ void look(const float* x) {}'


@pytest.fixture(scope="module")
def things():
    """One of each kind, by the name that messages call it."""
    op = ac.ones((2, 3))
    kernel = ac.kernel(SOURCE)
    array = ac.ones((2, 3)).sync()
    scope = ac.graph_scope()
    with scope:
        scope.record(ac.ones(2))
    return {
        "array": array,
        "host": ac.empty_host((2, 3)).sync(),
        "managed": ac.ones(3, managed=True).sync(),
        "partition": ac.ones((2, 3)).sync().partition((1, 3)),
        "op": op,
        "launch": kernel(array, threads=1),
        "value": ac.value(3),
        "future": ac.ones(3).submit(),
        "kernel": kernel,
        "module": ac.Module.from_source(SOURCE),
        "graph": ac.ones(3).graph(),
        "scope": scope,
        "compiled": ac.compile(ac.dup),
        "event": ac.Device(0).default_stream.record(),
        "wait": ac.Device(0).synchronize(),
        "policy": ac.Dataflow(),
        "own policy": ac.SchedulingPolicy(),
        "stream": ac.Device(0).default_stream,
    }


ATTRIBUTES = [
    ("array", "cpu", "await ac.to_host(x)"),
    ("array", "get", "await ac.to_host(x)"),
    ("array", "item", "(await ac.to_host(x)).item()"),
    ("array", "tolist", "(await ac.to_host(x)).tolist()"),
    ("array", "astype", "ac.convert(x, dtype)"),
    ("array", "float", "ac.convert(x, dtype)"),
    ("array", "copy", "ac.dup(x)"),
    ("array", "clone", "ac.dup(x)"),
    ("array", "copy_", "ac.copy(x, source)"),
    ("array", "fill_", "ac.fill(x, value)"),
    ("array", "flatten", "reshape(-1)"),
    ("array", "mm", "ac.linalg.matmul"),
    ("array", "sum", 'ac.algorithms.reduce(x, "sum")'),
    ("array", "amax", 'ac.algorithms.reduce(x, "max")'),
    ("array", "argsort", "ac.algorithms.argsort(x)"),
    ("op", "cumprod", 'ac.algorithms.scan(op, "product")'),
    ("array", "tanh", "ac.algorithms.transform"),
    ("array", "topk", "ac.kernel"),
    ("array", "data_ptr", "address"),
    ("array", "sync", "ac.value(x)"),
    ("array", "then", "ac.value(x)"),
    ("managed", "cpu", "await ac.to_host(x)"),
    ("partition", "item", "await ac.to_host(x)"),
    ("host", "cpu", "x.numpy()"),
    ("host", "item", "x.numpy()"),
    ("host", "mean", "x.numpy()"),
    ("host", "astype", "ac.convert(x, dtype)"),
    ("op", "shape", "x = await op"),
    ("op", "dtype", "x = await op"),
    ("op", "device", "x = await op"),
    ("op", "cpu", "await ac.to_host(op)"),
    ("op", "numpy", "await ac.to_host(op)"),
    ("op", "result", "op.submit()"),
    ("op", "done", "op.submit()"),
    ("op", "add_done_callback", "op.submit()"),
    ("launch", "shape", "x = await op"),
    ("value", "item", "await ac.to_host(op)"),
    ("future", "shape", "await future"),
    ("future", "cpu", "ac.to_host(future)"),
]


@pytest.mark.parametrize(("kind", "name", "instead"), ATTRIBUTES)
def test_attributes_of_other_libraries_say_what_to_do_instead(things, kind, name, instead):
    thing = things[kind]
    with pytest.raises(ac.MissingAttributeError, match=f" has no {name}: ") as raised:
        getattr(thing, name)
    assert instead in str(raised.value)
    assert isinstance(raised.value, AttributeError)
    assert not hasattr(thing, name)
    assert not hasattr(type(thing), name)
    assert getattr(thing, name, None) is None
    assert name not in dir(thing)


@pytest.mark.parametrize("cls", [ac.DeviceArray, ac.HostArray, ac.Partition, ac.DeviceOp, ac.DeviceFuture])
def test_advice_hides_nothing(cls):
    """A name that a class has got by now needs no advice any more: this says that, and the class keeps the name."""
    assert advised_names(cls)
    for kind in (cls, *cls.__subclasses__()):
        for name in advised_names(kind):
            defined = [each for each in kind.__mro__ if name in vars(each)]
            assert len(defined) == 1, f"{kind.__name__}.{name} is defined in {defined}, and has advice too"


def test_advice_goes_to_no_place_that_is_not_there():
    """What messages tell users to write is there."""
    for cls in (ac.DeviceArray, ac.HostArray, ac.DeviceOp, ac.DeviceFuture):
        assert advised_names(cls)
    for name in ("to_host", "to_device", "convert", "dup", "copy", "fill", "kernel", "call", "value", "linalg"):
        assert hasattr(ac, name)
    for name in ("reduce", "argmax", "argmin", "argsort", "scan", "sort", "transform", "unique"):
        assert hasattr(ac.algorithms, name)
    for name in ("reshape", "address", "size", "ndim", "itemsize", "device", "transpose", "ipc_handle"):
        if name != "transpose":
            assert hasattr(ac.DeviceArray, name)


BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.lshift, operator.rshift, operator.and_, operator.or_, operator.xor, operator.matmul, divmod,
    operator.lt, operator.le, operator.gt, operator.ge, operator.iadd, operator.imul,
]  # fmt: skip
UNARY = [operator.neg, operator.pos, abs, operator.invert, int, float, complex]


@pytest.mark.parametrize("kind", ["array", "host", "managed", "partition", "op", "launch", "value"])
def test_operators_say_what_to_do_instead(things, kind):
    thing = things[kind]
    for function in BINARY:
        for operands in ((thing, 1), (1, thing), (thing, thing), (2.5, thing)):
            with pytest.raises(ac.ArgumentTypeError, match=r"ac\.kernel|ac\.linalg\.matmul"):
                function(*operands)
    for function in UNARY:
        with pytest.raises(ac.ArgumentTypeError, match=r"ac\.|numpy\(\)"):
            function(thing)
    with pytest.raises(ac.ArgumentTypeError, match=r"ac\.fill\(x\[i\], value\)"):
        thing[0] = 1
    with pytest.raises(ac.ArgumentTypeError, match=r"ac\.fill\(x\[i\], value\)"):
        del thing[0]
    with pytest.raises(ac.ArgumentTypeError, match=r"ac\.to_host|numpy\(\)"):
        1 in thing  # noqa: B015


@pytest.mark.parametrize("kind", ["array", "op", "launch", "value", "partition"])
def test_numpy_is_told_too(things, kind):
    for function in (
        lambda x: np.ones(3) + x,
        lambda x: x + np.ones(3),
        lambda x: np.float32(1) * x,
        np.asarray,
        np.sum,
        np.sqrt,
        lambda x: np.asarray([x, x]),
    ):
        with pytest.raises(ac.ArgumentTypeError, match=r"ac\.kernel|to_host"):
            function(things[kind])


def test_numpy_computes_with_what_it_reaches(things):
    assert np.add(things["host"], 1).shape == (2, 3)
    assert (np.ones((2, 3)) + things["host"]).shape == (2, 3)
    assert np.array_equal(np.add(things["managed"], 1), np.full(3, 2))


async def gathered(thing):
    await asyncio.gather(thing)


@pytest.mark.parametrize("kind", ["op", "launch", "value"])
def test_computing_with_an_operation_names_its_await_first(things, kind):
    with pytest.raises(ac.ArgumentTypeError, match=r"^operations have no operator \+: `await ac\.to_host\(op\)` gives"):
        things[kind] + 1


def test_a_kernel_is_not_launched_with_brackets(things):
    with pytest.raises(ac.ArgumentTypeError, match=r"launched as `kernel\(x, y, n, grid=blocks, block=threads\)`"):
        things["kernel"][1, 256]


@pytest.mark.parametrize("kind", ["array", "host", "managed", "partition", "graph", "stream", "kernel"])
def test_what_is_there_is_not_awaited_and_not_awaitable(run, things, kind):
    async def main():
        await things[kind]

    with pytest.raises(
        ac.ArgumentTypeError, match=r"did you mean (a launch of it, )?`await (ac\.|graph\.|stream\.|kernel\()"
    ):
        run(main)
    assert not inspect.isawaitable(things[kind])
    assert not isinstance(things[kind], collections.abc.Awaitable)
    assert not hasattr(things[kind], "__await__")
    with pytest.raises(TypeError, match=r"An asyncio.Future, a coroutine or an awaitable is required"):
        asyncio.run(gathered(things[kind]))


def test_a_device_is_not_awaited(run):
    async def main():
        await ac.Device(0)

    with pytest.raises(ac.ArgumentTypeError, match=r"did you mean `await device\.synchronize"):
        run(main)


KINDS = [
    "array", "host", "managed", "partition", "op", "launch", "value", "future", "kernel", "module", "graph", "scope",
    "compiled", "event", "wait", "policy", "own policy", "stream",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_copies_and_pickles_say_what_to_do_instead(things, kind):
    for function in (copy.copy, copy.deepcopy, pickle.dumps, functools.partial(pickle.dumps, protocol=2)):
        with pytest.raises(ac.ArgumentTypeError, match=r"pickle|copied"):
            function(things[kind])
        with pytest.raises(ac.ArgumentTypeError, match=r"is not (pickled|copied by copy)|is neither copied"):
            function([things[kind]]) if function is not copy.copy else function(things[kind])


def test_a_device_is_pickled():
    assert pickle.loads(pickle.dumps(ac.Device(0))) == copy.deepcopy(ac.Device(0)) == ac.Device(0)


@pytest.mark.parametrize("kind", KINDS)
def test_tools_that_look_at_everything_are_undisturbed(things, kind):
    thing = things[kind]
    for looked_at in (thing, type(thing)):
        dir(looked_at)
        if not isinstance(looked_at, ac.Partition):  # whose address raises something else
            inspect.getmembers(looked_at)
        inspect.isawaitable(looked_at)
        inspect.getdoc(looked_at)
    inspect.classify_class_attrs(type(thing))
    assert repr(thing)
    assert {thing: 1}[thing] == 1
    assert thing == thing
    assert thing != 3
    doctest.DocTestFinder().find(type(thing))


def test_a_compiled_function_s_numbers_are_numbers():
    seen = []

    @ac.compile
    def function(x, number):
        seen.append((np.asarray(number), copy.copy(number), copy.deepcopy(number), np.float32(number), number == 3))
        return ac.dup(x)

    function(ac.ones(2), 3).sync()
    assert seen == [(3, 3, 3, 3.0, True)]


async def coroutine_function(_):
    """Where a plain function is wanted."""


class Called:
    async def __call__(self, _):
        """Where a plain function is wanted."""

    async def method(self, _):
        """Where a plain function is wanted."""

    async def generate(self, _):
        yield


ASYNC = {
    "async def": coroutine_function,
    "a partial": functools.partial(functools.partial(coroutine_function)),
    "an object": Called(),
    "a method": Called().method,
    "a generator": Called().generate,
}
TAKERS = {
    "then": lambda function: ac.ones(3).then(function),
    "map": lambda function: ac.ones(3).map(function),
    "inspect": lambda function: ac.ones(3).inspect(function),
    "call": lambda function: ac.call(function),
    "add_done_callback": lambda function: ac.ones(3).submit().add_done_callback(function),
}


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("function", ASYNC)
def test_async_functions_are_told_where_to_be_awaited(taker, function):
    with pytest.raises(ac.ArgumentTypeError, match=rf"{taker}\(\) takes a function .* async: .* await f\(x\)"):
        TAKERS[taker](ASYNC[function])


@pytest.mark.parametrize("taker", TAKERS)
def test_functions_of_all_other_kinds_are_taken(taker):
    for function in (str, repr, id, type, functools.partial(repr), lambda _: None, np.shape, [].append):
        TAKERS[taker](function)


def test_zip_takes_a_sequence():
    for given in ([ac.ones(2), ac.zeros(2)], (ac.ones(2), ac.zeros(2)), iter([ac.ones(2), ac.zeros(2)])):
        zipped = ac.zip(given)
        ones, zeros = zipped.unzip()
        assert [ac.to_host(each).sync().tolist() for each in (ones, zeros)] == [[1, 1], [0, 0]]
    assert ac.zip([]).sync() == ac.zip().sync() == ()
    assert isinstance(ac.zip(array := ac.ones(2).sync()).sync()[0], ac.DeviceArray)
    assert ac.zip([array]).sync() == (array,)


def test_no_operation_is_left_in_what_is_put_together():
    made = ac.zip(ac.ones(2), [ac.zeros(2), 3], {"x": (ac.ones(2), "text")}).sync()
    assert isinstance(made[0], ac.DeviceArray)
    assert isinstance(made[1], list)
    assert isinstance(made[1][0], ac.DeviceArray)
    assert made[1][1] == 3
    assert isinstance(made[2]["x"][0], ac.DeviceArray)
    assert made[2]["x"][1] == "text"
    given = ac.value([ac.ones(2), {"y": ac.value(5)}]).sync()
    assert isinstance(given[0], ac.DeviceArray)
    assert given[1] == {"y": 5}
    assert ac.value(plain := [1, 2]).sync() is plain


@pytest.mark.needs_devices(2)
def test_a_graph_on_another_device_s_stream_fails_when_it_is_made():
    stream = ac.Device(1).stream()
    with pytest.raises(ac.DeviceMismatchError, match=r"works on device 0, .* stream \d+ of device 1; .*\.to\(1\)"):
        ac.fill(ac.ones(3, device=0).sync(), 2).graph_on(stream)
    array = ac.ones(3, device=0).sync()
    with pytest.raises(ac.DeviceMismatchError, match="works on device 0"), ac.graph_scope(stream) as scope:
        scope.record(ac.fill(array, 2))
    graph = ac.fill(ac.ones(3, device=1), 2).graph_on(stream)
    assert ac.to_host(graph.launch()).sync().tolist() == [2, 2, 2]


def every_error(kind=ac.AiocudaError):
    """Yield a class of errors and those below it, without those that a `FileError` of the system has."""
    yield kind
    for each in kind.__subclasses__() if kind is not ac.FileError else ():
        if each.__module__.startswith("aiocuda"):
            yield from every_error(each)


def test_all_errors_are_names_of_the_package():
    with pytest.raises(FileNotFoundError):
        ac.read("/no such file", 1, "uint8").sync()
    for each in every_error():
        assert getattr(ac, each.__name__, None) is each, each
        assert each.__name__ in ac.__all__


def test_an_index_error_is_both():
    x = ac.ones(3).sync()
    for ask, message in (
        (lambda: x[3], "index 3 is out of range for axis 0, which has 3 items"),
        (lambda: x[0, 0], "2 indices were given for an array of 1 axis$"),
        (lambda: x[..., ...], "at most one ellipsis"),
        (lambda: x.split_at(4), "an array of length 3 cannot be split at 4"),
        (
            lambda: ac.zip(1, 2).unzip(2)[0].then(lambda _: ac.value((1, 2))).unzip(3)[2].sync(),
            "item 2 was asked of a result that has 2 items",
        ),
        (
            lambda: ac.value([1]).last().then(lambda _: [1]).unzip(2)[1].sync(),
            "item 1 was asked of a result that has 1 item$",
        ),
        (lambda: ac.value(()).first().sync(), "item 0 was asked of a result that has 0 items"),
    ):
        with pytest.raises(ac.ArgumentIndexError, match=message) as raised:
            ask()
        assert isinstance(raised.value, IndexError)
    with pytest.raises(ac.ArgumentTypeError, match="no sequence, but 3"):
        ac.value(3).first().sync()
