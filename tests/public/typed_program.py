"""A program for type checkers alone: what they say of the generics is what the user's editor shows.

Not run: `test_typing.py` has mypy and pyright check it, strictly, and each `type: ignore` here is an error that a
user must be told of.
"""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np

import aiocuda as ac

i = ac.value(1)
s = ac.value("two")
f = ac.value(3.0)
b = ac.value(b"four")
array = ac.ones(3)

assert_type(i, ac.DeviceOp[int])
assert_type(array, ac.DeviceOp[ac.DeviceArray])
assert_type(ac.empty((2, 3)), ac.DeviceOp[ac.DeviceArray])
assert_type(ac.zeros([2, 3], np.int8), ac.DeviceOp[ac.DeviceArray])
assert_type(ac.full(3, 2.5, "float64", device=0), ac.DeviceOp[ac.DeviceArray])
assert_type(ac.arange(3, dtype="int32"), ac.DeviceOp[ac.DeviceArray])
assert_type(ac.to_device([1, 2, 3]), ac.DeviceOp[ac.DeviceArray])
assert_type(ac.empty_host(3), ac.DeviceOp[ac.HostArray])
assert_type(ac.to_host(array), ac.DeviceOp[np.ndarray[Any, Any]])

assert_type(i.sync(), int)
assert_type(array.sync(), ac.DeviceArray)
assert_type(ac.to_host(array).sync(timeout=3), np.ndarray[Any, Any])
assert_type(array.sync().device, ac.Device)
assert_type(array.sync().shape, tuple[int, ...])

assert_type(ac.zip(i), ac.DeviceOp[tuple[int]])
assert_type(ac.zip(i, s), ac.DeviceOp[tuple[int, str]])
assert_type(ac.zip(i, s, f), ac.DeviceOp[tuple[int, str, float]])
assert_type(ac.zip(i, s, f, b), ac.DeviceOp[tuple[int, str, float, bytes]])
assert_type(ac.zip(i, s, f, b, i), ac.DeviceOp[tuple[int, str, float, bytes, int]])
assert_type(ac.zip(i, s, f, b, i, s), ac.DeviceOp[tuple[int, str, float, bytes, int, str]])
assert_type(ac.zip(i, s, f, b, i, s, f), ac.DeviceOp[tuple[int, str, float, bytes, int, str, float]])
assert_type(
    ac.zip(i, s, f, b, i, s, f, b),
    ac.DeviceOp[tuple[int, str, float, bytes, int, str, float, bytes]],
)
assert_type(ac.zip(i, s).sync(), tuple[int, str])
assert_type(ac.zip(i, s, f, b, i, s, f, b, i), ac.DeviceOp[tuple[Any, ...]])

assert_type(ac.zip(i).unzip(), tuple[ac.DeviceOp[int]])
assert_type(ac.zip(i, s).unzip(), tuple[ac.DeviceOp[int], ac.DeviceOp[str]])
assert_type(ac.zip(i, s, f).unzip(), tuple[ac.DeviceOp[int], ac.DeviceOp[str], ac.DeviceOp[float]])
assert_type(
    ac.zip(i, s, f, b).unzip(),
    tuple[ac.DeviceOp[int], ac.DeviceOp[str], ac.DeviceOp[float], ac.DeviceOp[bytes]],
)
assert_type(
    ac.zip(i, s, f, b, i).unzip(),
    tuple[ac.DeviceOp[int], ac.DeviceOp[str], ac.DeviceOp[float], ac.DeviceOp[bytes], ac.DeviceOp[int]],
)
six = ac.zip(i, s, f, b, i, s).unzip()
assert_type(six[0], ac.DeviceOp[int])
assert_type(six[5], ac.DeviceOp[str])
seven = ac.zip(i, s, f, b, i, s, f).unzip()
assert_type(seven[6], ac.DeviceOp[float])
eight = ac.zip(i, s, f, b, i, s, f, b).unzip()
assert_type(eight[0], ac.DeviceOp[int])
assert_type(eight[7], ac.DeviceOp[bytes])
assert_type(ac.zip(array, i).unzip(2)[0], ac.DeviceOp[ac.DeviceArray])

assert_type(ac.zip(i).first(), ac.DeviceOp[int])
assert_type(ac.zip(i, s, f).first(), ac.DeviceOp[int])
assert_type(ac.zip(i, s, f).last(), ac.DeviceOp[float])
assert_type(ac.zip(i, s, f, b, i, s, f, b).first(), ac.DeviceOp[int])
assert_type(ac.zip(i, s, f, b, i, s, f, b).last(), ac.DeviceOp[bytes])
assert_type(ac.zip(i, s, f, b, i, s, f, b, i).first(), ac.DeviceOp[Any])
assert_type(ac.zip(ac.zip(i, s), f).first().last(), ac.DeviceOp[str])
ac.zip(array, array.sync(), 3)  # arrays and values are welcome beside operations


