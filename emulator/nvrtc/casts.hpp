// Does a program look at memory as another type? Only then can an access be misaligned for its type.
#pragma once

#include <vector>

#include "tokens.hpp"

namespace aiocuda::emulator::nvrtc {

// Finds `reinterpret_cast<T*>(...)`, `reinterpret_cast<T&>(...)` and `(T*)...` where T is no type of one byte.
bool casts_pointers(const std::vector<Token>& tokens);

}  // namespace aiocuda::emulator::nvrtc
