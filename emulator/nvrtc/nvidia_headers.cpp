// See nvidia_headers.hpp.
#include "nvidia_headers.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

namespace aiocuda::emulator::nvrtc {
namespace {

constexpr std::string_view mark = "/cuda/std/__cccl/compiler.h";  // every header of theirs includes it
constexpr long widest_access_bytes = 16;
constexpr std::string_view before_instruction = "__cuda_ptx_";
constexpr std::string_view behind_instruction = "_is_not_supported_before_";

// The name of a class template at namespace scope, or nothing.
std::string_view name_of_class_template(const std::vector<Token>& tokens, const Declaration& d) {
  if (!d.is_class || d.template_header.empty()) return {};
  for (std::size_t i = d.template_header.end; i + 1 < d.all.end && !tokens[i].is("{"); ++i) {
    if (tokens[i].is("struct") || tokens[i].is("class")) return tokens[i + 1].text;
  }
  return {};
}

}  // namespace

NvidiaHeaders::NvidiaHeaders(const TokenizedSource& source) : source_(source), is_theirs_(source.files.size()) {
  for (const std::string& file : source.files) {
    if (file.ends_with(mark)) folder_ = file.substr(0, file.size() - mark.size() + 1);
  }
  if (folder_.empty()) return;
  std::transform(source.files.begin(), source.files.end(), is_theirs_.begin(),
                 [&](const std::string& file) { return file.starts_with(folder_); });
}

bool NvidiaHeaders::empty_body(const Declaration& d, Edits& edits) const {
  const std::vector<Token>& tokens = source_.tokens;
  if (d.body.empty() || !have(tokens[d.all.begin])) return false;
  for (std::size_t i = d.all.begin; i < d.name.begin; ++i) {
    if (tokens[i].is("constexpr") || tokens[i].is("consteval") || tokens[i].is("auto")) return false;
  }
  const std::size_t first = tokens[d.body.begin].offset;
  const std::size_t last = tokens[d.body.end - 1].offset;
  const bool has_pragmas = std::any_of(source_.directives.begin(), source_.directives.end(), [&](const auto& each) {
    return first < each.offset && each.offset < last && each.text.starts_with("#pragma");
  });
  if (has_pragmas) return false;  // "#pragma unroll" wants its loop
  for (std::size_t t = d.body.begin + 1; t + 1 < d.body.end; ++t) edits.blank(tokens[t]);
  edits.after(tokens[d.body.begin], "::aiocuda_fail(801, \"" + std::string(tokens[d.name.begin].text) +
                                        ": no kernel was found to use this function of NVIDIA's headers\");");
  return true;
}

void NvidiaHeaders::lower_alignments(Edits& edits) const {
  const std::vector<Token>& tokens = source_.tokens;
  for (std::size_t i = 0; i + 3 < tokens.size(); ++i) {
    if (!tokens[i].is("__align__") || !have(tokens[i]) || tokens[i + 2].kind != TokenKind::number) continue;
    const std::string bytes(tokens[i + 2].text);
    if (tokens[i + 3].is(")") && std::strtol(bytes.c_str(), nullptr, 0) > widest_access_bytes)
      edits.replace(tokens[i + 2], std::to_string(widest_access_bytes));
  }
}

void NvidiaHeaders::qualify_templates(const std::vector<Declaration>& declarations, Edits& edits) const {
  const std::vector<Token>& tokens = source_.tokens;
  std::multimap<std::string_view, std::string_view> name_spaces;
  for (const Declaration& d : declarations) {
    if (!have(tokens[d.all.begin])) continue;
    const std::string_view name = name_of_class_template(tokens, d);
    if (!name.empty()) name_spaces.emplace(name, d.name_space);
  }
  for (const Declaration& d : declarations) {
    if (!d.is_class || !have(tokens[d.all.begin])) continue;
    for (std::size_t i = d.all.begin; i + 4 < d.all.end; ++i) {
      const Token& name = tokens[i + 3];
      if (!tokens[i].is("using") || !tokens[i + 2].is("=") || !tokens[i + 1].is(name.text) || !tokens[i + 4].is("<"))
        continue;
      // The innermost of the namespaces around it.
      std::string_view innermost;
      const auto [first, last] = name_spaces.equal_range(name.text);
      for (auto each = first; each != last; ++each) {
        if (d.name_space.starts_with(each->second) && each->second.size() > innermost.size()) innermost = each->second;
      }
      if (!innermost.empty()) edits.before(name, std::string(innermost) + "::");
    }
  }
}

void NvidiaHeaders::define_refusals(const std::vector<Declaration>& declarations, Edits& edits) const {
  const std::vector<Token>& tokens = source_.tokens;
  std::set<std::string_view> defined;
  for (const Declaration& d : declarations) {
    if (!d.is_function || !d.body.empty() || !have(tokens[d.all.begin])) continue;
    const Token& name = tokens[d.name.begin];
    const std::size_t ends = name.text.find(behind_instruction);
    if (ends == std::string_view::npos || !name.text.starts_with(before_instruction)) continue;
    if (!defined.insert(name.text).second) continue;  // declared again for each form of the instruction
    const std::size_t begins = before_instruction.size();
    const std::string_view needed = name.text.substr(ends + behind_instruction.size());
    const std::string instruction(name.text.substr(begins, ends - begins));
    const std::string message = source_.files[name.file] + ":" + std::to_string(name.line) +
                                ": cuda::ptx::" + instruction + " is not supported on the emulated driver: it needs " +
                                std::string(needed.substr(0, needed.find("__")));
    edits.before(name, "__attribute__((weak)) ");
    edits.replace(tokens[d.all.end - 1], "{ ::aiocuda_fail(801, \"" + escaped(message) + "\"); }");
  }
}

void NvidiaHeaders::name_offsets(Edits& edits) const {
  constexpr std::string_view before_type[] = {"static_assert", "(", "!", "(", "&", "(", "(", "("};
  constexpr std::string_view behind_type[] = {"*", ")", "0", ")", "->"};
  const std::vector<Token>& tokens = source_.tokens;
  const auto matches = [&](std::size_t at, const auto& words) {
    return at + std::size(words) < tokens.size() &&
           std::equal(
               std::begin(words), std::end(words), tokens.begin() + static_cast<std::ptrdiff_t>(at),
               [](std::string_view word, const Token& token) { return token.is(word); });
  };
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (!matches(i, before_type) || !have(tokens[i])) continue;
    const std::size_t first = i + 3;  // the bracket behind "!"
    const std::size_t past = skip_bracket(tokens, first);
    std::size_t star = first;
    while (star < past && !matches(star, behind_type)) ++star;
    if (star == past) continue;
    for (std::size_t t = first; t < i + std::size(before_type); ++t)
      edits.replace(tokens[t], t == first ? "__builtin_offsetof(" : "");
    for (std::size_t t = star; t < star + std::size(behind_type); ++t) edits.replace(tokens[t], t == star ? "," : "");
    edits.replace(tokens[past - 2], "");
  }
}

}  // namespace aiocuda::emulator::nvrtc
