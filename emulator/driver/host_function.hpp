// Marks a thread that is inside a host function of a stream. CUDA forbids those to call its API, and a
// call that waits for a stream would never return; the driver answers CUDA_ERROR_NOT_PERMITTED.
#pragma once
#include <memory>

#include "api.hpp"

namespace aiocuda::emulator {

class Work;

class HostFunctionScope {
 public:
  HostFunctionScope() noexcept;
  ~HostFunctionScope();
  HostFunctionScope(const HostFunctionScope&) = delete;
  HostFunctionScope& operator=(const HostFunctionScope&) = delete;
};

bool in_host_function() noexcept;

// The work that calls a host function.
std::unique_ptr<Work> make_host_function_work(CUhostFn function, void* user_data);

}  // namespace aiocuda::emulator
