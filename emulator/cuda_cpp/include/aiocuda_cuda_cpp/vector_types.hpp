// CUDA's vector types: alignment and members as on a GPU, make_* functions, dim3.
#pragma once

#include "language.hpp"

#define AIOCUDA_VECTOR_TYPES(name, element, align2, align4)                                \
  struct AIOCUDA_VISIBLE name##1 { element x; };                                           \
  struct AIOCUDA_VISIBLE __attribute__((aligned(align2))) name##2 { element x, y; };       \
  struct AIOCUDA_VISIBLE name##3 { element x, y, z; };                                     \
  struct AIOCUDA_VISIBLE __attribute__((aligned(align4))) name##4 { element x, y, z, w; }; \
  constexpr name##1 make_##name##1(element x) { return {x}; }                              \
  constexpr name##2 make_##name##2(element x, element y) { return {x, y}; }                \
  constexpr name##3 make_##name##3(element x, element y, element z) { return {x, y, z}; }  \
  constexpr name##4 make_##name##4(element x, element y, element z, element w) { return {x, y, z, w}; }

AIOCUDA_VECTOR_TYPES(char, signed char, 2, 4)
AIOCUDA_VECTOR_TYPES(uchar, unsigned char, 2, 4)
AIOCUDA_VECTOR_TYPES(short, short, 4, 8)
AIOCUDA_VECTOR_TYPES(ushort, unsigned short, 4, 8)
AIOCUDA_VECTOR_TYPES(int, int, 8, 16)
AIOCUDA_VECTOR_TYPES(uint, unsigned int, 8, 16)
AIOCUDA_VECTOR_TYPES(long, long, 16, 16)
AIOCUDA_VECTOR_TYPES(ulong, unsigned long, 16, 16)
AIOCUDA_VECTOR_TYPES(longlong, long long, 16, 16)
AIOCUDA_VECTOR_TYPES(ulonglong, unsigned long long, 16, 16)
AIOCUDA_VECTOR_TYPES(float, float, 8, 16)
AIOCUDA_VECTOR_TYPES(double, double, 16, 16)
#undef AIOCUDA_VECTOR_TYPES

// Vectors of four 8-byte elements whose name says their alignment.
#define AIOCUDA_ALIGNED_VECTORS(name, element, bytes)                                                  \
  struct AIOCUDA_VISIBLE __attribute__((aligned(bytes))) name##4_##bytes##a { element x, y, z, w; };   \
  constexpr name##4_##bytes##a make_##name##4_##bytes##a(element x, element y, element z, element w) { \
    return {x, y, z, w};                                                                               \
  }
#define AIOCUDA_ALIGNED_VECTOR(name, element) \
  AIOCUDA_ALIGNED_VECTORS(name, element, 16)  \
  AIOCUDA_ALIGNED_VECTORS(name, element, 32)
AIOCUDA_ALIGNED_VECTOR(long, long)
AIOCUDA_ALIGNED_VECTOR(ulong, unsigned long)
AIOCUDA_ALIGNED_VECTOR(longlong, long long)
AIOCUDA_ALIGNED_VECTOR(ulonglong, unsigned long long)
AIOCUDA_ALIGNED_VECTOR(double, double)
#undef AIOCUDA_ALIGNED_VECTOR
#undef AIOCUDA_ALIGNED_VECTORS

struct AIOCUDA_VISIBLE dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};
