// Names that a program declares for itself though the device headers have them: NVRTC leaves constants like
// M_PI and, to programs that include nothing, types like int64_t to the program.
#pragma once

#include <string>
#include <vector>

#include "declarations.hpp"

namespace aiocuda::emulator::nvrtc {

// Directives, to stand before the program, that make way for its own declarations.
std::string make_way(const std::vector<Token>& tokens, const std::vector<Declaration>& declarations);

}  // namespace aiocuda::emulator::nvrtc
