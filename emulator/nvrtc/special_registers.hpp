// Inline assembly that only reads one of PTX's special registers, as programs do that want their lane:
//   asm("mov.u32 %0, %%laneid;" : "=r"(lane));
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tokens.hpp"

namespace aiocuda::emulator::nvrtc {

struct RegisterRead {
  std::size_t result_begin, result_end;  // tokens of the C++ expression that is assigned to
  std::string value;                     // C++ for the register
};

// The register that the statement with "asm" at `at` reads, if it does nothing else.
std::optional<RegisterRead> register_read(const std::vector<Token>& tokens, std::size_t at);

}  // namespace aiocuda::emulator::nvrtc
