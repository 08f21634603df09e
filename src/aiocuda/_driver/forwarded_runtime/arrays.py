"""Calls about CUDA arrays, and about the textures and surfaces of them."""

from __future__ import annotations

from typing import Any, Final

from aiocuda._driver.forwarded_runtime.asking import address_of
from aiocuda._driver.forwarded_runtime.copies import Copies

__all__ = ["Arrays"]

_INVALID_CHANNEL_DESCRIPTOR: Final = 20
_READ_ELEMENTS: Final = 0  # cudaReadModeElementType
# The driver's formats, by the kind of a channel (signed, unsigned, float) and its bits.
_FORMATS: Final = {
    (0, 8): "SIGNED_INT8",
    (0, 16): "SIGNED_INT16",
    (0, 32): "SIGNED_INT32",
    (1, 8): "UNSIGNED_INT8",
    (1, 16): "UNSIGNED_INT16",
    (1, 32): "UNSIGNED_INT32",
    (2, 16): "HALF",
    (2, 32): "FLOAT",
}
_READ_AS_INTEGER, _NORMALIZED_COORDINATES, _SRGB, _NO_TRILINEAR, _SEAMLESS = 1, 2, 0x10, 0x20, 0x40


class Arrays(Copies):
    """CUDA arrays, copies to and from them, textures and surfaces."""

    def cudaMallocArray(self, desc: Any, width: int, height: int, flags: int) -> tuple[Any, ...]:
        """Make an array of one or two dimensions."""
        return self._made(self._driver.cuArray3DCreate, desc, (width, height, 0), flags)

    def cudaMalloc3DArray(self, desc: Any, extent: Any, flags: int) -> tuple[Any, ...]:
        """Make an array of up to three dimensions."""
        return self._made(self._driver.cuArray3DCreate, desc, (extent.width, extent.height, extent.depth), flags)

    def cudaMallocMipmappedArray(self, desc: Any, extent: Any, numLevels: int, flags: int) -> tuple[Any, ...]:
        """Make an array with levels."""
        extents = (extent.width, extent.height, extent.depth)
        return self._made(self._driver.cuMipmappedArrayCreate, desc, extents, flags, numLevels)

    def _made(self, create: Any, desc: Any, extents: tuple[int, int, int], flags: int, *more: int) -> tuple[Any, ...]:
        asked = self._driver.CUDA_ARRAY3D_DESCRIPTOR()
        if not self._set_format(asked, desc, "Format", "NumChannels"):
            return self._failed(_INVALID_CHANNEL_DESCRIPTOR, 1)
        asked.Width, asked.Height, asked.Depth = extents
        asked.Flags = flags
        return self._padded(self._ask(create, asked, *more), 1)

    def _set_format(self, asked: Any, desc: Any, format_field: str, channels_field: str) -> bool:
        bits = [each for each in (desc.x, desc.y, desc.z, desc.w) if each]
        name = _FORMATS.get((int(desc.f), bits[0])) if len(set(bits)) == 1 and len(bits) != 3 else None
        if name is None:
            return False
        setattr(asked, format_field, getattr(self._driver.CUarray_format, f"CU_AD_FORMAT_{name}"))
        setattr(asked, channels_field, len(bits))
        return True

    def cudaFreeArray(self, array: Any) -> tuple[Any, ...]:
        """Free an array; nothing, where there is none."""
        return self._ask(self._driver.cuArrayDestroy, self._array(array)) if int(array) else self._answer()

    def cudaFreeMipmappedArray(self, mipmappedArray: Any) -> tuple[Any, ...]:
        """Free an array with levels."""
        return self._ask(self._driver.cuMipmappedArrayDestroy, self._driver.CUmipmappedArray(int(mipmappedArray)))

    def cudaGetMipmappedArrayLevel(self, mipmappedArray: Any, level: int) -> tuple[Any, ...]:
        """Return the array of one level."""
        whole = self._driver.CUmipmappedArray(int(mipmappedArray))
        return self._padded(self._ask(self._driver.cuMipmappedArrayGetLevel, whole, level), 1)

    def cudaArrayGetInfo(self, array: Any) -> tuple[Any, ...]:
        """Return the format of an array, its extents and its flags."""
        error, found = self._description(array)
        if found is None:
            return error, None, None, None
        kind, bits = next(key for key, name in _FORMATS.items() if found.Format.name == f"CU_AD_FORMAT_{name}")
        desc, extent = self._runtime.cudaChannelFormatDesc(), self._runtime.cudaExtent()
        desc.x, desc.y, desc.z, desc.w = (bits if each < found.NumChannels else 0 for each in range(4))
        desc.f = self._runtime.cudaChannelFormatKind(kind)
        extent.width, extent.height, extent.depth = found.Width, found.Height, found.Depth
        return self._answer(desc, extent, found.Flags)

    def cudaGetChannelDesc(self, array: Any) -> tuple[Any, ...]:
        """Return the format of an array."""
        return self.cudaArrayGetInfo(array)[:2]

    def _array(self, array: Any) -> Any:
        return self._driver.CUarray(int(array))

    def _description(self, array: Any) -> tuple[Any, Any]:
        error, found = self._padded(self._ask(self._driver.cuArray3DGetDescriptor, self._array(array)), 1)[:2]
        return error, found

    # ---- copies

    def cudaMemcpy2DToArray(
        self, dst: Any, wOffset: int, hOffset: int, src: Any, spitch: int, width: int, height: int, kind: Any
    ) -> tuple[Any, ...]:
        """Copy rows of bytes into an array."""
        return self._to_array(dst, wOffset, hOffset, src, spitch, width, height, kind)

    def cudaMemcpy2DToArrayAsync(
        self,
        dst: Any,
        wOffset: int,
        hOffset: int,
        src: Any,
        spitch: int,
        width: int,
        height: int,
        kind: Any,
        stream: Any,
    ) -> tuple[Any, ...]:
        """Copy rows of bytes into an array in the order of a stream."""
        return self._to_array(dst, wOffset, hOffset, src, spitch, width, height, kind, stream)

    def _to_array(
        self, dst: Any, x: int, y: int, src: Any, pitch: int, width: int, height: int, kind: Any, *stream: Any
    ) -> tuple[Any, ...]:
        asked = self._between(self._driver.CUDA_MEMCPY2D(), 0, src, kind)
        asked.dstMemoryType, asked.dstArray = self._driver.CUmemorytype.CU_MEMORYTYPE_ARRAY, self._array(dst)
        asked.dstXInBytes, asked.dstY, asked.srcPitch, asked.WidthInBytes, asked.Height = x, y, pitch, width, height
        return self._ask(self._driver.cuMemcpy2DAsync if stream else self._driver.cuMemcpy2D, asked, *stream)

    def cudaMemcpy2DFromArray(
        self, dst: Any, dpitch: int, src: Any, wOffset: int, hOffset: int, width: int, height: int, kind: Any
    ) -> tuple[Any, ...]:
        """Copy rows of bytes out of an array."""
        return self._from_array(dst, dpitch, src, wOffset, hOffset, width, height, kind)

    def cudaMemcpy2DFromArrayAsync(
        self,
        dst: Any,
        dpitch: int,
        src: Any,
        wOffset: int,
        hOffset: int,
        width: int,
        height: int,
        kind: Any,
        stream: Any,
    ) -> tuple[Any, ...]:
        """Copy rows of bytes out of an array in the order of a stream."""
        return self._from_array(dst, dpitch, src, wOffset, hOffset, width, height, kind, stream)

    def _from_array(
        self, dst: Any, pitch: int, src: Any, x: int, y: int, width: int, height: int, kind: Any, *stream: Any
    ) -> tuple[Any, ...]:
        asked = self._between(self._driver.CUDA_MEMCPY2D(), dst, 0, kind)
        asked.srcMemoryType, asked.srcArray = self._driver.CUmemorytype.CU_MEMORYTYPE_ARRAY, self._array(src)
        asked.srcXInBytes, asked.srcY, asked.dstPitch, asked.WidthInBytes, asked.Height = x, y, pitch, width, height
        return self._ask(self._driver.cuMemcpy2DAsync if stream else self._driver.cuMemcpy2D, asked, *stream)

    def cudaMemcpy2DArrayToArray(
        self,
        dst: Any,
        wOffsetDst: int,
        hOffsetDst: int,
        src: Any,
        wOffsetSrc: int,
        hOffsetSrc: int,
        width: int,
        height: int,
        kind: Any,
    ) -> tuple[Any, ...]:
        """Copy rows of bytes from one array to another."""
        asked = self._driver.CUDA_MEMCPY2D()
        asked.srcMemoryType = asked.dstMemoryType = self._driver.CUmemorytype.CU_MEMORYTYPE_ARRAY
        asked.srcArray, asked.dstArray = self._array(src), self._array(dst)
        asked.srcXInBytes, asked.srcY, asked.dstXInBytes, asked.dstY = wOffsetSrc, hOffsetSrc, wOffsetDst, hOffsetDst
        asked.WidthInBytes, asked.Height = width, height
        return self._ask(self._driver.cuMemcpy2D, asked)

    def cudaMemcpy3D(self, p: Any) -> tuple[Any, ...]:
        """Copy slices of rows, of memory and of arrays."""
        return self._copy_slices(p)

    def cudaMemcpy3DAsync(self, p: Any, stream: Any) -> tuple[Any, ...]:
        """Copy slices of rows in the order of a stream."""
        return self._copy_slices(p, stream)

    def _copy_slices(self, p: Any, *stream: Any) -> tuple[Any, ...]:
        error, asked = self._slices(p)
        if asked is None:
            return (error,)
        return self._ask(self._driver.cuMemcpy3DAsync if stream else self._driver.cuMemcpy3D, asked, *stream)

    def _slices(self, p: Any) -> tuple[Any, Any]:
        """Return the driver's description of a copy, or an error and None."""
        asked = self._between(self._driver.CUDA_MEMCPY3D(), p.dstPtr.ptr, p.srcPtr.ptr, p.kind)
        unit = 1  # extents count elements where an array takes part, and so do places in it
        for side, array, at, pointer in (
            ("src", p.srcArray, p.srcPos, p.srcPtr),
            ("dst", p.dstArray, p.dstPos, p.dstPtr),
        ):
            x_bytes = at.x
            if int(array):
                error, found = self._description(array)
                if found is None:
                    return error, None
                unit = self._item_bytes(found)
                x_bytes *= unit
                setattr(asked, f"{side}MemoryType", self._driver.CUmemorytype.CU_MEMORYTYPE_ARRAY)
                setattr(asked, f"{side}Array", self._array(array))
            else:
                setattr(asked, f"{side}Pitch", pointer.pitch)
                setattr(asked, f"{side}Height", pointer.ysize)
            for name, value in (("XInBytes", x_bytes), ("Y", at.y), ("Z", at.z)):
                setattr(asked, f"{side}{name}", value)
        asked.WidthInBytes, asked.Height, asked.Depth = p.extent.width * unit, p.extent.height, p.extent.depth
        return self._runtime.cudaError_t.cudaSuccess, asked

    def _told_slices(self, found: Any) -> Any:
        """Return the runtime's description of a copy that the driver describes."""
        types, told, unit = self._driver.CUmemorytype, self._runtime.cudaMemcpy3DParms(), 1
        ends = []
        for side in ("src", "dst"):
            kind = getattr(found, f"{side}MemoryType")
            at, pointer = getattr(told, f"{side}Pos"), getattr(told, f"{side}Ptr")
            x_bytes = getattr(found, f"{side}XInBytes")
            at.y, at.z = (getattr(found, f"{side}{axis}") for axis in "YZ")
            ends.append("Host" if kind == types.CU_MEMORYTYPE_HOST else "Device")
            if kind == types.CU_MEMORYTYPE_ARRAY:
                array = getattr(found, f"{side}Array")
                setattr(told, f"{side}Array", self._runtime.cudaArray_t(int(array)))
                unit = self._item_bytes(self._description(array)[1])
                at.x = x_bytes // unit
            else:
                at.x = x_bytes
                pointer.ptr = int(getattr(found, f"{side}{ends[-1]}"))
                pointer.pitch, pointer.ysize = (getattr(found, f"{side}{field}") for field in ("Pitch", "Height"))
            if kind == types.CU_MEMORYTYPE_UNIFIED:
                ends[-1] = "Unified"
        name = "Default" if "Unified" in ends else f"{ends[0]}To{ends[1]}"
        told.kind = getattr(self._runtime.cudaMemcpyKind, f"cudaMemcpy{name}")
        told.extent.width, told.extent.height, told.extent.depth = (
            found.WidthInBytes // unit,
            found.Height,
            found.Depth,
        )
        return told

    @staticmethod
    def _item_bytes(description: Any) -> int:
        _, bits = next(key for key, name in _FORMATS.items() if description.Format.name == f"CU_AD_FORMAT_{name}")
        return int(bits // 8 * description.NumChannels)

    # ---- textures and surfaces

    def cudaCreateTextureObject(self, pResDesc: Any, pTexDesc: Any, pResViewDesc: Any) -> tuple[Any, ...]:
        """Make a texture of an array, or of linear or pitched memory."""
        resource = self._resource(pResDesc)
        if resource is None:
            return self._failed(_INVALID_CHANNEL_DESCRIPTOR, 1)
        asked, view = self._texture(pTexDesc), None if pResViewDesc is None else self._view(pResViewDesc)
        return self._padded(self._ask(self._driver.cuTexObjectCreate, resource, asked, view), 1)

    def cudaCreateSurfaceObject(self, pResDesc: Any) -> tuple[Any, ...]:
        """Make a surface of an array."""
        return self._padded(self._ask(self._driver.cuSurfObjectCreate, self._resource(pResDesc)), 1)

    def cudaDestroyTextureObject(self, texObject: Any) -> tuple[Any, ...]:
        """Let go of a texture."""
        return self._ask(self._driver.cuTexObjectDestroy, self._driver.CUtexObject(int(texObject)))

    def cudaDestroySurfaceObject(self, surfObject: Any) -> tuple[Any, ...]:
        """Let go of a surface."""
        return self._ask(self._driver.cuSurfObjectDestroy, self._driver.CUsurfObject(int(surfObject)))

    def _resource(self, given: Any) -> Any:
        """Return the driver's description of what a texture is of; None where it has no such format."""
        driver = self._driver
        asked = driver.CUDA_RESOURCE_DESC()
        asked.resType = driver.CUresourcetype(int(given.resType))
        if int(given.resType) == int(driver.CUresourcetype.CU_RESOURCE_TYPE_ARRAY):
            asked.res.array.hArray = self._array(given.res.array.array)
            return asked
        if int(given.resType) == int(driver.CUresourcetype.CU_RESOURCE_TYPE_MIPMAPPED_ARRAY):
            asked.res.mipmap.hMipmappedArray = driver.CUmipmappedArray(int(given.res.mipmap.mipmap))
            return asked
        is_linear = int(given.resType) == int(driver.CUresourcetype.CU_RESOURCE_TYPE_LINEAR)
        memory, of = (asked.res.linear, given.res.linear) if is_linear else (asked.res.pitch2D, given.res.pitch2D)
        if not self._set_format(memory, of.desc, "format", "numChannels"):
            return None
        memory.devPtr = driver.CUdeviceptr(address_of(of.devPtr))
        for field in ("sizeInBytes",) if is_linear else ("width", "height", "pitchInBytes"):
            setattr(memory, field, getattr(of, field))
        return asked

    def _view(self, given: Any) -> Any:
        asked = self._driver.CUDA_RESOURCE_VIEW_DESC()
        asked.format = self._driver.CUresourceViewFormat(int(given.format))
        for field in ("width", "height", "depth", "firstMipmapLevel", "lastMipmapLevel", "firstLayer", "lastLayer"):
            setattr(asked, field, getattr(given, field))
        return asked

    def _texture(self, given: Any) -> Any:
        driver = self._driver
        asked = driver.CUDA_TEXTURE_DESC()
        asked.addressMode = [driver.CUaddress_mode(int(each)) for each in given.addressMode]
        asked.filterMode = driver.CUfilter_mode(int(given.filterMode))
        asked.mipmapFilterMode = driver.CUfilter_mode(int(given.mipmapFilterMode))
        for field in (
            "maxAnisotropy",
            "mipmapLevelBias",
            "minMipmapLevelClamp",
            "maxMipmapLevelClamp",
            "borderColor",
        ):
            setattr(asked, field, getattr(given, field))
        reads_elements = int(given.readMode) == _READ_ELEMENTS
        asked.flags = (
            (_READ_AS_INTEGER if reads_elements else 0)
            | (_NORMALIZED_COORDINATES if given.normalizedCoords else 0)
            | (_SRGB if given.sRGB else 0)
            | (_NO_TRILINEAR if given.disableTrilinearOptimization else 0)
            | (_SEAMLESS if given.seamlessCubemap else 0)
        )
        return asked
