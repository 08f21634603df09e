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

    def _bytes(self, dst: Any, src: Any, count: int, kind: Any) -> Any:
        """Return the driver's description of a copy of bytes, for the nodes of graphs."""
        asked = self._between(self._driver.CUDA_MEMCPY3D(), dst, src, kind)
        asked.WidthInBytes, asked.Height, asked.Depth = count, 1, 1
        return asked

    def cudaMemset(self, devPtr: Any, value: int, count: int) -> tuple[Any, ...]:
        """Fill bytes."""
        return self._ask(self._driver.cuMemsetD8, address_of(devPtr), value & 0xFF, count)

    def cudaMemsetAsync(self, devPtr: Any, value: int, count: int, stream: Any) -> tuple[Any, ...]:
        """Fill bytes in the order of a stream."""
        return self._ask(self._driver.cuMemsetD8Async, address_of(devPtr), value & 0xFF, count, stream)

    def cudaMemset2D(self, devPtr: Any, pitch: int, value: int, width: int, height: int) -> tuple[Any, ...]:
        """Fill rows of bytes."""
        return self._fill_slices(devPtr, pitch, height, value, (width, height, 1))

    def cudaMemset2DAsync(
        self, devPtr: Any, pitch: int, value: int, width: int, height: int, stream: Any
    ) -> tuple[Any, ...]:
        """Fill rows of bytes in the order of a stream."""
        return self._fill_slices(devPtr, pitch, height, value, (width, height, 1), stream)

    def cudaMemset3D(self, pitchedDevPtr: Any, value: int, extent: Any) -> tuple[Any, ...]:
        """Fill slices of rows of bytes."""
        extents = (extent.width, extent.height, extent.depth)
        return self._fill_slices(pitchedDevPtr.ptr, pitchedDevPtr.pitch, pitchedDevPtr.ysize, value, extents)

    def cudaMemset3DAsync(self, pitchedDevPtr: Any, value: int, extent: Any, stream: Any) -> tuple[Any, ...]:
        """Fill slices of rows of bytes in the order of a stream."""
        extents = (extent.width, extent.height, extent.depth)
        return self._fill_slices(pitchedDevPtr.ptr, pitchedDevPtr.pitch, pitchedDevPtr.ysize, value, extents, stream)

    def _fill_slices(
        self, to: Any, pitch: int, rows: int, value: int, extents: tuple[int, int, int], *stream: Any
    ) -> tuple[Any, ...]:
        width, height, depth = extents
        function = self._driver.cuMemsetD2D8Async if stream else self._driver.cuMemsetD2D8
        answer = self._answer()
        for slice_at in range(depth if width and height else 0):
            at = address_of(to) + slice_at * rows * pitch
            answer = self._ask(function, at, pitch, value & 0xFF, width, height, *stream)
            if int(answer[0]) != SUCCESS:
                break
        return answer
