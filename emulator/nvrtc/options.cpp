// See options.hpp.
#include "options.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <string_view>

namespace aiocuda::emulator::nvrtc {
namespace {

enum class Kind {
  architecture,
  standard,
  define,
  undefine,
  include_path,
  pre_include,
  multiply_add,
  fast_math,
  debug,
  line_information,
  no_warnings,
  no_cache,
  syntax_only,
  relocatable,  // may have "=value"
  always_relocatable,
  link_time,
  default_device,
  device_int128,
  ignored_flag,   // may have "=value"
  ignored_value,  // has a value
};

// Long and short names without their dashes, as in NVRTC's documentation.
const std::map<std::string_view, Kind>& known_options() {
  static const std::map<std::string_view, Kind> known = {
      {"gpu-architecture", Kind::architecture},
      {"arch", Kind::architecture},
      {"std", Kind::standard},
      {"define-macro", Kind::define},
      {"D", Kind::define},
      {"undefine-macro", Kind::undefine},
      {"U", Kind::undefine},
      {"include-path", Kind::include_path},
      {"I", Kind::include_path},
      {"pre-include", Kind::pre_include},
      {"include", Kind::pre_include},
      {"fmad", Kind::multiply_add},
      {"use_fast_math", Kind::fast_math},
      {"device-debug", Kind::debug},
      {"G", Kind::debug},
      {"generate-line-info", Kind::line_information},
      {"lineinfo", Kind::line_information},
      {"disable-warnings", Kind::no_warnings},
      {"w", Kind::no_warnings},
      {"no-cache", Kind::no_cache},
      {"fdevice-syntax-only", Kind::syntax_only},
      {"device-c", Kind::always_relocatable},
      {"dc", Kind::always_relocatable},
      {"device-w", Kind::ignored_flag},
      {"dw", Kind::ignored_flag},
      {"relocatable-device-code", Kind::relocatable},
      {"rdc", Kind::relocatable},
      {"extensible-whole-program", Kind::ignored_flag},
      {"ewp", Kind::ignored_flag},
      {"dopt", Kind::ignored_value},
      {"Ofast-compile", Kind::ignored_value},
      {"Ofc", Kind::ignored_value},
      {"ofast-compile", Kind::ignored_value},
      {"ptxas-options", Kind::ignored_value},
      {"Xptxas", Kind::ignored_value},
      {"maxrregcount", Kind::ignored_value},
      {"ftz", Kind::ignored_value},
      {"prec-sqrt", Kind::ignored_value},
      {"prec-div", Kind::ignored_value},
      {"extra-device-vectorization", Kind::ignored_flag},
      {"modify-stack-limit", Kind::ignored_value},
      {"dlink-time-opt", Kind::link_time},
      {"dlto", Kind::link_time},
      {"gen-opt-lto", Kind::ignored_flag},
      {"optix-ir", Kind::ignored_flag},
      {"jump-table-density", Kind::ignored_value},
      {"jtd", Kind::ignored_value},
      {"device-stack-protector", Kind::ignored_value},
      {"frandom-seed", Kind::ignored_value},
      {"no-source-include", Kind::ignored_flag},
      {"builtin-move-forward", Kind::ignored_value},
      {"builtin-initializer-list", Kind::ignored_value},
      {"Wreorder", Kind::ignored_flag},
      {"warning-as-error", Kind::ignored_value},
      {"Werror", Kind::ignored_value},
      {"restrict", Kind::ignored_flag},
      {"device-as-default-execution-space", Kind::default_device},
      {"default-device", Kind::default_device},
      {"device-int128", Kind::device_int128},
      {"device-float128", Kind::ignored_flag},
      {"optimization-info", Kind::ignored_value},
      {"opt-info", Kind::ignored_value},
      {"display-error-number", Kind::ignored_flag},
      {"err-no", Kind::ignored_flag},
      {"no-display-error-number", Kind::ignored_flag},
      {"no-err-no", Kind::ignored_flag},
      {"diag-error", Kind::ignored_value},
      {"diag-suppress", Kind::ignored_value},
      {"diag-warn", Kind::ignored_value},
      {"brief-diagnostics", Kind::ignored_value},
      {"brief-diag", Kind::ignored_value},
      {"time", Kind::ignored_value},
      {"split-compile", Kind::ignored_value},
      {"fdevice-time-trace", Kind::ignored_value},
      {"minimal", Kind::ignored_flag},
      {"pch", Kind::ignored_flag},
      {"create-pch", Kind::ignored_value},
      {"use-pch", Kind::ignored_value},
      {"pch-dir", Kind::ignored_value},
      {"pch-verbose", Kind::ignored_value},
      {"pch-messages", Kind::ignored_value},
      {"instantiate-templates-in-pch", Kind::ignored_value},
      {"version-ident", Kind::ignored_value},
      {"ident", Kind::ignored_value},
      {"allow-unsupported-compiler", Kind::ignored_flag},
  };
  return known;
}

bool takes_value(Kind kind) {
  return kind == Kind::architecture || kind == Kind::standard || kind == Kind::define || kind == Kind::undefine ||
         kind == Kind::include_path || kind == Kind::pre_include || kind == Kind::multiply_add ||
         kind == Kind::relocatable || kind == Kind::ignored_value;
}

class Parser {
 public:
  explicit Parser(const std::vector<std::string>& given) : given_(given) {}

