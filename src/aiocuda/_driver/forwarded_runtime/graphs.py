"""Calls about graphs."""

from __future__ import annotations

from typing import Any

from aiocuda._driver.forwarded_runtime.asking import SUCCESS
from aiocuda._driver.forwarded_runtime.copies import Copies

__all__ = ["Graphs"]


class Graphs(Copies):
    """Nodes that copy and fill, and conditions."""

    def cudaGraphAddMemcpyNode1D(
        self, graph: Any, pDependencies: Any, numDependencies: int, dst: Any, src: Any, count: int, kind: Any
    ) -> tuple[Any, ...]:
        """Add a node that copies bytes."""
        asked = self._bytes(dst, src, count, kind)
        function = self._driver.cuGraphAddMemcpyNode
        return self._in_context(function, graph, pDependencies, numDependencies, asked)

    def cudaGraphAddMemsetNode(
        self, graph: Any, pDependencies: Any, numDependencies: int, pMemsetParams: Any
    ) -> tuple[Any, ...]:
        """Add a node that fills rows of elements."""
        asked = self._for_driver(pMemsetParams)
        function = self._driver.cuGraphAddMemsetNode
        return self._in_context(function, graph, pDependencies, numDependencies, asked)

    def cudaGraphConditionalHandleCreate(self, graph: Any, defaultLaunchValue: int, flags: int) -> tuple[Any, ...]:
        """Make the handle of a condition."""
        code = self._enter()
        if code != SUCCESS:
            return self._failed(code, 1)
        context = self._driver.cuCtxGetCurrent()[1]
        return self._ask(self._driver.cuGraphConditionalHandleCreate, graph, context, defaultLaunchValue, flags)
