// See kernel_table.hpp.
#include "kernel_table.hpp"

#include <algorithm>
#include <utility>

#include "edits.hpp"
#include "tokens.hpp"

namespace aiocuda::emulator::nvrtc {
namespace {

constexpr unsigned runs_as_fibers = 1, functions_use_place = 2, runs_whole_blocks = 4, copies_grid_constants = 8;

bool saw_angle(const std::vector<Token>& tokens, std::size_t before) {
  return std::any_of(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(before),
                     [](const Token& token) { return token.is("<"); });
}

}  // namespace

unsigned flags_of(const KernelDeclaration& kernel) {
  return (kernel.runs_as_fibers ? runs_as_fibers : 0u) | (kernel.functions_use_place ? functions_use_place : 0u) |
         (kernel.is_split ? runs_whole_blocks : 0u) | (kernel.has_grid_constants ? copies_grid_constants : 0u);
}

void KernelTable::list_expression(const std::string& expression, const Names& waiting, bool functions_use_place_) {
  const TokenizedSource tokenized = tokenize(expression);
  std::string base;
  bool waits = false;
  for (std::size_t i = 0; i < tokenized.tokens.size(); ++i) {
    const Token& token = tokenized.tokens[i];
    if (token.kind != TokenKind::identifier) continue;
    waits = waits || waiting.contains(token.text);
    if (base.empty() || (i > 0 && tokenized.tokens[i - 1].is("::") && !saw_angle(tokenized.tokens, i)))
      base = token.text;
  }
  unsigned flags = functions_use_place_ ? functions_use_place : 0;
  std::string bounds = "1024";
  std::string cluster = "0";
  int guard = -1;
  for (const KernelDeclaration& k : kernels_) {
    if (k.name != base) continue;
    waits = (waits || k.runs_as_fibers) && !k.is_split;
    flags |= flags_of(k) & ~runs_as_fibers;
    if (k.is_overloaded) continue;
    guard = k.guard;
    const std::size_t arguments = expression.find('<');
    if (!k.is_template || arguments == std::string::npos) continue;
    if (!k.bounds.empty()) bounds = k.bounds + expression.substr(arguments) + "()";
    if (!k.cluster.empty()) cluster = k.cluster + expression.substr(arguments) + "()";
  }
  const std::string address = expression.find_first_not_of(" \t&(") == 0 ? "&" + expression : expression;
  entries_.push_back({"::aiocuda_device::Named<" + address + ", " +
                          std::to_string(flags | (waits ? runs_as_fibers : 0u)) + ", " + bounds + ", " +
                          std::to_string(guard) + ", " + cluster + ">",
                      expression, "aiocuda_name_" + std::to_string(expressions_++)});
}

std::string KernelTable::text(const std::string& unit, const std::string& constants) const {
  std::string out;
  std::vector<std::pair<std::string, std::string>> types;  // by which the table names it; what it is called
  for (const Entry& entry : entries_) {
    if (!entry.alias.empty())
      out += "\n# 1 \"name expression " + escaped(entry.name) + "\"\nusing " + entry.alias + " = " + entry.type + ";";
    types.emplace_back(entry.alias.empty() ? entry.type : "::" + entry.alias, entry.name);
  }
  const std::string count = std::to_string(std::max<std::size_t>(types.size(), 1));
  out += "\n# 1 \"<module>\"\n#pragma GCC visibility pop\nstatic aiocuda::emulator::abi::Kernel aiocuda_kernels[" +
         count + "] = {";
  for (const auto& [type, name] : types) out += type + "::descriptor(\"" + escaped(name) + "\"), ";
  const std::string addresses = "aiocuda_addresses_" + unit;
  const std::string shared = "aiocuda_static_shared_" + unit;
  out += "};\nextern \"C\" {\n__attribute__((visibility(\"default\"), used)) extern const void* const " + addresses +
         "[" + count + "];\nconst void* const " + addresses + "[" + count + "] = {";
  for (const auto& [type, name] : types) out += "(const void*)" + type + "::address, ";
  out += "};\n__attribute__((visibility(\"default\"), used, section(\".data\"))) volatile unsigned long long " +
         shared + "[" + count + "] = {};\n}\n";
  out += constants + "AIOCUDA_UNIT(" + addresses + ", " + shared + ", " + count + ")\n";
  return out;
}

}  // namespace aiocuda::emulator::nvrtc
