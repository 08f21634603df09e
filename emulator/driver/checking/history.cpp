// Splitting, joining and forgetting of segments; see history.hpp.
#include "checking/history.hpp"

#include <algorithm>
#include <iterator>

namespace aiocuda::emulator::checking {

void History::split(std::uintptr_t at) {
  const auto after = segments_.lower_bound(at);
  if (after == segments_.begin()) return;
  const auto before = std::prev(after);
  if (before->second.end <= at) return;
  segments_.emplace_hint(after, at, before->second);
  before->second.end = at;
}

void History::join_with_previous(Segments::iterator at) {
  if (at == segments_.end() || at == segments_.begin()) return;
  const auto before = std::prev(at);
  if (before->second.end != at->first || before->second.seen != at->second.seen) return;
  before->second.end = at->second.end;
  segments_.erase(at);
}

void History::check(std::uintptr_t begin, std::uintptr_t end, const std::vector<Seen>& seen, const Operation& operation,
                    AccessKind kind, const OnConflict& on_conflict) {
  for (const Seen& each : seen) {
    if (!conflict(kind, each.kind) || is_ordered(*each.operation, operation)) continue;
    on_conflict({each.operation, each.kind, begin, end});
  }
}

void History::remember(std::vector<Seen>& seen, const ConstPoint& operation, AccessKind kind) {
  const auto stands_for_it = [&](const Seen& each) { return each.operation == operation && covers(each.kind, kind); };
  if (std::any_of(seen.begin(), seen.end(), stands_for_it)) return;
  std::erase_if(seen,
                [&](const Seen& each) { return covers(kind, each.kind) && is_ordered(*each.operation, *operation); });
  seen.push_back({operation, kind});
}

void History::add(const ConstPoint& operation, const Access& access, const OnConflict& on_conflict) {
  if (access.begin >= access.end) return;
  split(access.begin);
  split(access.end);
  auto at = segments_.lower_bound(access.begin);
  for (std::uintptr_t cursor = access.begin; cursor < access.end;) {
    if (at == segments_.end() || at->first > cursor) {
      const std::uintptr_t end = at == segments_.end() ? access.end : std::min(access.end, at->first);
      at = segments_.emplace_hint(at, cursor, Segment{end, {}});
    }
    check(at->first, at->second.end, at->second.seen, *operation, access.kind, on_conflict);
    if (access.ends_the_past) at->second.seen.clear();
    remember(at->second.seen, operation, access.kind);
    cursor = at->second.end;
    const auto next = std::next(at);
    join_with_previous(at);
    at = next;
  }
  join_with_previous(at);
}

void History::look(const Operation& operation, const Access& access, const OnConflict& on_conflict) const {
  auto at = segments_.upper_bound(access.begin);
  if (at != segments_.begin() && std::prev(at)->second.end > access.begin) --at;
  for (; at != segments_.end() && at->first < access.end; ++at) {
    check(std::max(at->first, access.begin), std::min(at->second.end, access.end), at->second.seen, operation,
          access.kind, on_conflict);
  }
}

void History::forget(std::uintptr_t begin, std::uintptr_t end) {
  split(begin);
  split(end);
  segments_.erase(segments_.lower_bound(begin), segments_.lower_bound(end));
}

void History::prune(const Clock& floor) {
  for (auto at = segments_.begin(); at != segments_.end();) {
    std::erase_if(at->second.seen,
                  [&](const Seen& each) { return each.operation->count <= floor[each.operation->lane]; });
    if (at->second.seen.empty()) {
      at = segments_.erase(at);
      continue;
    }
    const auto next = std::next(at);
    join_with_previous(at);
    at = next;
  }
}

bool History::is_empty(std::uintptr_t begin, std::uintptr_t end) const {
  const auto after = segments_.lower_bound(begin);
  if (after != segments_.end() && after->first < end) return false;
  return after == segments_.begin() || std::prev(after)->second.end <= begin;
}

}  // namespace aiocuda::emulator::checking
