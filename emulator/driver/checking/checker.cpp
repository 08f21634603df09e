// Clocks, lanes and reports; see checker.hpp.
#include "checking/checker.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace aiocuda::emulator::checking {
std::unique_ptr<Checker::Lane> Checker::open_lane(std::uintptr_t handle, const std::string& kind) {
  const std::lock_guard lock(mutex_);
  auto name = std::make_shared<StreamName>();
  name->number = ++last_stream_;
  name->handle = handle;
  name->short_text = "stream " + std::to_string(name->number);
  name->text = name->short_text + " (" + kind + ")";
  return make_lane(std::move(name));
}

std::unique_ptr<Checker::Lane> Checker::open_branch() {
  const std::lock_guard lock(mutex_);
  return make_lane(nullptr);
}

std::unique_ptr<Checker::Lane> Checker::make_lane(std::shared_ptr<const StreamName> name) {
  // A lane is used again once the host has observed all of it: what follows is ordered after it anyway.
  const auto reusable = std::find_if(unused_lanes_.begin(), unused_lanes_.end(),
                                     [&](const auto& each) { return each.second <= (*host_)[each.first]; });
  std::size_t number = lane_count_;
  std::uint64_t count = 0;
  if (reusable != unused_lanes_.end()) {
    number = reusable->first;
    count = reusable->second;
    unused_lanes_.erase(reusable);
  } else {
    ++lane_count_;
  }
  std::unique_ptr<Lane> lane(new Lane(*this, std::move(name), number, count));
  lanes_.insert(lane.get());
  return lane;
}

Checker::Lane::~Lane() { checker_.close_lane(*this); }

void Checker::close_lane(const Lane& lane) {
  const std::lock_guard lock(mutex_);
  lanes_.erase(const_cast<Lane*>(&lane));
  unused_lanes_.emplace(lane.number_, lane.count_);
}

Point Checker::Lane::submit(std::string text, std::vector<Point> after) {
  auto operation = std::make_shared<Operation>();
  operation->text = std::move(text);
  operation->stream = name_;
  operation->after.assign(after.begin(), after.end());
  operation->lane = number_;
  const std::lock_guard lock(checker_.mutex_);
  operation->sequence.submission = ++checker_.last_sequence_;
  operation->host = checker_.host();
  pending_.push_back(operation);
  return operation;
}

// Operations that have ended join; the others stay for later.
void Checker::join_ended(Operation& operation) {
  std::erase_if(operation.after, [&](const std::shared_ptr<const Operation>& each) {
    if (!each->ended) return false;
    operation.clock.join(each->clock);
    return true;
  });
}

void Checker::Lane::begin(Operation& operation, const Ordering& ordering) {
  const std::lock_guard lock(checker_.mutex_);
  operation.count = ++count_;
  operation.clock = clock_;
  operation.clock.join(*operation.host);
  operation.clock.set(number_, operation.count);
  join_ended(operation);
  // Before it does so: whoever sees the value, or is called, may act on it at once.
  if (ordering.releases != 0) checker_.releases_[ordering.releases].join(operation.clock);
  if (ordering.tells_host) checker_.observe_clock(operation.clock);
}

void Checker::Lane::end(const Point& operation, const Ordering& ordering, const Accesses& accesses) {
  const std::lock_guard lock(checker_.mutex_);
  join_ended(*operation);
  operation->after.clear();  // the rest is of a lost context
  if (ordering.acquires != 0) {
    const auto released = checker_.releases_.find(ordering.acquires);
    if (released != checker_.releases_.end()) operation->clock.join(released->second);
  }
  clock_ = operation->clock;
  checker_.record(operation, accesses);
  operation->ended = true;
  operation->host.reset();
  if (!pending_.empty() && pending_.front() == operation) pending_.pop_front();
  checker_.prune_when_large();
}

void Checker::Lane::drop(const Operation& operation) {
  const std::lock_guard lock(checker_.mutex_);
  if (!pending_.empty() && pending_.front().get() == &operation) pending_.pop_front();
}

void Checker::Lane::begin_node(const Point& node, const Operation& launch, std::uint64_t step,
                               const std::vector<Point>& after, const Ordering& ordering) {
  {
    const std::lock_guard lock(checker_.mutex_);
    node->sequence = {launch.sequence.submission, step};
    node->stream = launch.stream;
    node->host = std::make_shared<Clock>(launch.clock);
    node->after.assign(after.begin(), after.end());
    node->lane = number_;
  }
  begin(*node, ordering);
}

void Checker::Lane::join_into(Operation& launch) const {
  const std::lock_guard lock(checker_.mutex_);
  launch.clock.join(clock_);
}

void Checker::observe(const Point& point) {
  const std::lock_guard lock(mutex_);
  if (point && point->ended) observe_clock(point->clock);
}

