// The guard with which most kernels begin:
//   int i = blockIdx.x * blockDim.x + threadIdx.x;
//   if (i < n) ...          or          if (i >= n) return;
// with n a parameter. A loop over threads that is known to pass it needs no test inside.
#pragma once

#include <optional>
#include <vector>

#include "declarations.hpp"

namespace aiocuda::emulator::nvrtc {

struct Guard {
  Range condition;        // the comparison, without its parentheses
  bool returns;           // the threads that meet the condition leave
  std::size_t parameter;  // the position of n
};

std::optional<Guard> find_guard(const std::vector<Token>& tokens, const Declaration& kernel);

}  // namespace aiocuda::emulator::nvrtc
