// Which names of a translation unit lead to which, by name alone: overloads, templates and members of one
// name count as one. That errs on the safe side for both questions asked here.
#pragma once

#include <string_view>
#include <unordered_set>
#include <vector>

#include "declarations.hpp"

namespace aiocuda::emulator::nvrtc {

class Polling;

using Names = std::unordered_set<std::string_view>;

// Names through which threads of a block come to wait for one another: CUDA's barriers and warp
// operations, and every function, class or alias of the unit that uses one of them or polls memory. `known` are names
// that are known to wait, or of which nobody knows.
Names waiting_names(const std::vector<Token>& tokens, const std::vector<Declaration>& declarations,
                    const Polling& polling, Names known);

// Names that a kernel may use, directly or through what it uses. `roots` are used from outside.
Names used_names(const std::vector<Token>& tokens, const std::vector<Declaration>& declarations, Names roots);

bool uses_any(const std::vector<Token>& tokens, Range range, const Names& names);

}  // namespace aiocuda::emulator::nvrtc
