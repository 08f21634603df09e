// See casts.hpp.
#include "casts.hpp"

#include <algorithm>
#include <array>

namespace aiocuda::emulator::nvrtc {
namespace {

bool is_of_one_byte(std::string_view word) {
  static constexpr std::array<std::string_view, 5> words = {"char", "int8_t", "uint8_t", "bool", "void"};
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_qualifier(const Token& token) {
  return token.is("const") || token.is("volatile") || token.is("unsigned") || token.is("signed") ||
         token.is("__restrict__");
}

// Of the tokens [begin, end): a type of more than one byte, and a star or an ampersand behind it.
bool is_pointer_to_wide(const std::vector<Token>& tokens, std::size_t begin, std::size_t end) {
  bool has_type = false;
  bool is_indirect = false;
  for (std::size_t i = begin; i < end; ++i) {
    const Token& token = tokens[i];
    if (token.is("*") || token.is("&")) {
      if (!has_type) return false;
      is_indirect = true;
    } else if (token.kind == TokenKind::identifier) {
      if (is_qualifier(token)) continue;
      if (is_indirect || is_of_one_byte(token.text)) return false;
      has_type = true;
    } else if (token.is("<")) {
      i = skip_angles(tokens, i) - 1;
    } else if (!token.is("::")) {
      return false;
    }
  }
  return is_indirect;
}

}  // namespace

bool casts_pointers(const std::vector<Token>& tokens) {
  for (std::size_t i = 0; i + 2 < tokens.size(); ++i) {
    if (tokens[i].is("reinterpret_cast") && tokens[i + 1].is("<")) {
      if (is_pointer_to_wide(tokens, i + 2, skip_angles(tokens, i + 1) - 1)) return true;
    } else if (tokens[i].is("(") &&
               (i == 0 || tokens[i - 1].kind != TokenKind::identifier || tokens[i - 1].is("return"))) {
      const std::size_t past = skip_bracket(tokens, i);
      if (past >= tokens.size()) continue;
      const Token& behind = tokens[past];
      const bool has_operand = behind.kind == TokenKind::identifier || behind.is("&") || behind.is("(");
      if (has_operand && is_pointer_to_wide(tokens, i + 1, past - 1)) return true;
    }
  }
  return false;
}

}  // namespace aiocuda::emulator::nvrtc
