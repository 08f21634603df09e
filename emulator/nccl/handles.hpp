// The communicators that programs have handles of.
#pragma once
#include <memory>

#include "communicator.hpp"

namespace aiocuda::emulator::nccl {

// Throws Refused where the handle is none, or its communicator is not ready or has failed.
std::shared_ptr<Communicator> usable(ncclComm_t handle);
// Only where the handle is none.
std::shared_ptr<Communicator> known(ncclComm_t handle);

}  // namespace aiocuda::emulator::nccl
