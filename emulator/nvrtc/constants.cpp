// See constants.hpp. Only names are compared; scopes are not known here. So some writes are not found:
// - those in a function that declares the same name itself,
// - those to a name that a class has for a member,
// - those to a variable whose type is a name of the program's.
// A template is looked at even if nobody instantiates it.
#include "constants.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

namespace aiocuda::emulator::nvrtc {
namespace {

using Names = std::unordered_set<std::string_view>;

bool is_number_type(const Token& token) {
  static constexpr std::array<std::string_view, 20> words = {
      "unsigned", "signed",   "int",      "float",    "double",   "char",     "short",
      "long",     "bool",     "size_t",   "int8_t",   "int16_t",  "int32_t",  "int64_t",
      "uint8_t",  "uint16_t", "uint32_t", "uint64_t", "intptr_t", "uintptr_t"};
  return token.is_one_of(words);
}

bool says_nothing_of_a_type(const Token& token) {
  static constexpr std::array<std::string_view, 6> words = {"__constant__", "__device__", "static",
                                                            "extern",       "volatile",   "inline"};
  return token.is_one_of(words);
}

// "int c" declares c; "return c" does not.
bool may_be_a_type(const Token& token) {
  static constexpr std::array<std::string_view, 10> words = {"return", "else",   "case",  "goto",     "do",
                                                             "sizeof", "delete", "throw", "co_yield", "co_return"};
  return token.kind == TokenKind::identifier && !token.is_one_of(words);
}

// At the token; "<<=" and ">>=" are two each.
bool assigns(const std::vector<Token>& tokens, std::size_t i) {
  static constexpr std::array<std::string_view, 9> operators = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="};
  if (tokens[i].is_one_of(operators)) return true;
  if (i + 1 >= tokens.size()) return false;
  return (tokens[i].is("<<") && tokens[i + 1].is("=")) || (tokens[i].is(">") && tokens[i + 1].is(">="));
}

bool steps(const Token& token) { return token.is("++") || token.is("--"); }

class ConstantFinder {
 public:
  ConstantFinder(const std::vector<Token>& tokens, const std::vector<Declaration>& declarations) : tokens_(tokens) {
    for (const Declaration& d : declarations) {
      if (!d.is_function && !d.is_class && d.template_header.empty()) constants_of(d);
    }
    if (constants_.empty()) return;
    for (const Declaration& d : declarations) {
      if (d.is_class) erase_if(constants_, [&](std::string_view name) { return declares(d.all, name); });
    }
    for (const Declaration& d : declarations) {
      const bool is_member = std::any_of(tokens.begin() + static_cast<std::ptrdiff_t>(d.name.begin),
                                         tokens.begin() + static_cast<std::ptrdiff_t>(d.name.end),
                                         [](const Token& token) { return token.is("::"); });
      if (d.is_class || (d.is_function && !d.body.empty() && !is_member)) writes_in(d);
    }
  }

  std::vector<HostCode> found() && { return std::move(found_); }

 private:
  // Those of "__constant__ int c = 1, *p;".
  void constants_of(const Declaration& d) {
    bool is_constant = false;
    bool is_number = false;
    std::size_t i = d.all.begin;
    for (; i < d.all.end && tokens_[i].kind == TokenKind::identifier; ++i) {
      is_constant = is_constant || tokens_[i].is("__constant__");
      if (takes_parentheses(tokens_[i].text)) {
        i = skip_bracket(tokens_, i + 1) - 1;
      } else if (is_number_type(tokens_[i])) {
        is_number = true;
      } else if (!says_nothing_of_a_type(tokens_[i])) {
        break;
      }
    }
    if (!is_constant || !is_number) return;
    while (i < d.all.end) {
      while (i < d.all.end && tokens_[i].is("*")) ++i;
      if (i + 1 >= d.all.end || tokens_[i].kind != TokenKind::identifier || tokens_[i].is("const")) return;
      if (!tokens_[i + 1].is("[")) constants_.insert(tokens_[i].text);
      while (i < d.all.end && !tokens_[i].is(",")) {
        const bool opens = tokens_[i].is("(") || tokens_[i].is("[") || tokens_[i].is("{");
        i = opens ? skip_bracket(tokens_, i) : i + 1;
      }
      ++i;
    }
  }

