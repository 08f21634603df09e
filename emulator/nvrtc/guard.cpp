// See guard.hpp. Only these very forms are recognised; anything else has no guard.
#include "guard.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace aiocuda::emulator::nvrtc {
namespace {

bool is_index_type(std::string_view type) {
  static constexpr std::array<std::string_view, 15> types = {
      "int",      "unsigned", "unsigned int", "uint",    "long",     "long long", "unsigned long", "unsigned long long",
      "long int", "size_t",   "uint32_t",     "int32_t", "uint64_t", "int64_t",   "auto"};
  return std::find(types.begin(), types.end(), type) != types.end();
}

bool is_global_index(std::string_view expression) {
  static constexpr std::array<std::string_view, 4> forms = {
      "blockIdx.x*blockDim.x+threadIdx.x", "blockDim.x*blockIdx.x+threadIdx.x", "threadIdx.x+blockIdx.x*blockDim.x",
      "threadIdx.x+blockDim.x*blockIdx.x"};
  return std::find(forms.begin(), forms.end(), expression) != forms.end();
}

// The last name of each parameter.
std::vector<std::string_view> parameter_names(const std::vector<Token>& tokens, Range parameters) {
  std::vector<std::string_view> names;
  std::string_view last;
  for (std::size_t i = parameters.begin; i < parameters.end;) {
    const Token& token = tokens[i];
    if (token.is(",")) {
      names.push_back(last);
      last = {};
    } else if (token.kind == TokenKind::identifier) {
      last = token.text;
    }
    i = token.is("(") ? skip_bracket(tokens, i) : token.is("<") ? skip_angles(tokens, i) : i + 1;
  }
  if (!parameters.empty()) names.push_back(last);
  return names;
}

}  // namespace

std::optional<Guard> find_guard(const std::vector<Token>& tokens, const Declaration& kernel) {
  std::size_t i = kernel.body.begin + 1;
  std::string type;
  for (; i < kernel.body.end && tokens[i].kind == TokenKind::identifier; ++i) {
    if (tokens[i].is("const")) continue;
    if (i + 1 < kernel.body.end && tokens[i + 1].is("=")) break;
    type += (type.empty() ? "" : " ") + std::string(tokens[i].text);
  }
  if (!is_index_type(type) || i + 1 >= kernel.body.end || !tokens[i + 1].is("=")) return std::nullopt;
  const std::string_view index = tokens[i].text;
  std::string expression;
  for (i += 2; i < kernel.body.end && !tokens[i].is(";"); ++i) expression += tokens[i].text;
  if (!is_global_index(expression) || i + 7 >= kernel.body.end) return std::nullopt;
  const Token* next = &tokens[i + 1];
  const bool is_test = next[0].is("if") && next[1].is("(") && next[2].is(index) &&
                       next[4].kind == TokenKind::identifier && next[5].is(")");
  const bool returns = next[3].is(">=") && next[6].is("return");
  if (!is_test || (!next[3].is("<") && !returns)) return std::nullopt;
  const std::vector<std::string_view> names = parameter_names(tokens, kernel.parameters);
  const auto parameter = std::find(names.begin(), names.end(), next[4].text);
  if (parameter == names.end()) return std::nullopt;
  return Guard{{i + 3, i + 6}, returns, static_cast<std::size_t>(parameter - names.begin())};
}

}  // namespace aiocuda::emulator::nvrtc
