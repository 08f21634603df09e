// How a kernel becomes an entry of the module's table (module_abi.hpp): its parameters read off its type,
// and the loop over blocks and threads that runs it. A kernel in which threads meet (barriers, warp
// operations) runs as fibers; any other as a plain loop over the threads of a block, which the compiler
// can vectorise: CUDA promises no order among threads, so the loop's iterations are independent.
#pragma once

#define AIOCUDA_CUDA_CPP
#include "block.hpp"

namespace std {
using ::int32_t;
using ::size_t;
using ::uint32_t;
using ::uint64_t;
#ifndef AIOCUDA_HOST_LIBRARY  // NVRTC has these three without a header
// The compilers make one of a braced list, and take its members to be these two.
template <class T>
class initializer_list {
 public:
  using value_type = T;
  using reference = const T&;
  using const_reference = const T&;
  using size_type = size_t;
  using iterator = const T*;
  using const_iterator = const T*;
  constexpr initializer_list() noexcept = default;
  constexpr size_t size() const noexcept { return size_; }
  constexpr const T* begin() const noexcept { return first_; }
  constexpr const T* end() const noexcept { return first_ + size_; }

 private:
  constexpr initializer_list(const T* first, size_t size) : first_(first), size_(size) {}
  const T* first_ = nullptr;
  size_t size_ = 0;
};
template <class T>
constexpr typename aiocuda_device::remove_reference<T>::type&& move(T&& value) noexcept {
  return static_cast<typename aiocuda_device::remove_reference<T>::type&&>(value);
}
template <class T>
constexpr T&& forward(typename aiocuda_device::remove_reference<T>::type& value) noexcept {
  return static_cast<T&&>(value);
}
template <class T>
constexpr T&& forward(typename aiocuda_device::remove_reference<T>::type&& value) noexcept {
  return static_cast<T&&>(value);
}
#endif
}  // namespace std

#include "module_abi.hpp"
#include "unit.hpp"

extern "C" {
AIOCUDA_RUNTIME void aiocuda_begin_range(const aiocuda::emulator::abi::Launch* launch, unsigned stacks);
AIOCUDA_RUNTIME void aiocuda_end_range();
AIOCUDA_RUNTIME void aiocuda_show_arguments(const aiocuda::emulator::abi::Launch* launch, unsigned bytes);
AIOCUDA_RUNTIME void aiocuda_hide_arguments();
AIOCUDA_RUNTIME void aiocuda_keep_constant(aiocuda::emulator::abi::LocalConstant* constant);
AIOCUDA_RUNTIME void aiocuda_run_fibers(const aiocuda::emulator::abi::Launch* launch, unsigned long long first,
                                        unsigned long long last, void (*kernel)(void* const* arguments));
}

