"""The stand-in framework as `aiocuda._interop` takes a framework: it is to PyTorch what `framework.Framework` is.

In a capture it gives out memory of a pool of its own, as PyTorch and CuPy do there.
"""

from __future__ import annotations

import contextlib
from typing import Any

from framework import Framework, Free, Tensor

import aiocuda as ac
from aiocuda import _native
from aiocuda._interop.operation import Entered, Made, capsule_of, operation
from aiocuda._values import dtypes


class Adapter:
    name = "Stand-in"

    def __init__(self, framework: Framework) -> None:
        self.framework = framework
        self.pools: list[Free] = []  # of captures, one each

    def enter(self, stream: ac.Stream, kept: list[Any] | None) -> Entered:
        framework = self.framework
        before = framework.current
        inside = contextlib.ExitStack()
        inside.enter_context(framework.using(stream.handle))
        if kept is not None:
            pool = Free()
            inside.callback(setattr, pool, "is_over", True)
            kept.append(pool)
            self.pools.append(pool)
            inside.enter_context(_native.RelaxedCaptures())
            inside.enter_context(framework.allocating_from(pool))
        return Entered(before, (), inside)

    def leave(self, entered: Entered) -> None:
        entered.back.close()

    def lend(self, array: ac.DeviceArray) -> Any:
        return Tensor.taken(self.framework, capsule_of(array))

    def was_written(self, lent: Any) -> bool:
        return lent.version > 0

    def found(self, x: Any) -> Made | None:
        if not isinstance(x, Tensor):
            return None
        return Made(x.address, (x.items,), x.strides, dtypes.code_named("int32"), x.framework.ordinal, x)

    def op(self, function: Any, *arguments: Any, reads: Any = (), writes: Any = (), stateless: bool = False) -> Any:
        return operation(self, function, arguments, reads, writes, stateless)
