"""Names of NumPy, PyTorch and CuPy for things that aiocuda names otherwise, and the answers of its objects to them.

Always true: names that aiocuda has are aiocuda's; see `aiocuda._instruments.advice`.
"""

from __future__ import annotations

from typing import Final

from aiocuda import _native
from aiocuda._arrays.array import DeviceArray, HostArray
from aiocuda._arrays.partition import Partition
from aiocuda._devices.device import Device, Stream
from aiocuda._devices.event import Event
from aiocuda._engine.futures import DeviceFuture
from aiocuda._engine.stream_wait import StreamWait
from aiocuda._graphs.compiled import Compiled
from aiocuda._graphs.graph import CudaGraph
from aiocuda._graphs.scope import GraphScope
from aiocuda._instruments.advice import advise_on, advised_names, refuse, refuse_await, refuse_copies, refuse_operators
from aiocuda._kernels.kernel import Kernel
from aiocuda._kernels.module import Module
from aiocuda._ops.operation import DeviceOp

__all__ = ["advise"]

_MATHS: Final = (
    "abs", "all", "any", "amax", "amin", "argmax", "argmin", "argsort", "clamp", "clip", "cumprod", "cumsum", "diff",
    "exp", "log", "max", "mean", "median", "min", "norm", "prod", "relu", "round", "softmax", "sort", "sqrt", "std",
    "sum", "take", "tanh", "topk", "unique", "var",
)  # fmt: skip

_COMPUTE: Final = (
    "`ac.algorithms.transform('x + y', x=x, y=y)` computes expressions of items; for all else write a kernel "
    "(`ac.kernel`), or have another library compute (`ac.call`)"
)


def _of_arrays(x: str) -> dict[str, str]:
    """Return what to do instead of what arrays of other libraries have; `x` is the name that messages use."""
    advice: dict[str, str] = {}

    def say(text: str, *names: str) -> None:
        advice.update(dict.fromkeys(names, text))

    say(
        f"`await ac.to_host({x})` brings it to the host, as a NumPy array", "asnumpy", "cpu", "get", "numpy", "to_numpy"
    )
    say(f"`(await ac.to_host({x})).item()` is the number", "item")
    say(f"`(await ac.to_host({x})).tolist()` is the list", "tolist")
    say(f"save what `await ac.to_host({x})` gives", "dump", "dumps", "save", "tobytes", "tofile")
    say(f"`ac.to_device({x}, device)` brings it to a device", "cuda")
    say(f"`ac.convert({x}, dtype)` makes a new array of another dtype", "astype", "bfloat16", "bool", "byte", "char",
        "double", "float", "half", "int", "long", "short", "to_dtype", "type")  # fmt: skip
    say(f"`ac.dup({x})` copies it to a new array", "clone", "contiguous", "copy")
    say(f"`ac.copy({x}, source)` copies to it", "copy_", "put", "set", "set_")
    say(f"`ac.fill({x}, value)` sets its items", "fill", "fill_", "zero_")
    say("`reshape(-1)` is a view of it with one axis", "flatten", "ravel")
    say("`reshape(shape)` is a view of it with other axes", "expand_dims", "resize", "squeeze", "unsqueeze")
    say("`transpose(axes)` is a view of it with its axes in another order", "moveaxis", "permute", "swapaxes")
    say(f"`ac.linalg.matmul({x}, y)` multiplies matrices", "bmm", "dot", "matmul", "mm", "mv")
    say("it is `address`", "ctypes", "data", "data_ptr", "ptr")
    say("it is `size`", "nelement", "numel")
    say("it is `ndim`", "dim")
    say("it is `itemsize`", "element_size")
    say("it is `device`", "get_device", "is_cuda")
    say(_COMPUTE, *_MATHS)
    for names, op in ((("sum",), "sum"), (("prod",), "product"), (("amax", "max"), "max"), (("amin", "min"), "min")):
        say(f'`ac.algorithms.reduce({x}, "{op}")` reduces all items', *names)
    for name in ("argmax", "argmin", "argsort", "sort", "unique"):
        say(f"it is `ac.algorithms.{name}({x})`", name)
    for name, op in (("cumsum", "sum"), ("cumprod", "product")):
        say(f'it is `ac.algorithms.scan({x}, "{op}")`', name)
    return advice


_PRODUCT: Final = "`ac.linalg.matmul(x, y)` multiplies matrices"
_ASSIGN: Final = (
    "`ac.fill(x[i], value)` sets them, `ac.copy(x[i], source)` copies to them; both are operations to be awaited"
)


