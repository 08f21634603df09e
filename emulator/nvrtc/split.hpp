// Kernels whose barriers all threads of a block pass together, as the text alone shows: barriers stand in the kernel's
// body, or in loops whose headers are the same for all threads. Such a kernel becomes loops over the threads of a
// block, one for the code between two barriers ("loop fission"). What a thread keeps across a barrier becomes an array,
// unless it can be computed anew. There are no fibers then, and the compiler can vectorise the loops. Only few forms
// are recognised; anything else runs as fibers.
#pragma once

#include <string>
#include <vector>

#include "declarations.hpp"
#include "edits.hpp"

namespace aiocuda::emulator::nvrtc {

// Edits the kernel's body so that one call runs a whole block. False: it is not of this kind, and nothing was edited.
bool split_at_barriers(const std::vector<Token>& tokens, const std::vector<Declaration>& declarations,
                       const Declaration& kernel, const std::vector<std::string>& files, Edits& edits);

}  // namespace aiocuda::emulator::nvrtc
