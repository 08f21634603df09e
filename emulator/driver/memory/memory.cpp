// The doors between the memory half and the rest of the driver (memory.hpp).
#include "memory/memory.hpp"

#include <algorithm>
#include <mutex>

#include "context.hpp"
#include "device.hpp"
#include "graph/graph_memory.hpp"
#include "memory/allocation.hpp"
#include "memory/interprocess.hpp"
#include "memory/physical_memory.hpp"
#include "memory/virtual_memory.hpp"

namespace aiocuda::emulator::memory {
namespace {

bool is_of_pool_on(const Allocation& allocation, CUdevice device) {
  return allocation.pool && allocation.pool->is_on_device() && allocation.device == device;
}

void settle_pools(PhysicalMemory& memory) {
  if (memory.unused_blocks.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(memory.mutex());
  for (const auto& pool : memory.pools()) pool->settle();
  memory.remove_ended_pools();
}

}  // namespace

void release_context(Context& context) noexcept {
  const CUcontext handle = context.handle();
  const CUdevice device = context.device();
  // Memory out of a pool belongs to the device: only the end of its primary context ends it.
  const auto allocations = unlist_if([&](const Allocation& each) {
    if (each.kind == Allocation::Kind::graph) return false;  // its node's, which has no context
    if (each.pool) return context.is_primary() && is_of_pool_on(each, device);
    return each.context == handle;
  });
  for (const auto& allocation : allocations) {
    while (close_once_more(*allocation)) {
    }
    release(*allocation);
  }
  if (!context.is_primary()) return;
  graph::release_allocations_of(device);
  PhysicalMemory& memory = device_memory(device);
  const std::lock_guard lock(memory.mutex());
  for (const auto& pool : memory.pools()) {
    while (pool->evict_one(true)) {
    }
  }
}

void after_synchronise(CUdevice device) noexcept {
  settle_pools(device_memory(device));
  settle_pools(host_memory());
}

void adopt_module_variable(Context& context, std::uintptr_t address, std::size_t bytes) {
  if (bytes == 0) return;
  const auto variable = std::make_shared<Allocation>();
  variable->kind = Allocation::Kind::module_variable;
  variable->address = address;
  variable->bytes = bytes;
  variable->context = context.handle();
  variable->device = context.device();
  list(variable);  // two names for one variable: the first has made it known
}

void disown_module_variable(std::uintptr_t address) noexcept {
  const auto variable = find(address);
  if (variable && variable->kind == Allocation::Kind::module_variable) unlist(*variable);
}

bool is_device_accessible(std::uintptr_t address, std::size_t bytes) noexcept {
  const auto allocation = find(address);
  if (allocation && allocation->kind == Allocation::Kind::mapped) {
    MappingAccess access;
    return reaches_over_mappings(address, bytes, access) && access.reads != 0;
  }
  return allocation && allocation->reaches(address, bytes);
}

bool is_host_accessible(std::uintptr_t address) noexcept {
  const auto allocation = find(address);
  return allocation && (allocation->is_page_locked() || allocation->is_managed());
}

bool may_hold_memory(std::uintptr_t address, std::size_t bytes) {
  return is_in_an_arena(address) || !listed_within(address, address + bytes).empty();
}

checking::Accesses only_of_memory(const checking::Accesses& accesses) {
  checking::Accesses kept;
  for (const checking::Access& each : accesses) {
    if (is_in_an_arena(each.begin)) {
      kept.push_back(each);
      continue;
    }
    for (const auto& [begin, end] : listed_within(each.begin, each.end)) {
      kept.push_back({std::max(begin, each.begin), std::min(end, each.end), each.kind});
    }
  }
  return kept;
}

Usage usage(CUdevice device) noexcept {
  const PhysicalMemory& memory = device_memory(device);
  return Usage{memory.total_bytes(), memory.used_bytes()};
}

}  // namespace aiocuda::emulator::memory
