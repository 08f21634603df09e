// mma.h: wmma fragments and their product. CUDA leaves open which lane has which element of a fragment. Here lane l has
// the elements [l * n, (l + 1) * n) of the matrix, row by row.
#pragma once

#include "block.hpp"
#include "cuda_bf16.hpp"
#include "cuda_fp16.hpp"
#include "ptx.hpp"

namespace nvcuda {
namespace wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

namespace precision {
struct tf32;
}

namespace details {

template <class Use, int m, int n, int k>
struct Extent {
  static constexpr int rows = m, columns = n;
};
template <int m, int n, int k>
struct Extent<matrix_a, m, n, k> {
  static constexpr int rows = m, columns = k;
};
template <int m, int n, int k>
struct Extent<matrix_b, m, n, k> {
  static constexpr int rows = k, columns = n;
};

template <class T>
struct Stored {
  using type = T;
};
template <>
struct Stored<precision::tf32> {
  using type = float;
};

template <int m, int n, int k>
inline constexpr bool is_shape = (m == 16 && n == 16 && (k == 16 || k == 8)) || (m == 32 && n == 8 && k == 16) ||
                                 (m == 8 && n == 32 && k == 16) || (m == 8 && n == 8 && k == 4);

}  // namespace details

template <class Use, int m, int n, int k, class T, class Layout = void>
struct AIOCUDA_VISIBLE fragment {
  static_assert(details::is_shape<m, n, k>, "wmma has no fragments of this shape");
  using extent = details::Extent<Use, m, n, k>;
  using element_type = typename details::Stored<T>::type;
  using storage_element_type = element_type;
  static constexpr int num_elements = extent::rows * extent::columns / 32;
  static constexpr int num_storage_elements = num_elements;
  element_type x[num_elements];
};

template <class Use, int m, int n, int k, class T, class Layout, class V>
inline void fill_fragment(fragment<Use, m, n, k, T, Layout>& to, const V& value) {
  using Element = typename details::Stored<T>::type;
  for (auto& element : to.x) element = (Element)value;
}

namespace details {

template <class Fragment, class F>
inline void each_element(Fragment& f, unsigned stride, bool is_row_major, F visit) {
  constexpr unsigned columns = Fragment::extent::columns;
  for (unsigned i = 0; i < Fragment::num_elements; ++i) {
    const unsigned index = aiocuda_lane() * Fragment::num_elements + i;
    const unsigned row = index / columns;
    const unsigned column = index % columns;
    visit(f.x[i], is_row_major ? row * stride + column : column * stride + row);
  }
}

}  // namespace details

template <class Use, int m, int n, int k, class T, class Layout, class S>
inline void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& to, const S* from, unsigned stride,
                             int line = __builtin_LINE()) {
  ::__syncwarp(0xffffffffu, line);
  details::each_element(to, stride, aiocuda_device::is_same<Layout, row_major>,
                        [&](auto& element, unsigned at) { element = from[at]; });
}
template <int m, int n, int k, class T>
inline void load_matrix_sync(fragment<accumulator, m, n, k, T>& to, const T* from, unsigned stride, layout_t layout,
                             int line = __builtin_LINE()) {
  ::__syncwarp(0xffffffffu, line);
  details::each_element(to, stride, layout == mem_row_major, [&](auto& element, unsigned at) { element = from[at]; });
}
template <int m, int n, int k, class T>
inline void store_matrix_sync(T* to, const fragment<accumulator, m, n, k, T>& from, unsigned stride, layout_t layout,
                              int line = __builtin_LINE()) {
  details::each_element(from, stride, layout == mem_row_major,
                        [&](const auto& element, unsigned at) { to[at] = element; });
  ::__syncwarp(0xffffffffu, line);
}

namespace details {

template <class T>
inline auto factor(const T& value) {
  if constexpr (sizeof(T) == 2) {
    return (float)value;
  } else {
    return value;
  }
}
inline int factor(signed char value) { return value; }
inline int factor(unsigned char value) { return value; }
template <class T>
inline float rounded_factor(T value) {
  return aiocuda_device::ptx::from_tf32(aiocuda_device::bits<unsigned>(value));
}

template <class A, class B, class C>
struct Parts {
  const A* a;
  const B* b;
};

}  // namespace details

// D = A B + C. The sums of 16-bit floating-point numbers are floats, rounded in the end.
template <int m, int n, int k, class T, class LayoutA, class LayoutB, class D, class C>
inline void mma_sync(fragment<accumulator, m, n, k, D>& d, const fragment<matrix_a, m, n, k, T, LayoutA>& a,
                     const fragment<matrix_b, m, n, k, T, LayoutB>& b, const fragment<accumulator, m, n, k, C>& c,
                     bool = false, int line = __builtin_LINE()) {
  using A = fragment<matrix_a, m, n, k, T, LayoutA>;
  using B = fragment<matrix_b, m, n, k, T, LayoutB>;
  using Parts = details::Parts<A, B, C>;
  Parts own = {&a, &b};
  fragment<accumulator, m, n, k, D> result;
  aiocuda_offer(&own);
  ::__syncwarp(0xffffffffu, line);
  for (unsigned i = 0; i < result.num_elements; ++i) {
    const unsigned index = aiocuda_lane() * result.num_elements + i;
    const unsigned row = index / n;
    const unsigned column = index % n;
    auto sum = details::factor(c.x[i]);
    for (unsigned depth = 0; depth < (unsigned)k; ++depth) {
      const unsigned in_a = row * k + depth;
      const unsigned in_b = depth * n + column;
      const auto& of_a = *static_cast<const Parts*>(aiocuda_offered(in_a / A::num_elements))->a;
      const auto& of_b = *static_cast<const Parts*>(aiocuda_offered(in_b / B::num_elements))->b;
      if constexpr (aiocuda_device::is_same<T, precision::tf32>) {
        sum += details::rounded_factor(of_a.x[in_a % A::num_elements]) *
               details::rounded_factor(of_b.x[in_b % B::num_elements]);
      } else {
        sum += details::factor(of_a.x[in_a % A::num_elements]) * details::factor(of_b.x[in_b % B::num_elements]);
      }
    }
    result.x[i] = (D)sum;
  }
  ::__syncwarp(0xffffffffu, line);
  d = result;
}

inline float __float_to_tf32(float value) { return aiocuda_device::bits<float>(aiocuda_device::ptx::to_tf32(value)); }

}  // namespace wmma
}  // namespace nvcuda
