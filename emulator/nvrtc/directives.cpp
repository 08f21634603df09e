// See directives.hpp.
#include "directives.hpp"

#include <algorithm>

#include "rewrite.hpp"

namespace aiocuda::emulator::nvrtc {
namespace {

// g++ takes a literal number only; any other count is left to its judgement.
std::string gcc_unroll(std::string_view count) {
  std::string digits;
  for (const char c : count) {
    if (c >= '0' && c <= '9') {
      digits += c;
    } else if (c != ' ' && c != '\t' && c != '(' && c != ')') {
      return "";
    }
  }
  if (digits.empty()) return "#pragma GCC unroll 16";
  return digits.size() > 4 ? "" : "#pragma GCC unroll " + digits;
}

}  // namespace

void edit_directives(const std::vector<Directive>& directives, bool for_clang, Edits& edits,
                     std::vector<std::string>& includes) {
  for (const Directive& directive : directives) {
    if (!directive.text.starts_with("#pragma")) continue;
    const std::size_t size = directive.text.size();
    if (directive.text.starts_with(include_pragma)) {
      std::string header(directive.text.substr(include_pragma.size()));
      if (std::find(includes.begin(), includes.end(), header) == includes.end()) {
        includes.push_back(std::move(header));
      }
      edits.replace(directive.offset, size, "");
      continue;
    }
    const std::size_t word_begin = directive.text.find_first_not_of(" \t", 7);
    if (word_begin == std::string_view::npos) continue;
    const std::string_view rest = directive.text.substr(word_begin);
    if (rest.starts_with("unroll") && !for_clang) {
      edits.replace(directive.offset, size, gcc_unroll(rest.substr(6)));
    } else if (rest.starts_with("nv_") || rest.starts_with("diag_") || rest.starts_with("nvcc") ||
               (rest.starts_with("nounroll") && !for_clang)) {
      edits.replace(directive.offset, size, "");
    }
  }
}

}  // namespace aiocuda::emulator::nvrtc
