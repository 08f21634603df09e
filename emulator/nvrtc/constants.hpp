// Assignments to `__constant__` variables, which NVRTC refuses where the variable is a number or a pointer that is
// named. It takes those to an element, to a member and through a pointer; so does this.
#pragma once

#include <vector>

#include "declarations.hpp"
#include "host_code.hpp"
#include "tokens.hpp"

namespace aiocuda::emulator::nvrtc {

std::vector<HostCode> find_writes_to_constants(const std::vector<Token>& tokens,
                                               const std::vector<Declaration>& declarations);

}  // namespace aiocuda::emulator::nvrtc
