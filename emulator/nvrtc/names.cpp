// See names.hpp.
#include "names.hpp"

#include <algorithm>

#include "polling.hpp"
#include "ptx.hpp"

namespace aiocuda::emulator::nvrtc {
namespace {

bool is_barrier_or_warp_operation(std::string_view word) {
  static const Names exact = {"__syncthreads",     "__syncthreads_count", "__syncthreads_and", "__syncthreads_or",
                              "__syncwarp",        "__activemask",        "__any_sync",        "__all_sync",
                              "__ballot_sync",     "__barrier_sync",      "__nanosleep",       "cooperative_groups",
                              "this_thread_block", "tiled_partition",     "barrier",           "pipeline",
                              "make_pipeline",     "arrive_and_wait",     "coalesced_threads", "__ldcv",
                              "mma_sync",          "load_matrix_sync",    "store_matrix_sync", "this_cluster"};
  if (exact.contains(word)) return true;
  return word.starts_with("__cluster_") || word.starts_with("__shfl_") || word.starts_with("__match_") ||
         (word.starts_with("__reduce_") && word.ends_with("_sync"));
}

bool is_keyword(std::string_view word) {
  static const Names keywords = {
      "__device__", "__constant__", "__managed__", "__host__", "__shared__", "static", "const", "constexpr", "inline",
      "extern",     "int",          "float",       "double",   "unsigned",   "char",   "short", "long",      "signed",
      "void",       "bool",         "auto",        "struct",   "class",      "union",  "enum",  "typename",  "template",
      "using",      "namespace",    "typedef",     "operator", "volatile",   "return", "if",    "for",       "while"};
  return keywords.contains(word);
}

bool is_operator(const std::vector<Token>& tokens, const Declaration& d) {
  return std::any_of(tokens.begin() + static_cast<std::ptrdiff_t>(d.name.begin),
                     tokens.begin() + static_cast<std::ptrdiff_t>(d.name.end),
                     [](const Token& token) { return token.is("operator"); });
}

}  // namespace

bool uses_any(const std::vector<Token>& tokens, Range range, const Names& names) {
  for (std::size_t i = range.begin; i < range.end; ++i) {
    if (tokens[i].kind == TokenKind::identifier && names.contains(tokens[i].text)) return true;
  }
  return false;
}

Names waiting_names(const std::vector<Token>& tokens, const std::vector<Declaration>& declarations,
                    const Polling& polling, Names known) {
  Names waiting = std::move(known);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].kind != TokenKind::identifier) continue;
    const bool is_assembly = tokens[i].is("asm") || tokens[i].is("__asm__") || tokens[i].is("__asm");
    const bool reads_register = is_assembly && translate_assembly(tokens, i).knows_others;
    if (reads_register || is_barrier_or_warp_operation(tokens[i].text)) waiting.insert(tokens[i].text);
  }
  std::vector<char> waits(declarations.size(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < declarations.size(); ++i) {
      const Declaration& d = declarations[i];
      if (waits[i] != 0 || (!uses_any(tokens, d.all, waiting) && !polling.occurs_in(d))) continue;
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
      const bool is_kernel =
          uses_any(tokens, {d.all.begin, d.is_function ? d.name.begin : d.all.begin}, {"__global__"});
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
