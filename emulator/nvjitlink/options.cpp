// See options.hpp.
#include "options.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "nvrtc/options.hpp"

namespace aiocuda::emulator::nvjitlink {
namespace {

constexpr std::array<std::string_view, 12> plain = {"time",     "verbose",      "O0",
                                                    "O1",       "O2",           "O3",
                                                    "g",        "lineinfo",     "optimize-unused-variables",
                                                    "no-cache", "device-debug", "generate-line-info"};
constexpr std::array<std::string_view, 13> with_value = {"maxrregcount",
                                                         "ftz",
                                                         "prec-div",
                                                         "prec-sqrt",
                                                         "fma",
                                                         "kernels-used",
                                                         "Xptxas",
                                                         "variables-used",
                                                         "split-compile",
                                                         "split-compile-extended",
                                                         "Xnvvm",
                                                         "jump-table-density",
                                                         "device-stack-protector"};

template <class List, class Item>
bool has(const List& list, const Item& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool read_architecture(std::string_view value, Options& options) {
  for (const std::string_view prefix : {"sm_", "compute_", "lto_"}) {
    if (!value.starts_with(prefix)) continue;
    value.remove_prefix(prefix.size());
    int number = 0;
    const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), number);
    const std::string_view suffix(end, static_cast<std::size_t>(value.data() + value.size() - end));
    options.architecture = number;
    return problem == std::errc{} && (suffix.empty() || suffix == "a" || suffix == "f") &&
           has(nvrtc::supported_architectures(), number);
  }
  return false;
}

}  // namespace

bool read_option(std::string_view text, Options& options) {
  const std::size_t dashes = std::min(text.find_first_not_of('-'), text.size());
  if (dashes == 0 || dashes > 2) return false;
  text.remove_prefix(dashes);
  const std::size_t split = text.find('=');
  const std::string_view name = text.substr(0, split);
  const bool has_value = split != std::string_view::npos;
  if (name == "arch" && has_value) return read_architecture(text.substr(split + 1), options);
  if (text == "lto" || text == "dlto") return options.link_time = true;
  if (text == "ptx") return options.as_text = true;
  return has_value ? has(with_value, name) : has(plain, name);
}

}  // namespace aiocuda::emulator::nvjitlink
