// The shared memory in which the ranks of one communicator meet: threads of one process, processes of one host, or
// both. Always: memory that is all zero is a communicator that nobody has joined; a rank writes its own part alone;
// whoever changes something rings the bell. A rank that ends without a word is known by its lock on the file, which the
// system takes away.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "nccl_api.hpp"

namespace aiocuda::emulator::nccl {

enum class Kind : std::uint32_t {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  point_to_point
};

// A rank's part in a step. Ranks must agree on all of it.
struct Description {
  std::uint64_t sequence = 0;  // the n-th collective of the communicator
  Kind kind = Kind::all_reduce;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
  std::int32_t root = 0;
  std::uint64_t count = 0;
  friend bool operator==(const Description&, const Description&) = default;
  std::string text() const;
};

inline constexpr int most_ranks = 64;

enum class RankState : std::uint32_t { absent = 0, here, left, aborted };

// Of one rank, written by it. The pieces of its data are numbered from 1 and lie in two slots in turn.
struct alignas(64) RankPart {
  std::atomic<RankState> state;
  std::atomic<std::uint64_t> posted;    // its pieces that others may read
  std::atomic<std::uint64_t> consumed;  // the pieces of all others that it has read
  std::atomic<std::uint64_t> splits;    // how often it has split the communicator
  std::atomic<bool> has_called;         // a collective
  std::int32_t color, key;              // of the last time
  std::int32_t process;                 // that has the rank
  Description described[2];
};

// From one rank to another.
struct alignas(64) Channel {
  std::atomic<std::uint64_t> posted, consumed;
  std::atomic<bool> has_sender, has_receiver;  // that has called
  std::uint64_t total_bytes[2];                // of the message that the piece in the slot is a part of
};

class Segment {
 public:
  // Opens the memory of that name, or makes it, and takes the place of a rank. Throws Refused.
  Segment(const std::string& name, int ranks, int rank);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  int ranks() const noexcept { return ranks_; }
  int rank() const noexcept { return rank_; }
  RankPart& part(int rank) const noexcept;
  RankPart& own() const noexcept { return part(rank_); }
  Channel& channel(int from, int to) const noexcept;
  std::byte* slot(int rank, std::uint64_t piece) const noexcept;
  std::byte* channel_slot(int from, int to, std::uint64_t piece) const noexcept;
  std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  std::size_t channel_slot_bytes() const noexcept { return channel_slot_bytes_; }

  // Nobody else can find the memory by its name any more. Those who have it keep it.
  void remove_name() noexcept;
  // Does the process still have the communicator that took this rank's place?
  bool is_alive(int rank) const noexcept;

  std::uint32_t bell() const noexcept;
  void ring() const noexcept;
  // Until the bell has rung since it read `heard`, at most so long.
  void wait(std::uint32_t heard, std::chrono::milliseconds at_most) const noexcept;

 private:
  struct Head;
  Head& head() const noexcept;

  const std::string name_;
  const int ranks_, rank_;
  std::size_t slot_bytes_ = 0, channel_slot_bytes_ = 0;
  std::size_t parts_at_ = 0, channels_at_ = 0, slots_at_ = 0, channel_slots_at_ = 0, bytes_ = 0;
  int file_ = -1;
  std::byte* memory_ = nullptr;
};

// Why a call is refused: what it answers, and what ncclGetLastError says.
struct Refused {
  ncclResult_t result;
  std::string message;
};

}  // namespace aiocuda::emulator::nccl
