// The pragmas of CUDA C++ in the host compiler's terms, and those of the visible headers taken out.
#pragma once

#include <string>
#include <vector>

#include "edits.hpp"

namespace aiocuda::emulator::nvrtc {

// Adds to `includes`, once each, the device headers that the visible headers ask for.
void edit_directives(const std::vector<Directive>& directives, bool for_clang, Edits& edits,
                     std::vector<std::string>& includes);

}  // namespace aiocuda::emulator::nvrtc
