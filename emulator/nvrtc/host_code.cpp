// See host_code.hpp. The messages are NVRTC's, so that who looks one up finds it.
#include "host_code.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace aiocuda::emulator::nvrtc {
namespace {

constexpr const char* host_function =
    "A function without execution space annotations (__host__/__device__/__global__) is considered a host function, "
    "and host functions are not allowed in JIT mode. Consider using -default-device flag to process unannotated "
    "functions as __device__ functions in JIT mode";
constexpr const char* marked_host_function =
    "A function explicitly marked as a __host__ function is not allowed in JIT mode";
constexpr const char* host_variable =
    "A namespace scope variable without memory space annotations (__device__/__constant__/__shared__/__managed__) is "
    "considered a host variable, and host variables are not allowed in JIT mode. Consider using -default-device flag "
    "to process unannotated namespace scope variables as __device__ variables in JIT mode";
constexpr const char* host_member =
    "A class static data member with non-const type is considered a host variable, and host variables are not allowed "
    "in JIT mode. Consider using -default-device flag to process such data members as __device__ variables in JIT mode";

// Names that the device headers declare for every program, and NVRTC only with a header; and who has that header:
// "numbers" are those of <stdint.h>, "limits" those of <limits.h> and <float.h>, "math" those of <math.h>.
enum class Origin { numbers, limits, math, math_constants, memory, nowhere };

std::optional<Origin> origin_of(std::string_view word) {
  static const std::unordered_map<std::string_view, Origin> known = {
      {"int8_t", Origin::numbers},    {"int16_t", Origin::numbers},   {"int32_t", Origin::numbers},
      {"int64_t", Origin::numbers},   {"uint8_t", Origin::numbers},   {"uint16_t", Origin::numbers},
      {"uint32_t", Origin::numbers},  {"uint64_t", Origin::numbers},  {"intptr_t", Origin::numbers},
      {"uintptr_t", Origin::numbers}, {"intmax_t", Origin::numbers},  {"uintmax_t", Origin::numbers},
      {"INT8_MIN", Origin::numbers},  {"INT8_MAX", Origin::numbers},  {"UINT8_MAX", Origin::numbers},
      {"INT16_MIN", Origin::numbers}, {"INT16_MAX", Origin::numbers}, {"UINT16_MAX", Origin::numbers},
      {"INT32_MIN", Origin::numbers}, {"INT32_MAX", Origin::numbers}, {"UINT32_MAX", Origin::numbers},
      {"INT64_MIN", Origin::numbers}, {"INT64_MAX", Origin::numbers}, {"UINT64_MAX", Origin::numbers},
      {"CHAR_BIT", Origin::limits},   {"SCHAR_MIN", Origin::limits},  {"SCHAR_MAX", Origin::limits},
      {"UCHAR_MAX", Origin::limits},  {"CHAR_MIN", Origin::limits},   {"CHAR_MAX", Origin::limits},
      {"SHRT_MIN", Origin::limits},   {"SHRT_MAX", Origin::limits},   {"USHRT_MAX", Origin::limits},
      {"INT_MIN", Origin::limits},    {"INT_MAX", Origin::limits},    {"UINT_MAX", Origin::limits},
      {"LONG_MIN", Origin::limits},   {"LONG_MAX", Origin::limits},   {"ULONG_MAX", Origin::limits},
      {"LLONG_MIN", Origin::limits},  {"LLONG_MAX", Origin::limits},  {"ULLONG_MAX", Origin::limits},
      {"FLT_MAX", Origin::limits},    {"FLT_MIN", Origin::limits},    {"FLT_EPSILON", Origin::limits},
      {"DBL_MAX", Origin::limits},    {"DBL_MIN", Origin::limits},    {"DBL_EPSILON", Origin::limits},
      {"FLT_DIG", Origin::limits},    {"DBL_DIG", Origin::limits},    {"FLT_MANT_DIG", Origin::limits},
      {"INFINITY", Origin::math},     {"NAN", Origin::math},          {"HUGE_VAL", Origin::math},
      {"HUGE_VALF", Origin::math},    {"M_E", Origin::math},          {"M_LOG2E", Origin::math},
      {"M_LOG10E", Origin::math},     {"M_LN2", Origin::math},        {"M_LN10", Origin::math},
      {"M_PI", Origin::math},         {"M_PI_2", Origin::math},       {"M_PI_4", Origin::math},
      {"M_1_PI", Origin::math},       {"M_2_PI", Origin::math},       {"M_2_SQRTPI", Origin::math},
      {"M_SQRT2", Origin::math},      {"M_SQRT1_2", Origin::math},    {"memmove", Origin::memory},
      {"memcmp", Origin::memory},     {"strlen", Origin::memory},     {"offsetof", Origin::memory},
      {"uint", Origin::nowhere},      {"ushort", Origin::nowhere},    {"nullptr_t", Origin::nowhere}};
  if (word.starts_with("CUDART_") && word != "CUDART_VERSION") return Origin::math_constants;
  const auto found = known.find(word);
  return found == known.end() ? std::nullopt : std::optional(found->second);
}

class HostCodeFinder {
 public:
  explicit HostCodeFinder(const HostCodeRequest& request) : request_(request), tokens_(request.tokens) {}

