"""The calls of ``cuda.bindings.runtime``, answered by the emulated driver.

The CUDA runtime inside ``cuda.bindings`` starts on NVIDIA's driver alone. Where the emulated driver is chosen, the
common calls of that module are therefore calls of the driver, in Python; a call that is not among them raises, and
names a way out. A thread's device, its primary context and its last error are kept as the runtime keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiocuda._driver.forwarded_runtime.devices import Devices
from aiocuda._driver.forwarded_runtime.graphs import Graphs
from aiocuda._driver.forwarded_runtime.libraries import Libraries
from aiocuda._driver.forwarded_runtime.memory import Memory
from aiocuda._driver.forwarded_runtime.nodes import Nodes
from aiocuda._driver.forwarded_runtime.streams import Streams
from aiocuda._driver.forwarded_runtime.tables import ALIKE, OF_THE_RUNTIME_ITSELF, WITHOUT
from aiocuda.errors import DriverError

__all__ = ["forward"]


def forward() -> None:
    """Have the emulated driver answer the calls of ``cuda.bindings.runtime`` in this process.

    To be called once, when the emulated driver is loaded. What took a function out of that module before keeps the one
    that it took.

    Notes
    -----
    *Stream*: none. *Blocks*: no; it imports ``cuda.bindings``.
    """
    from cuda.bindings import driver, runtime

    answers = _Answers(driver, runtime)
    kind = type(runtime.cudaMalloc)
    for name in [each for each in vars(runtime) if each.startswith("cuda")]:
        if isinstance(getattr(runtime, name), kind) and name not in OF_THE_RUNTIME_ITSELF:
            setattr(runtime, name, answers.of(name))


class _Answers(Devices, Memory, Streams, Graphs, Nodes, Libraries):
    """The runtime's calls, by their names; each answers a tuple of an error and values, as ``cuda.bindings`` does.

    Parameters
    ----------
    driver, runtime
        The modules of ``cuda.bindings``.
    """

    def of(self, name: str) -> Callable[..., Any]:
        """Return the function that answers a call: by the driver, or with an error that names a way out."""
        own = getattr(self, name, None)
        answer = own if own is not None else self._alike(name) if name in ALIKE else self._refused(name)

        def call(*arguments: Any, **named: Any) -> Any:
            return answer(*arguments, **named)

        call.__name__ = call.__qualname__ = name
        call.__doc__ = getattr(self._runtime, name).__doc__
        call.__module__ = "cuda.bindings.runtime"
        return call

    def _alike(self, name: str) -> Callable[..., Any]:
        function = getattr(self._driver, ALIKE[name])

        def answer(*arguments: Any) -> Any:
            return self._ask(function, *map(self._for_driver, arguments))

        return answer

    def _refused(self, name: str) -> Callable[..., Any]:
        def refuse(*_: Any, **__: Any) -> Any:
            raise DriverError("cudaErrorNotSupported", 801, self._why_refused(name), name)

        return refuse

    def _why_refused(self, name: str) -> str:
        missing = next((what for part, what in WITHOUT.items() if part in name), None)
        if missing is not None:
            return f"the emulated driver has no {missing}"
        alike = f"cu{name.removeprefix('cuda')}"
        version = int(self._driver.cuDriverGetVersion()[1])
        if not hasattr(self._driver, alike):
            instead = "cuda.bindings.driver"
        elif self._driver.cuGetProcAddress(alike.encode(), version, 0)[1]:  # its address
            instead = f"{alike} of cuda.bindings.driver"
        else:
            has = f"{version // 1000}.{version % 1000 // 10}"
            return f"the emulated driver is one of CUDA {has}, which has no {alike}"
        return f"on the emulated driver, cuda.bindings.runtime has the common calls alone; call {instead}"
