// See known_memory.hpp.
#include "checking/known_memory.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "settings.hpp"

namespace aiocuda::emulator::checking {
namespace {

constexpr std::size_t bits = 64;

thread_local std::shared_ptr<const MemoryList> in_force;

// Calls f(word, mask) for the bits [first, last).
template <typename F>
bool each_word(std::size_t first, std::size_t last, F f) {
  while (first < last) {
    const std::size_t from = first % bits;
    const std::size_t count = std::min(last - first, bits - from);
    const std::uint64_t ones = count == bits ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
    if (!f(first / bits, ones << from)) return false;
    first += count;
  }
  return true;
}

}  // namespace

GivenMemory::GivenMemory(std::uintptr_t begin_, std::size_t bytes, std::string text_, bool tracks_writes)
    : begin(begin_), end(begin_ + bytes), text(std::move(text_)) {
  if (!tracks_writes) return;
  word_count_ = (bytes + bits - 1) / bits;
  written_ = std::make_unique<std::atomic<std::uint64_t>[]>(word_count_);
}

void GivenMemory::note_write(std::uintptr_t first, std::uintptr_t last) noexcept {
  if (!written_) return;
  each_word(first - begin, std::min(last, end) - begin, [&](std::size_t word, std::uint64_t mask) {
    if ((written_[word].load(std::memory_order_relaxed) & mask) != mask)
      written_[word].fetch_or(mask, std::memory_order_relaxed);
    return true;
  });
}

bool GivenMemory::is_written(std::uintptr_t first, std::uintptr_t last) const noexcept {
  if (!written_) return true;
  return each_word(first - begin, std::min(last, end) - begin, [&](std::size_t word, std::uint64_t mask) {
    return (written_[word].load(std::memory_order_relaxed) & mask) == mask;
  });
}

void GivenMemory::forget_writes() noexcept {
  for (std::size_t word = 0; word < word_count_; ++word) written_[word].store(0, std::memory_order_relaxed);
}

std::size_t MemoryList::count_up_to(std::uintptr_t address) const noexcept {
  const auto after = std::upper_bound(listed_.begin(), listed_.end(), address,
                                      [](std::uintptr_t at, const auto& each) { return at < each->begin; });
  return static_cast<std::size_t>(after - listed_.begin());
}

GivenMemory* MemoryList::find(std::uintptr_t address) const noexcept {
  const std::size_t count = count_up_to(address);
  if (count == 0) return nullptr;
  GivenMemory* const found = listed_[count - 1].get();
  return address < found->end ? found : nullptr;
}

const GivenMemory* MemoryList::before(std::uintptr_t address) const noexcept {
  const std::size_t count = count_up_to(address);
  return count == 0 ? nullptr : listed_[count - 1].get();
}

const GivenMemory* MemoryList::behind(std::uintptr_t address) const noexcept {
  const std::size_t count = count_up_to(address);
  return count == listed_.size() ? nullptr : listed_[count].get();
}

void KnownMemory::add(std::uintptr_t begin, std::size_t bytes, const std::string& text, bool tracks_writes) {
  const std::lock_guard lock(mutex_);
  listed_[begin] = std::make_shared<GivenMemory>(begin, bytes, text, tracks_writes && settings().checks.init);
  list_ = nullptr;
  makers_.erase(begin);
}

void KnownMemory::remove(std::uintptr_t begin) {
  const std::lock_guard lock(mutex_);
  const auto found = listed_.find(begin);
  if (found == listed_.end()) return;
  freed_.push_back(std::move(found->second));
  if (freed_.size() > most_freed) freed_.pop_front();
  listed_.erase(found);
  list_ = nullptr;
}

std::shared_ptr<const MemoryList> KnownMemory::list() {
  const std::lock_guard lock(mutex_);
  if (!list_) {
    std::vector<std::shared_ptr<GivenMemory>> listed;
    listed.reserve(listed_.size());
    for (const auto& [begin, each] : listed_) listed.push_back(each);
    list_ = std::make_shared<const MemoryList>(std::move(listed));
  }
  return list_;
}

void KnownMemory::forget_writes(std::uintptr_t begin) {
  const std::lock_guard lock(mutex_);
  const auto found = listed_.find(begin);
  if (found != listed_.end()) found->second->forget_writes();
}

void KnownMemory::describe(std::uintptr_t begin, std::string maker) {
  const std::lock_guard lock(mutex_);
  if (makers_.size() >= most_makers) makers_.clear();
  makers_[begin] = std::move(maker);
}

std::string KnownMemory::maker(std::uintptr_t begin) {
  const std::lock_guard lock(mutex_);
  const auto found = makers_.find(begin);
  return found == makers_.end() ? std::string{} : found->second;
}

std::string KnownMemory::freed_at(std::uintptr_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(freed_.rbegin(), freed_.rend(),
                                  [&](const auto& each) { return each->begin <= address && address < each->end; });
  if (found == freed_.rend()) return {};
  return "offset " + std::to_string(address - (*found)->begin) + " of " + (*found)->text;
}

KnownMemory* known_memory() noexcept {
  static KnownMemory* const made = settings().checks.any() ? new KnownMemory : nullptr;
  return made;
}

const std::shared_ptr<const MemoryList>& list_in_force() noexcept { return in_force; }

ListInForce::ListInForce(std::shared_ptr<const MemoryList> list) : outer_(std::exchange(in_force, std::move(list))) {}
ListInForce::~ListInForce() { in_force = std::move(outer_); }

void note_writes(const Accesses& accesses) {
  if (!in_force || !settings().checks.init) return;
  for (const Access& each : accesses) {
    if (!is_write(each.kind) || each.ends_the_past) continue;
    if (GivenMemory* const memory = in_force->find(each.begin)) memory->note_write(each.begin, each.end);
  }
}

}  // namespace aiocuda::emulator::checking

AiocudaDescribeMemory aiocuda_emulator_memory_describer() {
  using aiocuda::emulator::checking::known_memory;
  if (known_memory() == nullptr) return nullptr;
  return [](std::uintptr_t address, const char* maker) { known_memory()->describe(address, maker); };
}
