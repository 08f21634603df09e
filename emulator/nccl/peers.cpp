// See peers.hpp.
#include "peers.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

namespace aiocuda::emulator::nccl {
namespace {

struct Progress {
  const Message& message;
  std::size_t done = 0;
  bool is_done() const noexcept { return done == message.bytes; }
};

enum class Moved { nothing, something, other_size, fault };

// The next piece of a message, if its channel is ready for it.
Moved move(Segment& segment, Progress& progress, const abi::StreamWorkServices& services) {
  const Message& message = progress.message;
  const int from = message.is_sent ? segment.rank() : message.peer;
  const int to = message.is_sent ? message.peer : segment.rank();
  Channel& channel = segment.channel(from, to);
  const std::uint64_t posted = channel.posted.load(), consumed = channel.consumed.load();
  if (message.is_sent ? posted - consumed >= 2 : posted == consumed) return Moved::nothing;
  const std::uint64_t piece = (message.is_sent ? posted : consumed) + 1;
  if (!message.is_sent && channel.total_bytes[piece % 2] != message.bytes) return Moved::other_size;
  const std::size_t bytes = std::min(segment.channel_slot_bytes(), message.bytes - progress.done);
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
  };
  std::byte* const slot = segment.channel_slot(from, to, piece);
  std::byte* const data = message.data + progress.done;
  Copy copy{message.is_sent ? slot : data, message.is_sent ? data : slot, bytes};
  const auto perform = [](void* argument) {
    const auto& [into, out_of, size] = *static_cast<Copy*>(argument);
    std::memcpy(into, out_of, size);
  };
  if (!services.touch(services.services, perform, &copy)) return Moved::fault;
  if (message.is_sent) channel.total_bytes[piece % 2] = message.bytes;
  (message.is_sent ? channel.posted : channel.consumed).store(piece);
  progress.done += bytes;
  segment.ring();
  return Moved::something;
}

}  // namespace

bool exchange(Communicator& communicator, const std::vector<Message>& messages,
              const abi::StreamWorkServices& services) {
  Segment& segment = communicator.segment();
  const std::lock_guard turn(communicator.turn());
  std::vector<Progress> all;
  for (const Message& each : messages) all.push_back({each});
  const Progress* disagrees = nullptr;
  bool has_failed = false;
  // Moves what can be moved. The rank that must do something before more can be, or -1 if all is done.
  const auto go_on = [&]() -> int {
    while (true) {
      int awaited = -1;
      bool has_moved = false;
      std::set<std::pair<bool, int>> taken;  // by an earlier message of the same channel
      for (Progress& each : all) {
        if (each.is_done() || !taken.emplace(each.message.is_sent, each.message.peer).second) continue;
        const Moved moved = move(segment, each, services);
        if (moved == Moved::other_size) disagrees = &each;
        has_failed = has_failed || moved == Moved::fault || moved == Moved::other_size;
        if (has_failed) return segment.rank();
        has_moved = has_moved || moved == Moved::something;
        if (!each.is_done()) awaited = each.message.peer;
      }
      const bool is_done = std::all_of(all.begin(), all.end(), [](const Progress& each) { return each.is_done(); });
      if (is_done) return -1;
      if (!has_moved) return awaited;
    }
  };
  const auto is_over = [&] { return has_failed || services.is_lost(services.services); };
  if (communicator.wait(go_on, is_over)) return true;
  if (disagrees != nullptr) {
    communicator.note(ncclInvalidUsage, "rank " + std::to_string(segment.rank()) + " receives " +
                                            std::to_string(disagrees->message.bytes) + " bytes from rank " +
                                            std::to_string(disagrees->message.peer) + ", which sends another number");
    const int rank = segment.rank();
    communicator.wait([&] { return rank; }, [&] { return services.is_lost(services.services); });
  }
  return false;
}

}  // namespace aiocuda::emulator::nccl
