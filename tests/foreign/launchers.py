"""Stand-ins for the launchers of kernel languages: strict, and with real work on the driver.

Each adds one array to another, on the stream that the real one would take, as far as it finds it: the current one, the
one that its driver object tells, or the one that it is given. It orders nothing by itself.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.machinery import ModuleSpec
from typing import Any

import numpy as np
from cuda.bindings import driver
from framework import Framework, Tensor, checked
from torch_like import launch_add

import aiocuda as ac


class Launched:
    """What was launched: on which stream, and with what."""

    def __init__(self) -> None:
        self.streams: list[int] = []
        self.options: list[Any] = []

    def add(self, ordinal: int, stream: int, x: int, y: int, items: int, options: Any = None) -> None:
        assert type(stream) is int
        self.streams.append(stream)
        self.options.append(options)
        of = types.SimpleNamespace
        launch_add(of(ordinal=ordinal, current=stream), of(address=x, items=items), of(address=y))  # type: ignore[arg-type]


def adds(x: Any, y: Any) -> None:
    """As the kernel is written."""
    x[0] += y[0]


def module(name: str, **names: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__spec__ = ModuleSpec(name, None)
    vars(made).update(names)
    return made


class Triton:
    """It asks its driver for the device and the stream, and takes what has an address and a dtype."""

    def __init__(self, framework: Framework) -> None:
        self.launched = Launched()
        self.hash = "as it was compiled"
        launched, of = self.launched, types.SimpleNamespace

        class Driver:
            def __init__(self) -> None:
                self.device = framework.ordinal

            def get_current_device(self) -> int:
                return self.device

            def set_current_device(self, ordinal: int) -> None:
                self.device = ordinal

            def get_current_stream(self, ordinal: int) -> int:
                return framework.default_stream

        self.driver = Driver()
        runtime = module("triton.runtime", driver=of(active=self.driver))

        class JITFunction:
            def __init__(self, fn: Any) -> None:
                import inspect

                self.fn, self.signature = fn, inspect.signature(fn)
                self.arg_names = list(self.signature.parameters)

            def run(self, x: Any, y: Any, *, grid: Any, warmup: bool, **options: Any) -> Any:
                assert not warmup
                active = runtime.driver.active
                ordinal = active.get_current_device()
                assert ordinal == framework.ordinal
                assert x.dtype == y.dtype == np.int32
                grid = grid({"x": x, "y": y}) if callable(grid) else grid
                stream = active.get_current_stream(ordinal)
                launched.add(ordinal, stream, x.data_ptr(), y.data_ptr(), x.shape[0], (grid, options))
                return of(hash="as it was compiled", src=of(signature={"x": "*i32", "y": "*i32"}))

        class Autotuner:
            def __init__(self, fn: Any, configs: Any) -> None:
                self.fn, self.configs, self.cache = fn, configs, {}

            def run(self, *arguments: Any, **keywords: Any) -> Any:
                key = str(arguments[0].dtype)
                if key not in self.cache:
                    self.cache[key] = min(self.configs, key=lambda each: self._bench(config=each))
                return self.fn.run(*arguments, **keywords)

            def _bench(self, *, config: Any) -> float:
                checked(driver.cuCtxSynchronize())
                return float(config.kwargs["n"])

        class Heuristics:
            def __init__(self, fn: Any, values: Any) -> None:
                self.fn, self.values = fn, values

            def run(self, *arguments: Any, **keywords: Any) -> Any:
                return self.fn.run(*arguments, **keywords)

        runtime.JITFunction, runtime.Autotuner, runtime.Heuristics = JITFunction, Autotuner, Heuristics  # type: ignore[attr-defined]
        self.JITFunction, self.Autotuner, self.Heuristics = JITFunction, Autotuner, Heuristics
        self.modules = {
            "triton": module("triton", runtime=runtime, __version__="3.9.0"), "triton.runtime": runtime,
            "torch": None,  # its arrays would be PyTorch's
        }  # fmt: skip

    def kernel(self) -> Any:
        from aiocuda.interop.triton import kernel

        launch = kernel(self.JITFunction(adds), writes=["x"])[1,]
        return lambda x, y, items: launch(x, y, num_warps=4)


class Cupy:
    """Its kernels go to the stream that is current in the thread; they take its own arrays alone."""

    def __init__(self, framework: Framework) -> None:
        self.launched = Launched()
        launched, of = self.launched, types.SimpleNamespace

        class External:
            def __init__(self, handle: int) -> None:
                self.ptr = handle

            @classmethod
            def from_external(cls, stream: Any) -> Any:
                return cls(stream.__cuda_stream__()[1])

            def __enter__(self) -> None:
                self.inside = ExitStack()
                self.inside.enter_context(framework.using(self.ptr))

            def __exit__(self, *_: object) -> None:
                self.inside.close()

        class Array:
            def __init__(self, shape: Any, dtype: Any, pointer: Any, strides: Any) -> None:
                self.shape, self.dtype, self.data, self.strides = shape, dtype, pointer, strides

        class RawKernel:
            name, options = "add", ()
            code = 'extern "C" __global__ void add(int* x, const int* y, unsigned n) {}'

            def __call__(self, grid: Any, block: Any, arguments: Any, *, shared_mem: int = 0) -> None:
                x, y, n = arguments
                assert isinstance(x, Array)
                assert isinstance(y, Array)
                launched.add(0, framework.current, x.data.ptr, y.data.ptr, n, (grid, block, shared_mem))

        self.RawKernel = RawKernel
        cuda = of(
            Stream=External,
            get_current_stream=lambda ordinal: External(framework.current),
            runtime=of(getDevice=lambda: framework.ordinal),
            MemoryPool=lambda: of(malloc=None),
            using_allocator=lambda malloc: ExitStack(),
            UnownedMemory=lambda address, size, owner, ordinal: of(ptr=address, owner=owner),
            MemoryPointer=lambda memory, offset: memory,
        )
        others = {"ElementwiseKernel": type("E", (), {}), "ReductionKernel": type("R", (), {})}
        self.modules = {"cupy": module("cupy", cuda=cuda, ndarray=Array, RawKernel=RawKernel, **others)}

    def kernel(self) -> Any:
        from aiocuda.interop.cupy import kernel

        launch = kernel(self.RawKernel())
        return lambda x, y, items: launch((1,), (items,), (x, y, items), shared_mem=16)


class CuTile:
    """It is told the stream as a number, and asks its arrays for DLPack without an order."""

    def __init__(self, framework: Framework) -> None:
        self.launched = Launched()
        launched = self.launched

        class Kernel:
            def __init__(self, function: Any) -> None:
                self._pyfunc = function

        def launch(stream: int, grid: Any, made: Any, arguments: Any, /) -> None:
            assert isinstance(made, Kernel)
            x, y = (Tensor.taken(framework, each.__dlpack__(stream=-1)) for each in arguments)
            launched.add(framework.ordinal, stream, x.address, y.address, x.items, grid)

        self.Kernel = Kernel
        self.modules = {"cuda.tile": module("cuda.tile", kernel=Kernel, launch=launch)}

    def kernel(self) -> Any:
        from aiocuda.interop.cutile import kernel

        launch = kernel(self.Kernel(adds))[1,]
        return lambda x, y, items: launch(x, y)


class Warp:
    """Its kernels go to the stream of the device, which is the same for all threads."""

    def __init__(self, framework: Framework) -> None:
        self.launched = Launched()
        launched, of = self.launched, types.SimpleNamespace
        device = of(stream=of(cuda_stream=framework.default_stream), is_cuda=True, ordinal=framework.ordinal)

        @contextmanager
        def scoped(stream: Any, *, sync_enter: bool) -> Iterator[None]:
            assert not sync_enter
            before, device.stream = device.stream, stream
            yield
            device.stream = before

        class Array:
            def __init__(self, tensor: Any) -> None:
                self.tensor, self.dtype = tensor, "int32"

        class Declared(Array):
            ndim = 1

        class Kernel:
            def __init__(self, function: Any) -> None:
                self.func, self.key = function, "adds"
                self.adj = of(args=[of(label=label, type=Declared(None)) for label in ("x", "y")])

        def launch(
            made: Any, dim: Any, *, inputs: Any, outputs: Any, device: Any, block_dim: int, record_tape: bool
        ) -> None:
            y, x = (*inputs, *outputs) if len(outputs) else reversed(inputs)
            x, y = (y, x) if len(outputs) else (x, y)
            stream = device.stream.cuda_stream
            launched.add(device.ordinal, stream, x.tensor.address, y.tensor.address, dim, (block_dim, record_tape))

        self.Kernel = Kernel
        self.modules = {
            "warp": module(
                "warp",
                init=lambda: None,
                array=Array,
                Kernel=Kernel,
                Function=type("Function", (), {}),
                Stream=lambda device, cuda_stream: of(cuda_stream=cuda_stream),
                ScopedStream=scoped,
                get_device=lambda name=None: device,
                get_stream=lambda name: device.stream,
                from_dlpack=lambda capsule: Array(Tensor.taken(framework, capsule)),
                launch=launch,
            )
        }

    def kernel(self) -> Any:
        from aiocuda.interop.warp import kernel

        launch = kernel(self.Kernel(adds))
        return lambda x, y, items: launch(items, inputs=[x, y], block_dim=64)


class Numba:
    """It is told the stream by an object of its own."""

    def __init__(self, framework: Framework) -> None:
        self.launched = Launched()
        launched, of = self.launched, types.SimpleNamespace
        cuda = module(
            "numba.cuda",
            gpus=[ExitStack()],
            defer_cleanup=ExitStack,
            default_stream=lambda: of(handle=framework.default_stream),
            external_stream=lambda handle: of(handle=handle),
            from_cuda_array_interface=lambda interface, owner, sync: of(owner=owner, **interface),
        )

        class Dispatcher:
            py_func = staticmethod(adds)

            def __getitem__(self, configuration: Any) -> Any:
                grid, block, stream, shared = configuration

                def launch(x: Any, y: Any) -> None:
                    launched.add(0, stream.handle, x.data[0], y.data[0], x.shape[0], (grid, block, shared))

                return launch

        self.Dispatcher = Dispatcher
        self.modules = {
            "numba_cuda": module("numba_cuda"), "numba": module("numba", cuda=cuda), "numba.cuda": cuda,
        }  # fmt: skip

    def kernel(self) -> Any:
        from aiocuda.interop.numba import kernel

        launch = kernel(self.Dispatcher())[2, 32]
        return lambda x, y, items: launch(x, y)


LANGUAGES: dict[str, Any] = {"triton": Triton, "cupy": Cupy, "cutile": CuTile, "warp": Warp, "numba": Numba}


@contextmanager
def installed(framework: Framework, *languages: str) -> Iterator[dict[str, Any]]:
    """Put stand-ins into the place of languages."""
    import cuda

    from aiocuda._interop import cupy, cutile, numba, triton, triton_ir, warp
    from aiocuda._interop.pointers import Written

    cached = [cupy.framework, cutile._cutile, numba._numba, triton._triton, warp.framework]
    made = {name: LANGUAGES[name](framework) for name in languages or LANGUAGES}
    modules = {name: each for language in made.values() for name, each in language.modules.items()}
    before = {name: sys.modules.get(name) for name in modules}
    tile = vars(cuda).get("tile")
    patched = {"launch_options": lambda: frozenset({"num_warps"}), "named_in": list}
    patched["written_by_compiled"] = lambda compiled: Written(frozenset({0}), frozenset())
    originals = {name: getattr(triton_ir, name) for name in patched}
    for each in cached:
        each.cache_clear()
    sys.modules.update(modules)
    vars(cuda)["tile"] = modules.get("cuda.tile")
    vars(triton_ir).update(patched)
    try:
        yield made
    finally:
        vars(triton_ir).update(originals)
        vars(cuda)["tile"] = tile
        for name, was in before.items():
            if was is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = was
        for each in cached:
            each.cache_clear()


def run_program(seed: int, steps: int = 40) -> None:
    """Add arrays to one another at random, by all languages and on several streams, and compare with NumPy."""
    random = np.random.default_rng(seed)
    items, count = 64, 5
    framework = Framework()
    with installed(framework) as languages:
        launches = [each.kernel() for each in languages.values()]
        streams = [ac.Device(0).stream() for _ in range(3)]
        expected = [np.full(items, i + 1, np.int32) for i in range(count)]
        arrays: list[Any] = [ac.full(items, i + 1, np.int32).sync(60) for i in range(count)]
        pending = []
        for _ in range(steps):
            to, of = random.choice(count, 2, replace=False)
            kind, stream = int(random.integers(len(launches) + 1)), streams[random.integers(len(streams))]
            if kind == len(launches):
                arrays[to] = ac.dup(arrays[of]).on(stream)
                expected[to] = expected[of].copy()
            else:
                arrays[to] = launches[kind](arrays[to], arrays[of], items).on(stream)
                expected[to] = expected[to] + expected[of]
            pending.append(arrays[to].submit())  # in this order, as launches write in place
        found = [ac.to_host(x).sync(60) for x in arrays]
        for future in pending:
            future.sync(60)
        for x, y in zip(found, expected, strict=True):
            assert (x == y).all()
        for each in languages.values():
            assert framework.default_stream not in each.launched.streams
    ac.Device(0).synchronize().sync(60)
