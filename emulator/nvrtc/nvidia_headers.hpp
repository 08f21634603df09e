// NVIDIA's own headers of libcu++ and cub, which a program may include as they are, and what changes in them so that
// the host's compiler takes them. They are NVRTC's own in all but name: what NVRTC takes in them is not refused.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "declarations.hpp"
#include "edits.hpp"
#include "tokens.hpp"

namespace aiocuda::emulator::nvrtc {

class NvidiaHeaders {
 public:
  // `source` must outlive this.
  explicit NvidiaHeaders(const TokenizedSource& source);

  bool are_included() const { return !folder_.empty(); }
  bool have(const Token& token) const { return is_theirs_[token.file]; }

  // They have functions for host code, with names that NVRTC never looks up. So a function that no kernel uses loses
  // its body, unless the compiler computes with it or takes the function's type from it. Says whether it did.
  bool empty_body(const Declaration& d, Edits& edits) const;

  // cub wants 32 bytes for some of what lies in shared memory, and puts it into words of 16. A GPU does not notice: its
  // accesses to shared memory have 16 bytes at most.
  void lower_alignments(Edits& edits) const;

  // A class of cub's has members like "using WarpScan = WarpScan<T>", by which g++ says that a name changes its
  // meaning. The template gets its namespace.
  void qualify_templates(const std::vector<Declaration>& declarations, Edits& edits) const;

  // Up to CUDA 13.0 they call a function that nobody defines, "..._is_not_supported_before_SM_100__", for an
  // instruction of newer devices. On a GPU the linker tells its name. It gets a body here, which fails the launch that
  // comes there, as other instructions do that are not supported.
  void define_refusals(const std::vector<Declaration>& declarations, Edits& edits) const;

  // They ask for the offset of a member as NVRTC alone lets them: "static_assert(!(&(((T*) 0)->member)), ...)".
  void name_offsets(Edits& edits) const;

 private:
  const TokenizedSource& source_;
  std::string folder_;
  std::vector<bool> is_theirs_;  // of each file
};

}  // namespace aiocuda::emulator::nvrtc
