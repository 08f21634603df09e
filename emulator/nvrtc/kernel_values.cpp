// See kernel_values.hpp.
#include "kernel_values.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace aiocuda::emulator::nvrtc {
namespace {

using Names = std::unordered_set<std::string_view>;

bool is_integer_word(const Token& token) {
  static const Names words = {"unsigned", "signed",   "int",      "char",     "short",   "long",
                              "bool",     "size_t",   "int8_t",   "int16_t",  "int32_t", "int64_t",
                              "uint8_t",  "uint16_t", "uint32_t", "uint64_t", "uint"};
  return words.contains(token.text);
}

// Without a point or an exponent.
bool is_integer_literal(const Token& token) {
  if (token.kind != TokenKind::number) return false;
  const std::string_view text = token.text;
  if (text.starts_with("0x") || text.starts_with("0X"))
    return std::none_of(text.begin(), text.end(), [](char c) { return c == '.' || c == 'p' || c == 'P'; });
  return std::all_of(text.begin(), text.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) || c == 'u' || c == 'U' || c == 'l' || c == 'L' || c == '\'';
  });
}

bool begins_statement(const Token& token) { return token.is(";") || token.is("{") || token.is("}"); }

}  // namespace

bool is_type_word(const Token& token) {
  static const Names others = {"float", "double", "float2", "float3", "float4", "double2", "int2",
                               "int3",  "int4",   "uint2",  "uint3",  "uint4",  "half",    "__half"};
  return is_integer_word(token) || others.contains(token.text);
}

bool is_place(const Token& token) { return token.is("blockIdx") || token.is("blockDim") || token.is("gridDim"); }

KernelValues::KernelValues(const std::vector<Token>& tokens, const std::vector<Declaration>& declarations,
                           const Declaration& kernel)
    : tokens_(tokens), kernel_(kernel) {
  find_parameters();
  find_constants(declarations);
}

