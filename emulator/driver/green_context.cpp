// The API of green contexts. A green context keeps the resources that it was given, and its kernels run on all
// multiprocessors.
#include "green_context.hpp"

#include <algorithm>

#include "capture/capture.hpp"
#include "event.hpp"
#include "newer_api.hpp"

namespace aiocuda::emulator {
namespace {

// Those that were ever made and are still referred to; a stream's handle outlives its green context.
struct Known {
  std::mutex mutex;
  std::vector<std::shared_ptr<GreenContext>> all;
};

Known& known() {
  static auto& known = *new Known;
  return known;
}

std::atomic<bool> any_was_made{false};

template <typename Picks>
std::shared_ptr<GreenContext> find_known(Picks&& picks) {
  if (!any_was_made.load(std::memory_order_acquire)) return nullptr;
  auto& [mutex, all] = known();
  const std::lock_guard lock(mutex);
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& each) { return picks(*each); });
  return found == all.end() ? nullptr : *found;
}

}  // namespace

GreenContextTable& green_contexts() {
  static auto& table = *new GreenContextTable;
  return table;
}

std::shared_ptr<GreenContext> green_context_of(CUcontext handle) {
  return find_known([&](const GreenContext& each) { return each.context_handle() == handle; });
}

std::shared_ptr<GreenContext> green_context_of(const Stream& stream) {
  return find_known([&](const GreenContext& each) { return each.has(stream); });
}

std::vector<std::shared_ptr<GreenContext>>& green_context_stack() {
  thread_local std::vector<std::shared_ptr<GreenContext>> stack;
  return stack;
}

std::shared_ptr<GreenContext> current_green_context() {
  const auto& stack = green_context_stack();
  return stack.empty() ? nullptr : stack.back();
}

void GreenContext::add_stream(const std::shared_ptr<Stream>& stream) {
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [](const auto& each) { return each.expired(); });
  streams_.push_back(stream);
}

std::vector<std::shared_ptr<Stream>> GreenContext::streams() const {
  std::vector<std::shared_ptr<Stream>> live;
  const std::lock_guard lock(mutex_);
  for (const auto& each : streams_) {
    if (auto stream = each.lock()) live.push_back(std::move(stream));
  }
  return live;
}

bool GreenContext::has(const Stream& stream) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(streams_.begin(), streams_.end(), [&](const auto& each) { return each.lock().get() == &stream; });
}

void GreenContext::end() {
  ended_.store(true, std::memory_order_release);
  for (const auto& stream : streams()) {
    capture::leave(*stream);
    stream->close();
  }
}

}  // namespace aiocuda::emulator

using namespace aiocuda::emulator;

namespace {

constexpr unsigned no_flags = 0;  // CU_GREEN_CTX_NONE, since CUDA 13.1

CUresult find(CUgreenCtx handle, std::shared_ptr<GreenContext>& found) {
  if (const CUresult error = check_initialised()) return error;
  found = green_contexts().find(handle);
  if (!found) return CUDA_ERROR_INVALID_CONTEXT;
  return found->primary().error();
}

}  // namespace

CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource* resource, CUdevResourceType type) {
  if (const CUresult error = check_initialised()) return error;
  const auto context = contexts().find(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  const auto green = green_context_of(handle);
  return make_resource(green ? green->resources() : all_resources(context->device()), type, resource);
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource* resource, CUdevResourceType type) {
  std::shared_ptr<GreenContext> green;
  if (const CUresult error = find(handle, green)) return error;
  return make_resource(green->resources(), type, resource);
}

CUresult cuStreamGetDevResource(CUstream handle, CUdevResource* resource, CUdevResourceType type) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  const auto green = green_context_of(*stream);
  return make_resource(green ? green->resources() : all_resources(stream->context().device()), type, resource);
}

CUresult cuGreenCtxCreate(CUgreenCtx* handle, CUdevResourceDesc given, CUdevice device, unsigned flags) {
  if (const CUresult error = check_device(device)) return error;
  const auto described = described_resources(given);
  if (handle == nullptr || !described || described->device != device ||
      (flags != CU_GREEN_CTX_DEFAULT_STREAM && flags != no_flags))
    return CUDA_ERROR_INVALID_VALUE;
  CUcontext primary = nullptr;
  if (const CUresult error = cuDevicePrimaryCtxRetain(&primary, device)) return error;
  auto context = contexts().find(primary);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;  // another thread has reset it
  const auto made = std::make_shared<GreenContext>(context, *described);
  {
    auto& [mutex, all] = known();
    const std::lock_guard lock(mutex);
    std::erase_if(all, [](const auto& each) { return each->ended() && each->streams().empty(); });
    all.push_back(made);
    any_was_made.store(true, std::memory_order_release);
  }
  contexts().add(made->context_handle(), std::move(context));
  *handle = green_contexts().add(made);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
  if (const CUresult error = check_initialised()) return error;
  const auto green = green_contexts().take(handle);
  if (!green) return CUDA_ERROR_INVALID_CONTEXT;
  contexts().take(green->context_handle());
  green->end();
  return cuDevicePrimaryCtxRelease(green->primary().device());
}

CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx handle) {
  std::shared_ptr<GreenContext> green;
  if (const CUresult error = find(handle, green)) return error;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = green->context_handle();
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetId(CUgreenCtx handle, unsigned long long* id) {
  std::shared_ptr<GreenContext> green;
  if (const CUresult error = find(handle, green)) return error;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = green->id();
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream* handle, CUgreenCtx given, unsigned flags, int priority) {
  std::shared_ptr<GreenContext> green;
  if (const CUresult error = find(given, green)) return error;
  if (handle == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  priority = std::clamp(priority, greatest_stream_priority, least_stream_priority);
  auto stream = std::make_shared<Stream>(green->shared_primary(), flags, priority, Stream::Kind::ordinary);
  green->primary().add_stream(stream);
  green->add_stream(stream);
  *handle = streams().add(std::move(stream));
  return CUDA_SUCCESS;
}

CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx* green_context) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (green_context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto green = green_context_of(*stream);
  *green_context = green ? green->handle() : nullptr;
  return CUDA_SUCCESS;
}

// The record comes after all that its streams have.
CUresult cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent given) {
  std::shared_ptr<GreenContext> green;
  if (const CUresult error = find(handle, green)) return error;
  const auto event = events().find(given);
  if (!event || &event->context() != &green->primary()) return CUDA_ERROR_INVALID_HANDLE;
  const auto joint = std::make_shared<Stream>(green->shared_primary(), CU_STREAM_NON_BLOCKING, least_stream_priority,
                                              Stream::Kind::ordinary);
  for (const auto& stream : green->streams()) {
    if (const CUresult error = capture::check_not_captured(*stream)) return error;
    joint->wait_for(stream->tail());
  }
  event->record(*joint);
  joint->close();
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent given) {
  std::shared_ptr<GreenContext> green;
  if (const CUresult error = find(handle, green)) return error;
  const auto event = events().find(given);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  const auto record = event->last_record();
  if (!record) return CUDA_SUCCESS;
  if (const CUresult error = capture::check_not_captured(*record)) return error;
  for (const auto& stream : green->streams()) {
    if (const CUresult error = capture::check_not_captured(*stream)) return error;
    stream->wait_for(record->ticket);
  }
  return CUDA_SUCCESS;
}
