// nvJitLink's options, read. Those that speak of GPU code alone change nothing here.
#pragma once
#include <string_view>

namespace aiocuda::emulator::nvjitlink {

struct Options {
  int architecture = 0;  // compute capability times ten; 0 where none is given
  bool link_time = false;
  bool as_text = false;  // for link time: the result is text in place of a binary
};

// False where an option is not known, or its value makes no sense.
bool read_option(std::string_view text, Options& options);

}  // namespace aiocuda::emulator::nvjitlink
