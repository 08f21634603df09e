// Names a thread, as `top -H` and debuggers show it.
#pragma once
#include <pthread.h>

#include <cstddef>

namespace aiocuda {

// Linux keeps 15 characters.
template <std::size_t size>
void name_this_thread(const char (&name)[size]) {
  static_assert(size <= 16);
  pthread_setname_np(pthread_self(), name);
}

}  // namespace aiocuda
