// A libcuda.so.1 whose functions do nothing: what remains of a launch is the library's own cost.
#include <chrono>
#include <cstdint>
#include <cstring>

namespace {

using Result = int;
volatile std::uint64_t launches = 0;

Result nothing() { return 0; }
Result launch(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**) {
  launches = launches + 1;
  return 0;
}
Result give_handle(void** handle) {
  static std::uintptr_t last = 0x1000;
  *handle = reinterpret_cast<void*>(last += 0x1000);
  return 0;
}
Result give_memory(std::uint64_t* address) {
  static std::uint64_t last = 0x7f0000000000;
  *address = last += 1 << 20;
  return 0;
}

}  // namespace

extern "C" Result cuGetProcAddress_v2(const char* name, void** function, int, std::uint64_t, void*) {
  if (!std::strcmp(name, "cuLaunchKernel")) *function = reinterpret_cast<void*>(launch);
  else if (!std::strcmp(name, "cuMemAllocFromPoolAsync")) *function = reinterpret_cast<void*>(give_memory);
  else if (!std::strcmp(name, "cuStreamCreateWithPriority") || !std::strcmp(name, "cuEventCreate") || !std::strcmp(name, "cuCtxGetCurrent"))
    *function = reinterpret_cast<void*>(give_handle);
  else *function = reinterpret_cast<void*>(nothing);
  return 0;
}

extern "C" std::uint64_t launch_count() { return launches; }

// The floor: the same driver calls in a loop, in seconds for each.
extern "C" double launch_loop(std::uint64_t n) {
  void* function = nullptr;
  cuGetProcAddress_v2("cuLaunchKernel", &function, 0, 0, nullptr);
  auto* call = reinterpret_cast<decltype(&launch)>(function);
  void* params[4] = {};
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < n; ++i) call(nullptr, 1, 1, 1, 256, 1, 1, 0, nullptr, params, nullptr);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / static_cast<double>(n);
}
