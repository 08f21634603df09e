// Messages from rank to rank. Those of one group go on at the same time, so it does not matter in which order they were
// called; two between the same ranks keep their order.
#pragma once
#include <vector>

#include "abi/stream_work.hpp"
#include "communicator.hpp"

namespace aiocuda::emulator::nccl {

struct Message {
  bool is_sent;  // else received
  std::byte* data;
  std::size_t bytes;
  int peer;
};

// As exchange().
bool exchange(Communicator& communicator, const std::vector<Message>& messages,
              const abi::StreamWorkServices& services);

}  // namespace aiocuda::emulator::nccl