namespace aiocuda_device {

namespace abi = aiocuda::emulator::abi;

template <class T>
inline constexpr bool is_const = false;
template <class T>
inline constexpr bool is_const<const T> = true;

// A `__grid_constant__` parameter, of the type T: the argument itself, which all threads of a grid have in common.
template <class T>
inline __attribute__((always_inline)) const T& grid_constant(unsigned index) {
  return *static_cast<const T*>(::aiocuda_argument(index));
}

// A kernel's place as its loop tells it. Private to this translation unit and never pointed at, so the
// compiler can keep it in registers; kernels that run as loops begin by copying what they use of it.
// (One variable each: clang forwards what was stored to a small variable, not to a part of a large one.)
namespace direct {
static __thread uint3 thread, block, extent, grid;
// Set while the threads that run are known to pass their kernel's guard (see Kernel).
static __thread bool inside;
}  // namespace direct

template <size_t... I>
struct Indices {};
#ifdef __clang__
template <class T, T... I>
using IndicesOf = Indices<I...>;
template <size_t count>
using indices = __make_integer_seq<IndicesOf, size_t, count>;
#else
template <size_t count>
using indices = Indices<__integer_pack(count)...>;
#endif

// The form in which a launch passes a parameter. A grid constant of a pack is a reference to it, and others are copies.
template <class A>
using argument_of = typename remove_reference<A>::type;

template <class T>
inline constexpr unsigned parameter_flags = 0;
template <class T>
inline constexpr unsigned parameter_flags<const T> = parameter_flags<T>;
template <class T>
inline constexpr unsigned parameter_flags<T*> = abi::parameter_is_pointer;
template <class T>
inline constexpr unsigned parameter_flags<const T*> = abi::parameter_is_pointer | abi::parameter_pointee_is_const;

template <class... A>
struct ParameterList {
  abi::Parameter items[sizeof...(A) + 1] = {};
  constexpr ParameterList() {
    uint32_t offset = 0;
    uint32_t i = 0;
    ((offset = (offset + (uint32_t)alignof(A) - 1) / (uint32_t)alignof(A) * (uint32_t)alignof(A),
      items[i++] = abi::Parameter{offset, (uint32_t)sizeof(A), parameter_flags<argument_of<A>>},
      offset += (uint32_t)sizeof(A)),
     ...);
  }
};

// The extents that __cluster_dims__ gives, as one number; 0 where there is none. (Before C++20 no class can be the
// argument of a template.)
inline constexpr unsigned extent_bits = 20;
constexpr unsigned long long cluster_of(unsigned long long x, unsigned long long y = 1, unsigned long long z = 1) {
  return x | y << extent_bits | z << (2 * extent_bits);
}
constexpr unsigned cluster_extent(unsigned long long cluster, unsigned dimension) {
  return (unsigned)(cluster >> (dimension * extent_bits)) & ((1u << extent_bits) - 1u);
}
enum KernelFlags : unsigned {
  runs_as_fibers = 1,
  functions_use_place = 2,  // a function it may call reads threadIdx and its like
  runs_whole_blocks = 4,    // one call runs a block: it was split at its barriers
  has_grid_constants = 8    // it reads arguments where the launch has them
};

// Up to this many blocks along x, blockIdx.x * blockDim.x + threadIdx.x provably fits 31 bits. So the compiler sees
// consecutive addresses in an index that is computed in 32 bits.
inline constexpr unsigned provable_blocks = 1u << 21;

#define AIOCUDA_ASSUME(condition)              \
  do {                                         \
    if (!(condition)) __builtin_unreachable(); \
  } while (false)

// A module compiled for checking tells of each access alone: a request to vectorise would go before the option not to.
#ifdef __clang__
#if __has_feature(thread_sanitizer)
#define AIOCUDA_INDEPENDENT
#else
#define AIOCUDA_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#endif
#else
#define AIOCUDA_INDEPENDENT _Pragma("GCC ivdep")
#endif

// Everything below assigns member by member: an assignment of a whole uint3 takes the variable's address,
// or merges members into wide words, and clang then no longer sees that the loop can be vectorised.
#define AIOCUDA_SET(to, x_, y_, z_) ((to).x = (x_), (to).y = (y_), (to).z = (z_))

template <unsigned past_x>
inline __attribute__((always_inline)) void set_block(unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned size_x,
                                                     unsigned size_y, unsigned size_z, uint64_t index) {
  const unsigned x = (unsigned)(index % grid_x);
  AIOCUDA_ASSUME(x < past_x);
  const unsigned y = (unsigned)(index / grid_x % grid_y);
  const unsigned z = (unsigned)(index / grid_x / grid_y);
  AIOCUDA_SET(direct::block, x, y, z);
  AIOCUDA_SET(direct::extent, size_x, size_y, size_z);
  AIOCUDA_SET(direct::grid, grid_x, grid_y, grid_z);
  AIOCUDA_SET(::blockIdx, x, y, z);
}

// The threads of the current block, one after another, through the kernel inlined into the loop. Threads are
// independent, but not what a function reads of ::threadIdx: it is one variable for all of them. If the compiler were
// told that such a loop's iterations are independent, it would read there what the last of several threads is.
template <auto kernel, unsigned flags, class... A>
inline __attribute__((always_inline)) void run_threads(unsigned size_x, unsigned size_y, unsigned size_z,
                                                       A... arguments) {
  for (unsigned z = 0; z < size_z; ++z) {
    for (unsigned y = 0; y < size_y; ++y) {
      if constexpr ((flags & functions_use_place) != 0) {
        for (unsigned x = 0; x < size_x; ++x) {
          AIOCUDA_SET(direct::thread, x, y, z);
          AIOCUDA_SET(::threadIdx, x, y, z);
          kernel(arguments...);
        }
      } else {
        // The kernel begins with its copy of direct::thread, right after it is set: the loop has no read of it left.
        AIOCUDA_INDEPENDENT
        for (unsigned x = 0; x < size_x; ++x) {
          AIOCUDA_SET(direct::thread, x, y, z);
          kernel(arguments...);
        }
      }
    }
  }
}

// How many threads of a block, whose first has index `first`, pass `index < limit`.
inline unsigned threads_below(uint64_t first, int64_t limit, unsigned size_x) {
  if (limit <= (int64_t)first) return 0;
  const uint64_t left = (uint64_t)limit - first;
  return left < size_x ? (unsigned)left : size_x;
}

// The value of an integer parameter of a launch, as the limit that a guard compares with; 0 where it is none.
template <class T>
inline int64_t limit_of(const void* argument) {
  if constexpr (is_integral<T>) {
    const T value = *static_cast<const T*>(argument);
    return value > (T)0 && (unsigned long long)value <= 0x7fffffffffffffffull ? (int64_t)value : 0;
  } else {
    return 0;
  }
}

// Blocks of a kernel with a guard: the threads that pass it run in the loop, without a test among them, and
// the few at the edge through the copy that is not inlined.
template <auto kernel, unsigned flags, class... A>
inline void run_guarded_blocks(const abi::Launch* launch, uint64_t first, uint64_t last, int64_t limit,
                               A... arguments) {
  const unsigned size_x = launch->block.x;
  const unsigned grid_x = launch->grid.x;
  const unsigned grid_y = launch->grid.y;
  const unsigned grid_z = launch->grid.z;
  AIOCUDA_ASSUME(size_x <= 1024);
  AIOCUDA_ASSUME(grid_x <= provable_blocks);
  for (uint64_t index = first; index < last; ++index) {
    set_block<provable_blocks>(grid_x, grid_y, grid_z, size_x, 1, 1, index);
    const unsigned passing = threads_below((uint64_t)direct::block.x * size_x, limit, size_x);
    direct::inside = true;
    run_threads<kernel, flags, A...>(passing, 1, 1, arguments...);
    direct::inside = false;
    for (unsigned x = passing; x < size_x; ++x) {
      AIOCUDA_SET(direct::thread, x, 0, 0);
      AIOCUDA_SET(::threadIdx, x, 0, 0);
      auto* outlined = kernel;
      __asm__ __volatile__("" : "+r"(outlined));
      outlined(arguments...);
    }
  }
}

template <auto kernel, unsigned flags, class... A>
inline void run_blocks(const abi::Launch* launch, uint64_t first, uint64_t last, A... arguments) {
  const unsigned size_x = launch->block.x;
  const unsigned size_y = launch->block.y;
  const unsigned size_z = launch->block.z;
  const unsigned grid_x = launch->grid.x;
  const unsigned grid_y = launch->grid.y;
  const unsigned grid_z = launch->grid.z;
  AIOCUDA_ASSUME(size_x <= 1024);
  AIOCUDA_ASSUME(size_y <= 1024);
  AIOCUDA_ASSUME(size_z <= 64);
#ifndef AIOCUDA_CHECKED  // there the accesses of two threads must not become one
  if (grid_x <= provable_blocks) {
    for (uint64_t index = first; index < last; ++index) {
      set_block<provable_blocks>(grid_x, grid_y, grid_z, size_x, size_y, size_z, index);
      run_threads<kernel, flags, A...>(size_x, size_y, size_z, arguments...);
    }
    return;
  }
#endif
  for (uint64_t index = first; index < last; ++index) {
    set_block<0xffffffffu>(grid_x, grid_y, grid_z, size_x, size_y, size_z, index);
    for (unsigned z = 0; z < size_z; ++z) {
      for (unsigned y = 0; y < size_y; ++y) {
        for (unsigned x = 0; x < size_x; ++x) {
          AIOCUDA_SET(direct::thread, x, y, z);
          AIOCUDA_SET(::threadIdx, x, y, z);
          auto* outlined = kernel;
          __asm__ __volatile__("" : "+r"(outlined));  // the copy that is not inlined into the loop
          outlined(arguments...);
        }
      }
    }
  }
}

// A launch is small if no integer argument and no extent is larger than these. Then common indices that are computed in
// 32 bits, such as `(tile * 16 + threadIdx.y) * n + column`, provably do not wrap, so the compiler sees consecutive
// addresses. It is told by masks, which change nothing: an assumption about a parameter is lost when a function is
// inlined.
inline constexpr unsigned small_integer = (1u << 15) - 1, small_grid = (1u << 11) - 1, small_block = (1u << 7) - 1;

template <class T>
inline constexpr bool counts_in_32_bits = is_integral<T> && sizeof(T) == 4;

template <class T>
inline bool is_small(const void* argument) {
  if constexpr (counts_in_32_bits<T>) {
    return (unsigned)*static_cast<const T*>(argument) <= small_integer;
  } else {
    return true;
  }
}
inline bool is_small(const abi::Launch& launch) {
  return launch.grid.x <= small_grid && launch.grid.y <= small_grid && launch.grid.z <= small_grid &&
         launch.block.y <= small_block && launch.block.z <= small_block;
}

template <class T>
inline T as_small(T argument) {
  if constexpr (counts_in_32_bits<T>) {
    return (T)((unsigned)argument & small_integer);
  } else {
    return argument;
  }
}

// Where a variable of the host's thread is. The compiler does not look through it, and so does not ask again.
template <class T>
inline T& found_once(T& variable) {
  T* place = &variable;
  __asm__("" : "+r"(place));
  return *place;
}

// `size_x`, if not 0, is the extent of the block that the compiler is to know: loops over so many threads need no rest.
// Then the launch is small, too.
template <auto kernel, unsigned size_x, class... A>
inline __attribute__((noinline)) void run_whole_blocks(const abi::Launch* launch, uint64_t first, uint64_t last,
                                                       A... arguments) {
  constexpr bool small = size_x != 0;
  const abi::Dim3 grid = launch->grid, block = launch->block;
  for (uint64_t index = first; index < last; ++index) {
    set_block<0xffffffffu>(grid.x, grid.y, grid.z, small ? size_x : block.x, small ? block.y & small_block : block.y,
                           small ? block.z & small_block : block.z, index);
    if constexpr (small) {
      AIOCUDA_SET(direct::block, direct::block.x & small_grid, direct::block.y & small_grid,
                  direct::block.z & small_grid);
      kernel(as_small(arguments)...);
    } else {
      kernel(arguments...);
    }
  }
}

template <class F>
struct Signature;

template <class... A>
struct Signature<void (*)(A...)> {
  static constexpr uint32_t count = sizeof...(A);
  static constexpr ParameterList<A...> parameters{};

