// What the text alone tells of the names in a kernel's body. Some change. Some are the same for all threads. Of others
// a thread can compute the value anew, from its place and from parameters. Always: in doubt a name changes, and nobody
// can compute it.
#pragma once

#include <cstddef>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "declarations.hpp"
#include "tokens.hpp"

namespace aiocuda::emulator::nvrtc {

bool is_type_word(const Token& token);
// blockIdx, blockDim or gridDim.
bool is_place(const Token& token);

class KernelValues {
 public:
  // The declarations are all of the program's.
  KernelValues(const std::vector<Token>& tokens, const std::vector<Declaration>& declarations,
               const Declaration& kernel);

  bool changes(std::string_view name, Range range) const;
  bool changes_at(std::size_t i) const;
  // How often the body declares a variable of that name, at least.
  int declarations_of(std::string_view name) const;

  // Is each parameter understood, and does none change?
  bool keeps_parameters() const { return keeps_parameters_; }
  // Parameters that are numbers, and integers that the program declares as constant for all functions and that no
  // variable of the body hides.
  const std::unordered_set<std::string_view>& same_for_all() const { return same_for_all_; }

  // Of a variable: can every thread compute its initial value anew? Only integers, and pointers that are a parameter
  // and an offset: they are computed in few instructions, and exactly. Whoever asks knows that it does not change.
  bool can_be_computed(Range type, bool is_pointer, Range value) const;
  // From now on it is known: a variable that can be computed, or the variable of a loop that is the same for all
  // threads.
  void add(std::string_view name, Range type, bool is_pointer);

 private:
  bool is_integer(Range type) const;
  bool is_computed_from_integers(Range value) const;
  void find_parameters();
  void find_constants(const std::vector<Declaration>& declarations);

  const std::vector<Token>& tokens_;
  const Declaration& kernel_;
  bool keeps_parameters_ = true;
  std::unordered_set<std::string_view> same_for_all_, integers_, pointers_;
};

}  // namespace aiocuda::emulator::nvrtc
