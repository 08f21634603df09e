// The list of allocations, by address.
#include "memory/allocation.hpp"

#include <map>
#include <mutex>
#include <shared_mutex>

#include "checking/known_memory.hpp"
#include "checking/operation.hpp"
#include "context.hpp"

namespace aiocuda::emulator::memory {
namespace {

// One byte at least, so that a zero-byte allocation out of a pool has an address of its own.
std::uintptr_t end_of(const Allocation& allocation) noexcept {
  return allocation.address + (allocation.bytes == 0 ? 1 : allocation.bytes);
}

struct List {
  std::shared_mutex mutex;
  std::map<std::uintptr_t, std::shared_ptr<Allocation>> by_address;
};

List& the_list() {
  static auto& list = *new List;
  return list;
}

// What the checks within kernels are to know of it. Of a module's variable they know more by themselves.
void tell_of(const Allocation& allocation) {
  auto* const known = checking::known_memory();
  if (known == nullptr || allocation.kind == Allocation::Kind::module_variable) return;
  // Only work of streams writes to memory of a device; the host writes to all other kinds, unseen.
  const bool is_of_device = allocation.kind == Allocation::Kind::device || allocation.kind == Allocation::Kind::graph ||
                            (allocation.pool && allocation.pool->is_on_device());
  known->add(allocation.address, allocation.bytes, "an allocation of " + checking::count_of(allocation.bytes, "byte"),
             is_of_device);
}

void tell_of_end(const Allocation& allocation) {
  if (auto* const known = checking::known_memory()) known->remove(allocation.address);
}

}  // namespace

bool list(std::shared_ptr<Allocation> allocation) {
  allocation->id = next_id();
  auto& [mutex, by_address] = the_list();
  const std::lock_guard lock(mutex);
  const auto after = by_address.lower_bound(allocation->address);
  if (after != by_address.end() && after->first < end_of(*allocation)) return false;
  if (after != by_address.begin() && end_of(*std::prev(after)->second) > allocation->address) {
    return false;
  }
  tell_of(*allocation);
  by_address.emplace_hint(after, allocation->address, std::move(allocation));
  return true;
}

std::shared_ptr<Allocation> find(std::uintptr_t address) {
  auto& [mutex, by_address] = the_list();
  const std::shared_lock lock(mutex);
  const auto after = by_address.upper_bound(address);
  if (after == by_address.begin()) return nullptr;
  const auto& candidate = std::prev(after)->second;
  return address < end_of(*candidate) ? candidate : nullptr;
}

std::vector<std::pair<std::uintptr_t, std::uintptr_t>> listed_within(std::uintptr_t begin, std::uintptr_t end) {
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> found;
  auto& [mutex, by_address] = the_list();
  const std::shared_lock lock(mutex);
  auto at = by_address.upper_bound(begin);
  if (at != by_address.begin() && end_of(*std::prev(at)->second) > begin) --at;
  for (; at != by_address.end() && at->first < end; ++at) found.emplace_back(at->first, end_of(*at->second));
  return found;
}

bool unlist(const Allocation& allocation) {
  auto& [mutex, by_address] = the_list();
  const std::lock_guard lock(mutex);
  const auto found = by_address.find(allocation.address);
  if (found == by_address.end() || found->second.get() != &allocation) return false;
  tell_of_end(allocation);
  by_address.erase(found);
  return true;
}

std::vector<std::shared_ptr<Allocation>> unlist_if(const std::function<bool(const Allocation&)>& picks) {
  std::vector<std::shared_ptr<Allocation>> taken;
  auto& [mutex, by_address] = the_list();
  const std::lock_guard lock(mutex);
  for (auto each = by_address.begin(); each != by_address.end();) {
    if (!picks(*each->second)) {
      ++each;
      continue;
    }
    tell_of_end(*each->second);
    taken.push_back(std::move(each->second));
    each = by_address.erase(each);
  }
  return taken;
}

void release(const Allocation& allocation) {
  if (allocation.kind == Allocation::Kind::graph) return;  // its node gives it back
  if (allocation.pool) {
    allocation.pool->free_at_once(allocation.block);
  } else if (allocation.memory != nullptr) {
    const std::lock_guard lock(allocation.memory->mutex());
    if (allocation.kind == Allocation::Kind::opened) {
      allocation.memory->unmap(allocation.block);  // it is on another process's account
    } else {
      allocation.memory->release(allocation.block);
    }
  }
}

}  // namespace aiocuda::emulator::memory