  Options run() {
    for (at_ = 0; at_ < given_.size(); ++at_) option(given_[at_]);
    if (options_.for_link_time && options_.is_whole) error("-dlto is not compatible with -rdc=false");
    return std::move(options_);
  }

 private:
  void option(std::string_view text) {
    while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    if (text.empty()) return;
    std::string_view name = text;
    name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
    const std::size_t dashes = text.size() - name.size();
    if (dashes == 0 || dashes > 2 || name.empty()) return unknown(text);
    std::string value;
    bool has_value = false;
    // -DNAME, -Idirectory, -UNAME: the value may follow at once.
    const bool is_joined = dashes == 1 && (name[0] == 'D' || name[0] == 'I' || name[0] == 'U') && name.size() > 1;
    const std::size_t split = name.find_first_of("= ");
    if (is_joined) {
      value = name.substr(name[1] == '=' ? 2 : 1);
      has_value = true;
      name = name.substr(0, 1);
      while (!value.empty() && value.front() == ' ') value.erase(0, 1);
    } else if (split != std::string_view::npos) {
      value = name.substr(split + 1);
      has_value = true;
      name = name.substr(0, split);
    }
    const auto known = known_options().find(name);
    if (known == known_options().end()) return unknown(text);
    if (!has_value && takes_value(known->second)) {
      if (at_ + 1 >= given_.size()) return error(std::string(text) + " needs a value");
      value = given_[++at_];
    }
    apply(known->second, text, value, has_value);
  }

  void apply(Kind kind, std::string_view text, const std::string& value, bool has_value) {
    switch (kind) {
      case Kind::architecture:
        return architecture(value);
      case Kind::standard:
        return standard(value);
      case Kind::define:
        return preprocessor("-D", value);
      case Kind::undefine:
        return preprocessor("-U", value);
      case Kind::include_path:
        return preprocessor("-I", std::filesystem::absolute(value).string());
      case Kind::pre_include:
        options_.preprocessor.insert(options_.preprocessor.end(), {"-include", value});
        return;
      case Kind::multiply_add:
        options_.multiply_add = truth(text, value);
        return;
      case Kind::fast_math:
        options_.fast_math = !has_value || truth(text, value);
        return;
      case Kind::debug:
        options_.device_debug = true;
        return;
      case Kind::line_information:
        options_.line_information = true;
        return;
      case Kind::no_warnings:
        options_.no_warnings = true;
        return;
      case Kind::no_cache:
        options_.no_cache = true;
        return;
      case Kind::syntax_only:
        options_.syntax_only = true;
        return;
      case Kind::relocatable:
        options_.is_relocatable = truth(text, value);
        options_.is_whole = !options_.is_relocatable;
        return;
      case Kind::link_time:
        options_.for_link_time = true;
        options_.is_relocatable = true;
        return;
      case Kind::always_relocatable:
        options_.is_relocatable = true;
        return;
      case Kind::default_device:
        options_.default_device = true;
        return;
      case Kind::device_int128:
        options_.device_int128 = true;
        return;
      case Kind::ignored_flag:
      case Kind::ignored_value:
        return;
    }
  }

  void preprocessor(const char* flag, const std::string& value) { options_.preprocessor.push_back(flag + value); }

  bool truth(std::string_view text, const std::string& value) {
    if (value == "true" || value == "1" || value == "on") return true;
    if (value != "false" && value != "0" && value != "off")
      error(std::string(text) + ": the value must be true or false");
    return false;
  }

  void architecture(const std::string& value) {
    std::string_view digits = value;
    for (const std::string_view prefix : {"compute_", "sm_", "lto_"}) {
      if (digits.starts_with(prefix)) digits.remove_prefix(prefix.size());
    }
    int number = 0;
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const std::string_view suffix(end, static_cast<std::size_t>(digits.data() + digits.size() - end));
    const auto& known = supported_architectures();
    const bool is_known = std::find(known.begin(), known.end(), number) != known.end();
    if (problem != std::errc{} || digits.size() == value.size() || !is_known ||
        (!suffix.empty() && suffix != "a" && suffix != "f")) {
      return error("invalid value for --gpu-architecture (-arch): '" + value + "'");
    }
    options_.architecture = number;
  }

  void standard(const std::string& value) {
    static const std::map<std::string_view, int> standards = {
        {"c++03", 17}, {"c++11", 17}, {"c++14", 17}, {"c++17", 17}, {"c++20", 20}};
    const auto known = standards.find(value);
    if (known == standards.end()) return error("invalid value for --std: '" + value + "'");
    options_.cpp_standard = known->second;
  }

  void unknown(std::string_view text) { error("unrecognized option " + std::string(text) + " found"); }
  void error(const std::string& message) { options_.errors.push_back("nvrtc: error: " + message); }

  const std::vector<std::string>& given_;
  std::size_t at_ = 0;
  Options options_;
};

}  // namespace

const std::vector<int>& supported_architectures() {
  static const std::vector<int> architectures = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
  return architectures;
}

Options parse_options(const std::vector<std::string>& given) { return Parser(given).run(); }

}  // namespace aiocuda::emulator::nvrtc