  std::vector<HostCode> run() {
    for (const Declaration& d : request_.declarations) declaration(d, false);
    names_without_header();
    exceptions_and_hidden_variables();
    std::stable_sort(found_.begin(), found_.end(),
                     [](const HostCode& a, const HostCode& b) { return a.token < b.token; });
    return std::move(found_);
  }

 private:
  bool has(Range range, std::string_view word) const {
    for (std::size_t i = range.begin; i < range.end; ++i) {
      if (tokens_[i].is(word)) return true;
    }
    return false;
  }

  void report(std::size_t token, std::string message) { found_.push_back({token, std::move(message)}); }

  void declaration(const Declaration& d, bool is_member) {
    std::size_t first = d.template_header.empty() ? d.all.begin : d.template_header.end;
    while (first + 1 < d.all.end && tokens_[first + 1].is(":") && !tokens_[first].is("default"))
      first += 2;  // "public:"
    if (d.is_explicit_instantiation || first >= d.all.end) return;
    static constexpr std::array<std::string_view, 9> others = {
        "typedef", "using", "static_assert", "_Static_assert", "asm", "friend", "namespace", "concept", "enum"};
    if (tokens_[first].is_one_of(others) && !(tokens_[first].is("friend") && !d.body.empty())) return;
    if (d.is_class) {
      members(d);
    } else if (d.is_function) {
      function(d, first, is_member);
    } else if (tokens_[first].is_class_key() && d.all.end - first <= 3) {
      return;  // "struct S;"
    } else {
      variable(d, first, is_member);
    }
  }

  void members(const Declaration& d) {
    std::size_t open = d.all.begin;
    while (open < d.all.end && !tokens_[open].is("{")) {
      if (tokens_[open].is("enum")) return;
      open = tokens_[open].is("(") ? skip_bracket(tokens_, open) : open + 1;
    }
    if (open >= d.all.end) return;
    const std::size_t close = skip_bracket(tokens_, open) - 1;
    for (const Declaration& member : find_declarations(tokens_, {open + 1, close})) declaration(member, true);
  }

  void function(const Declaration& d, std::size_t first, bool is_member) {
    if (d.name.empty() || tokens_[d.name.begin].kind != TokenKind::identifier) return;
    const Range head{first, d.name.begin};
    std::string name = d.name_space;
    for (std::size_t i = d.name.begin; i < d.name.end; ++i) name += tokens_[i].text;
    const bool is_device = has(head, "__device__") || has(head, "__global__");
    if (is_device) {
      if (!is_member) annotated_.insert(name);
      if (has(head, "__global__")) kernel(d, head);
      return;
    }
    const std::size_t behind = d.parameters.end + 1;
    const bool is_defaulted = has({std::min(behind, d.all.end), d.all.end}, "default") ||
                              has({std::min(behind, d.all.end), d.all.end}, "delete");
    if (d.body.empty() && (is_defaulted || is_deduction_guide(behind) || is_value(d.parameters))) return;
    if (has(d.name, "::") || annotated_.contains(name)) return;
    if (has(head, "__host__")) return report(d.name.begin, marked_host_function);
    if (!request_.is_default_device) report(d.name.begin, host_function);
  }

  void kernel(const Declaration& d, Range head) {
    if (!has(head, "void") && !has(head, "auto"))
      report(d.name.begin, "a __global__ function must have a void return type");
    const std::size_t last = d.parameters.end - 1;
    if (!d.parameters.empty() && tokens_[last].is("...") && (last == d.parameters.begin || tokens_[last - 1].is(",")))
      report(d.name.begin, "a __global__ function cannot have ellipsis");
  }

  bool is_deduction_guide(std::size_t behind) const { return behind < tokens_.size() && tokens_[behind].is("->"); }

  // "const int n(3);"
  bool is_value(Range parameters) const {
    return !parameters.empty() && tokens_[parameters.begin].kind != TokenKind::identifier &&
           !tokens_[parameters.begin].is("...") && !tokens_[parameters.begin].is("::");
  }

