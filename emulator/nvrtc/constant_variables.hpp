// The `__constant__` variables that a program defines. A module keeps a list of them, so that a kernel can ask whether
// a pointer leads to one.
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

// Those at namespace scope. Without relocatable device code, what is only declared is defined, too.
ConstantVariables find_constant_variables(const std::vector<Token>& tokens,
                                          const std::vector<Declaration>& declarations, bool is_relocatable);

struct DeclaredVariables {
  std::vector<std::string> names;  // as written
  bool is_constant = false;
  bool is_only_declared = false;  // extern, without a value
  bool is_incomplete = false;     // an array whose size is not said
};
DeclaredVariables read_variables(const std::vector<Token>& tokens, const Declaration& d);

// A statement of a function that defines some.
struct LocalConstants {
  std::size_t end;  // the token behind it
  std::vector<std::string> names;
};
std::vector<LocalConstants> find_local_constants(const std::vector<Token>& tokens, const Declaration& function);

// Whether the program may ask what a pointer leads to.
bool asks_for_constants(const std::vector<Token>& tokens);

}  // namespace aiocuda::emulator::nvrtc
