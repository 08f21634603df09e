// What NVIDIA's headers of libcu++ and cub expect of NVRTC, beyond what every program gets: above all traits that the
// host's compiler lacks.
#pragma once

#include "block.hpp"
#include "runtime_types.hpp"

namespace aiocuda_device {

template <class T>
T&& made() noexcept;
template <class T>
void taken(T) noexcept;

template <class From, class To, class = void>
inline constexpr bool converts = __is_same(From, void) && __is_same(To, void);
template <class From, class To>
inline constexpr bool converts<From, To, decltype(taken<To>(made<From>()))> = true;

template <class T, class = void>
inline constexpr bool destroys_quietly = false;
template <class T>
inline constexpr bool destroys_quietly<T, decltype(made<T&>().~T())> = noexcept(made<T&>().~T());
template <class T>
inline constexpr bool destroys_quietly<T&> = true;
template <class T>
inline constexpr bool destroys_quietly<T&&> = true;
template <class T, size_t n>
inline constexpr bool destroys_quietly<T[n]> = destroys_quietly<T>;

}  // namespace aiocuda_device

#if !__has_builtin(__is_convertible_to)
#define __is_convertible_to(...) (::aiocuda_device::converts<__VA_ARGS__>)
#endif
#if !__has_builtin(__is_nothrow_destructible)
#define __is_nothrow_destructible(...) (::aiocuda_device::destroys_quietly<__VA_ARGS__>)
#endif
#if !__has_builtin(__is_trivially_destructible)
#define __is_trivially_destructible(...) \
  (::aiocuda_device::destroys_quietly<__VA_ARGS__> && __has_trivial_destructor(__VA_ARGS__))
#endif

inline void* __nv_associate_access_property(void* address, unsigned long long) { return address; }
