// Groups of calls. Always: a call that is refused refuses its whole group; what a group puts on streams, it puts there
// when it ends, in one piece of work for each communicator.
#pragma once
#include <functional>
#include <memory>

#include "exchange.hpp"
#include "peers.hpp"

namespace aiocuda::emulator::nccl {

// Runs a call of the API, in the group of this thread or in one of its own. Exceptions of type Refused become what it
// answers.
ncclResult_t grouped(const std::function<void()>& call);

// Within grouped().
void add(const std::shared_ptr<Communicator>& communicator, const Collective& collective, CUstream stream);
void add(const std::shared_ptr<Communicator>& communicator, const Message& message, CUstream stream);
// Something that waits for other ranks, such as to join a communicator. All of a group go on at the same time.
void add_wait(std::shared_ptr<Communicator> communicator, std::function<ncclResult_t()> wait);

ncclResult_t start_group();
ncclResult_t end_group();

// Why the last call of this thread was refused.
const std::string& last_refusal();
ncclResult_t refuse(const Refused& refused);

}  // namespace aiocuda::emulator::nccl
