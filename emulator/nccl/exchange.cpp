// See exchange.hpp.
#include "exchange.hpp"

#include <algorithm>
#include <cstring>

namespace aiocuda::emulator::nccl {
namespace {

bool reduces(Kind kind) noexcept {
  return kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
}
// Has a rank's own data a part for each rank?
bool sends_parts(Kind kind) noexcept {
  return kind == Kind::reduce_scatter || kind == Kind::all_to_all || kind == Kind::scatter;
}
bool only_root_sends(Kind kind) noexcept { return kind == Kind::broadcast || kind == Kind::scatter; }
bool only_root_receives(Kind kind) noexcept { return kind == Kind::reduce || kind == Kind::gather; }
// Does a rank get a part from each rank?
bool receives_parts(Kind kind) noexcept {
  return kind == Kind::all_gather || kind == Kind::all_to_all || kind == Kind::gather;
}

// One step of one rank: the items [first, first + count) of each part.
class Step {
 public:
  Step(Communicator& communicator, const Collective& collective, std::uint64_t piece, std::uint64_t first,
       std::uint64_t count)
      : segment_(communicator.segment()),
        collective_(collective),
        piece_(piece),
        item_(bytes_of(collective.type)),
        first_(first),
        count_(count) {}

  void post() {
    if (collective_.send == nullptr) return;
    std::byte* to = segment_.slot(segment_.rank(), piece_);
    const int parts = sends_parts(collective_.kind) ? segment_.ranks() : 1;
    for (int part = 0; part < parts; ++part, to += count_ * item_) {
      std::memcpy(to, collective_.send + (static_cast<std::uint64_t>(part) * collective_.count + first_) * item_,
                  count_ * item_);
      if (collective_.reduction.multiplies) multiply(to, count_, collective_.type, collective_.reduction.scalar);
    }
  }

  void receive() {
    if (collective_.receive == nullptr) return;
    if (receives_parts(collective_.kind)) {
      for (int rank = 0; rank < segment_.ranks(); ++rank) {
        std::memcpy(collective_.receive + (static_cast<std::uint64_t>(rank) * collective_.count + first_) * item_,
                    piece_of(rank), count_ * item_);
      }
      return;
    }
    std::byte* const to = collective_.receive + first_ * item_;
    if (!reduces(collective_.kind)) {
      std::memcpy(to, piece_of(collective_.root), count_ * item_);
      return;
    }
    std::memcpy(to, piece_of(0), count_ * item_);
    for (int rank = 1; rank < segment_.ranks(); ++rank) {
      join(to, piece_of(rank), count_, collective_.type, collective_.reduction.join);
    }
    if (collective_.reduction.divisor > 1) divide(to, count_, collective_.type, collective_.reduction.divisor);
  }

 private:
  const std::byte* piece_of(int rank) const {
    const bool has_parts = sends_parts(collective_.kind);
    return segment_.slot(rank, piece_) + (has_parts ? static_cast<std::size_t>(segment_.rank()) * count_ * item_ : 0);
  }

  Segment& segment_;
  const Collective& collective_;
  const std::uint64_t piece_;
  const std::size_t item_;
  const std::uint64_t first_, count_;
};

// The first rank for which the counter is below; -1 if there is none.
template <typename Counter>
int first_below(const Segment& segment, Counter counter, std::uint64_t least) {
  for (int rank = 0; rank < segment.ranks(); ++rank) {
    if (counter(segment.part(rank)).load() < least) return rank;
  }
  return -1;
}

int first_other_than(const Segment& segment, const Description& described, std::uint64_t piece) {
  for (int rank = 0; rank < segment.ranks(); ++rank) {
    if (!(segment.part(rank).described[piece % 2] == described)) return rank;
  }
  return -1;
}

}  // namespace

std::size_t sent_bytes(const Communicator& communicator, const Collective& collective) noexcept {
  if (collective.send == nullptr) return 0;
  const auto parts = static_cast<std::size_t>(sends_parts(collective.kind) ? communicator.ranks() : 1);
  return parts * collective.count * bytes_of(collective.type);
}

std::size_t received_bytes(const Communicator& communicator, const Collective& collective) noexcept {
  if (collective.receive == nullptr) return 0;
  const auto parts = static_cast<std::size_t>(receives_parts(collective.kind) ? communicator.ranks() : 1);
  return parts * collective.count * bytes_of(collective.type);
}

bool exchange(Communicator& communicator, const Collective& given, const abi::StreamWorkServices& services) {
  Segment& segment = communicator.segment();
  const std::lock_guard turn(communicator.turn());
  const auto is_over = [&] { return services.is_lost(services.services); };
  Collective collective = given;
  if (only_root_sends(given.kind) && given.root != segment.rank()) collective.send = nullptr;
  if (only_root_receives(given.kind) && given.root != segment.rank()) collective.receive = nullptr;

  Description described;
  described.sequence = ++communicator.sequence;
  described.kind = given.kind;
  described.type = given.type;
  described.op = given.op;
  described.root = given.root;
  described.count = given.count;
  const auto parts = static_cast<std::size_t>(sends_parts(given.kind) ? segment.ranks() : 1);
  const std::uint64_t most = std::max<std::uint64_t>(segment.slot_bytes() / parts / bytes_of(given.type), 1);
  RankPart& own = segment.own();

  for (std::uint64_t first = 0; first < given.count; first += most) {
    const std::uint64_t piece = ++communicator.pieces;
    Step step(communicator, collective, piece, first, std::min(most, given.count - first));
    const auto consumed = [](RankPart& part) -> auto& { return part.consumed; };
    const auto posted = [](RankPart& part) -> auto& { return part.posted; };
    const auto room = [&] { return first_below(segment, consumed, piece < 2 ? 0 : piece - 2); };
    if (!communicator.wait(room, is_over)) return false;
    const auto call = [](void* function) { (*static_cast<std::function<void()>*>(function))(); };
    std::function<void()> post = [&] { step.post(); };
    if (!services.touch(services.services, call, &post)) return false;
    own.described[piece % 2] = described;
    own.posted.store(piece);
    segment.ring();

    if (!communicator.wait([&] { return first_below(segment, posted, piece); }, is_over)) return false;
    if (const int other = first_other_than(segment, described, piece); other >= 0) {
      communicator.note(ncclInvalidUsage, "the ranks do not call the same: rank " + std::to_string(segment.rank()) +
                                              " calls " + described.text() + ", rank " + std::to_string(other) + " " +
                                              segment.part(other).described[piece % 2].text());
      const int rank = segment.rank();
      communicator.wait([&] { return rank; }, is_over);  // as NCCL would: until somebody aborts
      return false;
    }
    std::function<void()> receive = [&] { step.receive(); };
    if (!services.touch(services.services, call, &receive)) return false;
    own.consumed.store(piece);
    segment.ring();
  }
  return true;
}

}  // namespace aiocuda::emulator::nccl
