// The `__constant__` variables that a program defines. A module keeps a list of them, so that a kernel can ask whether a
// pointer leads to one.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "declarations.hpp"
#include "tokens.hpp"

namespace aiocuda::emulator::nvrtc {

struct ConstantVariables {
  std::vector<std::string> names;      // qualified: they name the variables from anywhere
  std::vector<std::string> templates;  // of variables, without qualification
};

// Those at namespace scope.
ConstantVariables find_constant_variables(const std::vector<Token>& tokens,
                                          const std::vector<Declaration>& declarations);

// A statement of a function that defines some.
struct LocalConstants {
  std::size_t end;  // the token behind it
  std::vector<std::string> names;
};
std::vector<LocalConstants> find_local_constants(const std::vector<Token>& tokens, const Declaration& function);

// Whether the program may ask what a pointer leads to.
bool asks_for_constants(const std::vector<Token>& tokens);

}  // namespace aiocuda::emulator::nvrtc
