// Features of CUDA C++ that the emulated driver lacks, by the words with which programs use them.
#pragma once

#include <vector>

#include "declarations.hpp"
#include "rewrite.hpp"

namespace aiocuda::emulator::nvrtc {

// Why a program with this word cannot be compiled; empty where it can.
std::string_view why_unsupported(std::string_view word);
// Whether a program with this word needs the header of textures and surfaces.
bool is_of_textures(std::string_view word);

// Inline assembly with instructions in it. `asm("")` and `asm volatile("" ::: "memory")` are for the compiler.
struct InlineAssembly {
  Range statement;
  bool is_empty;
};
InlineAssembly inline_assembly(const std::vector<Token>& tokens, std::size_t at);

}  // namespace aiocuda::emulator::nvrtc
