// Seeded disorder (AIOCUDA_EMULATOR_SHUFFLE): a stream lets others go ahead before a piece of work, and the
// blocks of a launch start in another order. Only what CUDA leaves open is changed, and nothing waits for long:
// whatever is decided, a stream goes on when anybody waits for it, and after a tenth of a millisecond.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

namespace aiocuda::emulator {

// The choices of one stream. They depend on the seed, on how many streams were made before it, and on how many choices
// it has made.
class Shuffle {
 public:
  // Nothing where the setting is not there.
  static std::optional<std::uint64_t> seed_of_next_stream();
  explicit Shuffle(std::uint64_t seed) : state_(seed) {}

  // On the stream's thread, before a piece of work: returns at once, or when other streams have begun some pieces, or
  // the time is up, or somebody waits.
  void let_others_go();
  // Somebody waits for the stream from now on, until `nobody_waits`.
  void somebody_waits();
  void nobody_waits() noexcept { waiting_.fetch_sub(1); }
  // Somebody asks whether the stream has got somewhere; who asks again and again waits.
  void somebody_asks() noexcept { asked_.fetch_add(1); }

 private:
  std::uint64_t next() noexcept;

  std::uint64_t state_;  // of the stream's thread
  std::mutex mutex_;
  std::condition_variable wanted_;
  std::atomic<int> waiting_{0};
  std::atomic<int> asked_{0};
};

// The choices of one replay of a graph.
class NodeOrder {
 public:
  // Nothing where the setting is not there.
  static std::optional<NodeOrder> of_next_replay();
  explicit NodeOrder(std::uint64_t seed) noexcept : state_(seed) {}
  // Which of so many nodes is next.
  std::size_t choose(std::size_t count) noexcept;

 private:
  std::uint64_t state_;
};

// The order in which the chunks of a launch's blocks are taken: a permutation of [0, count).
class ChunkOrder {
 public:
  // The plain order where the setting is not there.
  static ChunkOrder of_next_launch(std::uint64_t count);
  ChunkOrder(std::uint64_t count, std::uint64_t seed) noexcept;

  std::uint64_t operator[](std::uint64_t index) const noexcept { return (index * step_ + first_) % count_; }

 private:
  std::uint64_t count_;
  std::uint64_t step_ = 1;  // has no factor in common with count_
  std::uint64_t first_ = 0;
};

}  // namespace aiocuda::emulator
