"""Whatever is given to the public interface, what is raised is an error of aiocuda's; or it was the caller's own.

Kernels and modules have tests of their own. Each value goes to each parameter; operations that come of it are executed.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aiocuda as ac


class MineError(Exception):
    """The caller's own."""


class Raising:
    """An object that answers no question."""

    def _raise(self, *_: Any) -> Any:
        raise MineError

    __index__ = __int__ = __float__ = __len__ = __iter__ = __getitem__ = __call__ = __bool__ = _raise


class Strange:
    """An object with methods of protocols that give what they must not."""

    def _answer(self, *_: Any) -> Any:
        return "x"

    __index__ = __array_interface__ = __cuda_array_interface__ = __cuda_stream__ = __dlpack__ = __dlpack_device__ = (
        _answer
    )


VALUES: dict[str, Any] = {
    "None": None,
    "'x'": "x",
    "''": "",
    "a NUL": "a\0b",
    "not UTF-8": "\udcff",
    "bytes": b"x",
    "-1": -1,
    "0": 0,
    "True": True,
    "1.5": 1.5,
    "nan": math.nan,
    "inf": math.inf,
    "2**80": 2**80,
    "-2**80": -(2**80),
    "2**62": 2**62,
    "()": (),
    "[]": [],
    "{}": {},
    "(-1,)": (-1,),
    "a nested list": [[1], [2, 3]],
    "a deep tuple": ((((),),),),
    "(None,)": (None,),
    "(2**80,)": (2**80, 2**80),
    "40 axes": (1,) * 40,
    "a set": {1, 2},
    "object()": object(),
    "a type": type,
    "Raising()": Raising(),
    "Strange()": Strange(),
    "an exception": ValueError("x"),
    "NumPy's nan": np.float32("nan"),
    "objects": np.array([None, "x"], dtype=object),
    "a foreign byte order": np.zeros(2, ">i4"),
    "no axes": np.zeros(()),
    "an array": lambda: ac.ones(3).sync(),
    "a closed array": lambda: _closed(ac.ones(3).sync()),
    "a host array": lambda: ac.empty_host(3).sync(),
    "an operation": lambda: ac.ones(3),
    "a number as an operation": lambda: ac.value(3),
    "a failed operation": lambda: _failed(),
    "a future": lambda: ac.ones(3).submit(),
    "a device": lambda: ac.Device(0),
    "a stream": lambda: ac.Device(0).stream(),
    "a closed stream": lambda: _closed(ac.Device(0).stream()),
    "a policy": lambda: ac.RoundRobin(2),
    "a policy without its __init__": lambda: Forgetful(),
}


class Forgetful(ac.SchedulingPolicy):
    def __init__(self) -> None:
        pass

    def choose(self, op, producers, candidates):
        return candidates[0]


def _closed(thing: Any) -> Any:
    thing.close()
    return thing


def _failed() -> ac.DeviceOp[Any]:
    op = ac.value(1).then(lambda _: ac.ones(-1))
    with pytest.raises(ac.ArgumentValueError, match=r"a shape has no negative extents; \(-1,\) was given"):
        op.sync()
    return op


@functools.cache
def array() -> ac.DeviceArray:
    return ac.ones((4, 6)).sync()


@functools.cache
def line() -> ac.DeviceArray:
    return ac.ones(3).sync()


@functools.cache
def host() -> ac.HostArray:
    return ac.empty_host((4, 6)).sync()


@functools.cache
def managed() -> ac.DeviceArray:
    return ac.ones(6, managed=True).sync()


@functools.cache
def stream() -> ac.Stream:
    return ac.Device(0).stream()


@functools.cache
def event() -> ac.Event:
    return stream().record()


@functools.cache
def graph() -> ac.CudaGraph[Any]:
    given = ac.ones(4).sync()
    return ac.fill(given, 2).graph(x=given)


def scoped(value: Any) -> Any:
    with ac.graph_scope() as scope:
        scope.record(value)
    return scope.graph.launch()


def yielding(value: Any) -> ac.DeviceOp[Any]:
    """An operation that yields the value, whatever it is."""
    return ac.ones(1).then(lambda _: Boxed(value)).map(lambda box: box.value) if _is_op(value) else ac.value(value)


