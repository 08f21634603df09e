// Flags that the device writes: a slot for each stream that somebody waits for, and a sequence number for each wait.
// Knows neither CUDA nor Python: others provide the memory of the flags, and write it.
//
// Always true: a wait passes when its slot's flag has its number or a later one. A thread that arms never waits for the
// thread that scans. One thread scans; the callers arm under a lock of their own.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace aiocuda::completion {

using Slot = std::uint32_t;

// A number that the device is to write to a slot's flag.
struct Ticket {
  Slot slot = 0;
  std::uint32_t number = 0;
};

class FlagTable {
 public:
  // Each flag on a cache line of its own: the device writes it while others are read.
  static constexpr std::size_t flag_stride = 64 / sizeof(std::uint32_t);

  explicit FlagTable(std::span<std::uint32_t> flags) : flags_(flags), last_(flags.size() / flag_stride, 0) {
    for (Slot slot = static_cast<Slot>(last_.size()); slot-- > 0;) free_.push_back(slot);
  }

  std::size_t size() const { return last_.size(); }
  const std::uint32_t* flag(Slot slot) const { return &flags_[slot * flag_stride]; }

  // A slot for a stream; none if all are taken.
  std::optional<Slot> acquire() {
    if (free_.empty()) return std::nullopt;
    const Slot slot = free_.back();
    free_.pop_back();
    return slot;
  }
  // Gives it back: nothing is written to it any more. Its numbers go on.
  void release(Slot slot) { free_.push_back(slot); }
  // Has the device written all its numbers there? A late number would undo that of the slot's next user.
  bool is_settled(Slot slot) const { return has_passed({slot, last_[slot]}); }

  // The number that the device is to write next.
  Ticket issue(Slot slot) { return {slot, ++last_[slot]}; }
  // The last one will not be written.
  void take_back(Ticket ticket) { --last_[ticket.slot]; }

  // Numbers wrap: a number is later if it is less than half of them ahead.
  bool has_passed(Ticket ticket) const {
    const std::uint32_t value = __atomic_load_n(flag(ticket.slot), __ATOMIC_ACQUIRE);
    return static_cast<std::int32_t>(value - ticket.number) >= 0;
  }

  // Has the scanner look for a ticket. When it has passed, the scanner gives out `key`; within a slot, in the order of
  // the numbers.
  void watch(Ticket ticket, std::uint64_t key) {
    std::lock_guard lock(mutex_);
    incoming_.push_back({ticket, key});
    has_incoming_.store(true, std::memory_order_seq_cst);  // before who watched asks whether the scanner sleeps
  }

  // For the scanner: calls `passed(key)` for all tickets that have passed.
  template <class F>
  std::size_t scan(F&& passed) {
    take_incoming();
    std::size_t count = 0;
    for (auto each = busy_.begin(); each != busy_.end();) {
      auto& waiting = waiting_[*each];
      while (!waiting.empty() && has_passed(waiting.front().ticket)) {
        const std::uint64_t key = waiting.front().key;
        waiting.pop_front();
        passed(key);
        ++count;
      }
      each = waiting.empty() ? busy_.erase(each) : std::next(each);
    }
    return count;
  }
  // For the scanner: forgets tickets that will never pass.
  template <class F>
  void forget(F&& is_lost) {
    take_incoming();
    for (auto each = busy_.begin(); each != busy_.end();) {
      auto& waiting = waiting_[*each];
      std::erase_if(waiting, [&](const Watched& watched) { return is_lost(watched.key); });
      each = waiting.empty() ? busy_.erase(each) : std::next(each);
    }
  }
  bool is_idle() const { return busy_.empty() && !has_incoming(); }

  bool has_incoming() const { return has_incoming_.load(std::memory_order_seq_cst); }

 private:
  struct Watched {
    Ticket ticket;
    std::uint64_t key;
  };

  void take_incoming() {
    if (!has_incoming_.load(std::memory_order_acquire)) return;
    {
      std::lock_guard lock(mutex_);
      taken_.swap(incoming_);
      has_incoming_.store(false, std::memory_order_release);
    }
    if (waiting_.size() < size()) waiting_.resize(size());
    for (const Watched& watched : taken_) {
      auto& waiting = waiting_[watched.ticket.slot];
      if (waiting.empty()) busy_.push_back(watched.ticket.slot);
      // Two threads may have armed one slot in one order and come here in the other.
      auto place = waiting.end();
      while (place != waiting.begin() &&
             static_cast<std::int32_t>(std::prev(place)->ticket.number - watched.ticket.number) > 0)
        --place;
      waiting.insert(place, watched);
    }
    taken_.clear();  // and keeps its memory, for the next
  }

  const std::span<std::uint32_t> flags_;
  // The callers':
  std::vector<std::uint32_t> last_;  // issued, by slot
  std::vector<Slot> free_;
  // Between them:
  std::mutex mutex_;
  std::vector<Watched> incoming_;
  std::atomic<bool> has_incoming_{false};
  // The scanner's:
  std::vector<Watched> taken_;                // empty between scans
  std::vector<std::deque<Watched>> waiting_;  // by slot
  std::vector<Slot> busy_;                    // those where somebody waits
};

}  // namespace aiocuda::completion
