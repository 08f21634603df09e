// Checkpoints of a process: who may ask for them is any process of the same user, and this one carries them out.
// Always: between lock and unlock no call of the API begins, and all work that was submitted before has ended.
// The devices' memory is the host's, and stays where it is. While the process is checkpointed, it counts as none.
#pragma once
#include "gate.hpp"

namespace aiocuda::emulator::checkpoint {

// From now on others can checkpoint this process. Once, when the driver is initialised; without memory to share, or a
// thread, nobody can.
void begin_service() noexcept;

// Closed while the process is locked. Every call of the API passes it first.
inline Gate gate;

// The process is checkpointed: its memory is on no device.
bool has_left_devices() noexcept;

}  // namespace aiocuda::emulator::checkpoint
