// The declarations of a translation unit at namespace scope, found by their brackets alone. This is not a parser of
// C++. It finds where declarations begin and end, which of them are functions, and which names they declare and use.
// The rewriting needs no more, and the compiler judges the rest.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "tokens.hpp"

namespace aiocuda::emulator::nvrtc {

// Token indices [begin, end).
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;

  bool empty() const { return begin == end; }
};

struct Declaration {
  Range all;
  Range template_header;  // "template <...>", empty for "template <>" and where there is none
  bool is_explicit_instantiation = false;
  Range body;  // of a function, with its braces; empty where there is none
  bool is_function = false;
  bool is_class = false;
  Range name;              // a function's, qualified and with template arguments as written
  Range parameters;        // a function's, without the parentheses
  std::string name_space;  // "::a::b", empty for the global one
};

std::vector<Declaration> find_declarations(const std::vector<Token>& tokens);

// Those of one scope, such as the body of a class.
std::vector<Declaration> find_declarations(const std::vector<Token>& tokens, Range scope);

// The names that the declaration declares (by which others can use it).
std::unordered_set<std::string_view> declared_names(const std::vector<Token>& tokens, const Declaration& declaration);

// Identifiers like __launch_bounds__ and alignas, whose parentheses belong to them.
bool takes_parentheses(std::string_view word);

}  // namespace aiocuda::emulator::nvrtc
