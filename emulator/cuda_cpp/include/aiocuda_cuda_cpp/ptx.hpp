// The instructions of inline PTX, as functions that the rewriter calls (nvrtc/ptx.cpp): here those of memory, warps and
// matrices. The others are in the header below.
#pragma once

#include "atomics.hpp"
#include "ptx_arithmetic.hpp"
#include "ptx_barriers.hpp"

namespace aiocuda_device {
namespace ptx {

// ---- memory
inline void* shared(Register address) { return aiocuda_shared_address((unsigned)address); }
inline void* generic(Register address) { return (void*)address; }
template <class T>
inline Register load(const void* from, unsigned index = 0) {
  return put<T>(*(static_cast<const volatile T*>(from) + index));
}
template <class T>
inline void store(void* to, Register value, unsigned index = 0) {
  *(static_cast<volatile T*>(to) + index) = get<T>(value);
}
// A vector access must be aligned as a whole.
inline void* aligned(void* address, unsigned bytes) {
  if (((size_t)address & (bytes - 1)) != 0)
    ::aiocuda_fail(716, "an instruction of inline PTX accesses a misaligned address");
  return address;
}
template <class T, class F>
inline Register update(void* at, F operation) {
  T* const memory = static_cast<T*>(at);
  T before;
  __atomic_load(memory, &before, __ATOMIC_SEQ_CST);
  for (;;) {
    T after = get<T>(operation(put<T>(before)));
    if (__atomic_compare_exchange(memory, &before, &after, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      return put<T>(before);
  }
}
inline Register wrapping_increment(Register old, Register most) {
  return (unsigned)old >= (unsigned)most ? 0 : (unsigned)old + 1;
}
inline Register wrapping_decrement(Register old, Register most) {
  return (unsigned)old == 0 || (unsigned)old > (unsigned)most ? (unsigned)most : (unsigned)old - 1;
}
inline void copy_async(void* to, const void* from, unsigned bytes, unsigned given) {
  aligned(to, bytes);
  aligned(const_cast<void*>(from), bytes);
  __builtin_memcpy(to, from, given < bytes ? given : bytes);
  if (given < bytes) __builtin_memset(static_cast<char*>(to) + given, 0, bytes - given);
}

// A copy of many bytes is done at once, too, and then owed no more at the barrier.
inline void copy_bulk(void* to, const void* from, unsigned bytes) {
  aligned(to, 16);
  aligned(const_cast<void*>(from), 16);
  if (bytes % 16 != 0) ::aiocuda_fail(716, "cp.async.bulk copies a number of bytes that is no multiple of 16");
  __builtin_memcpy(to, from, bytes);
}

// ---- warps
struct Shuffled {
  Register value;
  bool is_in_range;
};
inline Shuffled shfl(char kind, Register value, Register b_, Register c_, Register mask, int line = __builtin_LINE()) {
  const int lane = (int)aiocuda_lane();
  const int b = (int)(b_ & 31);
  const int segment = (int)(c_ >> 8 & 31);
  const int limit = (lane & segment) | ((int)(c_ & 31) & ~segment);
  const int source = kind == 'u'   ? lane - b
                     : kind == 'd' ? lane + b
                     : kind == 'b' ? lane ^ b
                                   : (lane & segment) | (b & ~segment);
  const bool in_range = kind == 'u' ? source >= limit : source <= limit;
  return {shuffle((unsigned)mask, (unsigned)value, (unsigned)(in_range ? source : lane), line), in_range};
}

// Lanes 8 i to 8 i + 7 name the rows of matrix i, of 8 x 8 numbers of 16 bits.
inline Register ldmatrix(Register address, unsigned matrix, bool is_transposed, int line = __builtin_LINE()) {
  const unsigned lane = aiocuda_lane();
  const auto number = [&](unsigned row, unsigned column) {
    const unsigned from = (unsigned)shuffle(0xffffffffu, (unsigned)address, 8 * matrix + row, line);
    return (unsigned)static_cast<const unsigned short*>(shared(from))[column];
  };
  if (!is_transposed) {
    const unsigned low = number(lane / 4, lane % 4 * 2);
    return low | number(lane / 4, lane % 4 * 2 + 1) << 16;
  }
  const unsigned low = number(lane % 4 * 2, lane / 4);
  return low | number(lane % 4 * 2 + 1, lane / 4) << 16;
}

// ---- mma: D = A B + C, of 16 x k and k x 8. A lane g * 4 + t has rows g and g + 8 of A, column g of B, and of C the
// columns 2 t and 2 t + 1. A register has `packed` numbers of A or B.
struct MatrixParts {
  Register a[4], b[2], c[4];
};

template <class T>
inline auto number_of(Register word, unsigned index) {
  if constexpr (sizeof(T) == 4) {
    return from_tf32((unsigned)word);
  } else if constexpr (sizeof(T) == 2) {
    return (float)get<T>(word >> (16 * index));
  } else {
    return (int)get<T>(word >> (8 * index));
  }
}

template <class A, class B, unsigned registers_of_b>
inline void mma(MatrixParts& own, bool has_half_sums, Register (&d)[4], int line = __builtin_LINE()) {
  constexpr unsigned packed = 4 / sizeof(A);
  const unsigned lane = aiocuda_lane();
  aiocuda_offer(&own);
  ::__syncwarp(0xffffffffu, line);
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = i / 2;  // of the two that the lane has
    const unsigned column = lane % 4 * 2 + i % 2;
    auto sum = decltype(number_of<A>(0, 0) * number_of<B>(0, 0))();
    if (has_half_sums) {
      sum = (decltype(sum))(float)get<__half>(own.c[row] >> (16 * (i % 2)));
    } else {
      sum = get<decltype(sum)>(own.c[i]);
    }
    for (unsigned r = 0; r < registers_of_b; ++r) {
      for (unsigned t = 0; t < 4; ++t) {
        const auto& of_row = *static_cast<const MatrixParts*>(aiocuda_offered(lane / 4 * 4 + t));
        const auto& of_column = *static_cast<const MatrixParts*>(aiocuda_offered(column * 4 + t));
        for (unsigned w = 0; w < packed; ++w)
          sum += number_of<A>(of_row.a[2 * r + row], w) * number_of<B>(of_column.b[r], w);
      }
    }
    if (!has_half_sums) {
      d[i] = put(sum);
    } else if (i % 2 == 0) {
      d[row] = put(__half((float)sum));
    } else {
      d[row] |= put(__half((float)sum)) << 16;
    }
  }
  ::__syncwarp(0xffffffffu, line);
}

}  // namespace ptx
}  // namespace aiocuda_device
