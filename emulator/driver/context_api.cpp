// The API of contexts, but for primary ones (primary_context.cpp).
#include "capture/capture.hpp"
#include "context.hpp"
#include "context_flags.hpp"
#include "green_context.hpp"
#include "memory/memory.hpp"
#include "stream.hpp"

using namespace aiocuda::emulator;

namespace {

// The API version that all contexts of the current ABI report.
constexpr unsigned context_api_version = 3020;

void push(std::shared_ptr<Context> context, std::shared_ptr<GreenContext> green) {
  context_stack().push_back(std::move(context));
  green_context_stack().push_back(std::move(green));
}

void pop() {
  context_stack().pop_back();
  green_context_stack().pop_back();
}

// The name by which the current context was made current.
CUcontext current_handle() {
  const auto green = current_green_context();
  return green ? green->context_handle() : context_stack().back()->handle();
}

CUresult create_context(CUcontext* handle, unsigned flags, CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  if (handle == nullptr || !are_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  auto context = std::make_shared<Context>(device, flags, nullptr);
  *handle = contexts().add(context);
  push(std::move(context), nullptr);
  return CUDA_SUCCESS;
}

// The context a handle means, or the current one for null.
CUresult find_context(CUcontext handle, std::shared_ptr<Context>& context) {
  if (handle == nullptr) {
    const Entry entry = enter_even_if_lost();
    if (!entry) return entry.error();
    context = entry.context().shared_from_this();
    return CUDA_SUCCESS;
  }
  if (const CUresult error = check_initialised()) return error;
  context = contexts().find(handle);
  return context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult synchronise(Context& context) {
  if (const CUresult error = check_may_wait()) return error;
  if (const CUresult error = capture::check_may_ask(context)) return error;
  if (const CUresult error = context.synchronise()) return error;
  memory::after_synchronise(context.device());
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuCtxCreate_v4(CUcontext* handle, CUctxCreateParams* parameters, unsigned flags, CUdevice device) {
  if (const CUresult error = check_device(device)) return error;
  if (parameters != nullptr && (parameters->numExecAffinityParams > 0 || parameters->cigParams != nullptr)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return create_context(handle, flags, device);
}

extern "C" [[gnu::visibility("default")]] CUresult cuCtxCreate_v2(CUcontext* handle, unsigned flags, CUdevice device) {
  return create_context(handle, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext handle) {
  if (const CUresult error = check_initialised()) return error;
  const std::shared_ptr<Context> found = contexts().find(handle);
  if (!found || found->is_primary()) return CUDA_ERROR_INVALID_CONTEXT;
  const std::shared_ptr<Context> context = contexts().take(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;  // destroyed by another thread meanwhile
  auto& stack = context_stack();
  if (!stack.empty() && stack.back() == context) pop();
  context->end();
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  if (const CUresult error = check_initialised()) return error;
  std::shared_ptr<Context> context = contexts().find(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  push(std::move(context), green_context_of(handle));
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* handle) {
  if (const CUresult error = check_initialised()) return error;
  auto& stack = context_stack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != nullptr) *handle = current_handle();
  pop();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  if (const CUresult error = check_initialised()) return error;
  auto& stack = context_stack();
  if (handle == nullptr) {
    if (!stack.empty()) pop();
    return CUDA_SUCCESS;
  }
  std::shared_ptr<Context> context = contexts().find(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!stack.empty()) pop();
  push(std::move(context), green_context_of(handle));
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* handle) {
  if (const CUresult error = check_initialised()) return error;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& stack = context_stack();
  *handle = stack.empty() ? nullptr : current_handle();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  const Entry entry = enter_even_if_lost();
  if (!entry) return entry.error();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = entry.context().device();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  std::shared_ptr<Context> context;
  if (const CUresult error = find_context(handle, context)) return error;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned* flags) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = entry.context().flags();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned flags) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (!are_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  entry.context().set_flags(flags);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  std::shared_ptr<Context> context;
  if (const CUresult error = find_context(handle, context)) return error;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto green = handle != nullptr ? green_context_of(handle) : current_green_context();
  *id = green ? green->id() : context->id();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
  std::shared_ptr<Context> context;
  if (const CUresult error = find_context(handle, context)) return error;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = context_api_version;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  const Entry entry = enter();
  return entry ? synchronise(entry.context()) : entry.error();
}

CUresult cuCtxSynchronize_v2(CUcontext handle) {
  std::shared_ptr<Context> context;
  if (const CUresult error = find_context(handle, context)) return error;
  return synchronise(*context);
}

CUresult cuCtxSetLimit(CUlimit limit, std::size_t value) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (const CUresult error = capture::check_unsafe_call()) return error;
  return entry.context().set_limit(limit, value);
}

CUresult cuCtxGetLimit(std::size_t* value, CUlimit limit) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  return value != nullptr ? entry.context().get_limit(limit, *value) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = entry.context().cache_config.load();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
  entry.context().cache_config.store(config);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (config < CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE || config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The banks of a GPU's shared memory are four bytes wide now, whatever is asked.
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (least != nullptr) *least = least_stream_priority;
  if (greatest != nullptr) *greatest = greatest_stream_priority;
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return entry.context().enable_peer_access(peer);
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  const Entry entry = enter();
  return entry ? entry.context().disable_peer_access(peer) : entry.error();
}