def _advise_on_arrays(cls: type, kind: str, kinds: str, *, is_host: bool = False) -> None:
    advice = _of_arrays("x")
    number = "`(await ac.to_host(x)).item()` is the number"
    compute = _COMPUTE
    if is_host:
        number = "`x.numpy()` is its memory, as a NumPy array"
        compute = f"compute with `x.numpy()`, its memory as a NumPy array; {_COMPUTE}"
        advice |= dict.fromkeys(("asnumpy", "cpu", "get", "item", "to_numpy", "tolist", *_MATHS), number)
    there = "it is there, and no operation; `ac.value(x)` is an operation that yields it"
    advise_on(cls, kind, dict.fromkeys(_public(DeviceOp), there) | advice)
    refuse_operators(cls, kinds, compute=compute, product=_PRODUCT, assign=_ASSIGN, number=number)
    refuse_await(
        cls, f"{kind} is there, and is not awaited; did you mean `await ac.to_host(x)`, its items on the host?"
    )
    refuse_copies(
        cls,
        kind,
        copy="`ac.dup(x)` copies its items to a new array, and `x` itself may be held as often as you like",
        pickle="pickle what `await ac.to_host(x)` gives; another process may open the memory itself (`ipc_handle`)",
    )


def _advise_on_operations() -> None:
    asked = "`future = op.submit()` hands it to the device, and the future has it"
    there = "`x = await op` executes it, and what it yields has it"
    advice = dict.fromkeys(_public(DeviceFuture), asked) | dict.fromkeys(_public(DeviceArray), there)
    lent = "`x = await op` gives an array, which other libraries take"
    names = ("__cuda_array_interface__", "__dlpack__", "__dlpack_c_exchange_api__", "__dlpack_device__")
    advice |= dict.fromkeys(names, lent)
    advise_on(DeviceOp, "an operation", advice | _of_arrays("op"))
    refuse_operators(
        DeviceOp,
        "operations",
        compute=f"`await ac.to_host(op)` gives a NumPy array to compute with. On the device, {_COMPUTE}",
        product=_PRODUCT,
        assign="`x = await op` gives an array; `ac.fill(x[i], value)` and `ac.copy(x[i], source)` set items of that",
        number="`(await ac.to_host(op)).item()` is the number",
    )
    refuse(DeviceOp, "__array__", "an operation is no array: `await ac.to_host(op)` gives what it yields, as NumPy's")
    refuse_copies(
        DeviceOp,
        "an operation",
        copy="it runs once, whoever holds it; to run it again, build it again",
        pickle="pickle what it yields, brought to the host by `await ac.to_host(op)`; build operations where they run",
    )


def _advise_on_futures() -> None:
    there = "`x = await future`, or `future.sync()`, gives what it yields, which has it"
    advise_on(DeviceFuture, "a future", dict.fromkeys(_public(DeviceArray), there) | _of_arrays("future"))
    refuse_copies(
        DeviceFuture,
        "a future",
        copy="await it as often, and from as many tasks, as you like",
        pickle="pickle what it yields, brought to the host by `ac.to_host`",
    )


def _public(cls: type) -> list[str]:
    advised = advised_names(cls)
    return [name for name in dir(cls) if not name.startswith("_") and name not in advised]


def advise() -> None:
    """Have all classes say what to do instead of what they do not have."""
    _advise_on_arrays(DeviceArray, "an array on a device", "arrays on devices")
    _advise_on_arrays(HostArray, "an array in page-locked memory", "arrays in page-locked memory", is_host=True)
    _advise_on_arrays(Partition, "a partition of an array", "partitions of arrays")
    _advise_on_operations()
    _advise_on_futures()
    as_it_is = "pass it as it is"
    for cls, what, pickle in (
        (Kernel, "a kernel", "pickle its source, and make the kernel there"),
        (Module, "a module", "pickle its source, or its file's name, and make the module there"),
        (CudaGraph, "a graph", "make the graph where it is launched"),
        (GraphScope, "a graph_scope", "record the graph where it is launched"),
        (Compiled, "a compiled function", "pickle the function, and compile it there"),
        (Event, "an event", "of one recorded with interprocess=True, `ipc_handle()` is pickled"),
        (StreamWait, "a wait", "wait where the stream is"),
        (_native.Policy, "a policy", "another process has streams of its own; make the policy there"),
    ):
        refuse_copies(cls, what, copy=as_it_is, pickle=pickle)
    refuse(
        Kernel, "__getitem__", "a kernel is launched as `kernel(x, y, n, grid=blocks, block=threads)`, without [...]"
    )
    refuse_await(Kernel, "a kernel is not awaited; did you mean a launch of it, `await kernel(x, y, n, threads=n)`?")
    refuse_await(CudaGraph, "a graph is not awaited; did you mean `await graph.launch()`?")
    refuse_await(Stream, "a stream is not awaited; did you mean `await stream.synchronize()`?")
    refuse_await(Device, "a device is not awaited; did you mean `await device.synchronize()`?")
