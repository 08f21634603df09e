// `const __grid_constant__` parameters of kernels. Such a parameter is the launch's own argument, one for the whole
// grid. So the kernel's parameter gets another name, and its own name becomes a reference to the argument.
#pragma once

#include <string>
#include <vector>

#include "declarations.hpp"
#include "edits.hpp"
#include "host_code.hpp"
#include "tokens.hpp"

namespace aiocuda::emulator::nvrtc {

bool has_grid_constants(const std::vector<Token>& tokens, Range parameters);

struct GridConstants {
  std::string references;  // what the kernel's body begins with
  std::string checks;      // of their types, which only the compiler knows
};

// Renames the copies in a kernel that has a body. Those of a parameter pack stay copies.
GridConstants make_grid_constants(const std::vector<Token>& tokens, Range parameters, Edits& edits);

// Where NVRTC takes no `__grid_constant__`.
std::vector<HostCode> find_misplaced_grid_constants(const std::vector<Token>& tokens,
                                                    const std::vector<Declaration>& declarations);

}  // namespace aiocuda::emulator::nvrtc
