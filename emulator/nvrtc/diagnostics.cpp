// See diagnostics.hpp.
#include "diagnostics.hpp"

#include <algorithm>
#include <cctype>
#include <regex>
#include <set>
#include <sstream>

namespace aiocuda::emulator::nvrtc {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

std::string line_of(std::string_view text, std::size_t number) {
  std::size_t begin = 0;
  for (; number > 1 && begin < text.size(); --number) begin = std::min(text.find('\n', begin), text.size() - 1) + 1;
  return std::string(text.substr(begin, text.find('\n', begin) - begin));
}

// The source line, and a caret below it. The compiler's column is that of the rewritten text: the name that the message
// quotes is looked for.
std::string quoted(const std::string& line, std::size_t column, const std::string& message) {
  std::size_t at = std::min(column, line.size() + 1) - 1;
  const std::size_t open = message.find('\'');
  const std::size_t close = open == std::string::npos ? open : message.find('\'', open + 1);
  if (close != std::string::npos) {
    const std::string name = message.substr(open + 1, close - open - 1);
    const std::size_t found = line.compare(at, name.size(), name) == 0 ? at : line.find(name);
    if (found != std::string::npos) at = found;
  }
  return "  " + line + "\n  " + std::string(at, ' ') + "^\n\n";
}

// "f" of "int a::f<int>(int)".
std::string unqualified(const std::string& demangled) {
  const std::string name = demangled.substr(0, demangled.find_first_of("(<"));
  return name.substr(name.find_last_of(": ") + 1);
}

// The number of the first line that has the word, or 0.
std::size_t line_with(std::string_view text, const std::string& word) {
  const auto is_of_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (std::size_t at = text.find(word); !word.empty() && at != text.npos; at = text.find(word, at + 1)) {
    const std::size_t past = at + word.size();
    if ((at == 0 || !is_of_name(text[at - 1])) && (past == text.size() || !is_of_name(text[past])))
      return 1 +
             static_cast<std::size_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
  }
  return 0;
}

// A function that the program declares, uses and does not define. The linker says so, for each use.
std::string unresolved(const std::string& demangled, const DiagnosticsRequest& request) {
  const std::string message = "Unresolved extern function '" + demangled +
                              "': the program uses it and does not define it. Define it, or compile with -rdc=true and "
                              "link the program that does\n";
  const std::size_t line = line_with(request.source, unqualified(demangled));
  if (line == 0) return "error: " + message + "\n";
  return std::string(request.program_name) + "(" + std::to_string(line) + "): error: " + message +
         quoted(line_of(request.source, line), 1, "'" + unqualified(demangled) + "'");
}

bool is_noise(const std::string& line) {
  static const std::regex place(
      "^[^ ]+: (In [a-z ]*(function|constructor|destructor|operator|lambda) .*|At global scope):$");
  if (std::regex_match(line, place)) return true;
  for (const char* start :
       {"In file included from ", "                 from ", "compilation terminated", "collect2: error", "<module>:"}) {
    if (line.starts_with(start)) return true;
  }
  if (line.ends_with("style of line directive is a GCC extension")) return true;  // of our own lines
  if (line.find(": error: linker command failed") != std::string::npos) return true;
  static const std::regex summary("^[0-9]+ (error|warning)s?( and [0-9]+ (error|warning)s?)? generated\\.$");
  return std::regex_match(line, summary);
}

constexpr const char* no_elements = "the size of an array must be greater than zero";

// g++ warns of all that is not standard C++, or of nothing; clang of what is C's alone. NVRTC refuses these, and takes
// most others. Headers of an --include-path may have them: their paths are absolute.
bool is_pedantic(const std::string& message) {
  return message.ends_with("[-Wpedantic]") || message.ends_with("[-Wc99-extensions]");
}
bool is_refused(const std::string& file, const std::string& message) {
  return is_pedantic(message) && !file.starts_with('/') &&
         (message.starts_with("ISO C++ forbids zero-size array") ||
          message.starts_with("ISO C++ forbids flexible array member") ||
          message.starts_with("flexible array members are a C99 feature"));
}

// The compilers' words in NVRTC's.
std::string in_words_of_nvrtc(const std::string& message) {
  static const std::pair<std::regex, const char*> phrases[] = {
      {std::regex("^'([^']+)' (was not declared in this scope|does not name a type).*$"),
       "identifier \"$1\" is undefined"},
      {std::regex("^(?:use of undeclared identifier|unknown type name) '([^']+)'.*$"),
       "identifier \"$1\" is undefined"},
      {std::regex("^expected '(.)' (?:before|at|after) .*$"), "expected a \"$1\""},
      {std::regex("^expected '?(.)'? (?:before|at|after) .*$"), "expected a \"$1\""},
      {std::regex("^'?([^' ]+)'?(?: file not found|: No such file or directory)$"),
       "could not open source file \"$1\""},
      {std::regex("^ISO C\\+\\+ forbids variable length array '([^']+)'.*$"), "expression must have a constant value"},
      {std::regex("^variable length array.*$"), "expression must have a constant value"},
      {std::regex("^ISO C\\+\\+ forbids zero-size array.*$"), no_elements},
      {std::regex("^zero size arrays are an extension.*$"), no_elements},
      {std::regex("^ISO C\\+\\+ forbids flexible array member '([^']+)'.*$"), "incomplete type is not allowed: \"$1\""},
      {std::regex("^static assertion failed.*: (a parameter annotated with __grid_constant__ .*)$"), "$1"},
      {std::regex("^flexible array members are a C99 feature.*$"), "incomplete type is not allowed"},
  };
  for (const auto& [phrase, ours] : phrases) {
    if (std::regex_match(message, phrase)) return std::regex_replace(message, phrase, ours);
  }
  return message;
}

std::string summary(std::size_t errors, std::string_view program_name) {
  return std::to_string(errors) + (errors == 1 ? " error" : " errors") + " detected in the compilation of \"" +
         std::string(program_name) + "\".\n";
}

}  // namespace

