"""Views of arrays, by an H100's rules: a texture of some levels, some layers, or of another format of the same size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from driver_calls import FORMATS, Array, Kernels, cu, name_of, ok, open_device, read, written

SOURCE = r"""
extern "C" __global__ void ints(cudaTextureObject_t t, int* out, int n) {
    for (int i = 0; i < n; ++i) out[i] = tex1D<int>(t, i);
}
extern "C" __global__ void layers(cudaTextureObject_t t, float* out, int n) {
    for (int i = 0; i < n; ++i) out[i] = tex2DLayered<float>(t, 0.5f, 0.5f, i);
}
extern "C" __global__ void levels(cudaTextureObject_t t, float* out, int n) {
    for (int i = 0; i < n; ++i) out[i] = tex2DLod<float>(t, 0.5f, 0.5f, i);
}
"""
VIEW = cu.CUresourceViewFormat
FLOATS = VIEW.CU_RES_VIEW_FORMAT_FLOAT_1X32
NORMALISED = cu.CU_TRSF_NORMALIZED_COORDINATES


@pytest.fixture
def kernels() -> Kernels:
    open_device()
    return Kernels(SOURCE)


def view(width: int, height: int = 0, depth: int = 0, **others: Any) -> Any:
    made = cu.CUDA_RESOURCE_VIEW_DESC()
    made.width, made.height, made.depth = width, height, depth
    for name, value in others.items():
        setattr(made, name, value)
    return made


def texture(resource: Any, seen: Any, flags: int = 0, most_levels: float = 0) -> tuple[Any, ...]:
    description = cu.CUDA_TEXTURE_DESC()
    description.flags = flags
    description.addressMode = [cu.CUaddress_mode.CU_TR_ADDRESS_MODE_CLAMP] * 3
    description.maxMipmapLevelClamp = most_levels
    return cu.cuTexObjectCreate(resource, description, seen)  # type: ignore[no-any-return]


def fetched(kernels: Kernels, kernel: str, object_: int, count: int, dtype: Any) -> list[Any]:
    out = written(np.zeros(count, dtype))
    kernels(kernel, object_, out, np.int32(count))
    return read(out, count, dtype).tolist()  # type: ignore[no-any-return]


def test_texels_are_read_as_another_format_of_their_size(kernels):
    values = np.array([1.0, -2.5, 1e30], np.float32)
    array = Array(values)
    seen = view(3, format=VIEW.CU_RES_VIEW_FORMAT_SINT_1X32)
    object_ = int(ok(texture(array.resource(), seen)))
    assert fetched(kernels, "ints", object_, 3, np.int32) == values.view(np.int32).tolist()
    told = ok(cu.cuTexObjectGetResourceViewDesc(cu.CUtexObject(object_)))
    assert (int(told.format), told.width) == (int(VIEW.CU_RES_VIEW_FORMAT_SINT_1X32), 3)


def test_a_view_has_some_layers_of_an_array(kernels):
    array = Array(np.arange(5, dtype=np.float32).reshape(5, 1, 1) * 10, flags=cu.CUDA_ARRAY3D_LAYERED)
    description = ok(cu.cuArray3DGetDescriptor(array.handle))
    extents = (description.Width, description.Height, description.Depth)
    object_ = int(ok(texture(array.resource(), view(*extents, format=FLOATS, firstLayer=1, lastLayer=3))))
    # Layers beyond the last are the last one.
    assert fetched(kernels, "layers", object_, 4, np.float32) == [10, 20, 30, 30]
    ok(texture(array.resource(), view(*extents, format=FLOATS, lastLayer=5)))  # one too many, and not refused
    for wrong in (view(*extents, format=FLOATS, firstLayer=3, lastLayer=1), view(1, 1, 3, format=FLOATS, lastLayer=2)):
        assert name_of(texture(array.resource(), wrong)) == "INVALID_VALUE"


def test_a_view_has_some_levels_of_a_mipmapped_array(kernels):
    description = cu.CUDA_ARRAY3D_DESCRIPTOR()
    description.Width, description.Height, description.NumChannels = 8, 8, 1
    description.Format = FORMATS["float32"]
    mipmap = ok(cu.cuMipmappedArrayCreate(description, 4))
    for number in range(4):
        extent = 8 >> number
        values: Any = np.full((extent, extent), number * 10, np.float32)
        copy = cu.CUDA_MEMCPY2D()
        copy.srcMemoryType, copy.srcHost = cu.CUmemorytype.CU_MEMORYTYPE_HOST, values.ctypes.data
        copy.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_ARRAY
        copy.dstArray = ok(cu.cuMipmappedArrayGetLevel(mipmap, number))
        copy.WidthInBytes, copy.Height = 4 * extent, extent
        ok(cu.cuMemcpy2D(copy))
    resource = cu.CUDA_RESOURCE_DESC()
    resource.resType = cu.CUresourcetype.CU_RESOURCE_TYPE_MIPMAPPED_ARRAY
    resource.res.mipmap.hMipmappedArray = mipmap
    seen = view(8, 8, format=FLOATS, firstMipmapLevel=1, lastMipmapLevel=2)
    object_ = int(ok(texture(resource, seen, NORMALISED, most_levels=9)))
    assert fetched(kernels, "levels", object_, 4, np.float32) == [10, 20, 20, 20]
    beyond = view(8, 8, format=FLOATS, firstMipmapLevel=2, lastMipmapLevel=9)
    assert fetched(kernels, "levels", int(ok(texture(resource, beyond, NORMALISED, 9))), 3, np.float32) == [20, 30, 30]
    wrong = view(8, 8, format=FLOATS, firstMipmapLevel=2, lastMipmapLevel=1)
    assert name_of(texture(resource, wrong, NORMALISED)) == "INVALID_VALUE"


@pytest.mark.parametrize(
    "wrong",
    [
        view(3),  # without a format
        view(4, format=FLOATS),
        view(2, format=FLOATS),
        view(3, 1, format=FLOATS),
        view(3, format=FLOATS, lastLayer=1),
        view(3, format=FLOATS, lastMipmapLevel=1),
        view(3, format=VIEW.CU_RES_VIEW_FORMAT_UINT_1X8),
        view(3, format=VIEW.CU_RES_VIEW_FORMAT_UNSIGNED_BC1),
    ],
)
def test_a_view_of_what_an_array_has_not_is_refused(kernels, wrong):
    assert name_of(texture(Array(np.zeros(3, np.float32)).resource(), wrong)) == "INVALID_VALUE"


def told_of(object_: int) -> tuple[int, int, int]:
    told = ok(cu.cuTexObjectGetResourceViewDesc(cu.CUtexObject(object_)))
    return told.width, int(told.format), told.lastLayer


def test_a_texture_without_a_view_tells_of_none(kernels):
    array = Array(np.zeros(3, np.float32))
    assert told_of(int(ok(texture(array.resource(), None)))) == (0, 0, 0)


def test_a_view_of_linear_memory_is_ignored(kernels):
    resource = cu.CUDA_RESOURCE_DESC()
    resource.resType = cu.CUresourcetype.CU_RESOURCE_TYPE_LINEAR
    resource.res.linear.devPtr = written(np.zeros(3, np.float32))
    resource.res.linear.format, resource.res.linear.numChannels = FORMATS["float32"], 1
    resource.res.linear.sizeInBytes = 12
    assert told_of(int(ok(texture(resource, view(9, format=FLOATS))))) == (0, 0, 0)