  bool declares(Range range, std::string_view name) const {
    for (std::size_t i = range.begin + 1; i < range.end; ++i) {
      if (tokens_[i].is(name) && is_declared_at(i)) return true;
    }
    return false;
  }

  bool is_declared_at(std::size_t i) const {
    std::size_t before = i - 1;
    while (before > 0 && (tokens_[before].is("*") || tokens_[before].is("&") || tokens_[before].is("&&"))) --before;
    if (may_be_a_type(tokens_[before]) || tokens_[before].is(">")) return true;
    if (tokens_[before].is("{")) return is_list_of_names(before);
    if (!tokens_[before].is(",") && !tokens_[before].is("[")) return false;
    // A later one of "int a = 1, c;", or what a lambda or a structured binding declares.
    int depth = 0;
    for (std::size_t at = before + 1; at > 0; --at) {
      const Token& token = tokens_[at - 1];
      if (token.is(")") || token.is("]") || token.is("}")) ++depth;
      const bool opens = token.is("(") || token.is("[") || token.is("{");
      if (depth == 0 && (opens || token.is(";"))) {
        const bool captures = token.is("[") && (at < 2 || tokens_[at - 2].is("auto") || !is_indexed(tokens_[at - 2]));
        return captures || (token.is("{") && is_list_of_names(at - 1)) ||
               (may_be_a_type(tokens_[at]) && begins_declaration(at + 1));
      }
      if (opens) --depth;
    }
    return false;
  }

  // "enum E : int {"
  bool is_list_of_names(std::size_t brace) const {
    while (brace > 0 && (tokens_[brace - 1].kind == TokenKind::identifier || tokens_[brace - 1].is(":"))) {
      if (tokens_[--brace].is("enum")) return true;
    }
    return false;
  }

  // "a[c" is an index.
  static bool is_indexed(const Token& before) { return may_be_a_type(before) || before.is(")") || before.is("]"); }

  // Behind the first name of a statement.
  bool begins_declaration(std::size_t i) const {
    const Token& token = tokens_[i];
    return token.kind == TokenKind::identifier || token.is("*") || token.is("&") || token.is("<") || token.is("::");
  }

  void writes_in(const Declaration& d) {
    Names declared;
    for (std::size_t i = d.all.begin + 1; i + 1 < d.all.end; ++i) {
      const std::string_view name = tokens_[i].text;
      if (!constants_.contains(name) || declared.contains(name) || !is_written(i)) continue;
      if (declares(d.all, name)) {
        declared.insert(name);
      } else {
        found_.push_back({i, "expression must be a modifiable lvalue"});
      }
    }
  }

  bool is_written(std::size_t i) const {
    std::size_t first = i;
    std::size_t last = i;
    while (first >= 2 && tokens_[first - 1].is("::"))
      first -= tokens_[first - 2].kind == TokenKind::identifier && !tokens_[first - 2].is("return") ? 2 : 1;
    while (first >= 2 && tokens_[first - 1].is("(") && tokens_[last + 1].is(")") && !is_called(tokens_[first - 2])) {
      --first;
      ++last;
    }
    const Token& before = tokens_[first - 1];
    const Token& behind = tokens_[last + 1];
    if (before.is(".") || before.is("->")) return false;
    if (steps(behind)) return true;
    if (assigns(tokens_, last + 1)) return !before.is("*") && !before.is("&");
    const bool goes_on = behind.is("[") || behind.is(".") || behind.is("->") || behind.is("(") || behind.is("::");
    return steps(before) && !goes_on;
  }

  // "f(c) = 1" writes to what f answers.
  static bool is_called(const Token& before) {
    return may_be_a_type(before) || before.is(")") || before.is("]") || before.is(">");
  }

  const std::vector<Token>& tokens_;
  Names constants_;
  std::vector<HostCode> found_;
};

}  // namespace

std::vector<HostCode> find_writes_to_constants(const std::vector<Token>& tokens,
                                               const std::vector<Declaration>& declarations) {
  return ConstantFinder(tokens, declarations).found();
}

}  // namespace aiocuda::emulator::nvrtc
