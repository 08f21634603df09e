// A libcuda.so.1 whose functions do nothing: what remains of a submission is the library's own cost.
//
// Always true: everything has passed at once, and what was called is counted.
//
// While it holds flags, the numbers that streams write are kept back, and `release` writes them. While it holds
// streams, it answers that they have not passed what they have.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace {

using Result = int;
volatile std::uint64_t launches = 0, records = 0, waits = 0;

Result nothing() { return 0; }
Result launch(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**) {
  launches = launches + 1;
  return 0;
}
Result record(void*, void*) {
  records = records + 1;
  return 0;
}
Result wait(void*, void*, unsigned) {
  waits = waits + 1;
  return 0;
}
// Host memory is real: flags are written there, by a device that has always passed everything.
Result give_host_memory(void** memory, std::size_t size_bytes, unsigned) {
  static auto& given = *new std::vector<std::unique_ptr<std::byte[]>>;
  given.push_back(std::make_unique<std::byte[]>(size_bytes));
  *memory = given.back().get();
  return 0;
}
bool holds_flags = false;
std::vector<std::pair<volatile std::uint32_t*, std::uint32_t>> held;
int rung = -1;  // an eventfd that `release` writes to

Result write_value(void*, std::uint64_t address, std::uint32_t value, unsigned) {
  auto* const flag = reinterpret_cast<volatile std::uint32_t*>(address);
  if (holds_flags) held.emplace_back(flag, value);
  else *flag = value;
  return 0;
}
bool holds_streams = false;
Result query(void*) {
  constexpr Result not_ready = 600;
  return holds_streams ? not_ready : 0;
}
Result give_handle(void** handle) {
  static std::uintptr_t last = 0x1000;
  *handle = reinterpret_cast<void*>(last += 0x1000);
  return 0;
}
Result give_memory(std::uint64_t* address) {
  static std::uint64_t last = 0x7f0000000000;
  *address = last += 1 << 24;
  return 0;
}

// All memory is in allocations of 16 MiB.
Result tell_of_pointer(void* answer, int attribute, std::uint64_t address) {
  constexpr int begin = 11, size = 12;
  constexpr std::uint64_t whole = 1 << 24;
  const std::uint64_t value = attribute == begin ? address & ~(whole - 1) : whole;
  if (attribute == begin || attribute == size) std::memcpy(answer, &value, sizeof value);
  return 0;
}

}  // namespace

extern "C" Result cuGetProcAddress_v2(const char* name, void** function, int, std::uint64_t, void*) {
  auto is = [name](const char* known) { return !std::strcmp(name, known); };
  if (is("cuLaunchKernel")) *function = reinterpret_cast<void*>(launch);
  else if (is("cuEventRecord")) *function = reinterpret_cast<void*>(record);
  else if (is("cuStreamWaitEvent")) *function = reinterpret_cast<void*>(wait);
  else if (is("cuStreamQuery")) *function = reinterpret_cast<void*>(query);
  else if (is("cuMemHostAlloc")) *function = reinterpret_cast<void*>(give_host_memory);
  else if (is("cuStreamWriteValue32")) *function = reinterpret_cast<void*>(write_value);
  else if (is("cuMemAllocFromPoolAsync")) *function = reinterpret_cast<void*>(give_memory);
  else if (is("cuPointerGetAttribute")) *function = reinterpret_cast<void*>(tell_of_pointer);
  else if (is("cuStreamCreateWithPriority") || is("cuEventCreate") || is("cuCtxGetCurrent") || is("cuGraphCreate") ||
           is("cuGraphAddKernelNode") || is("cuGraphAddEmptyNode") || is("cuGraphInstantiateWithFlags"))
    *function = reinterpret_cast<void*>(give_handle);
  else *function = reinterpret_cast<void*>(nothing);
  return 0;
}

// Whether flags are held from now on; and what else `release` rings, or -1.
extern "C" void hold_flags(int holds, int eventfd) {
  holds_flags = holds;
  rung = eventfd;
}
extern "C" void release() {
  for (const auto& [flag, value] : held) *flag = value;
  held.clear();
  const std::uint64_t one = 1;
  if (rung >= 0 && write(rung, &one, sizeof one) < 0) rung = -1;
}

extern "C" void hold_streams(int holds) { holds_streams = holds; }

extern "C" std::uint64_t launch_count() { return launches; }
extern "C" std::uint64_t record_count() { return records; }
extern "C" std::uint64_t wait_count() { return waits; }
