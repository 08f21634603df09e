"""Calls that copy and fill bytes."""

from __future__ import annotations

from typing import Any

from aiocuda._driver.forwarded_runtime.asking import SUCCESS, Asking, address_of

__all__ = ["Copies"]


class Copies(Asking):
    """Copies of bytes and rows, between devices, too, and fills."""

    def cudaMemcpy(self, dst: Any, src: Any, count: int, kind: Any) -> tuple[Any, ...]:
        """Copy bytes; it blocks until they are there."""
        return self._copy(dst, src, count, kind)

    def cudaMemcpyAsync(self, dst: Any, src: Any, count: int, kind: Any, stream: Any) -> tuple[Any, ...]:
        """Copy bytes in the order of a stream."""
        return self._copy(dst, src, count, kind, stream)

    def _copy(self, dst: Any, src: Any, count: int, kind: Any, *stream: Any) -> tuple[Any, ...]:
        ways = {0: "", 1: "HtoD", 2: "DtoH", 3: "DtoD", 4: ""}
        if int(kind) not in ways:
            return self._failed(21)  # cudaErrorInvalidMemcpyDirection
        function = getattr(self._driver, f"cuMemcpy{ways[int(kind)]}{'Async' if stream else ''}")
        to, of = (address_of(dst), address_of(src))
        return self._ask(function, to, of, count, *stream) if count else self._answer()

    def cudaMemcpy2D(
        self, dst: Any, dpitch: int, src: Any, spitch: int, width: int, height: int, kind: Any
    ) -> tuple[Any, ...]:
        """Copy rows of bytes; it blocks until they are there."""
        asked = self._pitched(dst, dpitch, src, spitch, width, height, kind)
        return self._ask(self._driver.cuMemcpy2D, asked) if width and height else self._answer()

    def cudaMemcpy2DAsync(
        self, dst: Any, dpitch: int, src: Any, spitch: int, width: int, height: int, kind: Any, stream: Any
    ) -> tuple[Any, ...]:
        """Copy rows of bytes in the order of a stream."""
        asked = self._pitched(dst, dpitch, src, spitch, width, height, kind)
        return self._ask(self._driver.cuMemcpy2DAsync, asked, stream) if width and height else self._answer()

    def _pitched(self, dst: Any, dpitch: int, src: Any, spitch: int, width: int, height: int, kind: Any) -> Any:
        asked = self._between(self._driver.CUDA_MEMCPY2D(), dst, src, kind)
        asked.dstPitch, asked.srcPitch, asked.WidthInBytes, asked.Height = dpitch, spitch, width, height
        return asked

    def _between(self, asked: Any, dst: Any, src: Any, kind: Any) -> Any:
        """Fill in the ends of a copy that the driver is asked for."""
        types = self._driver.CUmemorytype
        unified = (types.CU_MEMORYTYPE_UNIFIED, types.CU_MEMORYTYPE_UNIFIED)
        host, device = types.CU_MEMORYTYPE_HOST, types.CU_MEMORYTYPE_DEVICE
        ends = {0: (host, host), 1: (host, device), 2: (device, host), 3: (device, device)}.get(int(kind), unified)
        asked.srcMemoryType, asked.dstMemoryType = ends
        if ends[0] == host:
            asked.srcHost = address_of(src)
        else:
            asked.srcDevice = address_of(src)
        if ends[1] == host:
            asked.dstHost = address_of(dst)
        else:
            asked.dstDevice = address_of(dst)
        return asked

    def cudaMemcpyPeer(self, dst: Any, dstDevice: int, src: Any, srcDevice: int, count: int) -> tuple[Any, ...]:
        """Copy bytes between devices; it blocks until they are there."""
        return self._copy_peer(dst, dstDevice, src, srcDevice, count)

    def cudaMemcpyPeerAsync(
        self,
        dst: Any,
        dstDevice: int,
        src: Any,
        srcDevice: int,
        count: int,
        stream: Any,
    ) -> tuple[Any, ...]:
        """Copy bytes between devices in the order of a stream."""
        return self._copy_peer(dst, dstDevice, src, srcDevice, count, stream)

    def _copy_peer(self, dst: Any, to: int, src: Any, of: int, count: int, *stream: Any) -> tuple[Any, ...]:
        contexts = []
        for device in (to, of):
            code, context = self._primary_context(device)
            if code != SUCCESS:
                return self._failed(code)
            contexts.append(context)
        function = self._driver.cuMemcpyPeerAsync if stream else self._driver.cuMemcpyPeer
        return self._ask(function, address_of(dst), contexts[0], address_of(src), contexts[1], count, *stream)

    def cudaMemset(self, devPtr: Any, value: int, count: int) -> tuple[Any, ...]:
        """Fill bytes."""
        return self._ask(self._driver.cuMemsetD8, address_of(devPtr), value & 0xFF, count)

    def cudaMemsetAsync(self, devPtr: Any, value: int, count: int, stream: Any) -> tuple[Any, ...]:
        """Fill bytes in the order of a stream."""
        return self._ask(self._driver.cuMemsetD8Async, address_of(devPtr), value & 0xFF, count, stream)
