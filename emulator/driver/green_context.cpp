// The resources of devices, and green contexts of them. An emulated multiprocessor is a thread that runs blocks; a
// green context keeps the number of those that it was given, and its kernels run on all of them.
#include "green_context.hpp"

#include <algorithm>
#include <cstring>

#include "capture/capture.hpp"
#include "device.hpp"
#include "event.hpp"

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

// What a resource says beside its public members.
struct Internal {
  static constexpr std::uint32_t right_magic = 0x61696f63;
  std::uint32_t magic = right_magic;
  std::int32_t device = 0;
  std::uint32_t is_of_split = 0;  // it cannot be split again before a green context is made of it
};

// Multiprocessors come in groups, as a GPU's do, where there are enough of them.
unsigned group_size() {
  const int count = multiprocessor_count();
  return count >= 16 ? 8 : count >= 4 ? 2 : 1;
}
unsigned least_group_size() { return std::min(group_size(), 2U); }

CUdevResource make_resource(CUdevice device, unsigned multiprocessors, bool is_of_split) {
  CUdevResource made;
  std::memset(static_cast<void*>(&made), 0, sizeof made);
  if (multiprocessors == 0) return made;  // of the invalid type
  made.type = CU_DEV_RESOURCE_TYPE_SM;
  made.sm.smCount = multiprocessors;
  if (!is_of_split) made.sm.minSmPartitionSize = made.sm.smCoscheduledAlignment = group_size();
  Internal internal;
  internal.device = device;
  internal.is_of_split = is_of_split ? 1 : 0;
  static_assert(sizeof internal <= sizeof made._internal_padding);
  std::memcpy(made._internal_padding, &internal, sizeof internal);
  return made;
}

bool read(const CUdevResource& resource, Internal& internal) {
  std::memcpy(static_cast<void*>(&internal), resource._internal_padding, sizeof internal);
  return internal.magic == Internal::right_magic;
}

CUresult check_type(const CUdevResource* resource, CUdevResourceType type) {
  if (resource == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return type == CU_DEV_RESOURCE_TYPE_SM ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_TYPE;
}

unsigned all_multiprocessors() { return static_cast<unsigned>(multiprocessor_count()); }

// What green contexts are made of. There is no function that ends one.
struct Description {
  CUdevice device;
  unsigned multiprocessors;
};
using DescriptionTable = HandleTable<Description, CUdevResourceDesc>;

DescriptionTable& descriptions() {
  static auto& table = *new DescriptionTable;
  return table;
}

CUresult find(CUgreenCtx handle, std::shared_ptr<GreenContext>& found) {
  if (const CUresult error = check_initialised()) return error;
  found = green_contexts().find(handle);
  if (!found) return CUDA_ERROR_INVALID_CONTEXT;
  return found->primary().error();
}

}  // namespace

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  if (const CUresult error = check_device(device)) return error;
  if (const CUresult error = check_type(resource, type)) return error;
  *resource = make_resource(device, all_multiprocessors(), false);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource* resource, CUdevResourceType type) {
  if (const CUresult error = check_initialised()) return error;
  const auto context = contexts().find(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult error = check_type(resource, type)) return error;
  const auto green = green_context_of(handle);
  *resource = make_resource(context->device(), green ? green->multiprocessors() : all_multiprocessors(), false);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource* resource, CUdevResourceType type) {
  std::shared_ptr<GreenContext> green;
  if (const CUresult error = find(handle, green)) return error;
  if (const CUresult error = check_type(resource, type)) return error;
  *resource = make_resource(green->primary().device(), green->multiprocessors(), false);
  return CUDA_SUCCESS;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned* groups, const CUdevResource* input,
                                     CUdevResource* remaining, unsigned flags, unsigned least_count) {
  if (const CUresult error = check_initialised()) return error;
  if (groups == nullptr || input == nullptr || (result != nullptr && *groups == 0)) return CUDA_ERROR_INVALID_VALUE;
  Internal internal;
  if (input->type != CU_DEV_RESOURCE_TYPE_SM || !read(*input, internal)) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  const unsigned count = input->sm.smCount;
  if (internal.is_of_split != 0 || least_count > count) {
    if (result == nullptr) *groups = 0;
    return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  }
  const bool is_fine = (flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) != 0;
  const unsigned unit = is_fine ? least_group_size() : group_size();
  // A last group may be all that there is, though it is no multiple.
  const unsigned size = std::min((std::max(least_count, 1U) + unit - 1) / unit * unit, count);
  const unsigned most = count / size;
  const unsigned made = result == nullptr ? most : std::min(*groups, most);
  for (unsigned each = 0; result != nullptr && each < made; ++each)
    result[each] = make_resource(internal.device, size, true);
  *groups = made;
  if (remaining != nullptr) *remaining = make_resource(internal.device, count - made * size, true);
  return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* description, CUdevResource* resources, unsigned count) {
  if (const CUresult error = check_initialised()) return error;
  if (description == nullptr || resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<Description>();
  for (unsigned each = 0; each < count; ++each) {
    Internal internal;
    if (resources[each].type != CU_DEV_RESOURCE_TYPE_SM || !read(resources[each], internal))
      return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    if (each != 0 && internal.device != made->device) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    made->device = internal.device;
    made->multiprocessors += resources[each].sm.smCount;
  }
  *description = descriptions().add(std::move(made));
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx* handle, CUdevResourceDesc given, CUdevice device, unsigned flags) {
  if (const CUresult error = check_device(device)) return error;
  const auto description = descriptions().find(given);
  if (handle == nullptr || !description || description->device != device || flags != CU_GREEN_CTX_DEFAULT_STREAM)
    return CUDA_ERROR_INVALID_VALUE;
  CUcontext primary = nullptr;
  if (const CUresult error = cuDevicePrimaryCtxRetain(&primary, device)) return error;
  auto context = contexts().find(primary);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;  // another thread has reset it
  const unsigned multiprocessors = std::min(description->multiprocessors, all_multiprocessors());
  const auto made = std::make_shared<GreenContext>(context, multiprocessors);
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
