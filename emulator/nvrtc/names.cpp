// See names.hpp.
#include "names.hpp"

#include <algorithm>
#include <array>

namespace aiocuda::emulator::nvrtc {
namespace {

bool is_barrier_or_warp_operation(std::string_view word) {
  static const Names exact = {"__syncthreads",     "__syncthreads_count", "__syncthreads_and", "__syncthreads_or",
                              "__syncwarp",        "__activemask",        "__any_sync",        "__all_sync",
                              "__ballot_sync",     "__barrier_sync",      "__nanosleep",       "cooperative_groups",
                              "this_thread_block", "tiled_partition",     "coalesced_threads", "__ldcv"};
  if (exact.contains(word)) return true;
  return word.starts_with("__shfl_") || word.starts_with("__match_") ||
         (word.starts_with("__reduce_") && word.ends_with("_sync"));
}

bool is_keyword(std::string_view word) {
  static const Names keywords = {"__device__", "__constant__", "__managed__", "__host__", "__shared__", "static",
                                 "const",      "constexpr",    "inline",      "extern",   "int",        "float",
                                 "double",     "unsigned",     "char",        "short",    "long",       "signed",
                                 "void",       "bool",         "auto",        "struct",   "class",      "union",
                                 "enum",       "typename",     "template",    "using",    "namespace",  "typedef",
                                 "operator",   "volatile",     "return",      "if",       "for",        "while"};
  return keywords.contains(word);
}

bool is_operator(const std::vector<Token>& tokens, const Declaration& d) {
  return std::any_of(tokens.begin() + static_cast<std::ptrdiff_t>(d.name.begin),
                     tokens.begin() + static_cast<std::ptrdiff_t>(d.name.end),
                     [](const Token& token) { return token.is("operator"); });
}

// Is the token at `last` the brace that ends the body of a do statement?
bool is_end_of_do(const std::vector<Token>& tokens, std::size_t first, std::size_t last) {
  if (!tokens[last].is("}")) return false;
  int depth = 0;
  for (std::size_t i = last; i > first; --i) {
    if (tokens[i].is("}")) ++depth;
    if (tokens[i].is("{") && --depth == 0) return tokens[i - 1].is("do");
  }
  return false;
}

}  // namespace

bool uses_any(const std::vector<Token>& tokens, Range range, const Names& names) {
  for (std::size_t i = range.begin; i < range.end; ++i) {
    if (tokens[i].kind == TokenKind::identifier && names.contains(tokens[i].text)) return true;
  }
  return false;
}

std::vector<std::size_t> waiting_loops(const std::vector<Token>& tokens, const Declaration& d) {
  std::vector<std::size_t> found;
  const bool is_volatile = uses_any(tokens, d.all, {"volatile"});
  for (std::size_t i = d.body.begin; i + 1 < d.body.end; ++i) {
    const bool is_while = tokens[i].is("while");
    if ((!is_while && !tokens[i].is("for")) || !tokens[i + 1].is("(")) continue;
    const std::size_t past = skip_bracket(tokens, i + 1);
    const bool is_empty = past < d.body.end && (tokens[past].is(";") || (tokens[past].is("{") && past + 1 < d.body.end &&
                                                                         tokens[past + 1].is("}")));
    const bool ends_do = is_while && i > d.body.begin && is_end_of_do(tokens, d.body.begin, i - 1);
    if (is_while) {
      const bool declares = std::any_of(tokens.begin() + static_cast<std::ptrdiff_t>(i + 2),
                                        tokens.begin() + static_cast<std::ptrdiff_t>(past - 1),
                                        [](const Token& token) { return token.is("=") || token.is(";"); });
      if (((is_empty && !ends_do) || is_volatile) && !declares) found.push_back(i + 1);
    } else if (is_empty && past - i > 2) {
      // for (...; condition; step): the condition follows the first semicolon at this depth.
      std::size_t semicolon = i + 2;
      while (semicolon < past && !tokens[semicolon].is(";")) {
        semicolon = tokens[semicolon].is("(") || tokens[semicolon].is("{") || tokens[semicolon].is("[")
                        ? skip_bracket(tokens, semicolon)
                        : semicolon + 1;
      }
      if (semicolon + 1 < past && !tokens[semicolon + 1].is(";")) found.push_back(semicolon);
    }
  }
  return found;
}

Names waiting_names(const std::vector<Token>& tokens, const std::vector<Declaration>& declarations) {
  Names waiting;
  for (const Token& token : tokens) {
    if (token.kind == TokenKind::identifier && is_barrier_or_warp_operation(token.text)) waiting.insert(token.text);
  }
  std::vector<char> waits(declarations.size(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < declarations.size(); ++i) {
      const Declaration& d = declarations[i];
      if (waits[i] != 0 || (!uses_any(tokens, d.all, waiting) && waiting_loops(tokens, d).empty())) continue;
      waits[i] = 1;
      changed = true;
      for (const std::string_view name : declared_names(tokens, d)) {
        if (!is_keyword(name) || name == "operator") waiting.insert(name);
      }
      // An operator is used without being named: with one that waits, everything may wait.
      if (d.is_function && is_operator(tokens, d)) {
        for (const Token& token : tokens) {
          if (token.is("__global__")) waiting.insert(token.text);
        }
      }
    }
  }
  return waiting;
}

Names used_names(const std::vector<Token>& tokens, const std::vector<Declaration>& declarations, Names used) {
  std::vector<char> is_used(declarations.size(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < declarations.size(); ++i) {
      const Declaration& d = declarations[i];
      if (is_used[i] != 0) continue;
      const Names names = declared_names(tokens, d);
      const bool is_kernel = uses_any(tokens, {d.all.begin, d.is_function ? d.name.begin : d.all.begin}, {"__global__"});
      const bool is_reached = is_kernel || (d.is_function && is_operator(tokens, d)) ||
                              std::any_of(names.begin(), names.end(), [&](auto name) { return used.contains(name); });
      if (!is_reached) continue;
      is_used[i] = 1;
      changed = true;
      for (std::size_t t = d.all.begin; t < d.all.end; ++t) {
        if (tokens[t].kind == TokenKind::identifier && !is_keyword(tokens[t].text)) used.insert(tokens[t].text);
      }
    }
  }
  return used;
}

}  // namespace aiocuda::emulator::nvrtc