  template <auto kernel, size_t... I>
  static void call(void* const* arguments, Indices<I...>) {
    kernel(*static_cast<argument_of<A>*>(arguments[I])...);
  }
  template <auto kernel>
  static void run_fiber(void* const* arguments) {
    call<kernel>(arguments, indices<sizeof...(A)>{});
  }
  template <auto kernel, unsigned flags, int guard, size_t... I>
  static void loop(const abi::Launch* launch, uint64_t first, uint64_t last, Indices<I...>) {
    direct::inside = false;
#ifndef AIOCUDA_CHECKED
    if constexpr (guard >= 0) {
      const bool is_line = launch->block.y == 1 && launch->block.z == 1 && launch->grid.x <= provable_blocks;
      int64_t limit = 0;
      ((limit = (int)I == guard ? limit_of<argument_of<A>>(launch->arguments[I]) : limit), ...);
      if (is_line && limit > 0) {
        run_guarded_blocks<kernel, flags, A...>(launch, first, last, limit,
                                                *static_cast<argument_of<A>*>(launch->arguments[I])...);
        return;
      }
    }
#endif
    run_blocks<kernel, flags, A...>(launch, first, last, *static_cast<argument_of<A>*>(launch->arguments[I])...);
  }
  template <auto kernel, size_t... I>
  static void whole_blocks(const abi::Launch* launch, uint64_t first, uint64_t last, Indices<I...>) {
    const bool small = is_small(*launch) && (is_small<argument_of<A>>(launch->arguments[I]) && ...);
    const auto run = small && launch->block.x == 16   ? &run_whole_blocks<kernel, 16, A...>
                     : small && launch->block.x == 32 ? &run_whole_blocks<kernel, 32, A...>
                                                      : &run_whole_blocks<kernel, 0, A...>;
    run(launch, first, last, *static_cast<argument_of<A>*>(launch->arguments[I])...);
  }
  template <auto kernel, unsigned flags, int guard>
  static void run(const abi::Launch* launch, uint64_t first, uint64_t last) {
    if constexpr ((flags & has_grid_constants) != 0) {
      constexpr abi::Parameter last_parameter = parameters.items[count - 1];
      ::aiocuda_show_arguments(launch, last_parameter.offset_bytes + last_parameter.size_bytes);
      run_range<kernel, flags, guard>(launch, first, last);
      ::aiocuda_hide_arguments();
    } else {
      run_range<kernel, flags, guard>(launch, first, last);
    }
  }
  template <auto kernel, unsigned flags, int guard>
  static void run_range(const abi::Launch* launch, uint64_t first, uint64_t last) {
    if constexpr ((flags & runs_as_fibers) != 0) {
      ::aiocuda_run_fibers(launch, first, last, &run_fiber<kernel>);
    } else if constexpr ((flags & runs_whole_blocks) != 0) {
      ::aiocuda_begin_range(launch, 0);
      whole_blocks<kernel>(launch, first, last, indices<sizeof...(A)>{});
      ::aiocuda_end_range();
    } else {
      ::aiocuda_begin_range(launch, 0);
      loop<kernel, flags, guard>(launch, first, last, indices<sizeof...(A)>{});
      ::aiocuda_end_range();
    }
  }
};
template <class... A>
struct Signature<void (*)(A...) noexcept> : Signature<void (*)(A...)> {};

// A kernel of the table. `guard` is the position of the parameter n, an integer, of a kernel that begins
//   i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) ...   (or: if (i >= n) return;)
// whose condition the rewriter has joined with direct::inside; -1 for any other.
// `cluster` is what __cluster_dims__ says.
template <auto function, unsigned flags_, unsigned max_threads_, int guard = -1, unsigned long long cluster = 0>
struct Kernel {
  static constexpr auto address = function;
  static constexpr abi::Kernel descriptor(const char* fallback_name) {
    using S = Signature<decltype(function)>;
    return {fallback_name,
            S::count,
            S::parameters.items,
            0,
            0,
            max_threads_,
            &S::template run<function, flags_, guard>,
            {cluster_extent(cluster, 0), cluster_extent(cluster, 1), cluster_extent(cluster, 2)}};
  }
};

template <class T>
inline constexpr bool is_kernel_pointer = false;
template <class... A>
inline constexpr bool is_kernel_pointer<void (*)(A...)> = true;
template <class... A>
inline constexpr bool is_kernel_pointer<void (*)(A...) noexcept> = true;

// The thing that a name expression names: a kernel (an instantiation, mostly), or the address of a variable.
template <auto pointer, unsigned flags, unsigned max_threads, int guard = -1, unsigned long long cluster = 0>
struct Named {
  static constexpr auto address = pointer;
  static constexpr abi::Kernel descriptor(const char* fallback_name) {
    if constexpr (is_kernel_pointer<decltype(pointer)>) {
      return Kernel<pointer, flags, max_threads, guard, cluster>::descriptor(fallback_name);
    } else {
      return {};
    }
  }
};

}  // namespace aiocuda_device

// A unit's table, and its entry in the module's list of units: a section of pointers, which the linker joins.
// `aiocuda_addresses_*` and `aiocuda_static_shared_*` are found in the finished image by name (nvrtc/image.cpp): the
// first to learn the lowered names, the second to be filled in.
#if defined(__has_attribute) && __has_attribute(retain)
#define AIOCUDA_KEPT __attribute__((used, retain, section("aiocuda_units")))
#else
#define AIOCUDA_KEPT __attribute__((used, section("aiocuda_units")))
#endif
#define AIOCUDA_UNIT(addresses, static_shared, count)                                                         \
  static const aiocuda::emulator::abi::Unit aiocuda_unit = {aiocuda_kernels, addresses, static_shared, count, \
                                                            aiocuda_constants};                               \
  AIOCUDA_KEPT static const aiocuda::emulator::abi::Unit* const aiocuda_unit_entry = &aiocuda_unit;
