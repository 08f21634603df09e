// See polling.hpp.
#include "polling.hpp"

#include <algorithm>

namespace aiocuda::emulator::nvrtc {
namespace {

using Tokens = std::vector<Token>;

bool is_one_of(const Token& token, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return token.is(word); });
}

struct VolatileName {
  std::string_view name;  // empty for a cast
  bool has_elements;      // a pointer or an array
  bool is_shared;
};

// The name that the `volatile` at `at` makes volatile.
VolatileName declared_by(const Tokens& tokens, Range range, std::size_t at) {
  VolatileName found{{}, false, false};
  std::size_t begin = at;
  while (begin > range.begin && !is_one_of(tokens[begin - 1], {";", "{", "}", "(", ","})) --begin;
  std::size_t i = begin;
  for (; i < range.end && (i <= at || !is_one_of(tokens[i], {",", ")", ";", "=", "{", ">"})); ++i) {
    if (tokens[i].is("__shared__")) found.is_shared = true;
    if (i <= at) continue;
    if (tokens[i].is("[")) {
      found.has_elements = true;
      i = skip_bracket(tokens, i) - 1;
    } else if (tokens[i].is("<")) {
      i = skip_angles(tokens, i) - 1;
    } else if (tokens[i].is("(")) {
      return {};  // "asm volatile (", "volatile float (*p)[8]"
    } else if (tokens[i].is("*") || tokens[i].is("&")) {
      found.has_elements = true;
      found.name = {};
    } else if (tokens[i].kind == TokenKind::identifier) {
      found.name = tokens[i].text;
    }
  }
  if (i < range.end && tokens[i].is(">")) found.name = {};  // static_cast<volatile int*>
  return found;
}

bool is_number(const Token& token, char digit) {
  return token.kind == TokenKind::number && token.text[0] == digit &&
         std::all_of(token.text.begin() + 1, token.text.end(),
                     [](char c) { return c == 'u' || c == 'U' || c == 'l' || c == 'L'; });
}

// An atomic function that changes nothing: the way to read.
bool is_atomic_read(const Tokens& tokens, std::size_t at) {
  const std::string_view word = tokens[at].text;
  if (!word.starts_with("atomic") || at + 1 >= tokens.size() || !tokens[at + 1].is("(")) return false;
  const std::size_t close = skip_bracket(tokens, at + 1) - 1;
  if (close < at + 5 || !tokens[close - 2].is(",")) return false;
  const bool is_swap = word.starts_with("atomicCAS");
  if (is_swap) return tokens[close - 4].is(",") && tokens[close - 3].text == tokens[close - 1].text;
  const bool keeps_with_zero = word.starts_with("atomicAdd") || word.starts_with("atomicSub") ||
                               word.starts_with("atomicOr") || word.starts_with("atomicXor");
  return keeps_with_zero && is_number(tokens[close - 1], '0');
}

std::size_t end_of_statement(const Tokens& tokens, std::size_t begin, std::size_t end) {
  if (begin < end && tokens[begin].is("{")) return skip_bracket(tokens, begin);
  std::size_t i = begin;
  while (i < end && !tokens[i].is(";")) i = is_one_of(tokens[i], {"(", "[", "{"}) ? skip_bracket(tokens, i) : i + 1;
  return std::min(i + 1, end);
}

// The "do" whose condition the `while` at `at` begins, or `at`.
std::size_t do_of(const Tokens& tokens, std::size_t first, std::size_t at) {
  if (at == first || !tokens[at - 1].is("}")) return at;
  int depth = 0;
  for (std::size_t i = at - 1; i > first; --i) {
    if (tokens[i].is("}")) ++depth;
    if (tokens[i].is("{") && --depth == 0) return tokens[i - 1].is("do") ? i - 1 : at;
  }
  return at;
}

bool is_endless(const Tokens& tokens, Range condition) {
  return condition.empty() || (condition.end - condition.begin == 1 &&
                               (tokens[condition.begin].is("true") || is_number(tokens[condition.begin], '1')));
}

bool declares_variable(const Tokens& tokens, Range condition) {
  return std::any_of(tokens.begin() + static_cast<std::ptrdiff_t>(condition.begin),
                     tokens.begin() + static_cast<std::ptrdiff_t>(condition.end),
                     [](const Token& token) { return token.is("=") || token.is(";"); });
}

