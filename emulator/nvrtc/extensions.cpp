// See extensions.hpp. The messages are NVRTC's.
#include "extensions.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace aiocuda::emulator::nvrtc {
namespace {

constexpr const char* no_expression = "expected an expression";

template <std::size_t n>
bool is_one_of(std::string_view word, const std::array<std::string_view, n>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// All builtin functions that NVRTC 13 knows.
bool is_known_builtin(std::string_view name) {
  static constexpr std::array<std::string_view, 21> known = {
      "expect",       "unreachable", "constant_p", "bit_cast", "offsetof",  "add_overflow",   "sub_overflow",
      "mul_overflow", "isnan",       "isinf",      "isfinite", "LINE",      "FILE",           "FUNCTION",
      "COLUMN",       "assume",      "addressof",  "copysign", "copysignf", "assume_aligned", "is_constant_evaluated"};
  return is_one_of(name, known);
}

// Words of g++ and clang++ that are plain names to NVRTC.
bool is_word_of_the_host(std::string_view word) {
  static constexpr std::array<std::string_view, 25> words = {
      "__asm",       "__asm__",       "__volatile",     "__const",  "__const__",  "__signed", "__signed__",
      "__alignof",   "__extension__", "__label__",      "__real",   "__real__",   "__imag",   "__imag__",
      "__null",      "__bases",       "__decltype",     "__typeof", "__typeof__", "typeof",   "_Complex",
      "__complex__", "_Float16",      "__integer_pack", "__is_same"};
  constexpr std::string_view builtin = "__builtin_";
  if (word.starts_with(builtin)) return !is_known_builtin(word.substr(builtin.size()));
  return is_one_of(word, words) || word.starts_with("__sync_") || word.starts_with("__atomic_");
}

class ExtensionFinder {
 public:
  explicit ExtensionFinder(const ExtensionsRequest& request)
      : request_(request), tokens_(request.source.tokens), files_(request.source.files) {
    for (std::size_t i = 0; i + 1 < tokens_.size(); ++i) {
      if (!is_found(i)) look(i);
    }
    if (request_.cpp_standard < 20) placeholders();
  }

  std::vector<HostCode> found() && { return std::move(found_); }

 private:
  void report(std::size_t token, std::string message) { found_.push_back({token, std::move(message)}); }

  // In a header that was found on an --include-path: those have absolute paths.
  bool is_found(std::size_t token) const { return files_[tokens_[token].file].starts_with('/'); }

  void look(std::size_t i) {
    const Token& token = tokens_[i];
    const Token& behind = tokens_[i + 1];
    if (token.kind == TokenKind::identifier) {
      word(i);
    } else if (token.is("?") && behind.is(":")) {
      report(i + 1, no_expression);
    } else if (token.is("(") && behind.is("{") && holds_statements(i + 1)) {
      report(i + 1, no_expression);
    } else if (token.is("(") && is_compound_literal(i)) {
      report(skip_bracket(tokens_, i), no_expression);
    } else if ((token.is("{") || token.is(",")) && behind.is("[")) {
      const std::size_t past = skip_bracket(tokens_, i + 1);
      if (past < tokens_.size() && tokens_[past].is("=")) report(i + 2, "expected an identifier");
    } else if ((token.is("{") || token.is(",")) && behind.is(".") && request_.cpp_standard < 20) {
      report(i + 1, no_expression);
    }
  }

  void word(std::size_t i) {
    const Token& token = tokens_[i];
    if (is_word_of_the_host(token.text)) {
      report(i, "identifier \"" + std::string(token.text) + "\" is undefined");
    } else if (std::any_of(token.text.begin(), token.text.end(), [](char c) { return c == '$' || (c & 0x80) != 0; })) {
      report(i, "unrecognized token");
    } else if ((token.is("__int128") || token.is("__int128_t") || token.is("__uint128_t")) && !request_.has_int128) {
      report(i, "128-bit integer type is only supported in Linux with the \"--device-int128\" flag in NVRTC");
    } else if (token.is("__float128")) {
      report(i, "128-bit floating point type is only supported in Linux with the \"--device-float128\" flag in NVRTC");
    } else if (token.is("register") && request_.cpp_standard >= 17) {
      report(i, "use of the \"register\" storage class specifier is not allowed");
    } else if (token.is("thread_local")) {
      report(i, "cannot use thread_local specifier for variable declarations in device code");
    } else if (token.is("case")) {
      case_range(i);
    }
  }

  // "case 1 ... 3:"
  void case_range(std::size_t i) {
    for (++i; i < tokens_.size() && !tokens_[i].is(":") && !tokens_[i].is(";"); ++i) {
      if (tokens_[i].is("...")) return report(i, "expected a \":\"");
      if (tokens_[i].is("(")) i = skip_bracket(tokens_, i) - 1;
    }
  }

  // "({ ...; })": a list of values has no semicolon.
  bool holds_statements(std::size_t brace) const {
    for (std::size_t i = brace + 1; i < tokens_.size() && !tokens_[i].is("}");) {
      if (tokens_[i].is(";")) return true;
      const bool opens = tokens_[i].is("(") || tokens_[i].is("[") || tokens_[i].is("{");
      i = opens ? skip_bracket(tokens_, i) : i + 1;
    }
    return false;
  }

  // "x = (P){1, 2}"
  bool is_compound_literal(std::size_t open) const {
    static constexpr std::array<std::string_view, 12> operators = {"=", "return", "(", ",", "+",  "-",
                                                                   "*", "/",      "?", "[", "<<", "=="};
    if (open < 2 || !is_one_of(tokens_[open - 1].text, operators) || tokens_[open - 2].is("operator")) return false;
    const std::size_t past = skip_bracket(tokens_, open);
    return past < tokens_.size() && past > open + 2 && tokens_[past].is("{");
  }

  // "auto g(auto a)"
  void placeholders() {
    for (const Declaration& d : request_.declarations) {
      for (std::size_t i = d.parameters.begin; i < d.parameters.end;) {
        if (tokens_[i].is("auto") && !is_found(i)) report(i, "\"auto\" is not allowed here");
        const bool opens = tokens_[i].is("(") || tokens_[i].is("[") || tokens_[i].is("{");
        i = opens ? skip_bracket(tokens_, i) : tokens_[i].is("<") ? skip_angles(tokens_, i) : i + 1;
      }
    }
  }

  const ExtensionsRequest& request_;
  const std::vector<Token>& tokens_;
  const std::vector<std::string>& files_;
  std::vector<HostCode> found_;
};

}  // namespace

std::vector<HostCode> find_extensions(const ExtensionsRequest& request) { return ExtensionFinder(request).found(); }

}  // namespace aiocuda::emulator::nvrtc