void Checker::observe_clock(const Clock& clock) {
  if (clock.is_within(*host_)) return;
  auto joined = std::make_shared<Clock>(*host_);
  joined->join(clock);
  host_ = std::move(joined);
}

void Checker::add_conflict(Races& found, const std::shared_ptr<const Operation>& operation, AccessKind kind,
                           const History::Conflict& conflict) const {
  const bool was_submitted_later = conflict.earlier->sequence < operation->sequence;
  const auto [entry, is_new] = found.try_emplace(conflict.earlier->sequence);
  Race& race = entry->second;
  if (is_new) {
    race.first = was_submitted_later ? conflict.earlier : operation;
    race.second = was_submitted_later ? operation : conflict.earlier;
    race.begin = conflict.begin;
    race.allocation = allocation_text(conflict.begin);
  }
  if (is_new || conflict.end != race.last_end) {  // else it has touched the same bytes in two ways
    if (is_new || conflict.begin != race.last_end) ++race.range_count;
    if (race.range_count == 1) race.end = conflict.end;
    race.last_end = conflict.end;
    race.bytes += conflict.end - conflict.begin;
  }
  race.first_writes |= is_write(was_submitted_later ? conflict.earlier_kind : kind);
  race.second_writes |= is_write(was_submitted_later ? kind : conflict.earlier_kind);
}

void Checker::record(const std::shared_ptr<const Operation>& operation, const Accesses& accesses) {
  Races found;
  for (const Access& access : accesses) {
    history_.add(operation, access,
                 [&](const History::Conflict& conflict) { add_conflict(found, operation, access.kind, conflict); });
  }
  for (const auto& [other, race] : found) reports_.add(race);
}

void Checker::allocated(std::uintptr_t address, std::size_t bytes, std::size_t fresh_bytes) {
  const std::lock_guard lock(mutex_);
  if (fresh_bytes != 0) history_.forget(address, address + fresh_bytes);
  if (bytes == 0) return;
  const auto end = address + bytes;
  auto overlapping = allocations_.lower_bound(address);
  if (overlapping != allocations_.begin()) {
    const auto before = std::prev(overlapping);
    if (before->first + before->second.bytes > address) overlapping = before;
  }
  while (overlapping != allocations_.end() && overlapping->first < end) overlapping = allocations_.erase(overlapping);
  allocations_[address] = {bytes, false};
}

void Checker::freed_in_stream(std::uintptr_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(address);
  if (found != allocations_.end()) found->second.freed = true;
}

void Checker::freed_by_host(std::uintptr_t address, std::size_t bytes, const std::string& text) {
  static const auto the_host = std::make_shared<const StreamName>(StreamName{0, 0, "the host", "the host"});
  const std::lock_guard lock(mutex_);
  const auto made = std::make_shared<Operation>();
  made->sequence.submission = ++last_sequence_;
  made->text = text;
  made->stream = the_host;
  made->clock = *host_;
  const std::shared_ptr<const Operation> free = made;
  Races found;
  history_.look(*free, {address, address + bytes, abi::access_write},
                [&](const History::Conflict& conflict) { add_conflict(found, free, abi::access_write, conflict); });
  for (const auto& [other, race] : found) reports_.add(race);
  history_.forget(address, address + bytes);
  allocations_.erase(address);
}

std::string Checker::allocation_text(std::uintptr_t address) const {
  const auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return {};
  const auto& [begin, allocation] = *std::prev(after);
  if (address >= begin + allocation.bytes) return {};
  return "offset " + std::to_string(address - begin) + " of " + (allocation.freed ? "a freed" : "an") +
         " allocation of " + count_of(allocation.bytes, "byte");
}

void Checker::prune_when_large() {
  if (history_.size() + allocations_.size() + releases_.size() < prune_at_) return;
  Clock floor = *host_;
  for (const Lane* lane : lanes_) {
    if (lane->pending_.empty()) continue;  // what it is given next is after all that the host has observed
    Clock next = lane->clock_;
    if (const auto& host = lane->pending_.front()->host) next.join(*host);
    floor.meet(next);
  }
  history_.prune(floor);
  std::erase_if(releases_, [&](const auto& each) { return each.second.is_within(floor); });
  std::erase_if(allocations_, [&](const auto& each) {
    return each.second.freed && history_.is_empty(each.first, each.first + each.second.bytes);
  });
  prune_at_ = std::max(least_prune_at, 2 * (history_.size() + allocations_.size() + releases_.size()));
}

std::size_t Checker::take_reports(char* text, std::size_t capacity) {
  const std::lock_guard lock(mutex_);
  if (reports_.empty()) return 0;
  const std::string all = reports_.text();
  if (text == nullptr || all.size() > capacity) return all.size();
  std::memcpy(text, all.data(), all.size());
  reports_.clear();
  return all.size();
}

std::size_t Checker::remembered_ranges() {
  const std::lock_guard lock(mutex_);
  return history_.size();
}

}  // namespace aiocuda::emulator::checking