def to_text(x: int) -> str:
    return str(x)


def to_operation(x: int) -> ac.DeviceOp[str]:
    return ac.value(str(x))


assert_type(i.map(to_text), ac.DeviceOp[str])
assert_type(i.map(to_operation).sync(), ac.DeviceOp[str])
assert_type(i.then(to_operation), ac.DeviceOp[str])
assert_type(array.then(ac.to_host), ac.DeviceOp[np.ndarray[Any, Any]])
assert_type(array.map(ac.DeviceArray.close), ac.DeviceOp[None])
assert_type(i.then(lambda x: ac.zip(ac.value(x), s)), ac.DeviceOp[tuple[int, str]])
assert_type(i.then(lambda x: (x, str(x))), ac.DeviceOp[tuple[int, str]])
assert_type(i.then(lambda x: {"one": x}).map(len), ac.DeviceOp[int])
assert_type(ac.zip(i, s).then(lambda pair: pair[1]), ac.DeviceOp[str])
assert_type(i.inspect(print), ac.DeviceOp[int])
assert_type(array.to(1), ac.DeviceOp[ac.DeviceArray])
assert_type(ac.empty_host(3).to(ac.Device(0)), ac.DeviceOp[ac.DeviceArray])
assert_type(i.submit(), ac.DeviceFuture[int])
assert_type(i.submit().result(), int)
assert_type(i.submit().sync(), int)
assert_type(i.submit().done(), bool)
assert_type(i.submit().cancel(), bool)
assert_type(i.submit().cancelled(), bool)
assert_type(i.submit().exception(), BaseException | None)
assert_type(array.schedule(ac.Device(0)), ac.DeviceFuture[ac.DeviceArray])
assert_type(ac.zip(i, s).schedule(0).sync(timeout=1), tuple[int, str])
assert_type(i.explain(), str)
assert_type(i.draw(), ac.Picture)
assert_type(i.on(ac.Device(0).default_stream), ac.DeviceOp[int])

assert_type(array.T, ac.DeviceOp[ac.DeviceArray])
assert_type(array.transpose(1, 0), ac.DeviceOp[ac.DeviceArray])
assert_type(array.reshape(2, -1).view("int8"), ac.DeviceOp[ac.DeviceArray])
assert_type(array.share().unwrap(), ac.DeviceOp[ac.DeviceArray])
assert_type(array.partition(4), ac.DeviceOp[ac.Partition])
assert_type(array.partition(4).unpartition(), ac.DeviceOp[ac.DeviceArray])
assert_type(ac.empty_host(3).T, ac.DeviceOp[ac.HostArray])
assert_type(ac.stack([array, array]), ac.DeviceOp[ac.DeviceArray])
assert_type(ac.zeros_like(array, device="cuda:0"), ac.DeviceOp[ac.DeviceArray])
assert_type(array.sync().T, ac.DeviceArray)
assert_type(ac.__version__, str)
array.on("cuda:0").to("cuda")
with array.sync().partition(2) as tiles:
    assert_type(tiles, ac.Partition)


def to_call_back(future: ac.DeviceFuture[int]) -> str:
    return str(future.result())


i.submit().add_done_callback(to_call_back)
s.submit().add_done_callback(to_call_back)  # type: ignore[arg-type]
wider: ac.DeviceOp[object] = i  # an operation that yields an int is one that yields an object
wider_future: ac.DeviceFuture[float | int] = i.submit()
narrower: ac.DeviceOp[int] = wider  # type: ignore[assignment]

i.map(len)  # type: ignore[arg-type]
i.then(3)  # type: ignore[call-overload]
ac.full()  # type: ignore[call-arg]
print(ac.ones(3).sync().no_such_attribute)  # type: ignore[attr-defined]


async def main() -> None:
    assert_type(await i, int)
    assert_type(await array, ac.DeviceArray)
    assert_type(await ac.to_host(array), np.ndarray[Any, Any])
    assert_type(await ac.zip(i, s), tuple[int, str])
    assert_type(await i.submit(), int)
    assert_type(await ac.zip(i, s).schedule(0), tuple[int, str])
    assert_type(await i.then(to_operation), str)
    assert_type(await ac.zip(i, s).unzip()[1], str)
    await ac.Device(0).synchronize()
    await ac.Device(0).default_stream.record()


with ac.use(0), ac.use(ac.Device(0)), ac.use(ac.Device(0).stream(priority=-1)):
    kernel = ac.kernel("__global__ void k(float* x) {}")
    kernel(array, threads=3)
    kernel(array, grid=(1, 2, 3), block=[32], shared_memory=16)
    kernel(x=array, threads=3)
    kernel(array, threads="three", cooperative=3)  # type: ignore[arg-type]
i.partition(2)  # type: ignore[misc]