bool is_assignment(const Token& token) {
  return is_one_of(token, {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="});
}

bool is_fence(const Token& token) { return token.text.starts_with("__threadfence"); }

}  // namespace

Polling::Polling(const Tokens& tokens, const std::vector<Declaration>& declarations) : tokens_(tokens) {
  if (std::none_of(tokens.begin(), tokens.end(), [](const Token& token) { return token.is("volatile"); })) return;
  for (const Declaration& d : declarations) {
    if (d.is_function) continue;
    for (std::size_t i = d.all.begin; i < d.all.end; ++i) {
      if (!tokens[i].is("volatile")) continue;
      const VolatileName found = declared_by(tokens, d.all, i);
      if (found.name.empty()) continue;
      everywhere_.insert(found.name);
      if (found.has_elements) arrays_.insert(found.name);
    }
  }
  for (std::size_t before = 0, now = 1; before != now;) {
    before = everywhere_.size();
    for (const Declaration& d : declarations) {
      if (!d.is_function || d.body.empty() || !reads_what_others_write(d.body, local_names(d))) continue;
      for (const std::string_view name : declared_names(tokens, d)) everywhere_.insert(name);
    }
    now = everywhere_.size();
  }
}

// A local scalar is a thread's own; what a pointer or a reference leads to, and shared memory, is not.
Names Polling::local_names(const Declaration& d) const {
  Names names;
  for (std::size_t i = d.all.begin; i < d.all.end; ++i) {
    if (!tokens_[i].is("volatile")) continue;
    const VolatileName found = declared_by(tokens_, d.all, i);
    if (found.has_elements || found.is_shared) names.insert(found.name.empty() ? tokens_[i].text : found.name);
  }
  return names;
}

bool Polling::reads_what_others_write(Range range, const Names& local) const {
  return uses_any(tokens_, range, everywhere_) || uses_any(tokens_, range, local);
}

std::vector<std::size_t> Polling::loops(const Declaration& d) const {
  std::vector<std::size_t> found;
  const Names local = local_names(d);
  for (std::size_t i = d.body.begin; i + 1 < d.body.end; ++i) {
    const bool is_while = tokens_[i].is("while");
    if ((!is_while && !tokens_[i].is("for")) || !tokens_[i + 1].is("(")) continue;
    const std::size_t past = skip_bracket(tokens_, i + 1);
    if (past >= d.body.end) break;
    const std::size_t first = is_while ? do_of(tokens_, d.body.begin, i) : i;
    const bool ends_do = first != i;
    Range condition{i + 2, past - 1};
    if (!is_while) {
      const std::size_t semicolon = end_of_statement(tokens_, i + 2, past - 1) - 1;
      if (!tokens_[semicolon].is(";")) continue;  // over a range
      condition = {semicolon + 1, end_of_statement(tokens_, semicolon + 1, past - 1) - 1};
    }
    const bool is_empty = !ends_do && (tokens_[past].is(";") || (tokens_[past].is("{") && tokens_[past + 1].is("}")));
    const bool endless = is_endless(tokens_, condition);
    // A `for` that counts ends by itself, whatever it reads.
    const Range read =
        is_while || endless ? Range{first, ends_do ? past : end_of_statement(tokens_, past, d.body.end)} : condition;
    bool polls = reads_what_others_write(read, local);
    for (std::size_t t = read.begin; t < read.end && !polls; ++t) {
      const bool in_condition = t >= condition.begin && t < condition.end;
      polls = ((endless || in_condition) && is_atomic_read(tokens_, t)) || (endless && is_fence(tokens_[t]));
    }
    if ((is_empty || polls) && !(is_while && declares_variable(tokens_, condition)) &&
        (is_while || endless || is_empty || polls)) {
      found.push_back(condition.begin - 1);
    }
  }
  return found;
}

std::vector<LockstepStatement> Polling::lockstep_statements(const Declaration& d) const {
  std::vector<LockstepStatement> found;
  if (!d.is_function || d.body.empty()) return found;
  Names arrays = arrays_;
  for (std::size_t i = d.all.begin; i < d.all.end; ++i) {
    if (!tokens_[i].is("volatile")) continue;
    const VolatileName local = declared_by(tokens_, d.all, i);
    if (local.has_elements && !local.name.empty()) arrays.insert(local.name);
  }
  if (arrays.empty()) return found;
  bool any_writes = false;
  for (std::size_t i = d.body.begin + 1; i < d.body.end; ++i) {
    if (is_one_of(tokens_[i], {"if", "for", "while", "switch", "constexpr"}) && tokens_[i + 1].is("(")) {
      i = skip_bracket(tokens_, i + 1) - 1;
      continue;
    }
    if (is_one_of(tokens_[i], {"if", "else", "do", "case", "default"})) continue;
    if (!is_one_of(tokens_[i - 1], {";", "{", "}", ")", "else", ":"}) || tokens_[i].kind != TokenKind::identifier)
      continue;
    const std::size_t semicolon = end_of_statement(tokens_, i, d.body.end) - 1;
    if (!tokens_[semicolon].is(";") || !uses_any(tokens_, {i, semicolon}, arrays)) continue;
    std::size_t value = tokens_[i].is("return") ? i + 1 : i;
    while (value == i || (value < semicolon && !tokens_[i].is("return") && !is_assignment(tokens_[value - 1]))) {
      value = is_one_of(tokens_[value], {"(", "[", "{"}) ? skip_bracket(tokens_, value) : value + 1;
    }
    if (value >= semicolon || tokens_[value].is("{")) continue;
    std::size_t end = value;
    while (end < semicolon && !tokens_[end].is(","))
      end = is_one_of(tokens_[end], {"(", "[", "{"}) ? skip_bracket(tokens_, end) : end + 1;
    const bool writes = arrays.contains(tokens_[i].text) && tokens_[i + 1].is("[");
    if (writes ? end == semicolon : uses_any(tokens_, {value, end}, arrays) && follows_index(value, end, arrays)) {
      found.push_back({value, end, writes});
      any_writes = any_writes || writes;
    }
    i = semicolon;
  }
  if (!any_writes) found.clear();
  return found;
}

// Is an element read, rather than the array's address taken?
bool Polling::follows_index(std::size_t begin, std::size_t end, const Names& arrays) const {
  for (std::size_t i = begin; i + 1 < end; ++i) {
    if (arrays.contains(tokens_[i].text) && tokens_[i + 1].is("[") && !tokens_[i - 1].is("&")) return true;
  }
  return false;
}

void Polling::edit(const Declaration& d, Edits& edits) const {
  for (const std::size_t open : loops(d)) {
    if (tokens_[open + 1].is(";")) {
      edits.after(tokens_[open], "::aiocuda_device::spin()");
      continue;
    }
    edits.after(tokens_[open], "::aiocuda_device::spin() && (");
    const std::size_t close =
        tokens_[open].is("(") ? skip_bracket(tokens_, open) - 1 : end_of_statement(tokens_, open + 1, d.body.end) - 1;
    edits.before(tokens_[close], ")");
  }
  const std::vector<LockstepStatement> statements = lockstep_statements(d);
  // Lanes begin each turn of a loop together: none goes on to the next before those that took a branch.
  for (std::size_t i = d.body.begin; i + 1 < d.body.end; ++i) {
    const bool has_header = is_one_of(tokens_[i], {"for", "while"}) && tokens_[i + 1].is("(");
    if (!has_header && !tokens_[i].is("do")) continue;
    const std::size_t open = has_header ? skip_bracket(tokens_, i + 1) : i + 1;
    if (open >= d.body.end || !tokens_[open].is("{")) continue;
    const std::size_t close = skip_bracket(tokens_, open) - 1;
    const bool has_steps = std::any_of(statements.begin(), statements.end(), [&](const LockstepStatement& statement) {
      return open < statement.value && statement.value < close;
    });
    if (has_steps) edits.before(tokens_[close], "::aiocuda_device::step(" + std::to_string(close) + ");");
  }
  for (const LockstepStatement& statement : statements) {
    const std::string place = std::to_string(statement.value);
    if (statement.writes) {
      edits.before(tokens_[statement.value], "::aiocuda_device::in_step(" + place + ", ");
      edits.before(tokens_[statement.end], "), ::aiocuda_device::step(" + place + " + 1)");
    } else {
      edits.before(tokens_[statement.value], "(::aiocuda_device::step(" + place + "), ");
      edits.before(tokens_[statement.end], ")");
    }
  }
}

}  // namespace aiocuda::emulator::nvrtc
