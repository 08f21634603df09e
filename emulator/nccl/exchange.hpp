// Collectives over the shared memory, piece by piece. In each step a rank posts the piece that the others need. Then it
// waits for theirs, and joins all pieces in the order of the ranks. Always: a rank has two pieces there at most, and
// ranks that do not do the same find out before any of them has read the other's data.
#pragma once
#include "abi/stream_work.hpp"
#include "communicator.hpp"

namespace aiocuda::emulator::nccl {

struct Collective {
  Kind kind;
  const std::byte* send;  // null where this rank sends nothing
  std::byte* receive;     // null where it receives nothing
  std::uint64_t count;    // of the items of one rank
  ncclDataType_t type;
  ncclRedOp_t op;      // as it was given
  Operator reduction;  // what that means
  int root;
};

// On a stream's thread. False: it has not come to its end, because of abort(), or because the context is lost.
bool exchange(Communicator& communicator, const Collective& collective, const abi::StreamWorkServices& services);

// The bytes that it reads and writes on this rank.
std::size_t sent_bytes(const Communicator& communicator, const Collective& collective) noexcept;
std::size_t received_bytes(const Communicator& communicator, const Collective& collective) noexcept;

}  // namespace aiocuda::emulator::nccl
