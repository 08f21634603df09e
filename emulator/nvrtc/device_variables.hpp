// `__device__`, `__constant__` and `__managed__` variables in a program's text: they become variables that others can
// find, and the module lists those that are constant.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_set>
#include <vector>

#include "declarations.hpp"
#include "edits.hpp"

namespace aiocuda::emulator::nvrtc {

class DeviceVariables {
 public:
  DeviceVariables(const std::vector<Token>& tokens, const std::vector<Declaration>& declarations,
                  const std::vector<std::string>& files, bool is_relocatable, Edits& edits);

  // Of a declaration that is no function's.
  void edit(const Declaration& d);
  // Has a function tell the module of its constant variables.
  void list_constants_of(const Declaration& d);
  // Of those at namespace scope: the array `aiocuda_constants`, which ends with an empty one.
  std::string table_of_constants() const;

 private:
  bool is_nowhere_defined(const Declaration& d);
  void define(const Declaration& d, std::size_t qualifier, const std::string& renamed);

  const std::vector<Token>& tokens_;
  const std::vector<Declaration>& declarations_;
  const std::vector<std::string>& files_;
  const bool is_relocatable_;
  const bool lists_local_constants_;
  Edits& edits_;
  std::unordered_set<std::string> defined_;  // qualified
  std::size_t local_count_ = 0;
};

}  // namespace aiocuda::emulator::nvrtc
