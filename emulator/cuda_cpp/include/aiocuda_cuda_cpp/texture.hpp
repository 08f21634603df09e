// Textures and surfaces, read and written through the driver (abi/texture_abi.hpp), which knows what an object is of.
#pragma once

#include "kernel.hpp"

typedef unsigned long long cudaTextureObject_t;
typedef unsigned long long cudaSurfaceObject_t;
enum cudaSurfaceBoundaryMode { cudaBoundaryModeZero = 0, cudaBoundaryModeClamp = 1, cudaBoundaryModeTrap = 2 };

extern "C" {
AIOCUDA_RUNTIME void aiocuda_fetch_texture(aiocuda::emulator::abi::TextureFetch* fetch);
AIOCUDA_RUNTIME void aiocuda_access_surface(const aiocuda::emulator::abi::SurfaceAccess* access);
}

namespace aiocuda_device {

// The type of a texel's elements, and how many there are.
template <class T>
struct TexelOf {
  using Element = T;
  static constexpr int count = 1;
};
#define AIOCUDA_TEXELS(name, element) \
  template <>                         \
  struct TexelOf<name##1> {           \
    using Element = element;          \
    static constexpr int count = 1;   \
  };                                  \
  template <>                         \
  struct TexelOf<name##2> {           \
    using Element = element;          \
    static constexpr int count = 2;   \
  };                                  \
  template <>                         \
  struct TexelOf<name##4> {           \
    using Element = element;          \
    static constexpr int count = 4;   \
  };
AIOCUDA_TEXELS(char, signed char)
AIOCUDA_TEXELS(uchar, unsigned char)
AIOCUDA_TEXELS(short, short)
AIOCUDA_TEXELS(ushort, unsigned short)
AIOCUDA_TEXELS(int, int)
AIOCUDA_TEXELS(uint, unsigned int)
AIOCUDA_TEXELS(float, float)
#undef AIOCUDA_TEXELS

inline abi::TextureFetch fetch_of(cudaTextureObject_t texture, abi::TextureShape shape, float x = 0, float y = 0,
                                  float z = 0) {
  abi::TextureFetch fetch = {};
  fetch.texture = texture;
  fetch.shape = shape;
  fetch.gathered = -1;
  fetch.coordinates[0] = x;
  fetch.coordinates[1] = y;
  fetch.coordinates[2] = z;
  return fetch;
}

inline abi::TextureFetch layered(abi::TextureFetch fetch, int layer) {
  fetch.is_layered = 1;
  fetch.layer = layer;
  return fetch;
}

inline abi::TextureFetch with_level(abi::TextureFetch fetch, float lod) {
  fetch.level = abi::level_given;
  fetch.lod = lod;
  return fetch;
}

inline abi::TextureFetch with_gradients(abi::TextureFetch fetch, float4 dx, float4 dy) {
  fetch.level = abi::level_of_gradients;
  fetch.dx[0] = dx.x, fetch.dx[1] = dx.y, fetch.dx[2] = dx.z;
  fetch.dy[0] = dy.x, fetch.dy[1] = dy.y, fetch.dy[2] = dy.z;
  return fetch;
}

inline abi::TextureFetch gathered(abi::TextureFetch fetch, int component) {
  fetch.gathered = component;
  return fetch;
}

template <class T>
inline T texel(abi::TextureFetch fetch) {
  using Element = typename TexelOf<T>::Element;
  ::aiocuda_fetch_texture(&fetch);
  T result;
  Element elements[TexelOf<T>::count];
  for (int i = 0; i < TexelOf<T>::count; ++i) {
    if constexpr (sizeof(Element) == 4) {
      __builtin_memcpy(&elements[i], &fetch.texel[i], 4);
    } else {
      elements[i] = (Element)fetch.texel[i];
    }
  }
  static_assert(sizeof result == sizeof elements, "a texture is read as a type of 1, 2 or 4 elements of up to 4 bytes");
  __builtin_memcpy(&result, elements, sizeof result);
  return result;
}

