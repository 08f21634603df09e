// A thousand lives of everything leave the process as it was: threads, open files and mappings.
#include <filesystem>

#include "support.hpp"

using namespace driver_test;

namespace {

std::size_t entries_of(const char* directory) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}

struct Footprint {
  std::size_t threads = entries_of("/proc/self/task");
  std::size_t files = entries_of("/proc/self/fd");
  std::size_t mappings = [] {
    std::ifstream maps("/proc/self/maps");
    std::size_t lines = 0;
    for (std::string line; std::getline(maps, line);) ++lines;
    return lines;
  }();
};

// Threads end on their own time after what they served is gone: looks until their number has stayed
// the same for many looks.
Footprint settled() {
  Footprint footprint;
  for (int unchanged = 0; unchanged < 300; ++unchanged) {
    std::this_thread::yield();
    const std::size_t before = footprint.threads;
    footprint = Footprint();
    if (footprint.threads != before) unchanged = 0;
  }
  return footprint;
}

void one_life(const Device& device) {
  const Stream stream, other(CU_STREAM_DEFAULT);
  const Event event;
  Module module;
  const SharedInts<4> out;
  REQUIRE_OK(launch(module.function("add"), stream, 4, out.data(), 1));
  REQUIRE_OK(cuEventRecord(event, stream));
  REQUIRE_OK(cuStreamWaitEvent(other, event, 0));
  REQUIRE_OK(launch(module.function("add"), other, 4, out.data(), 1));
  REQUIRE_OK(cuStreamSynchronize(other));
  CHECK(out[0] == 2);
  CUcontext made = nullptr;
  REQUIRE_OK(cuCtxCreate(&made, nullptr, 0, 1));
  REQUIRE_OK(cuLaunchHostFunc(CU_STREAM_LEGACY, [](void*) {}, nullptr));
  REQUIRE_OK(cuCtxDestroy(made));
  device.make_current();
}

}  // namespace

TEST_CASE("a thousand lives of streams, events, modules and contexts leak nothing") {
  const Device device;
  for (int each = 0; each < 20; ++each) one_life(device);  // what is kept for good is made now
  const Footprint before = settled();
  for (int each = 0; each < 1000; ++each) one_life(device);
  const Footprint after = settled();
  CHECK(after.threads <= before.threads);
  CHECK(after.files == before.files);
#if !defined(DRIVER_TEST_SANITIZED)  // sanitizers keep what was freed, to find later uses of it
  // The allocator and the cache of thread stacks keep some mappings; a leak would be thousands.
  CHECK(after.mappings < before.mappings + 100);
#endif
}
