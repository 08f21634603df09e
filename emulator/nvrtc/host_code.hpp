// What NVRTC refuses because only a host's compiler knows it: functions and variables without CUDA's qualifiers, names
// of the C and C++ library whose header is not included, exceptions.
#pragma once

#include <string>
#include <vector>

#include "declarations.hpp"
#include "tokens.hpp"

namespace aiocuda::emulator::nvrtc {

struct HostCode {
  std::size_t token;  // the place
  std::string message;
};

struct HostCodeRequest {
  const std::vector<Token>& tokens;
  const std::vector<Declaration>& declarations;
  const std::vector<std::string>& includes;  // the device headers that the program asks for
  bool is_default_device;                    // NVRTC's option: what has no qualifier is the device's
};

std::vector<HostCode> find_host_code(const HostCodeRequest& request);

}  // namespace aiocuda::emulator::nvrtc
