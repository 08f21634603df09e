// Preprocessed CUDA C++ becomes C++ for the host's compiler: the same text, line for line, with CUDA's
// qualifiers resolved where a macro cannot (is this __device__ a variable's? does this kernel wait?),
// `extern __shared__` arrays bound, and the table of kernels added at the end.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aiocuda::emulator::nvrtc {

struct RewriteRequest {
  std::string_view preprocessed;
  const std::vector<std::string>& name_expressions;
  bool for_clang;
  std::string unit;     // an identifier that no other unit of a module has
  bool is_relocatable;  // other units may define what this one only declares
  int cpp_standard;
  bool allows_host_code = false;   // what NVRTC refuses because it is the host's
  bool is_default_device = false;  // NVRTC's option -default-device
  bool has_int128 = false;         // NVRTC's option -device-int128
  bool may_split = true;           // kernels, at their barriers; see split.hpp
  bool checked = false;  // a gap follows each shared variable, so that an overrun does not end in the next one
};

// Something that NVRTC refuses, or that the emulated driver does not do, found in the user's text.
struct Problem {
  std::string file;
  int line;
  std::string message;
  std::string source_line;
  std::size_t column;  // from 0
};

struct Rewritten {
  std::string text;
  std::vector<std::string> includes;  // the device headers asked for, in order, as they are to be named
  std::vector<Problem> problems;
  std::vector<std::string> files;  // every file that line markers name
  bool casts_pointers = false;     // see casts.hpp
  bool has_split = false;          // a kernel at its barriers
  bool includes_nvidia = false;    // headers of libcu++ or cub by NVIDIA
  std::size_t kernel_count = 0;    // entries of the table before those of the name expressions
};

Rewritten rewrite(const RewriteRequest& request);

// The directive with which the headers in `visible` say what to include when compiling.
inline constexpr std::string_view include_pragma = "#pragma aiocuda_include ";

}  // namespace aiocuda::emulator::nvrtc