inline abi::SurfaceAccess access_of(cudaSurfaceObject_t surface, abi::TextureShape shape,
                                    cudaSurfaceBoundaryMode boundary, int x, int y = 0, int z = 0) {
  abi::SurfaceAccess access = {};
  access.surface = surface;
  access.shape = shape;
  access.boundary = (abi::SurfaceBoundary)boundary;
  access.x_bytes = x;
  access.y = y;
  access.z = z;
  return access;
}

inline abi::SurfaceAccess layered(abi::SurfaceAccess access, int layer) {
  access.is_layered = 1;
  access.layer = layer;
  return access;
}

template <class T>
inline T read_surface(abi::SurfaceAccess access) {
  T result;
  access.bytes = sizeof result;
  access.data = &result;
  ::aiocuda_access_surface(&access);
  return result;
}

template <class T>
inline void write_surface(T value, abi::SurfaceAccess access) {
  access.is_write = 1;
  access.bytes = sizeof value;
  access.data = &value;
  ::aiocuda_access_surface(&access);
}

}  // namespace aiocuda_device

// Each function in its two forms: the texel is returned, or stored where the first argument points. `fetch` says what
// is read, in terms of the parameters.
#define AIOCUDA_READS(name, fetch, ...)                             \
  template <class T>                                                \
  inline T name(cudaTextureObject_t t, __VA_ARGS__) {               \
    using namespace aiocuda_device;                                 \
    return texel<T>(fetch);                                         \
  }                                                                 \
  template <class T>                                                \
  inline void name(T* result, cudaTextureObject_t t, __VA_ARGS__) { \
    using namespace aiocuda_device;                                 \
    *result = texel<T>(fetch);                                      \
  }

inline aiocuda_device::abi::TextureFetch aiocuda_linear_fetch(cudaTextureObject_t texture, int index) {
  auto fetch = aiocuda_device::fetch_of(texture, aiocuda_device::abi::shape_linear);
  fetch.index = index;
  return fetch;
}

AIOCUDA_READS(tex1Dfetch, ::aiocuda_linear_fetch(t, x), int x)
AIOCUDA_READS(tex1D, fetch_of(t, abi::shape_1d, x), float x)
AIOCUDA_READS(tex2D, fetch_of(t, abi::shape_2d, x, y), float x, float y)
AIOCUDA_READS(tex3D, fetch_of(t, abi::shape_3d, x, y, z), float x, float y, float z)
AIOCUDA_READS(texCubemap, fetch_of(t, abi::shape_cube, x, y, z), float x, float y, float z)
AIOCUDA_READS(tex1DLayered, layered(fetch_of(t, abi::shape_1d, x), layer), float x, int layer)
AIOCUDA_READS(tex2DLayered, layered(fetch_of(t, abi::shape_2d, x, y), layer), float x, float y, int layer)
AIOCUDA_READS(texCubemapLayered, layered(fetch_of(t, abi::shape_cube, x, y, z), layer), float x, float y, float z,
              int layer)
AIOCUDA_READS(tex2Dgather, gathered(fetch_of(t, abi::shape_2d, x, y), component), float x, float y, int component = 0)
AIOCUDA_READS(tex1DLod, with_level(fetch_of(t, abi::shape_1d, x), level), float x, float level)
AIOCUDA_READS(tex2DLod, with_level(fetch_of(t, abi::shape_2d, x, y), level), float x, float y, float level)
AIOCUDA_READS(tex3DLod, with_level(fetch_of(t, abi::shape_3d, x, y, z), level), float x, float y, float z, float level)
AIOCUDA_READS(texCubemapLod, with_level(fetch_of(t, abi::shape_cube, x, y, z), level), float x, float y, float z,
              float level)
AIOCUDA_READS(tex1DLayeredLod, with_level(layered(fetch_of(t, abi::shape_1d, x), layer), level), float x, int layer,
              float level)
