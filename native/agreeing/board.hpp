// Memory that the ranks of a group on one host share: each writes there what it calls, and whoever comes last to a call
// lets the streams of all ranks go on. Knows neither Python nor CUDA.
//
// Always true: by itself a word says that a rank may go beyond a call only when all ranks have written the same for
// that call, and for all before it. A word never goes back. Nobody waits. Ranks trust each other.
//
// Calls are counted in 32 bits, as they lie on a circle, as a stream compares them.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <stdexcept>

namespace aiocuda::agreeing {

class Board {
 public:
  static constexpr std::size_t most_ranks = 64;
  static constexpr std::size_t ring_size = 1024;  // calls that a rank writes before all others have come to them
  // Streams read the words, so they have pages of their own.
  static constexpr std::size_t words_at = 1 << 16, words_bytes = most_ranks * 64, rows_at = 1 << 17;
  static constexpr std::size_t size_bytes() { return rows_at + most_ranks * sizeof(Row); }

  // One rank's end of memory of `size_bytes()`, which was zero at first. Throws std::invalid_argument.
  Board(std::span<std::byte> memory, std::size_t rank, std::size_t ranks) : rank_(rank) {
    if (memory.size() < size_bytes() || ranks > most_ranks || rank >= ranks)
      throw std::invalid_argument("a board is too small for its ranks");
    words_ = {reinterpret_cast<Word*>(memory.data() + words_at), ranks};
    rows_ = {reinterpret_cast<Row*>(memory.data() + rows_at), ranks};
    written_ = rows_[rank].written.load();
  }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // Writes the next call of this rank. Returns its number: the rank's word is that, or beyond, when all have agreed.
  std::uint32_t put(std::uint64_t call) {
    waiting_.push_back(call);
    const auto number = static_cast<std::uint32_t>(written_ + waiting_.size());
    advance();
    return number;
  }

  // Writes what had no room, and looks to which call all have come.
  void advance() {
    do {
      write();
      const std::uint32_t before = agreed();
      std::uint32_t now = before;
      while (is_behind(now, written_) && have_all(now)) ++now;
      if (now == before) return;
      for (Word& each : words_) raise(each, now);
    } while (!waiting_.empty());
  }

  // Of this rank alone: it has heard by another way that all have agreed.
  void raise_to(std::uint32_t number) { raise(words_[rank_], number); }
  // Of this rank alone, for good: its streams go beyond all calls.
  void let_go() {
    is_over_ = true;
    raise(words_[rank_], agreed() + farthest);
  }

  std::uint32_t agreed() const { return words_[rank_].value.load(); }
  // Of the word of this rank.
  std::uintptr_t word_address() const { return reinterpret_cast<std::uintptr_t>(&words_[rank_].value); }

 private:
  static constexpr std::uint32_t farthest = 0x3fff'ffff;  // beyond all numbers that are still raised to

  struct alignas(64) Word {
    std::atomic<std::uint32_t> value;
  };
  struct alignas(64) Row {
    std::atomic<std::uint32_t> written;
    std::array<std::atomic<std::uint64_t>, ring_size> calls;
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free && sizeof(Word) * most_ranks == words_bytes);

  static bool is_behind(std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b) < 0; }

  static void raise(Word& word, std::uint32_t number) {
    std::uint32_t now = word.value.load();
    while (is_behind(now, number) && !word.value.compare_exchange_weak(now, number)) {
    }
  }

  // A place is written again when all ranks are beyond it, so nobody compares it any more.
  void write() {
    Row& row = rows_[rank_];
    while (!waiting_.empty() && !is_over_ && std::ranges::all_of(words_, [&](const Word& each) {
      return is_behind(written_, each.value.load() + ring_size);
    })) {
      row.calls[written_ % ring_size].store(waiting_.front(), std::memory_order_relaxed);
      waiting_.pop_front();
      row.written.store(++written_);  // in one order with all loads of it: of two ranks one at least sees the other
    }
  }

  // Whether all ranks have written the same at a place.
  bool have_all(std::uint32_t place) const {
    const auto mine = rows_[rank_].calls[place % ring_size].load(std::memory_order_relaxed);
    return std::ranges::all_of(rows_, [&](const Row& each) {
      return is_behind(place, each.written.load()) &&
             each.calls[place % ring_size].load(std::memory_order_relaxed) == mine;
    });
  }

  std::size_t rank_;
  std::span<Word> words_;
  std::span<Row> rows_;
  std::uint32_t written_ = 0;  // by this rank
  std::deque<std::uint64_t> waiting_;
  bool is_over_ = false;
};

}  // namespace aiocuda::agreeing
