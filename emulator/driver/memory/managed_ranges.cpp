// Splitting and merging of what was said about parts of a managed allocation.
#include "memory/managed_ranges.hpp"

#include <algorithm>
#include <iterator>

namespace aiocuda::emulator::memory {

ManagedRanges::Starts::iterator ManagedRanges::split(std::size_t offset) {
  const auto at = std::prev(starts_.upper_bound(offset));
  if (at->first == offset) return at;
  return starts_.emplace_hint(std::next(at), offset, at->second);
}

void ManagedRanges::change(std::size_t offset, std::size_t size, const std::function<void(RangeState&)>& how) {
  const std::lock_guard lock(mutex_);
  const auto first = split(offset);
  const auto last = split(offset + size);
  for (auto each = first; each != last; ++each) how(each->second);
}

RangeState ManagedRanges::common(std::size_t offset, std::size_t size) const {
  const std::lock_guard lock(mutex_);
  auto each = std::prev(starts_.upper_bound(offset));
  RangeState common = each->second;
  for (++each; each != starts_.end() && each->first < offset + size; ++each) {
    const RangeState& other = each->second;
    common.read_mostly = common.read_mostly && other.read_mostly;
    if (other.preferred != common.preferred) common.preferred = Place{};
    if (other.last_prefetch != common.last_prefetch) common.last_prefetch = Place{};
    std::erase_if(common.accessed_by, [&](CUdevice device) { return !other.accessed_by.contains(device); });
  }
  return common;
}

}  // namespace aiocuda::emulator::memory
