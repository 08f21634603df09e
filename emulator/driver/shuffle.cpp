// The choices; see shuffle.hpp.
#include "shuffle.hpp"

#include <algorithm>
#include <numeric>

#include "settings.hpp"

namespace aiocuda::emulator {
namespace {

constexpr std::chrono::microseconds longest_hold{100};
constexpr std::chrono::microseconds between_shuffles{25};
constexpr int asked_often = 3;
constexpr std::uint64_t most_pieces_ahead = 8;

// Pieces of work that streams have begun, all together.
std::atomic<std::uint64_t> pieces_begun{0};

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
std::uint64_t mix(std::uint64_t value) noexcept {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}
constexpr std::uint64_t golden_gamma = 0x9e3779b97f4a7c15u;

}  // namespace

std::optional<std::uint64_t> Shuffle::seed_of_next_stream() {
  static std::atomic<std::uint64_t> streams{0};
  const auto seed = settings().shuffle_seed;
  if (!seed) return std::nullopt;
  return mix(*seed + golden_gamma * (streams.fetch_add(1) + 1));
}

std::uint64_t Shuffle::next() noexcept { return mix(state_ += golden_gamma); }

void Shuffle::let_others_go() {
  const std::uint64_t choice = next();
  const std::uint64_t pieces_ahead = 1 + (choice >> 8) % most_pieces_ahead;
  const bool holds = choice % 2 == 0;
  asked_.store(0);
  if (holds) {
    const std::uint64_t enough = pieces_begun.load() + pieces_ahead;
    const auto deadline = std::chrono::steady_clock::now() + longest_hold;
    const auto is_wanted = [&] { return waiting_.load() > 0 || asked_.load() >= asked_often; };
    std::unique_lock lock(mutex_);
    while (pieces_begun.load() < enough && std::chrono::steady_clock::now() < deadline) {
      if (wanted_.wait_for(lock, between_shuffles, is_wanted)) break;
    }
  }
  pieces_begun.fetch_add(1);
}

void Shuffle::somebody_waits() {
  {
    const std::lock_guard lock(mutex_);
    waiting_.fetch_add(1);
  }
  wanted_.notify_all();
}

std::optional<NodeOrder> NodeOrder::of_next_replay() {
  static std::atomic<std::uint64_t> replays{0};
  const auto seed = settings().shuffle_seed;
  if (!seed) return std::nullopt;
  return NodeOrder(mix(*seed + golden_gamma * (replays.fetch_add(1) + 1)));
}

std::size_t NodeOrder::choose(std::size_t count) noexcept { return mix(state_ += golden_gamma) % count; }

ChunkOrder ChunkOrder::of_next_launch(std::uint64_t count) {
  static std::atomic<std::uint64_t> launches{0};
  const auto seed = settings().shuffle_seed;
  return {count, seed ? mix(*seed + golden_gamma * (launches.fetch_add(1) + 1)) : 0};
}

ChunkOrder::ChunkOrder(std::uint64_t count, std::uint64_t seed) noexcept : count_(std::max<std::uint64_t>(1, count)) {
  if (seed == 0) return;
  first_ = seed % count_;
  step_ = 1 + (seed >> 32) % count_;
  while (std::gcd(step_, count_) != 1) ++step_;
}

}  // namespace aiocuda::emulator
