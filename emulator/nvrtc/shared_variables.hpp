// Shared variables in a program's text: they become variables of the host's threads, those of dynamic shared memory
// references to it.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_set>
#include <vector>

#include "declarations.hpp"
#include "edits.hpp"

namespace aiocuda::emulator::nvrtc {

class SharedVariables {
 public:
  // `checked`: a gap follows each variable, so that an overrun does not end in the next one.
  SharedVariables(const std::vector<Token>& tokens, bool checked, Edits& edits)
      : tokens_(tokens), checked_(checked), edits_(edits) {}

  // Edits those of a declaration. Answers the names of those that have an initialiser, which NVRTC refuses.
  std::vector<std::size_t> edit(const Declaration& d);

 private:
  Range statement_around(const Declaration& d, std::size_t at) const;
  void static_variable(Range statement, std::size_t qualifier, std::vector<std::size_t>& initialised);
  void dynamic_variable(Range statement, bool at_namespace_scope);

  const std::vector<Token>& tokens_;
  const bool checked_;
  Edits& edits_;
  std::size_t gaps_ = 0;
  std::unordered_set<std::string_view> global_dynamic_;
};

// "__shared__ alignas(16) float x" becomes "alignas(16) __shared__ float x", as the host's compilers want it. `renamed`
// is what the qualifier is called there.
void alignment_first(const std::vector<Token>& tokens, Edits& edits, std::size_t qualifier, const std::string& renamed);

}  // namespace aiocuda::emulator::nvrtc
