// See declarations.hpp.
#include "declarations.hpp"

#include <algorithm>
#include <array>

namespace aiocuda::emulator::nvrtc {
namespace {

class DeclarationFinder {
 public:
  explicit DeclarationFinder(const std::vector<Token>& tokens) : tokens_(tokens) {}

  std::vector<Declaration> run(Range range) {
    scope(range.begin, range.end, "");
    return std::move(found_);
  }

 private:
  void scope(std::size_t begin, std::size_t end, const std::string& name_space) {
    for (std::size_t i = begin; i < end;) {
      const Token& token = tokens_[i];
      if (token.is(";") || token.is("}")) {
        ++i;
      } else if (is_namespace_definition(i)) {
        i = name_space_definition(i, end, name_space);
      } else if (token.is("extern") && i + 2 < end && tokens_[i + 1].kind == TokenKind::text &&
                 tokens_[i + 2].is("{")) {
        const std::size_t past = std::min(skip_bracket(tokens_, i + 2), end);
        scope(i + 3, past - 1, name_space);
        i = past;
      } else {
        i = declaration(i, end, name_space);
      }
    }
  }

  bool is_namespace_definition(std::size_t i) const {
    if (tokens_[i].is("inline") && i + 1 < tokens_.size()) ++i;
    if (!tokens_[i].is("namespace")) return false;
    for (++i; i < tokens_.size(); ++i) {
      if (tokens_[i].is("{")) return true;
      if (tokens_[i].is(";") || tokens_[i].is("=")) return false;
    }
    return false;
  }

  std::size_t name_space_definition(std::size_t i, std::size_t end, const std::string& outer) {
    std::string name = outer;
    for (; !tokens_[i].is("{"); ++i) {
      const Token& token = tokens_[i];
      const bool is_name = token.kind == TokenKind::identifier && !token.is("namespace") && !token.is("inline");
      if (is_name) name += "::" + std::string(token.text);
    }
    const std::size_t past = std::min(skip_bracket(tokens_, i), end);
    scope(i + 1, past - 1, name);
    return past;
  }

  std::size_t declaration(std::size_t begin, std::size_t end, const std::string& name_space) {
    Declaration d;
    d.name_space = name_space;
    std::size_t i = begin;
    while (i < end && tokens_[i].is("template")) {
      if (i + 1 >= end || !tokens_[i + 1].is("<")) {
        d.is_explicit_instantiation = true;
        ++i;
        break;
      }
      const std::size_t past = skip_angles(tokens_, i + 1);
      if (past > i + 3) d.template_header = {d.template_header.empty() ? i : d.template_header.begin, past};
      i = past;
    }
    bool saw_class_key = false;
    bool saw_assignment = false;
    for (; i < end; ++i) {
      const Token& token = tokens_[i];
      if (token.is(";")) {
        ++i;
        break;
      }
      if (token.is("=")) saw_assignment = true;
      if ((token.is_class_key() || token.is("enum")) && !d.is_function) saw_class_key = true;
      if (token.is("operator") && !saw_assignment) {
        // The name of an operator may itself be punctuation.
        std::size_t open = i + 1;
        if (open + 1 < end && tokens_[open].is("(") && tokens_[open + 1].is(")")) open += 2;
        while (open < end && !tokens_[open].is("(") && !tokens_[open].is(";")) ++open;
        if (open < end && tokens_[open].is("(")) {
          d.is_function = true;
          d.name = {i, open};
          d.parameters = {open + 1, skip_bracket(tokens_, open) - 1};
          i = skip_bracket(tokens_, open) - 1;
        }
        continue;
      }
      if (token.is("<") && i > begin && tokens_[i - 1].kind == TokenKind::identifier && !saw_assignment) {
        i = skip_angles(tokens_, i) - 1;
        continue;
      }
      if (token.is("[")) {
        i = skip_bracket(tokens_, i) - 1;
        continue;
      }
      if (token.is("(")) {
        const std::size_t past = skip_bracket(tokens_, i);
        const bool is_attribute = i > begin && takes_parentheses(tokens_[i - 1].text);
        const bool is_pointer = i + 1 < end && tokens_[i + 1].is("*");
        if (!is_attribute && !is_pointer && !saw_assignment && !d.is_function) {
          d.is_function = true;
          d.name = name_before(begin, i);
          d.parameters = {i + 1, past - 1};
        }
        i = past - 1;
        continue;
      }
      if (token.is("{")) {
        const std::size_t past = skip_bracket(tokens_, i);
        if (d.is_function && !saw_assignment) {
          if (is_brace_of_member_initializer(i)) {
            i = past - 1;
            continue;
          }
          d.body = {i, past};
          i = past;
          break;
        }
        if (saw_class_key && !saw_assignment) d.is_class = true;
        i = past - 1;
      }
    }
    i = std::max(std::min(i, end), begin + 1);
    d.all = {begin, i};
    if (d.is_class) d.is_function = false;
    found_.push_back(std::move(d));
    return i;
  }

