// The floors of submission: the driver's own calls in a loop, with the arguments that aiocuda gives them.
//
// Always true: a refused call ends the loop with a negative number; else seconds for each launch come back.
#include <dlfcn.h>

#include <chrono>
#include <cstdint>

namespace {

using Result = int;
constexpr unsigned no_timing = 2;        // CU_EVENT_DISABLE_TIMING
constexpr int cuda_version = 12000;      // whose forms of the functions are asked for
constexpr double refused = -1;

// Asked of the libcuda.so.1 that is loaded already, as aiocuda does.
void* find(const char* name) {
  using GetProcAddress = Result (*)(const char*, void**, int, std::uint64_t, void*);
  static void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  auto resolve = library ? reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2")) : nullptr;
  void* address = nullptr;
  if (resolve) resolve(name, &address, cuda_version, 0, nullptr);
  return address;
}

template <class F>
F* function(const char* name) {
  return reinterpret_cast<F*>(find(name));
}

struct Driver {
  Result (*set_current)(void*) = function<Result(void*)>("cuCtxSetCurrent");
  Result (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**) =
      function<Result(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**)>("cuLaunchKernel");
  Result (*create_event)(void**, unsigned) = function<Result(void**, unsigned)>("cuEventCreate");
  Result (*destroy_event)(void*) = function<Result(void*)>("cuEventDestroy");
  Result (*record)(void*, void*) = function<Result(void*, void*)>("cuEventRecord");
  Result (*wait)(void*, void*, unsigned) = function<Result(void*, void*, unsigned)>("cuStreamWaitEvent");

  bool is_whole() const { return set_current && launch && create_event && destroy_event && record && wait; }
};

const Driver& driver() {
  static const Driver found;
  return found;
}

template <class F>
double seconds_each(std::uint64_t n, F&& once) {
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < n; ++i)
    if (once(i)) return refused;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / static_cast<double>(n);
}

}  // namespace

extern "C" double launch_loop(void* context, void* kernel, unsigned grid, unsigned block, void* stream, void** arguments, std::uint64_t n) {
  const Driver& cuda = driver();
  if (!cuda.is_whole() || cuda.set_current(context)) return refused;
  return seconds_each(n, [&](std::uint64_t) { return cuda.launch(kernel, grid, 1, 1, block, 1, 1, 0, stream, arguments, nullptr); });
}

// Launches go to two streams in turn, each behind the one before it, in the other stream.
extern "C" double ping_pong_loop(void* context, void* kernel, unsigned grid, unsigned block, void* first, void* second, void** arguments,
                                 std::uint64_t n) {
  const Driver& cuda = driver();
  if (!cuda.is_whole() || cuda.set_current(context)) return refused;
  void* streams[] = {first, second};
  void* events[2];
  for (void*& event : events)
    if (cuda.create_event(&event, no_timing)) return refused;
  const double took = seconds_each(n, [&](std::uint64_t i) {
    const std::uint64_t here = i % 2, there = 1 - here;
    if (const Result result = cuda.launch(kernel, grid, 1, 1, block, 1, 1, 0, streams[here], arguments, nullptr)) return result;
    if (const Result result = cuda.record(events[here], streams[here])) return result;
    return cuda.wait(streams[there], events[here], 0);
  });
  for (void* event : events)
    if (cuda.destroy_event(event)) return refused;
  return took;
}
