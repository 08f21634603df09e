// Room for executables in the driver's stores: see graph_room.hpp.
#include "graph_room.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "graph_handles.hpp"

namespace aiocuda::driver {
namespace {

struct MemoryDeleter {
  const Devices* devices;
  void operator()(void* memory) const noexcept {
    if (!devices->is_over()) devices->table().cuMemFree(reinterpret_cast<CUdeviceptr>(memory));
  }
};

}  // namespace

void GraphRoom::prepare(std::span<const std::uint64_t> places) {
  for (std::size_t device = 0; device < places.size(); ++device)
    if (places[device]) make(static_cast<std::int32_t>(device), places[device]);
}

void GraphRoom::take(std::span<const std::uint64_t> places) {
  for (std::size_t slot = 0; slot < places.size(); ++slot) {
    if (!places[slot]) continue;
    const auto device = static_cast<std::int32_t>(slot);
    ExecutableStore& store = devices_.at(device).executables;
    store.take(places[slot]);
    store.note_streams(streams_.count_used(device));
    const bool is_known = std::find(missing_.begin(), missing_.end(), device) != missing_.end();
    if (store.missing(0) && !is_known) missing_.push_back(device);
  }
}

void GraphRoom::make_where_idle() noexcept {
  if (around_.is_over() || !devices_.now().has_all()) return;
  for (const std::int32_t device : std::exchange(missing_, {})) {
    try {
      if (!make(device, 0)) missing_.push_back(device);
    } catch (const Refusal&) {  // a broken context has no graphs any more
    }
  }
}

// False: the device is at work.
bool GraphRoom::make(std::int32_t device, std::uint64_t places) {
  DeviceState& state = devices_.at(device);
  ExecutableStore& store = state.executables;
  store.note_streams(streams_.count_used(device));
  const std::uint64_t missing = store.missing(places);
  if (!missing) return true;
  if (!streams_.is_idle(device)) return false;
  ContextScope scope(devices_);
  scope.bind(device);
  store.note_asked();
  bool is_made = false;
  // NVIDIA's driver waits for what other libraries have on the device.
  around_.call_slowly([&] {
    is_made = enlarge(state.context, missing);
    return CUDA_SUCCESS;
  });
  if (is_made) store.note_free(missing);
  return true;
}

// Makes an executable of so many branches, which never runs, and destroys it: the driver keeps the room.
bool GraphRoom::enlarge(CUcontext context, std::uint64_t places) const {
  const Table& table = devices_.table();
  // Memory of this device: an executable that fills page-locked memory takes its places on the first device.
  CUdeviceptr memory = 0;
  if (table.cuMemAlloc(&memory, 4) != CUDA_SUCCESS) return false;
  const std::unique_ptr<void, MemoryDeleter> freed(reinterpret_cast<void*>(memory), {&devices_});
  CUgraph made = nullptr;
  if (table.cuGraphCreate(&made, 0) != CUDA_SUCCESS) return false;
  const GraphHandle graph(made, {&devices_});
  CUDA_MEMSET_NODE_PARAMS nothing{};
  nothing.dst = memory;
  nothing.elementSize = 4;
  nothing.width = nothing.height = 1;
  CUgraphNode node = nullptr;
  for (std::uint64_t i = 0; i < places; ++i)
    if (table.cuGraphAddMemsetNode(&node, made, nullptr, 0, &nothing, context) != CUDA_SUCCESS) return false;
  CUgraphExec executable = nullptr;
  if (table.cuGraphInstantiateWithFlags(&executable, made, 0) != CUDA_SUCCESS) return false;
  const ExecutableHandle destroyed(executable, {&devices_});
  return true;
}

}  // namespace aiocuda::driver
