// See device_variables.hpp.
#include "device_variables.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "constant_variables.hpp"
#include "shared_variables.hpp"

namespace aiocuda::emulator::nvrtc {
namespace {

std::string place_of(const std::string& variable) {
  return "(const void*)__builtin_addressof(" + variable + "), sizeof(" + variable + ")";
}

}  // namespace

DeviceVariables::DeviceVariables(const std::vector<Token>& tokens, const std::vector<Declaration>& declarations,
                                 const std::vector<std::string>& files, bool is_relocatable, Edits& edits)
    : tokens_(tokens),
      declarations_(declarations),
      files_(files),
      is_relocatable_(is_relocatable),
      lists_local_constants_(is_relocatable || asks_for_constants(tokens)),
      edits_(edits) {}

void DeviceVariables::edit(const Declaration& d) {
  // The declaration without its value, and without the members of a class.
  std::vector<std::size_t> head;
  std::size_t end = d.all.begin;
  while (end < d.all.end && !tokens_[end].is("=") && !tokens_[end].is(";")) {
    const std::size_t past = tokens_[end].is("{") || tokens_[end].is("(") ? skip_bracket(tokens_, end) : end + 1;
    if (past == end + 1) head.push_back(end);
    end = past;
  }
  const auto at = [&](std::string_view word) {
    return std::find_if(head.begin(), head.end(), [&](std::size_t i) { return tokens_[i].is(word); });
  };
  const auto says = [&](std::string_view word) { return at(word) != head.end(); };
  std::size_t qualifier = d.all.end;
  std::string renamed;
  for (const auto& [word, becomes] :
       {std::pair{"__device__", "__devvar__"}, {"__constant__", "__constvar__"}, {"__managed__", "__managvar__"}}) {
    if (const auto found = at(word); found != head.end() && *found < qualifier) {
      qualifier = *found;
      renamed = becomes;
    }
  }
  if (qualifier == d.all.end || says("constexpr") || says("__shared__")) return;
  // A const variable would not be visible outside: declare it extern first.
  const bool stays_static = says("static") && is_relocatable_;
  if (says("const") && !says("extern") && !stays_static && !says("auto") && !d.is_class && d.template_header.empty() &&
      end < d.all.end && tokens_[end].is("=")) {
    std::string declaration;
    for (std::size_t i = d.all.begin; i < end; ++i) {
      if (!tokens_[i].is("static")) declaration += (i == qualifier ? renamed : std::string(tokens_[i].text)) + " ";
    }
    edits_.before(tokens_[d.all.begin], "extern " + declaration + "; ");
  }
  edits_.replace(tokens_[qualifier], tokens_[qualifier + 1].is("alignas") ? "" : renamed);
  alignment_first(tokens_, edits_, qualifier, renamed);
  for (const std::size_t i : head) {
    if (tokens_[i].is("static") && !stays_static) edits_.blank(tokens_[i]);
  }
  if (says("extern") && !is_relocatable_ && is_nowhere_defined(d)) define(d, qualifier, renamed);
}

// Without relocatable device code, NVRTC takes an extern variable that the program does not define for a definition.
bool DeviceVariables::is_nowhere_defined(const Declaration& d) {
  const auto qualified = [](const Declaration& of, const std::string& name) { return of.name_space + "::" + name; };
  const DeclaredVariables declared = read_variables(tokens_, d);
  if (!declared.is_only_declared || declared.is_incomplete || !d.template_header.empty()) return false;
  if (defined_.empty()) {
    for (const Declaration& each : declarations_) {
      const DeclaredVariables variables = read_variables(tokens_, each);
      if (each.is_function || variables.is_only_declared) continue;
      for (const std::string& name : variables.names) defined_.insert(qualified(each, name));
    }
  }
  bool is_new = false;
  for (const std::string& name : declared.names) is_new |= defined_.insert(qualified(d, name)).second;
  return is_new;
}
void DeviceVariables::define(const Declaration& d, std::size_t qualifier, const std::string& renamed) {
  std::string definition;
  for (std::size_t i = d.all.begin; i < d.all.end; ++i) {
    const Token& token = tokens_[i];
    const bool has_arguments = token.is("<") && tokens_[i - 1].kind == TokenKind::identifier;
    const bool opens = token.is("(") || token.is("{") || token.is("[");
    const std::size_t past = has_arguments ? skip_angles(tokens_, i) : opens ? skip_bracket(tokens_, i) : i + 1;
    if (token.is(",") || token.is(";")) definition += "= {} ";
    if (!token.is("extern") && token.kind != TokenKind::text)
      for (std::size_t t = i; t < past; ++t)
        definition += (t == qualifier ? renamed : std::string(tokens_[t].text)) + " ";
    i = past - 1;
  }
  const Token& last = tokens_[d.all.end - 1];
  edits_.after(last, aside(last, files_, definition));
}

void DeviceVariables::list_constants_of(const Declaration& d) {
  if (!lists_local_constants_) return;
  for (const LocalConstants& each : find_local_constants(tokens_, d)) {
    std::string kept;
    for (const std::string& name : each.names) {
      const std::string constant = "aiocuda_constant_" + std::to_string(local_count_++);
      kept += "static ::aiocuda::emulator::abi::LocalConstant " + constant + "{" + place_of(name) +
              ", nullptr, false}; ::aiocuda_keep_constant(&" + constant + "); ";
    }
    const Token& last = tokens_[each.end - 1];
    if (!kept.empty()) edits_.after(last, aside(last, files_, kept));
  }
}

std::string DeviceVariables::table_of_constants() const {
  const ConstantVariables constants = find_constant_variables(tokens_, declarations_, is_relocatable_);
  std::string out = "static const aiocuda::emulator::abi::ConstantVariable aiocuda_constants[] = {";
  for (const std::string& name : constants.names) out += "{" + place_of(name) + ", nullptr}, ";
  for (const std::string& name : constants.templates) out += "{nullptr, 0, \"" + name + "\"}, ";
  return out + "{}};\n";
}

}  // namespace aiocuda::emulator::nvrtc
