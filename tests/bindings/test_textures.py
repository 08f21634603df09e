"""Arrays, textures and surfaces, against the formulas of NVIDIA's programming guide ("Texture Fetching") in NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driver_calls import Array, Kernels, cu, name_of, ok, open_device, read, written

SOURCE = r"""
#define EACH for (int i = 0; i < n; ++i)
typedef const float* In;
extern "C" __global__ void fetch(cudaTextureObject_t t, In x, float* out, int n) {
    EACH out[i] = tex1Dfetch<float>(t, (int)x[i]);
}
extern "C" __global__ void one(cudaTextureObject_t t, In x, float* out, int n) { EACH out[i] = tex1D<float>(t, x[i]); }
extern "C" __global__ void two(cudaTextureObject_t t, In x, In y, float* out, int n) {
    EACH out[i] = tex2D<float>(t, x[i], y[i]);
}
extern "C" __global__ void three(cudaTextureObject_t t, In x, In y, In z, float* out, int n) {
    EACH tex3D(&out[i], t, x[i], y[i], z[i]);
}
extern "C" __global__ void layer(cudaTextureObject_t t, In x, In y, In z, float* out, int n) {
    EACH out[i] = tex2DLayered<float>(t, x[i], y[i], (int)z[i]);
}
extern "C" __global__ void cube(cudaTextureObject_t t, In x, In y, In z, float* out, int n) {
    EACH out[i] = texCubemap<float>(t, x[i], y[i], z[i]);
}
extern "C" __global__ void level(cudaTextureObject_t t, In x, In l, float* out, int n) {
    EACH out[i] = tex2DLod<float>(t, x[i], x[i], l[i]);
}
extern "C" __global__ void gradient(cudaTextureObject_t t, In x, In d, float* out, int n) {
    EACH out[i] = tex2DGrad<float>(t, x[i], x[i], make_float2(d[i], 0), make_float2(0, d[i] / 2));
}
extern "C" __global__ void gather(cudaTextureObject_t t, In x, In y, float4* out, int n) {
    EACH out[i] = tex2Dgather<float4>(t, x[i], y[i]);
}
extern "C" __global__ void bytes(cudaTextureObject_t t, In x, uchar4* out, int n) {
    EACH out[i] = tex1D<uchar4>(t, x[i]);
}
extern "C" __global__ void shorts(cudaTextureObject_t t, In x, short2* out, int n) {
    EACH out[i] = tex1D<short2>(t, x[i]);
}
extern "C" __global__ void ints(cudaTextureObject_t t, In x, int* out, int n) { EACH out[i] = tex1D<int>(t, x[i]); }
extern "C" __global__ void double_surface(cudaSurfaceObject_t s, int width, int height) {
    for (int y = 0; y < height; ++y) for (int x = 0; x < width; ++x) {
        float2 texel = surf2Dread<float2>(s, x * (int)sizeof(float2), y);
        surf2Dwrite(make_float2(2 * texel.x, -texel.y), s, x * (int)sizeof(float2), y);
    }
}
extern "C" __global__ void edges(cudaSurfaceObject_t s, int* out) {
    out[0] = surf3Dread<int>(s, -4, 0, 0, cudaBoundaryModeZero);
    out[1] = surf3Dread<int>(s, -4, 99, -1, cudaBoundaryModeClamp);
    surf3Dread(&out[2], s, 4, 1, 1);
    surf3Dwrite(1234, s, 4000, 0, 0, cudaBoundaryModeZero);
    surf3Dwrite(99, s, 4000, 0, 0, cudaBoundaryModeClamp);
}
extern "C" __global__ void stray(cudaSurfaceObject_t s) { surf3Dwrite(5, s, 4000, 0, 0); }
"""

POINT, LINEAR = cu.CUfilter_mode.CU_TR_FILTER_MODE_POINT, cu.CUfilter_mode.CU_TR_FILTER_MODE_LINEAR
MODES = {
    "wrap": cu.CUaddress_mode.CU_TR_ADDRESS_MODE_WRAP,
    "clamp": cu.CUaddress_mode.CU_TR_ADDRESS_MODE_CLAMP,
    "mirror": cu.CUaddress_mode.CU_TR_ADDRESS_MODE_MIRROR,
    "border": cu.CUaddress_mode.CU_TR_ADDRESS_MODE_BORDER,
}
AS_INTEGER, NORMALISED = cu.CU_TRSF_READ_AS_INTEGER, cu.CU_TRSF_NORMALIZED_COORDINATES
BORDER = 100.0


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    open_device()
    return Kernels(SOURCE)


@pytest.fixture(autouse=True)
def _device() -> None:
    open_device()


def texture(
    resource: Any, *, filters: Any = POINT, mode: str = "clamp", flags: int = 0, dimensions: int = 3, **others: Any
) -> int:
    description = cu.CUDA_TEXTURE_DESC()
    description.filterMode = filters
    description.addressMode = [MODES[mode]] * dimensions + [MODES["clamp"]] * (3 - dimensions)
    description.flags = flags
    description.borderColor = [BORDER] * 4
    for name, value in others.items():
        setattr(description, name, value)
    return int(ok(cu.cuTexObjectCreate(resource, description, None)))


def sampled(
    kernels: Kernels, kernel: str, object_: int, *coordinates: Any, dtype: Any = np.float32, width: int = 1
) -> Any:
    given = [written(np.asarray(each, np.float32)) for each in coordinates]
    n = len(coordinates[0])
    out = written(np.zeros((n, width), dtype))
    kernels(kernel, object_, *given, out, np.int32(n))
    values = read(out, (n, width), dtype)
    for each in (*given, out):
        ok(cu.cuMemFree(each))
    return values[:, 0] if width == 1 else values


# --- the formulas


def place(x: np.ndarray, extent: int, filters: Any, mode: str, normalised: bool) -> np.ndarray:
    """A coordinate in texels."""
    x = x.astype(np.float64)
    if normalised:
        x = x * extent
    if mode == "border" or (normalised and mode != "clamp"):
        return x
    edge = 0.5 if filters is LINEAR else 0  # beyond the middle of the last texel is nothing else to weigh
    return np.clip(x, edge, extent - edge)


def indexed(i: np.ndarray, extent: int, mode: str, normalised: bool) -> tuple[np.ndarray, np.ndarray]:
    """The texel of an index, and whether it is the border."""
    if mode == "wrap" and normalised:
        return i % extent, np.zeros(i.shape, bool)
    if mode == "mirror" and normalised:
        there_and_back = i % (2 * extent)
        return np.minimum(there_and_back, 2 * extent - 1 - there_and_back), np.zeros(i.shape, bool)
    outside = (i < 0) | (i >= extent)
    return np.clip(i, 0, extent - 1), outside & (mode == "border")


def reference(
    texels: np.ndarray, coordinates: list[np.ndarray], filters: Any, mode: str, normalised: bool
) -> np.ndarray:
    """What a texture answers: `texels` has the dimensions of `coordinates`, the last one first."""
    extents = texels.shape[::-1]
    count = len(coordinates[0])
    nothing = (np.zeros(count, int), np.zeros(count, bool))
    sides: list[list[tuple[np.ndarray, np.ndarray]]] = []  # of each dimension, the two texels beside the place
    shares = []  # of the second, in 256ths: 9 bits of fixed point, 8 of them behind the point
    for x, extent in zip(coordinates, extents, strict=True):
        at = place(x, extent, filters, mode, normalised)
        fixed = np.floor(at * 256 + 0.5).astype(int) - 128 if filters is LINEAR else np.floor(at).astype(int) * 256
        first, second = (indexed((fixed >> 8) + step, extent, mode, normalised) for step in (0, 1))
        sides.append([first, second])
        shares.append(fixed & 255)
    while len(sides) < 3:
        sides.append([nothing, nothing])
        shares.append(np.zeros(count, int))
    # The product of the weights, which the hardware rounds: first those of x and z, then along y.
    a, b, c = shares
    right, right_behind = (a * (256 - c) + 128) // 256, (a * c + 128) // 256
    result = np.zeros(count)
    of_x_and_z = {(0, 0): 256 - c - right, (1, 0): right, (0, 1): c - right_behind, (1, 1): right_behind}
    for (i, k), weight in of_x_and_z.items():
        upper = (weight * b + 127 + i) // 256  # a half goes up for the second texel of x, down for the first one
        for j, part in ((0, weight - upper), (1, upper)):
            corner = (sides[0][i], sides[1][j], sides[2][k])
            is_border = corner[0][1] | corner[1][1] | corner[2][1]
            texel = texels[tuple(side[0] for side in reversed(corner[: texels.ndim]))]
            result += part / 256 * np.where(is_border, BORDER, texel)
    return result


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("filters", [POINT, LINEAR], ids=["point", "linear"])
@pytest.mark.parametrize("normalised", [False, True], ids=["texels", "normalised"])
def test_one_to_three_dimensions(kernels, mode, filters, normalised):
    random = np.random.default_rng(1)
    flags = NORMALISED if normalised else 0
    for kernel, shape in (("one", (7,)), ("two", (4, 6)), ("three", (3, 4, 5))):
        texels = random.random(shape, np.float32) * 10
        array = Array(texels)
        np.testing.assert_array_equal(array.read(), texels)
        object_ = texture(array.resource(), filters=filters, mode=mode, flags=flags, dimensions=len(shape))
        spread = random.uniform(-1.7, 2.7, (len(shape), 200)).astype(np.float32)
        scale = [1.0] * len(shape) if normalised else [float(e) for e in reversed(shape)]
        coordinates = [(row * by).astype(np.float32) for row, by in zip(spread, scale, strict=True)]
        found = sampled(kernels, kernel, object_, *coordinates)
        expected = reference(texels, coordinates, filters, mode, normalised)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        ok(cu.cuTexObjectDestroy(object_))
        array.close()


def test_a_weight_has_8_bits_behind_the_point(kernels):
    array = Array(np.array([0, 1, 0, 0], np.float32))
    object_ = texture(array.resource(), filters=LINEAR)
    x = np.concatenate([0.5 + np.arange(65) / 2048, 1.5 - np.arange(16) / 2048]).astype(np.float32)
    found = sampled(kernels, "one", object_, x) * 256
    rising = [0] * 4 + [k for k in range(1, 8) for _ in range(8)] + [8] * 5
    np.testing.assert_array_equal(found, rising + [256] * 5 + [255] * 8 + [254] * 3)  # seen on an H100
    ok(cu.cuTexObjectDestroy(object_))
    array.close()


def test_filters_weigh_as_the_hardware_does(kernels):
    """Bit for bit what an H100 gave for these texels and coordinates."""
    texels = np.array([i * i % 17 for i in range(24)], np.float32)
    places = np.arange(29, dtype=np.float32)
    x = np.float32(-0.7) + np.float32(5.6) * places / np.float32(29)
    y = np.float32(6.5) + np.float32(-7.4) * places / np.float32(29)
    z = np.float32(-0.3) + np.float32(2.5) * places / np.float32(29)
    two, three = Array(texels.reshape(6, 4)), Array(texels.reshape(2, 3, 4))
    found = sampled(kernels, "two", texture(two.resource(), filters=LINEAR), x, y) * 256
    np.testing.assert_array_equal(found[4:12], [2264, 1736, 1216, 721, 281, 1019, 1983, 3196])
    found = sampled(kernels, "three", texture(three.resource(), filters=LINEAR), x, y, z) * 256
    np.testing.assert_array_equal(found[10:20], [3348, 3421, 3498, 3482, 3378, 3182, 2706, 1789, 1217, 936])
    line = Array(np.array([1, 2, 4, 8], np.float32))
    bordered = texture(line.resource(), filters=LINEAR, mode="border")  # in y, too, where the array has no texels
    np.testing.assert_allclose(sampled(kernels, "one", bordered, [1.5, -3.0]), [51, 100])


def test_layers_and_gathers(kernels):
    texels = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    array = Array(texels, flags=cu.CUDA_ARRAY3D_LAYERED)
    object_ = texture(array.resource())
    x, y, layers = np.array([0.5, 3.5, 2.2]), np.array([0.5, 2.5, 1.1]), np.array([-5, 1, 0])
    np.testing.assert_array_equal(sampled(kernels, "layer", object_, x, y, layers), [12, 23, 6])
    array = Array(texels[0], flags=cu.CUDA_ARRAY3D_TEXTURE_GATHER)
    object_ = texture(array.resource())
    found = sampled(kernels, "gather", object_, [2.0, 0.1], [1.0, 3.0], dtype=np.float32, width=4)
    np.testing.assert_array_equal(found, [[5, 6, 2, 1], [8, 8, 8, 8]])


def test_the_faces_of_a_cube(kernels):
    texels = np.arange(6, dtype=np.float32)[:, None, None] * 100 + np.arange(4, dtype=np.float32).reshape(2, 2)
    array = Array(texels, flags=cu.CUDA_ARRAY3D_CUBEMAP)
    object_ = texture(array.resource(), flags=NORMALISED)
    axes = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]], np.float32)
    corner = axes + np.where(axes == 0, np.float32(0.5), 0)
    found = sampled(kernels, "cube", object_, *corner.T)
    np.testing.assert_array_equal(found, [0, 101, 203, 301, 401, 500])


def test_levels(kernels):
    description = cu.CUDA_ARRAY3D_DESCRIPTOR()
    description.Width = description.Height = 8
    description.Format, description.NumChannels = cu.CUarray_format.CU_AD_FORMAT_FLOAT, 1
    mipmap = ok(cu.cuMipmappedArrayCreate(description, 99))
    sizes = []
    for number in range(4):
        level = ok(cu.cuMipmappedArrayGetLevel(mipmap, number))
        size = ok(cu.cuArrayGetDescriptor(level)).Width
        sizes.append(size)
        copy = cu.CUDA_MEMCPY2D()
        values = np.full((size, size), 10 * (number + 1), np.float32)
        copy.srcMemoryType, copy.srcHost = cu.CUmemorytype.CU_MEMORYTYPE_HOST, values.ctypes.data
        copy.dstMemoryType, copy.dstArray = cu.CUmemorytype.CU_MEMORYTYPE_ARRAY, level
        copy.WidthInBytes, copy.Height = 4 * size, size
        ok(cu.cuMemcpy2D(copy))
    assert sizes == [8, 4, 2, 1]
    assert name_of(cu.cuMipmappedArrayGetLevel(mipmap, 4)) == "INVALID_VALUE"
    resource = cu.CUDA_RESOURCE_DESC()
    resource.resType = cu.CUresourcetype.CU_RESOURCE_TYPE_MIPMAPPED_ARRAY
    resource.res.mipmap.hMipmappedArray = mipmap
    asked = np.array([-0.5, 0, 0.4, 0.5, 1.2, 1.5, 2.4, 2.6, 9], np.float32)
    middle = np.full(len(asked), 0.5, np.float32)
    options: dict[str, Any] = {"flags": NORMALISED, "maxMipmapLevelClamp": 2.6}
    point = texture(resource, mipmapFilterMode=POINT, **options)
    found = sampled(kernels, "level", point, middle, asked)
    np.testing.assert_array_equal(found, [10, 10, 10, 20, 20, 30, 30, 40, 40])
    linear = texture(resource, mipmapFilterMode=LINEAR, **options)
    levels = np.clip(asked, 0, np.float32(2.6)).astype(np.float64)
    found = sampled(kernels, "level", linear, middle, asked)
    np.testing.assert_allclose(found, 10 + 10 * np.floor(levels * 256) / 256, atol=0.05)
    found = sampled(kernels, "gradient", linear, [0.5] * 4, [0, 1 / 8, 1 / 4, 1 / 2])
    np.testing.assert_allclose(found, [10, 10, 20, 30], atol=0.1)
    biased = texture(resource, mipmapFilterMode=POINT, mipmapLevelBias=1.25, **options)
    np.testing.assert_array_equal(sampled(kernels, "level", biased, [0.5] * 2, [0, 1]), [20, 30])
    np.testing.assert_array_equal(
        sampled(kernels, "two", biased, [0.5], [0.5]), [10]
    )  # of its own, a fetch has no bias
    for each in (point, linear, biased):
        ok(cu.cuTexObjectDestroy(each))
    ok(cu.cuMipmappedArrayDestroy(mipmap))


def test_integers_are_themselves_or_made_floats(kernels):
    x = np.arange(4) + 0.5
    texels = np.array([[0, 1, 2, 3], [255, 254, 128, 127], [9, 8, 7, 6], [1, 1, 1, 1]], np.uint8)
    array = Array(texels, channels=4)
    found = sampled(kernels, "bytes", texture(array.resource(), flags=AS_INTEGER), x, dtype=np.uint8, width=4)
    np.testing.assert_array_equal(found, texels)
    pairs = np.array([[-32768, 32767], [-1, 0], [5, -6], [100, -100]], np.int16)
    array = Array(pairs, channels=2)
    found = sampled(kernels, "shorts", texture(array.resource(), flags=AS_INTEGER), x, dtype=np.int16, width=2)
    np.testing.assert_array_equal(found, pairs)
    for dtype, most in (("uint8", 255), ("int8", 127), ("uint16", 65535), ("int16", 32767)):
        values = np.array([0, 1, most, -most - 1 if dtype[0] == "i" else most // 2], dtype)
        array = Array(values)
        found = sampled(kernels, "one", texture(array.resource()), x)
        np.testing.assert_allclose(found, np.maximum(values.astype(np.float64) / most, -1), rtol=1e-6)
        # Between texels, a GPU has 16 bits.
        weights = np.arange(257) / 256
        between = sampled(kernels, "one", texture(array.resource(), filters=LINEAR), 1.5 + weights)
        steps = 32767 if dtype[0] == "i" else 65535
        in_steps = np.floor((1 + (most - 1) * weights) / most * steps + 0.5)
        np.testing.assert_allclose(between * steps, in_steps, atol=1.01)
        np.testing.assert_allclose(between * steps, np.rint(between * steps), atol=1e-2)
    halves = np.array([0.5, -1.75, np.inf, 6e-8], np.float16)
    found = sampled(kernels, "one", texture(Array(halves).resource()), x)
    np.testing.assert_array_equal(found, halves.astype(np.float32))
    wide = np.array([-(2**31), 2**31 - 1, 0, -7], np.int32)
    found = sampled(kernels, "ints", texture(Array(wide).resource(), flags=AS_INTEGER), x, dtype=np.int32)
    np.testing.assert_array_equal(found, wide)


def test_integers_that_stay_integers_are_filtered(kernels):
    texels = np.array([[0, 1, 2, 3], [40, 4, 5, 6], [80, 7, 8, 9], [250, 10, 11, 12]], np.uint8)
    object_ = texture(Array(texels, channels=4).resource(), filters=LINEAR, flags=AS_INTEGER)
    places = np.array([0.2, 0.5, 0.9, 1.0, 1.1, 1.4, 1.5, 1.9, 2.0, 2.4], np.float32)
    found = sampled(kernels, "bytes", object_, places, dtype=np.uint8, width=4)
    between = [np.floor(np.interp(places, np.arange(4) + 0.5, texels[:, each]) + 0.5) for each in range(4)]
    np.testing.assert_array_equal(found, np.transpose(between))


def test_textures_of_plain_memory(kernels):
    values = np.arange(1, 9, dtype=np.float32)
    address = written(values)
    resource = cu.CUDA_RESOURCE_DESC()
    resource.resType = cu.CUresourcetype.CU_RESOURCE_TYPE_LINEAR
    resource.res.linear.devPtr = address
    resource.res.linear.format, resource.res.linear.numChannels = cu.CUarray_format.CU_AD_FORMAT_FLOAT, 1
    resource.res.linear.sizeInBytes = values.nbytes
    object_ = texture(resource)
    np.testing.assert_array_equal(sampled(kernels, "fetch", object_, [-1, 0, 3, 7, 8, 1e6]), [0, 1, 4, 8, 0, 0])
    ok(cu.cuTexObjectDestroy(object_))
    pitch = 512
    rows = np.zeros((3, pitch // 4), np.float32)
    rows[:, :5] = np.arange(15).reshape(3, 5)
    resource = cu.CUDA_RESOURCE_DESC()
    resource.resType = cu.CUresourcetype.CU_RESOURCE_TYPE_PITCH2D
    pitched = written(rows)
    resource.res.pitch2D.devPtr, resource.res.pitch2D.pitchInBytes = pitched, pitch
    resource.res.pitch2D.width, resource.res.pitch2D.height = 5, 3
    resource.res.pitch2D.format, resource.res.pitch2D.numChannels = cu.CUarray_format.CU_AD_FORMAT_FLOAT, 1
    object_ = texture(resource, filters=LINEAR, mode="border")
    x, y = np.linspace(-1, 6, 50, dtype=np.float32), np.linspace(4, -1, 50, dtype=np.float32)
    found = sampled(kernels, "two", object_, x, y)
    np.testing.assert_allclose(found, reference(rows[:, :5], [x, y], LINEAR, "border", False), atol=0.5)
    ok(cu.cuTexObjectDestroy(object_))
    ok(cu.cuMemFree(address))
    ok(cu.cuMemFree(pitched))


def test_surfaces_are_read_and_written(kernels):
    values = np.random.default_rng(2).random((3, 5, 2), np.float32)
    array = Array(values, channels=2, flags=cu.CUDA_ARRAY3D_SURFACE_LDST)
    surface = int(ok(cu.cuSurfObjectCreate(array.resource())))
    kernels("double_surface", surface, np.int32(5), np.int32(3))
    np.testing.assert_array_equal(array.read(), values * np.array([2, -1], np.float32))
    ok(cu.cuSurfObjectDestroy(surface))
    cells = np.arange(12, dtype=np.int32).reshape(2, 2, 3)
    array = Array(cells, flags=cu.CUDA_ARRAY3D_SURFACE_LDST)
    surface = int(ok(cu.cuSurfObjectCreate(array.resource())))
    out = written(np.zeros(3, np.int32))
    kernels("edges", surface, out)
    np.testing.assert_array_equal(read(out, 3, np.int32), [0, 3, 10])
    cells[0, 0, 2] = 99
    np.testing.assert_array_equal(array.read(), cells)
    ok(cu.cuSurfObjectDestroy(surface))
    ok(cu.cuMemFree(out))


def test_a_surface_that_is_left_is_a_fault(in_process):
    program = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import numpy as np
        from driver_calls import Array, Kernels, cu, open_device
        from test_textures import SOURCE
        open_device()
        array = Array(np.zeros((2, 2, 2), np.int32), flags=cu.CUDA_ARRAY3D_SURFACE_LDST)
        surface = int(cu.cuSurfObjectCreate(array.resource())[1])
        try:
            Kernels(SOURCE)("stray", surface)
        except AssertionError as error:
            print(str(error).split()[0])
        """
    done = in_process(program)
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stdout, done.stderr


