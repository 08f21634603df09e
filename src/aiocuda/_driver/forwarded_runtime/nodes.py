"""Calls about the parameters of a graph's nodes, where the driver's are laid out otherwise."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from aiocuda._driver.forwarded_runtime.arrays import Arrays
from aiocuda._driver.forwarded_runtime.asking import SUCCESS

__all__ = ["Nodes"]

_KERNEL, _COPY, _FILL, _CONDITION = 0, 1, 2, 13  # of cudaGraphNodeType
_NOT_SUPPORTED: Final = 801
_INVALID_DEVICE_FUNCTION: Final = 98


class Nodes(Arrays):
    """Nodes that run kernels and copy, nodes of any kind, and how graphs are instantiated."""

    # ---- kernels

    def cudaGraphAddKernelNode(
        self, graph: Any, pDependencies: Any, numDependencies: int, pNodeParams: Any
    ) -> tuple[Any, ...]:
        """Add a node that runs a kernel."""
        add = self._driver.cuGraphAddKernelNode
        return self._padded(self._ask_launch(add, pNodeParams, graph, pDependencies, numDependencies), 1)

    def cudaGraphKernelNodeSetParams(self, node: Any, pNodeParams: Any) -> tuple[Any, ...]:
        """Set a node's kernel, its grid and its arguments."""
        return self._ask_launch(self._driver.cuGraphKernelNodeSetParams, pNodeParams, node)

    def cudaGraphExecKernelNodeSetParams(self, hGraphExec: Any, node: Any, pNodeParams: Any) -> tuple[Any, ...]:
        """Set a node's kernel, its grid and its arguments, in an executable graph."""
        return self._ask_launch(self._driver.cuGraphExecKernelNodeSetParams, pNodeParams, hGraphExec, node)

    def _ask_launch(self, function: Any, given: Any, *arguments: Any) -> tuple[Any, ...]:
        code = self._enter()
        if code != SUCCESS:
            return self._failed(code)
        asked = self._driver.CUDA_KERNEL_NODE_PARAMS()
        kernel = self._driver.CUkernel(int(given.func))
        # A function of the runtime's is a library's kernel, or a function of the driver's.
        if int(self._driver.cuKernelGetFunction(kernel)[0]) == SUCCESS:
            asked.kern = kernel
        else:
            asked.func = self._driver.CUfunction(int(given.func))
        for extents in ("gridDim", "blockDim"):
            for axis in "xyz":
                setattr(asked, f"{extents}{axis.upper()}", getattr(getattr(given, extents), axis))
        asked.sharedMemBytes = given.sharedMemBytes
        # Addresses of arguments, which the structure took from its caller: its setter would read them as values.
        self._move_pointers(given, asked)
        return self._ask(function, *arguments, asked)

    @staticmethod
    def _move_pointers(of: Any, to: Any) -> None:
        """Copy the addresses of the arguments, which lie behind the same members on both sides."""
        behind_shared_bytes, two_pointers = 40, 16
        ctypes.memmove(to.getPtr() + behind_shared_bytes, of.getPtr() + behind_shared_bytes, two_pointers)

    def cudaGraphKernelNodeGetParams(self, node: Any) -> tuple[Any, ...]:
        """Refuse to tell a node's kernel, as NVIDIA's runtime does for each kernel that a program has not registered.

        A registered kernel is one that nvcc has linked into the program. No program in Python has any.
        """
        error, *found = self._ask(self._driver.cuGraphKernelNodeGetParams, node)
        return self._failed(_INVALID_DEVICE_FUNCTION, 1) if found and found[0] is not None else (error, None)

    # ---- copies and fills

    def cudaGraphAddMemcpyNode(
        self, graph: Any, pDependencies: Any, numDependencies: int, pCopyParams: Any
    ) -> tuple[Any, ...]:
        """Add a node that copies slices of rows."""
        add = self._driver.cuGraphAddMemcpyNode
        return self._padded(self._ask_copy(add, pCopyParams, graph, pDependencies, numDependencies, in_context=True), 1)

    def cudaGraphMemcpyNodeSetParams(self, node: Any, pNodeParams: Any) -> tuple[Any, ...]:
        """Set what a node copies."""
        return self._ask_copy(self._driver.cuGraphMemcpyNodeSetParams, pNodeParams, node)

    def cudaGraphExecMemcpyNodeSetParams(self, hGraphExec: Any, node: Any, pNodeParams: Any) -> tuple[Any, ...]:
        """Set what a node copies, in an executable graph."""
        set_it = self._driver.cuGraphExecMemcpyNodeSetParams
        return self._ask_copy(set_it, pNodeParams, hGraphExec, node, in_context=True)

    def _ask_copy(self, function: Any, given: Any, *arguments: Any, in_context: bool = False) -> tuple[Any, ...]:
        error, asked = self._slices(given)
        if asked is None:
            return (error,)
        return (self._in_context if in_context else self._ask)(function, *arguments, asked)

    def cudaGraphMemcpyNodeSetParams1D(self, node: Any, dst: Any, src: Any, count: int, kind: Any) -> tuple[Any, ...]:
        """Set the bytes that a node copies."""
        return self._ask(self._driver.cuGraphMemcpyNodeSetParams, node, self._bytes(dst, src, count, kind))

    def cudaGraphExecMemcpyNodeSetParams1D(
        self, hGraphExec: Any, node: Any, dst: Any, src: Any, count: int, kind: Any
    ) -> tuple[Any, ...]:
        """Set the bytes that a node copies, in an executable graph."""
        asked = self._bytes(dst, src, count, kind)
        return self._in_context(self._driver.cuGraphExecMemcpyNodeSetParams, hGraphExec, node, asked)

    def cudaGraphMemcpyNodeGetParams(self, node: Any) -> tuple[Any, ...]:
        """Return what a node copies."""
        error, found = self._padded(self._ask(self._driver.cuGraphMemcpyNodeGetParams, node), 1)[:2]
        return (error, None) if found is None else (error, self._told_slices(found))

    def cudaGraphExecMemsetNodeSetParams(self, hGraphExec: Any, node: Any, pNodeParams: Any) -> tuple[Any, ...]:
        """Set what a node fills, in an executable graph."""
        asked = self._for_driver(pNodeParams)
        return self._in_context(self._driver.cuGraphExecMemsetNodeSetParams, hGraphExec, node, asked)

    # ---- nodes of any kind

    def cudaGraphAddNode(
        self, graph: Any, pDependencies: Any, dependencyData: Any, numDependencies: int, nodeParams: Any
    ) -> tuple[Any, ...]:
        """Add a node of any kind but a kernel or a copy, which have calls of their own."""
        data = self._for_driver(dependencyData)
        add = self._driver.cuGraphAddNode
        return self._padded(self._ask_node(add, nodeParams, graph, pDependencies, data, numDependencies), 1)

    def cudaGraphNodeSetParams(self, node: Any, nodeParams: Any) -> tuple[Any, ...]:
        """Set the parameters of a node of any kind but a kernel or a copy."""
        return self._ask_node(self._driver.cuGraphNodeSetParams, nodeParams, node)

    def cudaGraphExecNodeSetParams(self, graphExec: Any, node: Any, nodeParams: Any) -> tuple[Any, ...]:
        """Set the parameters of a node of any kind but a kernel or a copy, in an executable graph."""
        return self._ask_node(self._driver.cuGraphExecNodeSetParams, nodeParams, graphExec, node)

    def _ask_node(self, function: Any, given: Any, *arguments: Any) -> tuple[Any, ...]:
        kind = int(given.type)
        if kind in (_KERNEL, _COPY):
            return self._failed(_NOT_SUPPORTED)
        code = self._enter()
        if code != SUCCESS:
            return self._failed(code)
        asked = self._with_bytes_of(given, self._driver.CUgraphNodeParams())
        context = self._driver.cuCtxGetCurrent()[1]
        if kind == _FILL:
            asked.memset.ctx = context
        if kind == _CONDITION:
            asked.conditional.ctx = context
        answer = self._ask(function, *arguments, asked)
        self._with_bytes_of(asked, given)  # the driver says there what it made
        return answer

    # ---- executables

    def cudaGraphInstantiateWithParams(self, graph: Any, instantiateParams: Any) -> tuple[Any, ...]:
        """Make a graph executable, as its parameters say."""
        asked = self._for_driver(instantiateParams)
        answer = self._ask(self._driver.cuGraphInstantiateWithParams, graph, asked)
        self._with_bytes_of(asked, instantiateParams)  # the driver says there how it went
        return self._padded(answer, 1)