ReadableLog readable_log(const DiagnosticsRequest& request) {
  static const std::regex located("^([^\\s:][^:]*):([0-9]+):(?:([0-9]+):)? (fatal error|error|warning|note): (.*)$");
  static const std::regex instantiated("^([^\\s:][^:]*):([0-9]+):(?:[0-9]+:)?\\s+(required from .*|required by .*)$");
  static const std::regex quoted_line("^ *[0-9]* \\| .*$");
  static const std::regex in_function("^[^:]*ld[^:]*: .*: in function `.*':$");  // GNU ld's, before it names a symbol
  static const std::regex undefined("^.*: undefined reference to `(.*)'$");
  static const std::regex missing("'?([^' ]+)'? ?(file not found|: No such file or directory)");
  std::istringstream lines{std::string(request.output)};
  std::string log;
  std::size_t errors = 0;
  std::set<std::string> known_unresolved;
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
    static const std::regex at_end("^<module>:.* error: (expected '}'.*)$");
    if (std::smatch end; std::regex_match(line, end, at_end)) {
      log += "At end of source: error: " + in_words_of_nvrtc(end[1]) + "\n";
      ++errors;
    }
    if (is_noise(line)) continue;
    std::smatch match;
    if (std::regex_match(line, in_function)) continue;
    if (std::regex_match(line, match, undefined)) {
      if (!known_unresolved.insert(match[1]).second) continue;
      log += unresolved(match[1], request);
      ++errors;
      continue;
    }
    if (std::regex_match(line, match, instantiated)) {
      log += match[1].str() + "(" + match[2].str() + "): note: " + match[3].str() + "\n";
      continue;
    }
    if (std::regex_match(line, quoted_line)) continue;  // of what the compiler saw: the user's is quoted below
    if (!std::regex_match(line, match, located)) {
      log += line + "\n";
      continue;
    }
    const bool refuses = match[4] == "warning" && is_refused(match[1], match[5]);
    if (match[4] == "warning" && is_pedantic(match[5]) && !refuses) continue;
    const std::string kind = match[4] == "fatal error" ? "catastrophic error" : refuses ? "error" : match[4].str();
    const bool is_error = refuses || (match[4] != "warning" && match[4] != "note");
    errors += is_error ? 1 : 0;
    log += match[1].str() + "(" + match[2].str() + "): " + kind + ": " + in_words_of_nvrtc(match[5]) + "\n";
    if (match[1].str() == request.program_name) {
      log += quoted(line_of(request.source, std::stoul(match[2])), match[3].length() != 0 ? std::stoul(match[3]) : 1,
                    match[5]);
    }
    std::smatch header;
    const std::string message = match[5];
    if (match[4] == "fatal error" && std::regex_search(message, header, missing)) {
      log +=
          "  note: the emulated NVRTC has CUDA's own headers (cuda_runtime.h, cuda_fp16.h, cuda_bf16.h, "
          "cooperative_groups.h, ...) and cuda/std/... As with NVIDIA's NVRTC, the headers of the host's C and C++ "
          "libraries are not there: use <cuda/std/...>. (printf needs no header. To debug with host headers on the "
          "emulated driver alone, set AIOCUDA_EMULATOR_HOST_CODE=1.) Others, such as thrust, cub and curand, must "
          "lie on an --include-path or be handed to nvrtcCreateProgram.\n";
    }
  }
  const bool has_errors = request.failed || errors > 0;
  if (has_errors) log += "\n" + summary(std::max<std::size_t>(errors, 1), request.program_name);
  return {std::move(log), has_errors};
}

std::string log_of(const std::vector<Problem>& problems, std::string_view program_name) {
  std::string log;
  for (const Problem& problem : problems) {
    log += problem.file + "(" + std::to_string(problem.line) + "): error: " + problem.message + "\n  " +
           problem.source_line + "\n  " + std::string(problem.column, ' ') + "^\n\n";
  }
  return log + summary(problems.size(), program_name);
}

}  // namespace aiocuda::emulator::nvrtc
