// Marks a thread that is inside a host function of a stream. CUDA forbids those to call its API, and a
// call that waits for a stream would never return; the driver answers CUDA_ERROR_NOT_PERMITTED.
#pragma once

namespace aiocuda::emulator {

class HostFunctionScope {
 public:
  HostFunctionScope() noexcept;
  ~HostFunctionScope();
  HostFunctionScope(const HostFunctionScope&) = delete;
  HostFunctionScope& operator=(const HostFunctionScope&) = delete;
};

bool in_host_function() noexcept;

}  // namespace aiocuda::emulator
