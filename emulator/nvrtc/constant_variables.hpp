// The `__constant__` variables that a program defines at namespace scope. A module keeps a list of them, so that a kernel
// can ask whether a pointer leads to one.
#pragma once

#include <string>
#include <vector>

#include "declarations.hpp"
#include "tokens.hpp"

namespace aiocuda::emulator::nvrtc {

struct ConstantVariables {
  std::vector<std::string> names;      // qualified: they name the variables from anywhere
  std::vector<std::string> templates;  // of variables, without qualification
};

ConstantVariables find_constant_variables(const std::vector<Token>& tokens,
                                          const std::vector<Declaration>& declarations);

}  // namespace aiocuda::emulator::nvrtc
