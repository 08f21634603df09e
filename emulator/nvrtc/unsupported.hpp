// Features of CUDA C++ that the emulated driver lacks, by the words with which programs use them.
#pragma once

#include <string_view>

namespace aiocuda::emulator::nvrtc {

// Why a program with this word cannot be compiled; empty where it can.
std::string_view why_unsupported(std::string_view word);
// Whether a program with this word needs the header of textures and surfaces.
bool is_of_textures(std::string_view word);

}  // namespace aiocuda::emulator::nvrtc
