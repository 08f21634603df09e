// How threads of a block wait for one another without a barrier: loops that read what another thread will
// write, and statements on volatile memory that count on the lanes of a warp running in step. Both are
// found in the text; a kernel that has either runs as fibers, which then let one another go on there.
#pragma once

#include <vector>

#include "edits.hpp"
#include "names.hpp"

namespace aiocuda::emulator::nvrtc {

// "s[i] += s[i + 16];" with s volatile: on a GPU before Volta, every lane of a warp reads before any writes,
// and writes before any goes on. "x = s[i];": what lanes wrote that took a branch before is there.
struct LockstepStatement {
  std::size_t value;  // the first token behind the assignment operator or `return`
  std::size_t end;    // the token behind the value
  bool writes;
};

class Polling {
 public:
  Polling(const std::vector<Token>& tokens, const std::vector<Declaration>& declarations);

  // The token behind which the condition of each loop that waits begins: its "(", or in a `for` the first ";".
  std::vector<std::size_t> loops(const Declaration& declaration) const;

  std::vector<LockstepStatement> lockstep_statements(const Declaration& declaration) const;

  bool occurs_in(const Declaration& declaration) const {
    return !loops(declaration).empty() || !lockstep_statements(declaration).empty();
  }

  // Lets other threads run in the declaration's loops that wait, and lanes meet at its lockstep statements.
  void edit(const Declaration& declaration, Edits& edits) const;

 private:
  bool reads_what_others_write(Range range, const Names& local) const;
  Names local_names(const Declaration& declaration) const;
  bool follows_index(std::size_t begin, std::size_t end, const Names& arrays) const;

  const std::vector<Token>& tokens_;
  Names everywhere_;  // volatile variables and members, and functions that touch volatile memory
  Names arrays_;      // volatile arrays and pointers at namespace scope
};

}  // namespace aiocuda::emulator::nvrtc
