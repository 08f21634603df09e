// Preprocessed C++ as tokens. A token is a piece of the text, which must outlive it; white space and
// directives are not tokens, but line markers decide the file and line of the tokens behind them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace aiocuda::emulator::nvrtc {

enum class TokenKind { identifier, number, text, punctuation };

struct Token {
  TokenKind kind;
  std::string_view text;
  std::size_t offset;
  std::size_t file;  // index into TokenizedSource::files
  int line;

  bool is(std::string_view other) const { return text == other; }
  template <std::size_t n>
  bool is_one_of(const std::array<std::string_view, n>& words) const {
    return std::find(words.begin(), words.end(), text) != words.end();
  }
  bool is_class_key() const { return is("struct") || is("class") || is("union"); }
};

struct Directive {
  std::string_view text;  // from '#', without the line's end
  std::size_t offset;
  std::size_t file;
  int line;
};

struct TokenizedSource {
  std::vector<Token> tokens;
  std::vector<Directive> directives;
  std::vector<std::string> files;
};

TokenizedSource tokenize(std::string_view text);

// The token behind the one that closes the bracket at `open` ("(", "[" or "{"), or tokens.size().
std::size_t skip_bracket(const std::vector<Token>& tokens, std::size_t open);

// The token behind the ">" that closes the "<" at `open`, or `open + 1` where it is no template bracket.
std::size_t skip_angles(const std::vector<Token>& tokens, std::size_t open);

}  // namespace aiocuda::emulator::nvrtc
