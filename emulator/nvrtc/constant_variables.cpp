// See constant_variables.hpp.
#include "constant_variables.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace aiocuda::emulator::nvrtc {
namespace {

// The variables of one declaration: of "__constant__ int c = 1, *p, q[2];" these are c, p and q.
class Declarators {
 public:
  Declarators(const std::vector<Token>& tokens, const Declaration& d)
      : tokens_(tokens), d_(d), at_(d.template_header.empty() ? d.all.begin : d.template_header.end) {}

  DeclaredVariables read() && {
    DeclaredVariables read;
    read_first();
    if (name_.empty()) return read;
    read.names.push_back(text(name_));
    while (skip_value()) {
      const std::size_t next = further();
      if (next == d_.all.end) break;
      read.names.emplace_back(tokens_[next].text);
    }
    read.is_constant = is_constant_;
    read.is_only_declared = is_extern_ && !has_value_;
    for (std::size_t i = d_.all.begin; i + 1 < d_.all.end; ++i)
      read.is_incomplete |= tokens_[i].is("[") && tokens_[i + 1].is("]") && !has_value_;
    return read;
  }

 private:
  void read_first() {
    bool is_class_ahead = d_.is_class;
    for (; at_ < d_.all.end; ++at_) {
      const Token& token = tokens_[at_];
      is_constant_ = is_constant_ || token.is("__constant__");
      is_extern_ = is_extern_ || token.is("extern");
      has_value_ = has_value_ || token.is("=");
      const bool opens_value = token.is("{") && !is_class_ahead;
      if (token.is(";") || token.is("=") || token.is(",") || opens_value) return;
      if (token.is("{")) {
        is_class_ahead = false;
        name_ = {};
        at_ = skip_bracket(tokens_, at_) - 1;
      } else if (token.is("[")) {
        at_ = skip_bracket(tokens_, at_) - 1;
      } else if (token.is("(")) {
        if (!takes_parentheses(tokens_[at_ - 1].text)) return read_bracketed();
        at_ = skip_bracket(tokens_, at_) - 1;
      } else if (token.is("<") && !name_.empty()) {
        name_.end = skip_angles(tokens_, at_);
        at_ = name_.end - 1;
      } else if (token.kind == TokenKind::identifier) {
        const bool goes_on = !name_.empty() && name_.end + 1 == at_ && tokens_[name_.end].is("::");
        name_ = {goes_on ? name_.begin : at_, at_ + 1};
      }
    }
  }

  // "int (*p)[3]"; of "int n(3)" the name is known by now.
  void read_bracketed() {
    if (!tokens_[at_ + 1].is("*")) return;
    const std::size_t past = skip_bracket(tokens_, at_);
    for (std::size_t i = at_ + 1; i < past && !tokens_[i].is("[") && !tokens_[i].is("("); ++i) {
      if (tokens_[i].kind == TokenKind::identifier) name_ = {i, i + 1};
    }
    at_ = past;
  }

  // To the comma behind a variable's value, if there is one.
  bool skip_value() {
    while (at_ < d_.all.end && !tokens_[at_].is(",") && !tokens_[at_].is(";")) {
      has_value_ = has_value_ || tokens_[at_].is("=");
      const bool opens = tokens_[at_].is("(") || tokens_[at_].is("[") || tokens_[at_].is("{");
      at_ = opens ? skip_bracket(tokens_, at_) : at_ + 1;
    }
    return at_ < d_.all.end && tokens_[at_].is(",");
  }

  // The name behind the comma. The comma may also be one of a template's arguments: then no name and what follows names
  // stands there.
  std::size_t further() {
    ++at_;
    while (tokens_[at_].is("*") || tokens_[at_].is("const")) ++at_;
    if (at_ + 1 >= d_.all.end || tokens_[at_].kind != TokenKind::identifier) return d_.all.end;
    const Token& behind = tokens_[at_ + 1];
    const bool is_name = behind.is(",") || behind.is(";") || behind.is("=") || behind.is("[") || behind.is("{");
    return is_name ? at_ : d_.all.end;
  }

  std::string text(Range name) const {
    std::string joined;
    for (std::size_t i = name.begin; i < name.end; ++i) {
      const bool would_meet =
          i > name.begin && tokens_[i].kind == TokenKind::identifier && tokens_[i - 1].kind == TokenKind::identifier;
      joined += (would_meet ? " " : "") + std::string(tokens_[i].text);
    }
    return joined;
  }

  const std::vector<Token>& tokens_;
  const Declaration& d_;
  std::size_t at_;
  Range name_;
  bool is_constant_ = false;
  bool is_extern_ = false;
  bool has_value_ = false;
};

}  // namespace

DeclaredVariables read_variables(const std::vector<Token>& tokens, const Declaration& d) {
  return Declarators(tokens, d).read();
}

ConstantVariables find_constant_variables(const std::vector<Token>& tokens,
                                          const std::vector<Declaration>& declarations, bool is_relocatable) {
  ConstantVariables found;
  for (const Declaration& d : declarations) {
    if (d.is_explicit_instantiation || !d.body.empty()) continue;
    const DeclaredVariables variables = read_variables(tokens, d);
    if (!variables.is_constant || (variables.is_only_declared && (is_relocatable || variables.is_incomplete))) continue;
    for (const std::string& name : variables.names) {
      if (d.template_header.empty()) {
        found.names.push_back(d.name_space + "::" + name);
      } else {
        found.templates.push_back(name.substr(0, name.find('<')));
      }
    }
  }
  return found;
}

std::vector<LocalConstants> find_local_constants(const std::vector<Token>& tokens, const Declaration& function) {
  std::vector<LocalConstants> found;
  for (std::size_t i = function.body.begin; i < function.body.end; ++i) {
    if (!tokens[i].is("__constant__")) continue;
    Declaration statement;
    statement.all = {i, i};
    const auto begins = [&](const Token& before) { return before.is(";") || before.is("{") || before.is("}"); };
    while (!begins(tokens[statement.all.begin - 1])) --statement.all.begin;
    while (statement.all.end < function.body.end && !tokens[statement.all.end].is(";")) {
      const Token& token = tokens[statement.all.end];
      statement.all.end = token.is("{") ? skip_bracket(tokens, statement.all.end) : statement.all.end + 1;
    }
    ++statement.all.end;
    for (std::size_t t = statement.all.begin; t + 2 < statement.all.end; ++t) {
      const bool is_class_key = tokens[t].is_class_key();
      statement.is_class |= is_class_key && (tokens[t + 1].is("{") || tokens[t + 2].is("{"));
    }
    found.push_back({statement.all.end, read_variables(tokens, statement).names});
    i = statement.all.end - 1;
  }
  return found;
}

bool asks_for_constants(const std::vector<Token>& tokens) {
  return std::any_of(tokens.begin(), tokens.end(), [](const Token& token) {
    return token.is("__isConstant") || token.is("__isGlobal") ||
           (token.kind == TokenKind::text && token.text.find("isspacep") != std::string_view::npos);
  });
}

}  // namespace aiocuda::emulator::nvrtc
