// cuComplex.h: complex numbers as pairs, and their arithmetic.
#pragma once

#include "math.hpp"
#include "vector_types.hpp"

typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;
typedef float2 cuComplex;

#define AIOCUDA_COMPLEX(C, T, f, d)                                                                          \
  inline T cuCreal##f(C a) { return a.x; }                                                                   \
  inline T cuCimag##f(C a) { return a.y; }                                                                   \
  inline C make_cu##d##Complex(T re, T im) { return {re, im}; }                                              \
  inline C cuConj##f(C a) { return {a.x, -a.y}; }                                                            \
  inline C cuCadd##f(C a, C b) { return {a.x + b.x, a.y + b.y}; }                                            \
  inline C cuCsub##f(C a, C b) { return {a.x - b.x, a.y - b.y}; }                                            \
  inline C cuCmul##f(C a, C b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }                    \
  inline C cuCfma##f(C a, C b, C c) { return {a.x * b.x + c.x - a.y * b.y, a.y * b.x + (a.x * b.y + c.y)}; } \
  inline T cuCabs##f(C a) { return hypot(a.x, a.y); }                                                        \
  inline C cuCdiv##f(C a, C b) {                                                                             \
    const T scale = 1 / (abs(b.x) + abs(b.y));                                                               \
    const C as = {a.x * scale, a.y * scale};                                                                 \
    const C bs = {b.x * scale, b.y * scale};                                                                 \
    const T over = 1 / (bs.x * bs.x + bs.y * bs.y);                                                          \
    return {(as.x * bs.x + as.y * bs.y) * over, (as.y * bs.x - as.x * bs.y) * over};                         \
  }
AIOCUDA_COMPLEX(cuFloatComplex, float, f, Float)
AIOCUDA_COMPLEX(cuDoubleComplex, double, , Double)
#undef AIOCUDA_COMPLEX
inline cuComplex make_cuComplex(float re, float im) { return {re, im}; }
inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex a) { return {(double)a.x, (double)a.y}; }
inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex a) { return {(float)a.x, (float)a.y}; }
