// The kernels that run at this moment, counted for each device: what the emulated NVML calls utilisation.
#pragma once
#include "api.hpp"

namespace aiocuda::emulator::monitoring {

// A kernel runs on a device while this lives.
class RunningKernel {
 public:
  explicit RunningKernel(CUdevice device) noexcept;
  ~RunningKernel();
  RunningKernel(const RunningKernel&) = delete;
  RunningKernel& operator=(const RunningKernel&) = delete;

 private:
  const CUdevice device_;
};

}  // namespace aiocuda::emulator::monitoring