class Boxed:
    def __init__(self, value: Any) -> None:
        self.value = value


def _is_op(value: Any) -> bool:
    return isinstance(value, ac.DeviceOp)


class Lending:
    """Memory as another library would lend it, with one thing changed."""

    def __init__(self, **changed: Any) -> None:
        lent = {"shape": (4, 6), "strides": None, "typestr": "<f4", "data": (array().address, False), "version": 3}
        self.__cuda_array_interface__ = {**lent, **changed}


def entered(context: Any) -> None:
    with context:
        pass


class Choosing(ac.SchedulingPolicy):
    def __init__(self, chosen: Any) -> None:
        super().__init__(streams=2)
        self._chosen = chosen

    def choose(self, op, producers, candidates):
        return self._chosen


def restored(setting: Callable[[], Any], back: Callable[[Any], Any]) -> None:
    before = setting()
    back(before)


CALLS: dict[str, Callable[[Any], Any]] = {
    "empty": ac.empty,
    "empty dtype": lambda v: ac.empty(3, v),
    "empty device": lambda v: ac.empty(3, device=v),
    "empty managed": lambda v: ac.empty(3, managed=v),
    "empty pitched": lambda v: ac.empty((2, 3), pitched=v),
    "empty interprocess": lambda v: ac.empty(3, interprocess=v),
    "zeros": ac.zeros,
    "ones": ac.ones,
    "ones dtype": lambda v: ac.ones(3, v),
    "full": lambda v: ac.full(v, 1),
    "full value": lambda v: ac.full(3, v),
    "full int": lambda v: ac.full(3, v, np.int32),
    "full dtype": lambda v: ac.full(3, 1, v),
    "empty_host": ac.empty_host,
    "empty_host dtype": lambda v: ac.empty_host(3, v),
    "arange": ac.arange,
    "arange stop": lambda v: ac.arange(0, v),
    "arange step": lambda v: ac.arange(0, 3, v),
    "arange dtype": lambda v: ac.arange(3, dtype=v),
    "arange device": lambda v: ac.arange(3, device=v),
    "linspace": lambda v: ac.linspace(v, 1, 3),
    "linspace stop": lambda v: ac.linspace(0, v, 3),
    "linspace num": lambda v: ac.linspace(0, 1, v),
    "linspace dtype": lambda v: ac.linspace(0, 1, 3, dtype=v),
    "eye": ac.eye,
    "eye m": lambda v: ac.eye(3, v),
    "eye k": lambda v: ac.eye(3, k=v),
    "eye dtype": lambda v: ac.eye(3, dtype=v),
    "rand": ac.rand,
    "rand seed": lambda v: ac.rand(3, seed=v),
    "rand dtype": lambda v: ac.rand(3, dtype=v, seed=1),
    "randn": lambda v: ac.randn(v, seed=1),
    "randn seed": lambda v: ac.randn(3, seed=v),
    "randint": lambda v: ac.randint(0, v, 3, seed=1),
    "randint low": lambda v: ac.randint(v, 3, 3, seed=1),
    "randint shape": lambda v: ac.randint(0, 3, v, seed=1),
    "randint dtype": lambda v: ac.randint(0, 3, 3, dtype=v, seed=1),
    "to_device": ac.to_device,
    "to_device device": lambda v: ac.to_device(np.ones(3), v),
    "to_device dtype": lambda v: ac.to_device([1, 2], dtype=v),
    "to_host": ac.to_host,
    "to_host out": lambda v: ac.to_host(array(), v),
    "to_host reclaim": lambda v: ac.to_host(ac.dup(array()), reclaim=v),
    "to_host of what yields": lambda v: ac.to_host(yielding(v)),
    "copy destination": lambda v: ac.copy(v, array()),
    "copy source": lambda v: ac.copy(ac.dup(array()), v),
    "copy to NumPy": lambda v: ac.copy(np.ones(3, np.float32), v),
    "copy of what yields": lambda v: ac.copy(array(), yielding(v)),
    "dup": ac.dup,
    "dup of what yields": lambda v: ac.dup(yielding(v)),
    "fill": lambda v: ac.fill(v, 1),
    "fill value": lambda v: ac.fill(ac.dup(array()), v),
    "fill of what yields": lambda v: ac.fill(yielding(v), 1),
    "convert": lambda v: ac.convert(v, np.float64),
    "convert dtype": lambda v: ac.convert(array(), v),
    "convert of what yields": lambda v: ac.convert(yielding(v), np.float64),
    "matmul": lambda v: ac.linalg.matmul(v, array()),
    "matmul b": lambda v: ac.linalg.matmul(array(), v),
    "sort": ac.algorithms.sort,
    "sort values": lambda v: ac.algorithms.sort(line(), v),
    "sort out": lambda v: ac.algorithms.sort(line(), out=v),
    "sort descending": lambda v: ac.algorithms.sort(line(), descending=v),
    "argsort": ac.algorithms.argsort,
    "merge": lambda v: ac.algorithms.merge(v, line()),
    "merge values": lambda v: ac.algorithms.merge(line(), line(), v),
    "reduce": ac.algorithms.reduce,
    "reduce op": lambda v: ac.algorithms.reduce(line(), v),
    "reduce initial": lambda v: ac.algorithms.reduce(line(), initial=v),
    "argmax": ac.algorithms.argmax,
    "argmin": ac.algorithms.argmin,
    "scan": ac.algorithms.scan,
    "scan exclusive": lambda v: ac.algorithms.scan(line(), exclusive=v),
    "select": lambda v: ac.algorithms.select(v, "x > 0"),
    "select where": lambda v: ac.algorithms.select(line(), v),
    "select out": lambda v: ac.algorithms.select(line(), "x > 0", out=v),
    "unique": ac.algorithms.unique,
    "trim": lambda v: ac.algorithms.trim(v, line()),
    "trim count": lambda v: ac.algorithms.trim(line(), v),
    "histogram": lambda v: ac.algorithms.histogram(v, 3, (0, 1)),
    "histogram bins": lambda v: ac.algorithms.histogram(line(), v),
    "histogram number of bins": lambda v: ac.algorithms.histogram(line(), v, (0, 1)),
    "histogram range": lambda v: ac.algorithms.histogram(line(), 3, v),
    "transform": lambda v: ac.algorithms.transform(v, x=line()),
    "transform operand": lambda v: ac.algorithms.transform("x + y", x=line(), y=v),
    "transform dtype": lambda v: ac.algorithms.transform("x", x=line(), dtype=v),
    "fft": ac.fft.fft,
    "fft n": lambda v: ac.fft.fft(line(), None if isinstance(v, int) and v == 2**62 else v),  # there is no such memory
    "fft axis": lambda v: ac.fft.fft(line(), axis=v),
    "fft norm": lambda v: ac.fft.fft(line(), norm=v),
    "fft out": lambda v: ac.fft.fft(line(), out=v),
    "rfft": ac.fft.rfft,
    "irfft": ac.fft.irfft,
    "fftn": ac.fft.fftn,
    "fftn s": lambda v: ac.fft.fftn(line(), v),
    "fftn axes": lambda v: ac.fft.fftn(line(), axes=v),
    "move": ac.move,
    "external": ac.external,
    "external pointer": lambda v: ac.external(Lending(data=(v, False))),
    "external data": lambda v: ac.external(Lending(data=v)),
    "external shape": lambda v: ac.external(Lending(shape=v)),
    "external strides": lambda v: ac.external(Lending(strides=v)),
    "external typestr": lambda v: ac.external(Lending(typestr=v)),
    "external version": lambda v: ac.external(Lending(version=v)),
    "external stream": lambda v: None if isinstance(v, int) and v else ac.external(Lending(stream=v)),
    "external interface": lambda v: ac.external(type("It", (), {"__cuda_array_interface__": v})()),
    "open_ipc": ac.open_ipc,
    "replicate": lambda v: ac.replicate(v, [0]),
    "replicate devices": lambda v: ac.replicate(array(), v),
    "shard": lambda v: ac.shard(v, [0]),
    "shard devices": lambda v: ac.shard(np.ones((4, 2), np.float32), v),
    "shard axis": lambda v: ac.shard(np.ones((4, 2), np.float32), [0], axis=v),
    "gather": lambda v: ac.gather(v, 0),
    "gather part": lambda v: ac.gather([v], 0),
    "gather device": lambda v: ac.gather([array()], v),
    "gather axis": lambda v: ac.gather([array()], 0, axis=v),
    "stream_chunks": lambda v: ac.stream_chunks(v),
    "stream_chunks rows": lambda v: ac.stream_chunks(np.ones((4, 2)), v),
    "value": ac.value,
    "zip": ac.zip,
    "zip second": lambda v: ac.zip(1, v),
    "call": ac.call,
    "call argument": lambda v: ac.call(lambda stream, given: None, v),
    "call reads": lambda v: ac.call(lambda stream: None, reads=v),
    "call reads one": lambda v: ac.call(lambda stream: None, reads=[v]),
    "call writes": lambda v: ac.call(lambda stream: None, writes=v),
    "call of what yields": lambda v: ac.call(lambda stream: None, writes=[yielding(v)]),
    "call returns": lambda v: ac.call(lambda stream: v),
    "compile": ac.compile,
    "compile max_graphs": lambda v: ac.compile(ac.dup, max_graphs=v),
    "compile results": lambda v: ac.compile(ac.dup, results=v),
    "compile executables": lambda v: ac.compile(ac.dup, executables=v),
    "compile capture_mode": lambda v: ac.compile(ac.dup, capture_mode=v),
    "compiled argument": lambda v: ac.compile(lambda given: ac.zip(ac.ones(2), 1))(v),
    "compiled returns": lambda v: ac.compile(lambda given: v)(array()),
    "memory_limit": lambda v: entered(ac.memory_limit(v)),
    "memory_limit device": lambda v: entered(ac.memory_limit(1 << 30, device=v)),
    "use": lambda v: entered(ac.use(v)),
    "use spin_us": lambda v: entered(ac.use(spin_us=v)),
    "use max_in_flight": lambda v: entered(ac.use(max_in_flight=v)),
    "set_policy": lambda v: restored(lambda: ac.set_policy(v), ac.set_policy),
    "Dataflow": ac.Dataflow,
    "Dataflow priority": lambda v: ac.Dataflow(priority=v),
    "RoundRobin": ac.RoundRobin,
    "RoundRobin priority": lambda v: ac.ones(3).on(ac.RoundRobin(priority=v)),
    "LeastLoaded": ac.LeastLoaded,
    "SchedulingPolicy": ac.SchedulingPolicy,
    "SchedulingPolicy priority": lambda v: ac.SchedulingPolicy(priority=v),
    "SchedulingPolicy choose": lambda v: ac.ones(3).on(Choosing(v)),
    "Policy streams": lambda v: ac.RoundRobin(1).streams(v),
    "Policy streams of it": lambda v: ac.Policy.streams(v) if isinstance(v, ac.Policy) else None,
    "Policy repr": repr,
    "graph_scope": lambda v: entered(ac.graph_scope(v)),
    "graph_scope capture_mode": lambda v: ac.graph_scope(capture_mode=v),
    "graph_scope input": lambda v: ac.graph_scope(x=v),
    "graph_scope record": scoped,
    "graph input": lambda v: ac.fill(ac.dup(array()), 1).graph(x=v),
    "graph capture_mode": lambda v: ac.ones(3).graph(capture_mode=v),
    "graph_on": lambda v: ac.ones(3).graph_on(v),
    "graph launch": lambda v: graph().launch(x=v),
    "graph launch of what yields": lambda v: graph().launch(x=yielding(v)),
    "graph update": lambda v: graph().update(v),
    "graph upload": lambda v: graph().upload(v),
    "Device": ac.Device,
    "Device stream": lambda v: ac.Device(0).stream(v),
    "Device set_memory_pool": lambda v: ac.Device(0).set_memory_pool(release_threshold=v),
    "Device set_memory_pool max_bytes": lambda v: ac.Device(0).set_memory_pool(max_bytes=v),
    "Device trim_memory": lambda v: ac.Device(0).trim_memory(v),
    "Device set_limits": lambda v: ac.Device(0).set_limits(stack_bytes=v),
    "Device set_cache_preference": lambda v: ac.Device(0).set_cache_preference(v),
    "Stream wait": lambda v: stream().wait(v),
    "Stream join": lambda v: stream().join(v),
    "Stream record": lambda v: stream().record(timing=v),
    "Event elapsed": lambda v: event().elapsed(v),
    "then": lambda v: ac.ones(3).then(v),
    "then returns": lambda v: ac.ones(3).then(lambda _: v),
    "map": lambda v: ac.ones(3).map(v),
    "map returns": lambda v: ac.ones(3).map(lambda _: v),
    "inspect": lambda v: ac.ones(3).inspect(v),
    "unzip": lambda v: ac.zip(1, 2).unzip(v),
    "unzip unknown": lambda v: ac.zip(1, 2).then(lambda both: both).unzip(v),
    "unzip of what yields": lambda v: yielding(v).unzip(2)[1],
    "first of what yields": lambda v: yielding(v).first(),
    "last of what yields": lambda v: yielding(v).last(),
    "on": lambda v: ac.ones(3).on(v),
    "to": lambda v: ac.ones(3).to(v),
    "to of what yields": lambda v: yielding(v).to(0),
    "schedule": lambda v: ac.ones(3).schedule(v).sync(),
    "sync": lambda v: ac.ones(3).sync(v),
    "sync_on": lambda v: ac.ones(3).sync_on(v),
    "sync_on timeout": lambda v: ac.ones(3).sync_on(stream(), v),
    "within": lambda v: ac.ones(3).within(v).close(),
    "future within": lambda v: ac.ones(3).submit().within(v).close(),
    "future sync": lambda v: ac.ones(3).submit().sync(v),
    "future add_done_callback": lambda v: callable(v) or ac.ones(3).submit().add_done_callback(v),
    "array getitem": lambda v: array()[v],
    "array getitem second": lambda v: array()[0, v],
    "array slice": lambda v: array()[v:2],
    "array slice step": lambda v: array()[::v],
    "array reshape": lambda v: array().reshape(v),
    "array reshape second": lambda v: array().reshape(2, v),
    "array view": lambda v: array().view(v),
    "array split_at": lambda v: array().split_at(v),
    "array partition": lambda v: ac.dup(array()).sync().partition(v),
    "array partition second": lambda v: ac.dup(array()).sync().partition((1, v)),
    "array to": lambda v: array().to(v),
    "host partition": lambda v: host().partition(v),
    "host reshape": lambda v: host().reshape(v),
    "managed prefetch": lambda v: managed().prefetch(v),
    "managed advise": lambda v: managed().advise(v),
    "managed advise device": lambda v: managed().advise("accessed_by", v),
    "managed unadvise": lambda v: managed().unadvise(v),
    "prefetch": lambda v: array().prefetch(v),
    "DeviceArray": ac.DeviceArray,
    "HostArray": ac.HostArray,
    "Partition": ac.Partition,
    "DeviceOp": ac.DeviceOp,
    "Stream": lambda _: ac.Stream(),
}
NO_ERROR = {"value", "Policy repr"}


def executed(made: Any) -> None:
    """Execute what was made, as far as it is an operation."""
    if isinstance(made, ac.DeviceOp):
        made.sync(60)
    elif inspect.iscoroutine(made):
        made.close()
    elif isinstance(made, (tuple, list)):
        for each in made:
            executed(each)


@pytest.fixture(autouse=True, scope="module")
def settings_of_the_device_stay():
    """Values that are right after all, such as 0 bytes for stacks, are taken back."""
    device = ac.Device(0)
    limits, preference = device.limits(), device.cache_preference
    yield
    device.set_limits(stack_bytes=limits.stack_bytes)
    device.set_cache_preference(preference)


@pytest.mark.driver_refuses("cuPointerGetAttribute", "cuCtxSetLimit")
@pytest.mark.parametrize("call", CALLS)
def test_errors_are_aiocudas(call):
    raw = []
    for name, value in VALUES.items():
        given = value() if inspect.isfunction(value) else value
        try:
            executed(CALLS[call](given))
        except (ac.AiocudaError, MineError):
            pass
        except Exception as error:  # noqa: BLE001 - told below
            raw.append(f"{name}: {type(error).__name__}: {error}")
    assert not raw, "\n".join(raw)
