// The primary context of each device: made when it is first retained, destroyed when it is released
// as often, or reset. Its handle is the same for the whole life of the process.
#include <array>
#include <memory>
#include <mutex>

#include "context.hpp"
#include "context_flags.hpp"
#include "holding.hpp"

using namespace aiocuda::emulator;

namespace {

struct PrimaryContext {
  std::mutex mutex;
  std::shared_ptr<Context> context;  // null while it is not active
  unsigned retained = 0;
  unsigned flags = CU_CTX_SCHED_AUTO;

  CUcontext handle() noexcept { return reinterpret_cast<CUcontext>(this); }

  void end() {
    if (!context) return;
    contexts().take(handle());
    context->end();
    context.reset();
  }
};

PrimaryContext& primary_context(CUdevice device) {
  static auto* const of_devices = new std::array<PrimaryContext, 64>;
  return (*of_devices)[static_cast<std::size_t>(device)];
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = held("cuDevicePrimaryCtxRetain", device)) return error;
  PrimaryContext& primary = primary_context(device);
  const std::lock_guard lock(primary.mutex);
  if (!primary.context) {
    primary.context = std::make_shared<Context>(device, primary.flags, primary.handle());
    contexts().add(primary.handle(), primary.context);
  }
  ++primary.retained;
  *handle = primary.handle();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  PrimaryContext& primary = primary_context(device);
  const std::lock_guard lock(primary.mutex);
  if (primary.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary.retained == 0) primary.end();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  PrimaryContext& primary = primary_context(device);
  const std::lock_guard lock(primary.mutex);
  primary.end();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  if (const CUresult error = check_device(device)) return error;
  if (!are_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  PrimaryContext& primary = primary_context(device);
  const std::lock_guard lock(primary.mutex);
  primary.flags = flags;
  if (primary.context) primary.context->set_flags(flags);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  if (const CUresult error = check_device(device)) return error;
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  PrimaryContext& primary = primary_context(device);
  const std::lock_guard lock(primary.mutex);
  *flags = primary.flags;
  *active = primary.context != nullptr;
  return CUDA_SUCCESS;
}