# --- what is refused


def test_copies_of_arrays_stay_inside():
    array = Array(np.arange(12, dtype=np.int32).reshape(3, 4))
    copy = cu.CUDA_MEMCPY2D()
    host: np.ndarray[Any, Any] = np.zeros((3, 4), np.int32)
    copy.srcMemoryType, copy.srcArray = cu.CUmemorytype.CU_MEMORYTYPE_ARRAY, array.handle
    copy.dstMemoryType, copy.dstHost = cu.CUmemorytype.CU_MEMORYTYPE_HOST, host.ctypes.data
    copy.srcXInBytes, copy.srcY, copy.dstPitch = 4, 1, 16
    copy.WidthInBytes, copy.Height = 12, 2
    ok(cu.cuMemcpy2D(copy))
    np.testing.assert_array_equal(host[:2, :3], [[5, 6, 7], [9, 10, 11]])
    copy.Height = 3
    assert name_of(cu.cuMemcpy2D(copy)) == "INVALID_VALUE"
    line = Array(np.arange(8, dtype=np.float32))
    values = np.array([70, 80], np.float32)
    ok(cu.cuMemcpyHtoA(line.handle, 8, values.ctypes.data, 8))
    np.testing.assert_array_equal(line.read(), [0, 1, 70, 80, 4, 5, 6, 7])
    ok(cu.cuMemcpyAtoA(line.handle, 0, line.handle, 16, 8))
    ok(cu.cuMemcpyAtoH(values.ctypes.data, line.handle, 0, 8))
    np.testing.assert_array_equal(values, [4, 5])
    memory = written(np.array([1.5, 2.5], np.float32))
    ok(cu.cuMemcpyDtoA(line.handle, 0, memory, 8))
    ok(cu.cuMemcpyAtoD(memory, line.handle, 24, 8))
    np.testing.assert_array_equal(read(memory, 2, np.float32), [6, 7])
    assert name_of(cu.cuMemcpyHtoA(line.handle, 28, values.ctypes.data, 8)) == "INVALID_VALUE"
    ok(cu.cuMemFree(memory))
    array.close()
    line.close()


