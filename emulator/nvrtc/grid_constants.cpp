// See grid_constants.hpp.
#include "grid_constants.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace aiocuda::emulator::nvrtc {
namespace {

constexpr std::string_view word = "__grid_constant__";

// Words of a type that are no name of a parameter.
bool is_no_name(const Token& token) {
  static constexpr std::array<std::string_view, 17> words = {
      "const",    "volatile", "__restrict__", "__grid_constant__",
      "unsigned", "signed",   "int",          "float",
      "double",   "char",     "short",        "long",
      "bool",     "void",     "typename",     "auto",
      "wchar_t"};
  return token.is_one_of(words);
}

std::vector<Range> split_parameters(const std::vector<Token>& tokens, Range parameters) {
  std::vector<Range> all;
  std::size_t begin = parameters.begin;
  for (std::size_t i = parameters.begin; i < parameters.end;) {
    if (tokens[i].is(",")) {
      all.push_back({begin, i});
      begin = i + 1;
    }
    const bool opens = tokens[i].is("(") || tokens[i].is("{") || tokens[i].is("[");
    const bool has_arguments = tokens[i].is("<") && i > begin && tokens[i - 1].kind == TokenKind::identifier;
    i = opens ? skip_bracket(tokens, i) : has_arguments ? skip_angles(tokens, i) : i + 1;
  }
  if (!parameters.empty()) all.push_back({begin, parameters.end});
  return all;
}

bool has(const std::vector<Token>& tokens, Range range, std::string_view wanted) {
  return std::any_of(tokens.begin() + static_cast<std::ptrdiff_t>(range.begin),
                     tokens.begin() + static_cast<std::ptrdiff_t>(range.end),
                     [&](const Token& token) { return token.is(wanted); });
}

// Nothing where the parameter has no name, and for an array, which is a pointer to others' memory.
std::optional<std::size_t> name_of(const std::vector<Token>& tokens, Range parameter) {
  std::size_t end = parameter.begin;
  while (end < parameter.end && !tokens[end].is("=")) {
    if (tokens[end].is("...") || tokens[end].is("[")) return std::nullopt;
    const bool names_function = end + 2 < parameter.end && tokens[end].kind == TokenKind::identifier &&
                                tokens[end + 1].is(")") && tokens[end + 2].is("(");
    if (names_function) return end;  // "void (*f)(int)"
    ++end;
  }
  if (end < parameter.begin + 2) return std::nullopt;
  const std::size_t last = end - 1;
  if (tokens[last].kind != TokenKind::identifier || is_no_name(tokens[last])) return std::nullopt;
  // The name is behind a type: "const n::P" and "const struct P" are none.
  std::size_t before = last;
  while (before > parameter.begin) {
    const Token& token = tokens[--before];
    if (token.is("const") || token.is("volatile") || token.is("__restrict__") || token.is(word)) continue;
    return token.is("::") || token.is_class_key() || token.is("enum") || token.is("typename") ? std::nullopt
                                                                                              : std::optional(last);
  }
  return std::nullopt;
}

// Whether the name is declared once more there, as far as that can be seen: "int p = ...", "auto& p : ...".
bool declares(const std::vector<Token>& tokens, std::size_t at) {
  const Token& before = tokens[at - 1];
  const Token& after = tokens[at + 1];
  const bool is_declarator = before.is("&") || before.is("*") || before.is("&&");
  const Token& type = is_declarator ? tokens[at - 2] : before;
  const bool is_behind_type = (type.kind == TokenKind::identifier && !type.is("return")) || type.is(">");
  const bool begins = after.is("=") || after.is(";") || after.is(":") || after.is("{") || after.is(")") ||
                      after.is(",") || after.is("[");
  return is_behind_type && begins;
}

// The name is a reference, so its declared type is not the parameter's; that of the copy is. Where the name may be
// another's, up to the end of that block, nothing changes.
void name_copy_in_types(const std::vector<Token>& tokens, Range body, std::string_view name, const std::string& copy,
                        Edits& edits) {
  std::size_t depth = 0, hidden_from_depth = 0;  // 0: not hidden
  for (std::size_t i = body.begin; i + 3 < body.end; ++i) {
    if (tokens[i].is("{")) ++depth;
    if (tokens[i].is("}") && depth-- == hidden_from_depth) hidden_from_depth = 0;
    if (hidden_from_depth != 0) continue;
    if (tokens[i].is(name) && declares(tokens, i)) hidden_from_depth = depth;
    if (tokens[i].is("decltype") && tokens[i + 1].is("(") && tokens[i + 2].is(name) && tokens[i + 3].is(")"))
      edits.replace(tokens[i + 2], copy);
  }
}

// Where a parameter has "...", or its end.
std::size_t dots_of(const std::vector<Token>& tokens, Range parameter) {
  std::size_t at = parameter.begin;
  while (at < parameter.end && !tokens[at].is("...")) ++at;
  return at;
}

constexpr const char* must_be_const =
    ", \"a parameter annotated with __grid_constant__ must have const-qualified type\"); ";

}  // namespace

