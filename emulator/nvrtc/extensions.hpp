// What the host's compilers understand beyond standard C++, and NVRTC does not: words and forms that tokens tell.
// Arrays without elements are left to the host's compiler, which knows their sizes.
#pragma once

#include <vector>

#include "declarations.hpp"
#include "host_code.hpp"
#include "tokens.hpp"

namespace aiocuda::emulator::nvrtc {

struct ExtensionsRequest {
  const TokenizedSource& source;
  const std::vector<Declaration>& declarations;
  int cpp_standard;
  bool has_int128;  // NVRTC's option -device-int128
};

// Not those of headers that lie on an --include-path: they may ask which compiler it is, and use what that one has.
std::vector<HostCode> find_extensions(const ExtensionsRequest& request);

}  // namespace aiocuda::emulator::nvrtc
