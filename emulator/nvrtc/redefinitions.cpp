// See redefinitions.hpp.
#include "redefinitions.hpp"

#include <algorithm>
#include <set>

namespace aiocuda::emulator::nvrtc {
namespace {

bool is_type_of_ours(std::string_view name) {
  static const std::set<std::string_view> types = {
      "int8_t",        "int16_t",       "int32_t",       "int64_t",      "uint8_t",      "uint16_t",
      "uint32_t",      "uint64_t",      "intptr_t",      "uintptr_t",    "ptrdiff_t",    "intmax_t",
      "uintmax_t",     "int_fast8_t",   "int_fast16_t",  "int_fast32_t", "int_fast64_t", "uint_fast8_t",
      "uint_fast16_t", "uint_fast32_t", "uint_fast64_t", "clock_t",      "uint",         "ushort"};
  return types.contains(name);
}

// Written like a macro: M_PI, FLT_MAX, INFINITY.
bool is_in_capitals(std::string_view name) {
  return name.size() > 1 && name[0] >= 'A' && name[0] <= 'Z' && std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
         });
}

bool declares(const std::vector<Token>& tokens, std::size_t at) {
  if (at == 0 || at + 1 >= tokens.size()) return false;
  const Token& before = tokens[at - 1];
  const Token& behind = tokens[at + 1];
  if (behind.is("=") && (before.is("{") || before.is(","))) return true;  // an enumerator
  if (before.kind != TokenKind::identifier || before.is("return") || before.is("case") || before.is("else"))
    return false;
  return behind.is("=") || behind.is(";") || behind.is("[") || behind.is("{") || behind.is(",") || behind.is(")");
}

}  // namespace

std::string make_way(const std::vector<Token>& tokens, const std::vector<Declaration>& declarations) {
  std::set<std::string_view> types;
  for (const Declaration& d : declarations) {
    if (!d.name_space.empty() || d.all.end - d.all.begin < 3) continue;
    const Token& first = tokens[d.all.begin];
    const Token& name = first.is("using") ? tokens[d.all.begin + 1] : tokens[d.all.end - 2];
    if ((first.is("typedef") || first.is("using")) && is_type_of_ours(name.text)) types.insert(name.text);
  }
  std::set<std::string_view> constants;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].kind == TokenKind::identifier && is_in_capitals(tokens[i].text) && declares(tokens, i))
      constants.insert(tokens[i].text);
  }
  std::string directives;
  for (const std::string_view name : types)
    directives += "#define " + std::string(name) + " " + std::string(name) + "_of_program\n";
  for (const std::string_view name : constants) directives += "#undef " + std::string(name) + "\n";
  return directives;
}

}  // namespace aiocuda::emulator::nvrtc