  // In "A::A() : b{1} {", the brace behind a name is an initializer's, the one behind ")" or "}" the body's.
  bool is_brace_of_member_initializer(std::size_t brace) const {
    if (tokens_[brace - 1].kind != TokenKind::identifier) return false;
    for (std::size_t i = brace - 1; i > 0; --i) {
      const Token& before = tokens_[i - 1];
      if (before.is(":") || before.is(",")) return true;
      if (before.is("::") || before.kind == TokenKind::identifier) continue;
      return false;
    }
    return false;
  }

  Range name_before(std::size_t begin, std::size_t open) const {
    std::size_t first = open;
    if (first > begin && tokens_[first - 1].is(">")) {  // template arguments of the name
      int depth = 0;
      while (first > begin) {
        --first;
        if (tokens_[first].is(">")) ++depth;
        if (tokens_[first].is("<") && --depth == 0) break;
      }
    }
    if (first > begin && tokens_[first - 1].kind == TokenKind::identifier) --first;
    while (first >= begin + 2 && tokens_[first - 1].is("::") && tokens_[first - 2].kind == TokenKind::identifier)
      first -= 2;
    return {first, open};
  }

  const std::vector<Token>& tokens_;
  std::vector<Declaration> found_;
};

}  // namespace

std::vector<Declaration> find_declarations(const std::vector<Token>& tokens) {
  return DeclarationFinder(tokens).run({0, tokens.size()});
}

std::vector<Declaration> find_declarations(const std::vector<Token>& tokens, Range scope) {
  return DeclarationFinder(tokens).run(scope);
}

bool takes_parentheses(std::string_view word) {
  static constexpr std::array<std::string_view, 14> words = {
      "__launch_bounds__", "__attribute__",     "__align__", "alignas",  "decltype", "__declspec", "__maxnreg__",
      "__cluster_dims__",  "__builtin_align__", "noexcept",  "explicit", "requires", "typeof",     "__block_size__"};
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::unordered_set<std::string_view> declared_names(const std::vector<Token>& tokens, const Declaration& d) {
  std::unordered_set<std::string_view> names;
  if (d.is_function) {
    for (std::size_t i = d.name.begin; i < d.name.end; ++i) {
      if (tokens[i].is("<")) break;
      if (tokens[i].kind == TokenKind::identifier) names.insert(tokens[i].text);
    }
    return names;
  }
  // Of a class: its name and its members'. Of a variable, an alias, an enumeration: every name in it
  // up to where its value begins.
  bool in_class_body = false;
  for (std::size_t i = d.all.begin; i < d.all.end; ++i) {
    if (tokens[i].is("{")) in_class_body = true;
    if (!d.is_class && (tokens[i].is("=") || tokens[i].is("{")) && !tokens[d.all.begin].is("using") &&
        !tokens[d.all.begin].is("namespace")) {
      break;
    }
    if (tokens[i].kind != TokenKind::identifier) continue;
    const bool declares = !d.is_class || !in_class_body || (i + 1 < d.all.end && tokens[i + 1].is("("));
    if (declares) names.insert(tokens[i].text);
    if ((tokens[d.all.begin].is("using") || tokens[d.all.begin].is("namespace")) && i + 1 < d.all.end &&
        tokens[i + 1].is("="))
      break;
  }
  return names;
}

}  // namespace aiocuda::emulator::nvrtc
