// The text of PTX in pieces: statements' words, types, special registers.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace aiocuda::emulator::nvrtc {

using Words = std::vector<std::string>;

// The type of CUDA C++ for a suffix such as "s32"; empty where there is none.
std::string type_of(std::string_view suffix);
unsigned bytes_of(std::string_view suffix);

// At separators outside brackets; white space is dropped.
Words split(std::string_view text, char separator);

// The characters of a string literal; raw ones, too.
std::string literal_text(std::string_view token);
std::string without_comments(std::string_view text);

// The expression of CUDA C++ for a register such as "laneid".
const std::map<std::string_view, std::string_view>& special_registers();

}  // namespace aiocuda::emulator::nvrtc
