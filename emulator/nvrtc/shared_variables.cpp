// See shared_variables.hpp.
#include "shared_variables.hpp"

#include <algorithm>

namespace aiocuda::emulator::nvrtc {
namespace {

constexpr std::size_t gap_bytes = 64;

}  // namespace

void alignment_first(const std::vector<Token>& tokens, Edits& edits, std::size_t qualifier,
                     const std::string& renamed) {
  if (qualifier + 2 >= tokens.size() || !tokens[qualifier + 1].is("alignas")) return;
  edits.after(tokens[skip_bracket(tokens, qualifier + 2) - 1], " " + renamed);
}

std::vector<std::size_t> SharedVariables::edit(const Declaration& d) {
  std::vector<std::size_t> initialised;
  for (std::size_t i = d.all.begin; i < d.all.end; ++i) {
    if (!tokens_[i].is("__shared__")) continue;
    const Range statement = statement_around(d, i);
    const std::size_t head_end = std::min(statement.end, i + 4);
    const bool is_dynamic = std::any_of(tokens_.begin() + static_cast<std::ptrdiff_t>(statement.begin),
                                        tokens_.begin() + static_cast<std::ptrdiff_t>(head_end),
                                        [](const Token& token) { return token.is("extern"); });
    if (is_dynamic) {
      dynamic_variable(statement, !d.is_function && !d.is_class);
    } else {
      static_variable(statement, i, initialised);
    }
    i = statement.end;
  }
  return initialised;
}

Range SharedVariables::statement_around(const Declaration& d, std::size_t at) const {
  std::size_t begin = at;
  while (begin > d.all.begin && !tokens_[begin - 1].is(";") && !tokens_[begin - 1].is("{") &&
         !tokens_[begin - 1].is("}")) {
    --begin;
  }
  std::size_t end = at;
  while (end < d.all.end && !tokens_[end].is(";"))
    end = tokens_[end].is("(") || tokens_[end].is("{") || tokens_[end].is("[") ? skip_bracket(tokens_, end) : end + 1;
  return {begin, std::min(end, d.all.end)};
}

void SharedVariables::static_variable(Range statement, std::size_t qualifier, std::vector<std::size_t>& initialised) {
  if (tokens_[qualifier + 1].is("alignas")) {
    edits_.blank(tokens_[qualifier]);
    alignment_first(tokens_, edits_, qualifier, "__shared__");
  }
  for (std::size_t t = statement.begin; t < statement.end; ++t) {
    if (tokens_[t].is("=")) {
      initialised.push_back(t - 1);
      break;
    }
    if (tokens_[t].is("static")) edits_.blank(tokens_[t]);
  }
  if (!checked_ || statement.end >= tokens_.size()) return;
  // The driver knows the gap by its name, which no variable of the program's has.
  edits_.after(tokens_[statement.end], " static thread_local __attribute__((used)) char aiocuda_gap_" +
                                           std::to_string(gaps_++) + "[" + std::to_string(gap_bytes) + "];");
}

// "extern __shared__ T name[];" becomes "T (&name)[] = ...;", which lasts as long and means the same.
void SharedVariables::dynamic_variable(Range statement, bool at_namespace_scope) {
  std::size_t bracket = statement.begin;
  while (bracket < statement.end && !tokens_[bracket].is("[")) {
    bracket = tokens_[bracket].is("<")   ? skip_angles(tokens_, bracket)
              : tokens_[bracket].is("(") ? skip_bracket(tokens_, bracket)
                                         : bracket + 1;
  }
  if (bracket >= statement.end || bracket == statement.begin || statement.end >= tokens_.size()) return;
  const Token& name = tokens_[bracket - 1];
  for (std::size_t i = statement.begin; i < bracket - 1;) {
    const Token& token = tokens_[i];
    const std::size_t past =
        takes_parentheses(token.text) && !token.is("decltype") ? skip_bracket(tokens_, i + 1) : i + 1;
    const bool drop = token.is("extern") || token.is("__shared__") || token.is("__device__") || past > i + 1;
    if (drop) {
      for (std::size_t t = i; t < past; ++t) edits_.blank(tokens_[t]);
    }
    i = past;
  }
  if (at_namespace_scope) {
    if (!global_dynamic_.insert(name.text).second) {
      for (std::size_t i = statement.begin; i < statement.end; ++i) edits_.blank(tokens_[i]);
      return;
    }
    const std::string mark = "static thread_local __attribute__((used)) char aiocuda_dynamic_" + std::string(name.text);
    edits_.before(tokens_[statement.begin], (checked_ ? mark + "; " : "") + "static thread_local ");
  }
  edits_.before(name, "(&");
  edits_.after(name, ")");
  edits_.before(tokens_[statement.end], " = ::aiocuda_device::DynamicShared{}");
}

}  // namespace aiocuda::emulator::nvrtc