AIOCUDA_READS(tex2DLayeredLod, with_level(layered(fetch_of(t, abi::shape_2d, x, y), layer), level), float x, float y,
              int layer, float level)
AIOCUDA_READS(texCubemapLayeredLod, with_level(layered(fetch_of(t, abi::shape_cube, x, y, z), layer), level), float x,
              float y, float z, int layer, float level)
AIOCUDA_READS(tex1DGrad, with_gradients(fetch_of(t, abi::shape_1d, x), float4{dx, 0, 0, 0}, float4{dy, 0, 0, 0}),
              float x, float dx, float dy)
AIOCUDA_READS(tex2DGrad,
              with_gradients(fetch_of(t, abi::shape_2d, x, y), float4{dx.x, dx.y, 0, 0}, float4{dy.x, dy.y, 0, 0}),
              float x, float y, float2 dx, float2 dy)
AIOCUDA_READS(tex3DGrad, with_gradients(fetch_of(t, abi::shape_3d, x, y, z), dx, dy), float x, float y, float z,
              float4 dx, float4 dy)
AIOCUDA_READS(tex1DLayeredGrad,
              with_gradients(layered(fetch_of(t, abi::shape_1d, x), layer), float4{dx, 0, 0, 0}, float4{dy, 0, 0, 0}),
              float x, int layer, float dx, float dy)
AIOCUDA_READS(tex2DLayeredGrad,
              with_gradients(layered(fetch_of(t, abi::shape_2d, x, y), layer), float4{dx.x, dx.y, 0, 0},
                             float4{dy.x, dy.y, 0, 0}),
              float x, float y, int layer, float2 dx, float2 dy)
#undef AIOCUDA_READS

// The three forms of a surface's accesses. AIOCUDA_PLACE keeps the commas of a list of parameters together.
#define AIOCUDA_PLACE(...) __VA_ARGS__
#define AIOCUDA_SURFACE(name, access, place)                                                               \
  template <class T>                                                                                       \
  inline T name##read(cudaSurfaceObject_t s, place, cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) { \
    using namespace aiocuda_device;                                                                        \
    return read_surface<T>(access);                                                                        \
  }                                                                                                        \
  template <class T>                                                                                       \
  inline void name##read(T* result, cudaSurfaceObject_t s, place,                                          \
                         cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {                            \
    using namespace aiocuda_device;                                                                        \
    *result = read_surface<T>(access);                                                                     \
  }                                                                                                        \
  template <class T>                                                                                       \
  inline void name##write(T value, cudaSurfaceObject_t s, place,                                           \
                          cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {                           \
    using namespace aiocuda_device;                                                                        \
    write_surface(value, access);                                                                          \
  }

AIOCUDA_SURFACE(surf1D, access_of(s, abi::shape_1d, mode, x), int x)
AIOCUDA_SURFACE(surf2D, access_of(s, abi::shape_2d, mode, x, y), AIOCUDA_PLACE(int x, int y))
AIOCUDA_SURFACE(surf3D, access_of(s, abi::shape_3d, mode, x, y, z), AIOCUDA_PLACE(int x, int y, int z))
AIOCUDA_SURFACE(surf1DLayered, layered(access_of(s, abi::shape_1d, mode, x), layer), AIOCUDA_PLACE(int x, int layer))
AIOCUDA_SURFACE(surf2DLayered, layered(access_of(s, abi::shape_2d, mode, x, y), layer),
                AIOCUDA_PLACE(int x, int y, int layer))
AIOCUDA_SURFACE(surfCubemap, access_of(s, abi::shape_cube, mode, x, y, face), AIOCUDA_PLACE(int x, int y, int face))
AIOCUDA_SURFACE(surfCubemapLayered, access_of(s, abi::shape_cube, mode, x, y, face),
                AIOCUDA_PLACE(int x, int y, int face))
#undef AIOCUDA_SURFACE
#undef AIOCUDA_PLACE
