// See diagnostics.hpp.
#include "diagnostics.hpp"

#include <regex>
#include <sstream>

namespace aiocuda::emulator::nvrtc {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

bool is_noise(const std::string& line) {
  for (const char* start :
       {"In file included from ", "                 from ", "compilation terminated", "collect2: error", "<module>:"}) {
    if (line.starts_with(start)) return true;
  }
  static const std::regex summary("^[0-9]+ (error|warning)s?( and [0-9]+ (error|warning)s?)? generated\\.$");
  return std::regex_match(line, summary);
}

std::string summary(std::size_t errors, std::string_view program_name) {
  return std::to_string(errors) + (errors == 1 ? " error" : " errors") + " detected in the compilation of \"" +
         std::string(program_name) + "\".\n";
}

}  // namespace

std::string readable_log(const DiagnosticsRequest& request) {
  static const std::regex located("^([^\\s:][^:]*):([0-9]+):(?:[0-9]+:)? (fatal error|error|warning|note): (.*)$");
  static const std::regex instantiated("^([^\\s:][^:]*):([0-9]+):(?:[0-9]+:)?\\s+(required from .*|required by .*)$");
  static const std::regex missing("'?([^' ]+)'? ?(file not found|: No such file or directory)");
  std::istringstream lines{std::string(request.output)};
  std::string log;
  std::size_t errors = 0;
  for (std::string line; std::getline(lines, line);) {
    replace_all(line, std::string(request.temporary_prefix) + "/headers/", "");
    replace_all(line, std::string(request.temporary_prefix) + "/", "");
    replace_all(line, std::string(request.device_headers) + "/", "");
    for (const auto& [from, to] : {std::pair{"__direct__", "__global__"},
                                   {"__devvar__", "__device__"},
                                   {"__constvar__", "__constant__"},
                                   {"__managvar__", "__managed__"}}) {
      replace_all(line, from, to);
    }
    if (is_noise(line)) continue;
    std::smatch match;
    if (std::regex_match(line, match, instantiated)) {
      log += match[1].str() + "(" + match[2].str() + "): note: " + match[3].str() + "\n";
      continue;
    }
    if (!std::regex_match(line, match, located)) {
      log += line + "\n";
      continue;
    }
    const std::string kind = match[3] == "fatal error" ? "catastrophic error" : match[3].str();
    const bool is_error = match[3] != "warning" && match[3] != "note";
    errors += is_error ? 1 : 0;
    log += match[1].str() + "(" + match[2].str() + "): " + kind + ": " + match[4].str() + "\n";
    std::smatch header;
    const std::string message = match[4];
    if (match[3] == "fatal error" && std::regex_search(message, header, missing)) {
      log +=
          "  note: the emulated NVRTC has CUDA's own headers (cuda_runtime.h, cuda_fp16.h, cuda_bf16.h, "
          "cooperative_groups.h, ...), the C and C++ standard headers and cuda/std/...; others, such as thrust, "
          "cub, curand and libcu++ beyond cuda/std, are not available unless an --include-path holds them or they "
          "are handed to nvrtcCreateProgram.\n";
    }
  }
  if (request.failed) log += "\n" + summary(std::max<std::size_t>(errors, 1), request.program_name);
  return log;
}

std::string log_of(const std::vector<Problem>& problems, std::string_view program_name) {
  std::string log;
  for (const Problem& problem : problems) {
    log += problem.file + "(" + std::to_string(problem.line) + "): error: " + problem.message + "\n";
  }
  return log + "\n" + summary(problems.size(), program_name);
}

}  // namespace aiocuda::emulator::nvrtc
