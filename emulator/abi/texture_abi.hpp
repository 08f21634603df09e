// How compiled CUDA C++ asks the driver for texels, and gives it the elements of surfaces. Plain data only.
#pragma once
#ifndef AIOCUDA_CUDA_CPP  // the device headers declare the fixed-width types themselves
#include <cstdint>
#endif

namespace aiocuda::emulator::abi {

enum TextureShape : std::uint32_t { shape_linear, shape_1d, shape_2d, shape_3d, shape_cube };
enum TextureLevel : std::uint32_t { level_none, level_given, level_of_gradients };

struct TextureFetch {
  std::uint64_t texture;
  TextureShape shape;
  std::uint32_t is_layered;
  TextureLevel level;
  std::int32_t gathered;  // the component of tex2Dgather; -1 for an ordinary fetch
  std::int32_t index;     // of shape_linear
  std::int32_t layer;
  float coordinates[3];
  float lod;
  float dx[3], dy[3];
  // The answer: up to four elements, each a float's bits or an integer, as the texture says.
  std::uint32_t texel[4];
};

enum SurfaceBoundary : std::uint32_t { boundary_zero, boundary_clamp, boundary_trap };

struct SurfaceAccess {
  std::uint64_t surface;
  TextureShape shape;
  std::uint32_t is_layered;
  std::int32_t x_bytes, y, z, layer;  // of a cube, z is the face
  SurfaceBoundary boundary;
  std::uint32_t is_write;
  std::uint32_t bytes;
  void* data;
};

}  // namespace aiocuda::emulator::abi
