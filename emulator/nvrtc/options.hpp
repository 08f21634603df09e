// NVRTC's compilation options, read. All of its documented options are accepted; those that speak of
// GPU code only (registers, PTX) change nothing here.
#pragma once

#include <string>
#include <vector>

namespace aiocuda::emulator::nvrtc {

struct Options {
  int architecture = 75;  // compute capability times ten: NVRTC's default
  int cpp_standard = 17;  // at least 17, which the device headers need
  bool multiply_add = true;
  bool fast_math = false;
  bool device_debug = false;
  bool line_information = false;
  bool no_warnings = false;
  bool no_cache = false;
  bool syntax_only = false;
  bool is_relocatable = false;  // for a linker, which also takes what other programs define
  bool is_whole = false;        // -rdc=false was said
  bool for_link_time = false;   // likewise, in the form that nvrtcGetLTOIR answers
  bool default_device = false;  // what has no qualifier is the device's
  bool device_int128 = false;
  std::vector<std::string> preprocessor;  // -D, -U, -I, -include, for the compiler

  std::vector<std::string> errors;  // what is wrong with the options, one line each
};

Options parse_options(const std::vector<std::string>& given);

// The architectures for which the emulated NVRTC compiles, ascending.
const std::vector<int>& supported_architectures();

}  // namespace aiocuda::emulator::nvrtc