  void variable(const Declaration& d, std::size_t first, bool is_member) {
    std::size_t end = first;
    while (end < d.all.end && !tokens_[end].is("=") && !tokens_[end].is(";") && !tokens_[end].is("{") &&
           !(tokens_[end].is(":") && is_member)) {
      if (tokens_[end].is("<")) {
        end = skip_angles(tokens_, end);
      } else {
        end = tokens_[end].is("(") ? skip_bracket(tokens_, end) : end + 1;
      }
    }
    const Range head{first, std::min(end, d.all.end)};
    if (head.end - head.begin < 2 || (is_member && !has(head, "static"))) return;
    static constexpr std::array<std::string_view, 5> spaces = {"__device__", "__constant__", "__managed__",
                                                               "__shared__", "constexpr"};
    std::size_t star = head.begin;
    for (std::size_t i = head.begin; i < head.end; ++i) {
      if (tokens_[i].is_one_of(spaces)) return;
      if (tokens_[i].is("*")) star = i;
    }
    if (has({star, head.end}, "const") || request_.is_default_device) return;
    std::size_t name = head.end - 1;
    while (name > head.begin && tokens_[name].kind != TokenKind::identifier) --name;
    report(name, is_member ? host_member : host_variable);
  }

  bool includes(std::string_view part) const {
    return std::any_of(request_.includes.begin(), request_.includes.end(),
                       [&](const std::string& header) { return header.find(part) != std::string::npos; });
  }

  // NVRTC alone brings none of these names. Headers of libcu++ bring some along.
  bool has_header(Origin origin) const {
    const bool has_cuda_std = includes("cuda_std") || includes("cooperative_groups") || includes("cuda_atomic") ||
                              includes("cuda_barrier") || includes("cuda_pipeline");
    switch (origin) {
      case Origin::math_constants:
        return includes("math_constants");
      case Origin::math:
        return includes("<cmath>");
      case Origin::nowhere:
        return false;
      default:
        return has_cuda_std;
    }
  }

  void names_without_header() {
    std::unordered_set<std::string_view> declared;
    for (std::size_t i = 0; i + 1 < tokens_.size(); ++i) {
      if (!origin_of(tokens_[i].text)) continue;
      // A declaration of the program's own: "typedef unsigned char uint8_t;", "const float INFINITY = ...", "enum
      // {INT_MAX}".
      const Token& behind = tokens_[i + 1];
      const bool is_using = i > 0 && tokens_[i - 1].is("using");
      const bool is_declared =
          i > 0 && (tokens_[i - 1].kind == TokenKind::identifier || tokens_[i - 1].is("*")) &&
          !tokens_[i - 1].is("return") && !tokens_[i - 1].is("const") && !tokens_[i - 1].is("typename") &&
          !tokens_[i - 1].is("__restrict__") &&
          (behind.is(";") || behind.is("=") || behind.is("[") || behind.is(",") || behind.is(")") || behind.is("("));
      const bool is_enumerator = i > 0 && (tokens_[i - 1].is("{") || tokens_[i - 1].is(",")) && behind.is("=");
      if (is_using || is_declared || is_enumerator) declared.insert(tokens_[i].text);
    }
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const Token& token = tokens_[i];
      if (token.kind != TokenKind::identifier) continue;
      const bool is_qualified = i > 0 && (tokens_[i - 1].is("::") || tokens_[i - 1].is(".") || tokens_[i - 1].is("->"));
      if (is_qualified) {
        const bool of_std =
            i > 1 && tokens_[i - 2].is("std") && (i < 3 || !tokens_[i - 3].is("::")) && tokens_[i - 1].is("::");
        const bool is_ours = token.is("size_t") || origin_of(token.text) == Origin::numbers;
        if (of_std && is_ours && !has_header(Origin::numbers))
          report(i, "namespace \"std\" has no member \"" + std::string(token.text) + "\"");
        continue;
      }
      if (declared.contains(token.text)) continue;
      const std::optional<Origin> origin = origin_of(token.text);
      if (origin && !has_header(*origin)) {
        report(i, "identifier \"" + std::string(token.text) + "\" is undefined");
        declared.insert(token.text);
      }
    }
  }

  // "extern float x[];" in a function, and not "extern __shared__ float x[];".
  bool is_in_body(std::size_t token) const {
    return token > 0 && !tokens_[token - 1].is("__shared__") &&
           std::any_of(request_.declarations.begin(), request_.declarations.end(), [&](const Declaration& d) {
             return d.is_function && d.body.begin < token && token < d.body.end;
           });
  }

  void exceptions_and_hidden_variables() {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const Token& token = tokens_[i];
      if (token.is("try") || token.is("throw")) {
        report(i, "device code does not support exception handling");
      } else if (!request_.is_default_device && token.is("extern") && is_in_body(i) &&
                 !has({i, std::min(i + 3, tokens_.size())}, "__shared__")) {
        report(i, host_variable);
      }
    }
  }

  const HostCodeRequest& request_;
  const std::vector<Token>& tokens_;
  std::unordered_set<std::string> annotated_;
  std::vector<HostCode> found_;
};

}  // namespace

std::vector<HostCode> find_host_code(const HostCodeRequest& request) { return HostCodeFinder(request).run(); }

}  // namespace aiocuda::emulator::nvrtc