def test_what_makes_no_sense_is_refused():
    def made(**changes: Any) -> str:
        description = cu.CUDA_ARRAY3D_DESCRIPTOR()
        description.Width, description.Height, description.Depth = 4, 4, 0
        description.Format, description.NumChannels = cu.CUarray_format.CU_AD_FORMAT_FLOAT, 1
        for name, value in changes.items():
            setattr(description, name, value)
        return name_of(cu.cuArray3DCreate(description))

    assert made() == "CUDA_SUCCESS"
    assert made(Width=0) == "INVALID_VALUE"
    assert made(NumChannels=3) == "INVALID_VALUE"
    assert made(Height=0, Depth=3) == "INVALID_VALUE"
    assert made(Depth=5, Flags=cu.CUDA_ARRAY3D_CUBEMAP) == "INVALID_VALUE"


def test_what_could_make_no_sense_is_accepted_as_a_gpu_accepts_it():
    integers = Array(np.zeros(4, np.int8))
    description = cu.CUDA_TEXTURE_DESC()
    description.filterMode, description.flags = LINEAR, AS_INTEGER
    assert name_of(cu.cuTexObjectCreate(integers.resource(), description, None)) == "CUDA_SUCCESS"
    assert name_of(cu.cuSurfObjectCreate(integers.resource())) == "CUDA_SUCCESS"  # without CUDA_ARRAY3D_SURFACE_LDST


@pytest.mark.emulated_only
def test_what_the_emulated_driver_lacks_it_names():
    description = cu.CUDA_ARRAY3D_DESCRIPTOR()
    description.Width, description.Height = 64, 64
    description.NumChannels, description.Flags = 1, cu.CUDA_ARRAY3D_SPARSE
    description.Format = cu.CUarray_format.CU_AD_FORMAT_FLOAT
    assert name_of(cu.cuArray3DCreate(description)) == "NOT_SUPPORTED"
    description.Flags, description.Format = 0, cu.CUarray_format.CU_AD_FORMAT_BC1_UNORM
    assert name_of(cu.cuArray3DCreate(description)) == "NOT_SUPPORTED"
