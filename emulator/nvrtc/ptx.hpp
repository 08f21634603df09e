// Inline PTX in C++: an asm statement becomes a block that calls the functions of aiocuda_cuda_cpp/ptx.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tokens.hpp"

namespace aiocuda::emulator::nvrtc {

struct InlineAssembly {
  std::size_t end = 0;        // the token behind the closing parenthesis
  bool is_empty = true;       // asm volatile("" ::: "memory"), which every compiler understands
  bool knows_others = false;  // its instructions depend on which threads there are: their kernels run as fibers
  std::string code;
  std::string problem;  // empty, or what is not supported
};

// The asm statement whose keyword is the token `at`.
InlineAssembly translate_assembly(const std::vector<Token>& tokens, std::size_t at);

}  // namespace aiocuda::emulator::nvrtc