bool has_grid_constants(const std::vector<Token>& tokens, Range parameters) { return has(tokens, parameters, word); }

GridConstants make_grid_constants(const std::vector<Token>& tokens, const Declaration& kernel,
                                  std::optional<std::size_t> pack, Edits& edits) {
  GridConstants made;
  const std::vector<Range> parameters = split_parameters(tokens, kernel.parameters);
  for (std::size_t position = 0; position < std::min(pack.value_or(parameters.size()), parameters.size()); ++position) {
    const Range parameter = parameters[position];
    const std::string index = std::to_string(position);
    if (!has(tokens, parameter, word)) continue;
    const std::optional<std::size_t> name = name_of(tokens, parameter);
    if (!name) continue;
    const std::string copy = "aiocuda_copy_" + index;
    edits.replace(tokens[*name], copy);
    // Nobody writes to an argument: the compiler may keep it in a register while the kernel writes elsewhere.
    made.references += "auto& __restrict " + std::string(tokens[*name].text) +
                       " = ::aiocuda_device::grid_constant<decltype(" + copy + ")>(" + index + "); ";
    made.checks += "static_assert(::aiocuda_device::is_const<decltype(" + copy + ")>" + must_be_const;
    name_copy_in_types(tokens, kernel.body, tokens[*name].text, copy, edits);
  }
  return made;
}

std::optional<std::size_t> pack_of_grid_constants(const std::vector<Token>& tokens, const Declaration& kernel) {
  const std::vector<Range> parameters = split_parameters(tokens, kernel.parameters);
  const auto found = std::find_if(parameters.begin(), parameters.end(), [&](const Range& each) {
    return has(tokens, each, word) && has(tokens, each, "...");
  });
  if (found == parameters.end()) return std::nullopt;
  return static_cast<std::size_t>(found - parameters.begin());
}

std::vector<std::size_t> references_of_pack(const std::vector<Token>& tokens, const Declaration& kernel,
                                            std::size_t first) {
  std::vector<std::size_t> found;
  const std::vector<Range> parameters = split_parameters(tokens, kernel.parameters);
  for (std::size_t position = first; position < parameters.size(); ++position) {
    const Range parameter = parameters[position];
    if (!has(tokens, parameter, word) || has(tokens, parameter, "&") || has(tokens, parameter, "&&")) continue;
    const std::size_t dots = dots_of(tokens, parameter);
    found.push_back(dots < parameter.end ? dots : name_of(tokens, parameter).value_or(parameter.end));
  }
  return found;
}

std::string check_of_pack(const std::vector<Token>& tokens, const Declaration& kernel, std::size_t first) {
  const std::vector<Range> parameters = split_parameters(tokens, kernel.parameters);
  if (first >= parameters.size()) return {};
  const Range pack = parameters[first];
  const std::size_t name = dots_of(tokens, pack) + 1;
  if (name >= pack.end || tokens[name].kind != TokenKind::identifier) return {};
  return "static_assert((true && ... && ::aiocuda_device::is_const<typename "
         "::aiocuda_device::remove_reference<decltype(" +
         std::string(tokens[name].text) + ")>::type>)" + must_be_const;
}

std::vector<HostCode> find_misplaced_grid_constants(const std::vector<Token>& tokens,
                                                    const std::vector<Declaration>& declarations) {
  std::vector<HostCode> found;
  for (const Declaration& d : declarations) {
    const bool is_kernel = d.is_function && has(tokens, {d.all.begin, d.name.begin}, "__global__");
    if (is_kernel) {
      for (const Range parameter : split_parameters(tokens, d.parameters)) {
        const bool is_reference = has(tokens, parameter, "&") || has(tokens, parameter, "&&");
        if (is_reference && has(tokens, parameter, word))
          found.push_back(
              {d.parameters.begin - 1, "a parameter annotated with __grid_constant__ must not have reference type"});
      }
    }
    if (tokens[d.all.begin].is("using") || tokens[d.all.begin].is("typedef")) continue;
    std::vector<std::size_t> open;  // brackets
    for (std::size_t i = d.all.begin; i < d.all.end; ++i) {
      if (tokens[i].is("(") || tokens[i].is("{")) open.push_back(i);
      if ((tokens[i].is(")") || tokens[i].is("}")) && !open.empty()) open.pop_back();
      if (!tokens[i].is(word) || (is_kernel && d.parameters.begin <= i && i < d.parameters.end)) continue;
      if (!open.empty() && tokens[open.back()].is("(")) {
        found.push_back(
            {open.back(), "__grid_constant__ annotation is only allowed on a parameter of a __global__ function"});
      } else {
        found.push_back({i, "attribute \"grid_constant\" does not apply here"});
      }
    }
  }
  return found;
}

}  // namespace aiocuda::emulator::nvrtc