bool KernelValues::changes_at(std::size_t i) const {
  const Token& next = tokens_[i + 1];
  static constexpr std::array<std::string_view, 11> changes = {
      "=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "++", "--"};
  const bool shifts = (next.is("<<") && tokens_[i + 2].is("=")) || (next.is(">") && tokens_[i + 2].is(">="));
  const Token& before = tokens_[i - 1];
  return next.is_one_of(changes) || shifts || before.is("++") || before.is("--") || before.is("&");
}

bool KernelValues::changes(std::string_view name, Range range) const {
  for (std::size_t i = range.begin; i < range.end; ++i) {
    const bool is_member = i > 0 && (tokens_[i - 1].is(".") || tokens_[i - 1].is("->"));
    if (tokens_[i].is(name) && !is_member && changes_at(i)) return true;
  }
  return false;
}

int KernelValues::declarations_of(std::string_view name) const {
  static constexpr std::array<std::string_view, 8> no_types = {"return", "else",   "do",     "case",
                                                               "goto",   "sizeof", "typeof", "co_return"};
  static constexpr std::array<std::string_view, 6> behind_names = {"=", ";", ",", "[", "{", ":"};
  int found = 0, depth = 0;
  for (std::size_t i = kernel_.body.begin; i < kernel_.body.end; ++i) {
    const Token& token = tokens_[i];
    if (begins_statement(token)) depth = 0;
    if (token.is("(") || token.is("[")) ++depth;
    if (token.is(")") || token.is("]")) --depth;
    if (!token.is(name)) continue;
    std::size_t before = i - 1;
    const bool is_next_of_several = tokens_[before].is(",") && depth == 0;
    const bool has_stars = tokens_[before].is("*") || tokens_[before].is("&") || tokens_[before].is("&&");
    while (tokens_[before].is("*") || tokens_[before].is("&") || tokens_[before].is("&&")) --before;
    const Token& type = tokens_[before];
    const bool is_template = type.is(">") && tokens_[i + 1].is_one_of(behind_names);
    bool is_type = type.kind == TokenKind::identifier && !type.is_one_of(no_types);
    // "a * name" is a product unless a statement begins with it.
    if (is_type && has_stars && !is_type_word(type) && !type.is("auto") && !type.is("const")) {
      const Token& first = tokens_[before - 1];
      is_type = begins_statement(first) || first.is("(") || first.is("const") || first.is("::") || first.is(",");
    }
    if (is_next_of_several || is_template || is_type) ++found;
  }
  return found;
}

void KernelValues::find_parameters() {
  for (std::size_t i = kernel_.parameters.begin; i < kernel_.parameters.end; ++i) {
    const std::size_t begin = i;
    std::size_t name = begin;
    bool is_named = false, is_understood = true, is_number = true, is_pointer = false, is_reference = false;
    for (; i < kernel_.parameters.end && !tokens_[i].is(","); ++i) {
      const Token& token = tokens_[i];
      is_pointer = is_pointer || token.is("*");
      is_understood = is_understood && !token.is("(") && !token.is("<") && !token.is("=");
      if (token.kind == TokenKind::identifier) {
        name = i;
        is_named = true;
      } else {
        is_number = false;
        is_reference = is_reference || !token.is("*");
      }
    }
    const std::string_view text = tokens_[name].text;
    if (!is_understood || !is_named || changes(text, kernel_.body)) {
      keeps_parameters_ = false;
      return;
    }
    if (is_number) same_for_all_.insert(text);
    if (!is_reference && declarations_of(text) == 0) add(text, {begin, name}, is_pointer);
  }
}

// "constexpr int tile = 16;", with any of "static", "inline" and "const".
void KernelValues::find_constants(const std::vector<Declaration>& declarations) {
  for (const Declaration& each : declarations) {
    if (each.is_function || each.is_class || !each.name_space.empty() || !each.template_header.empty()) continue;
    std::size_t i = each.all.begin;
    bool is_constant = false, has_type = false;
    for (; i < each.all.end; ++i) {
      if (tokens_[i].is("const") || tokens_[i].is("constexpr")) {
        is_constant = true;
      } else if (is_integer_word(tokens_[i])) {
        has_type = true;
      } else if (!tokens_[i].is("static") && !tokens_[i].is("inline") && !tokens_[i].is("__device__")) {
        break;
      }
    }
    if (!is_constant || !has_type || i + 1 >= each.all.end || !tokens_[i + 1].is("=")) continue;
    const std::string_view name = tokens_[i].text;
    const bool is_parameter = std::any_of(tokens_.begin() + static_cast<std::ptrdiff_t>(kernel_.parameters.begin),
                                          tokens_.begin() + static_cast<std::ptrdiff_t>(kernel_.parameters.end),
                                          [&](const Token& token) { return token.is(name); });
    if (tokens_[i].kind != TokenKind::identifier || is_parameter || declarations_of(name) > 0) continue;
    same_for_all_.insert(name);
    integers_.insert(name);
  }
}

bool KernelValues::is_integer(Range type) const {
  bool has_type = false;
  for (std::size_t i = type.begin; i < type.end; ++i) {
    if (is_integer_word(tokens_[i])) {
      has_type = true;
    } else if (!tokens_[i].is("const")) {
      return false;
    }
  }
  return has_type;
}

void KernelValues::add(std::string_view name, Range type, bool is_pointer) {
  if (is_pointer) {
    pointers_.insert(name);
  } else if (is_integer(type)) {
    integers_.insert(name);
  }
}

bool KernelValues::can_be_computed(Range type, bool is_pointer, Range value) const {
  if (!is_pointer) return is_integer(type) && is_computed_from_integers(value);
  if (!pointers_.contains(tokens_[value.begin].text)) return false;
  const Range offset{value.begin + 1, value.end};
  if (offset.empty()) return true;
  return (tokens_[offset.begin].is("+") || tokens_[offset.begin].is("-")) && is_computed_from_integers(offset);
}

// No calls, nothing that is read from memory, and no division that costs more than an array's element.
bool KernelValues::is_computed_from_integers(Range value) const {
  static constexpr std::array<std::string_view, 22> operators = {
      "+", "-", "*", "(",  ")",  "<<", ">>", "&",  "|",  "^",  "~",
      "!", "<", ">", "<=", ">=", "?",  ":",  "&&", "||", "==", "!="};
  for (std::size_t i = value.begin; i < value.end; ++i) {
    const Token& token = tokens_[i];
    if (is_place(token) || token.is("threadIdx")) {
      i += 2;  // ".x"
    } else if (token.is("/") || token.is("%")) {
      if (!is_integer_literal(tokens_[i + 1])) return false;
    } else if (!is_integer_literal(token) && !is_integer_word(token) && !integers_.contains(token.text) &&
               !token.is_one_of(operators)) {
      return false;
    }
  }
  return true;
}

}  // namespace aiocuda::emulator::nvrtc
