// The compiler's messages in NVRTC's form: "file(line): error: message", the user's file names, nothing of
// this library's own files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rewrite.hpp"

namespace aiocuda::emulator::nvrtc {

struct DiagnosticsRequest {
  std::string_view output;            // of the compiler
  std::string_view temporary_prefix;  // a directory whose name must not show
  std::string_view device_headers;    // likewise
  std::string_view program_name;
  std::string_view source;  // the program's text, whose lines are quoted
  bool failed;
};

struct ReadableLog {
  std::string text;
  bool has_errors;  // also those that NVRTC alone finds, and the compiler only warned of
};

ReadableLog readable_log(const DiagnosticsRequest& request);

std::string log_of(const std::vector<Problem>& problems, std::string_view program_name);

}  // namespace aiocuda::emulator::nvrtc
