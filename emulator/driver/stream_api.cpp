// The API of streams, without waits on events (event.cpp), memory operations (stream_memory_ops.cpp) and capture
// (capture/capture_api.cpp).
#include <algorithm>

#include "capture/capture.hpp"
#include "graph/node_parameters.hpp"
#include "green_context.hpp"
#include "holding.hpp"
#include "host_function.hpp"
#include "memory/memory.hpp"
#include "newer_api.hpp"
#include "stream.hpp"

namespace aiocuda::emulator {
namespace {

thread_local int host_functions_on_this_thread = 0;

// A callback of cuStreamAddCallback is called even when the context was lost.
class StreamCallback final : public Work {
 public:
  StreamCallback(Context& context, CUstream stream, CUstreamCallback callback, void* user_data)
      : context_(context), stream_(stream), callback_(callback), user_data_(user_data) {}
  void run() override { call(CUDA_SUCCESS); }
  void drop() override { call(context_.error()); }
  checking::Ordering ordering() const override { return {.tells_host = true}; }

 private:
  void call(CUresult status) {
    const HostFunctionScope scope;
    callback_(stream_, status, user_data_);
  }

  Context& context_;  // the stream that runs this keeps it alive
  const CUstream stream_;
  const CUstreamCallback callback_;
  void* const user_data_;
};

class HostFunction final : public Work {
 public:
  HostFunction(CUhostFn function, void* user_data) : function_(function), user_data_(user_data) {}
  void run() override {
    const HostFunctionScope scope;
    function_(user_data_);
  }
  checking::Ordering ordering() const override { return {.tells_host = true}; }

 private:
  const CUhostFn function_;
  void* const user_data_;
};

}  // namespace

HostFunctionScope::HostFunctionScope() noexcept { ++host_functions_on_this_thread; }
HostFunctionScope::~HostFunctionScope() { --host_functions_on_this_thread; }
bool in_host_function() noexcept { return host_functions_on_this_thread > 0; }

std::unique_ptr<Work> make_host_function_work(CUhostFn function, void* user_data) {
  return std::make_unique<HostFunction>(function, user_data);
}

}  // namespace aiocuda::emulator

using namespace aiocuda::emulator;

CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned flags, int priority) {
  const Entry entry = enter();
  if (!entry) return entry.error();
  if (handle == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = held("cuStreamCreateWithPriority", entry.context().device())) return error;
  if (const CUresult error = entry.context().pass_gate()) return error;
  priority = std::clamp(priority, greatest_stream_priority, least_stream_priority);
  auto stream = std::make_shared<Stream>(entry.context().shared_from_this(), flags, priority, Stream::Kind::ordinary);
  entry.context().add_stream(stream);
  if (const auto green = current_green_context()) green->add_stream(stream);
  *handle = streams().add(std::move(stream));
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream* handle, unsigned flags) {
  return cuStreamCreateWithPriority(handle, flags, least_stream_priority);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  if (const CUresult error = check_initialised()) return error;
  const std::shared_ptr<Stream> stream = streams().take(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  capture::leave(*stream);
  // It stays one of its context's streams until its work has ended: cuCtxSynchronize waits for it.
  if (stream->idle()) {
    stream->context().remove_stream(*stream);
  } else {
    stream->enqueue([stream = stream.get()] { stream->context().remove_stream(*stream); });
  }
  stream->close();
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (const CUresult error = capture::check_may_ask(*stream)) return error;
  if (!stream->query()) return CUDA_ERROR_NOT_READY;
  return stream->context().error();
}

CUresult cuStreamSynchronize(CUstream handle) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (const CUresult error = capture::check_may_ask(*stream)) return error;
  if (const CUresult error = stream->synchronise()) return error;
  memory::after_synchronise(stream->context().device());
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream->priority();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream->flags();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (const CUresult error = capture::check_may_ask(*stream)) return error;
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = stream->id();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = stream->context().device();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto green = green_context_of(*stream);
  *context = green ? green->context_handle() : stream->context().handle();
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream handle, CUcontext* context, CUgreenCtx* green_context) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto green = green_context_of(*stream);
  *context = stream->context().handle();
  if (green_context != nullptr) *green_context = green ? green->handle() : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* user_data) {
  return cuLaunchHostFunc_v2(handle, function, user_data, host_task_blocking);
}

CUresult cuLaunchHostFunc_v2(CUstream handle, CUhostFn function, void* user_data, unsigned mode) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (function == nullptr || !is_host_task_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
  const auto captured = capture::instead_of_work(*stream, [&](graph::ParametersPointer& made) {
    made = std::make_shared<graph::HostParameters>(CUDA_HOST_NODE_PARAMS{function, user_data}, mode);
    return CUDA_SUCCESS;
  });
  if (captured) return *captured;
  stream->enqueue(make_host_function_work(function, user_data));
  return CUDA_SUCCESS;
}

CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void* user_data, unsigned flags) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult error = capture::check_not_captured(*stream)) return error;
  stream->enqueue(std::make_unique<StreamCallback>(stream->context(), handle, callback, user_data));
  return CUDA_SUCCESS;
}

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue* value) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return stream->set_attribute(attribute, *value);
}

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue* value) {
  std::shared_ptr<Stream> stream;
  if (const CUresult error = resolve_stream(handle, stream)) return error;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return stream->get_attribute(attribute, *value);
}

CUresult cuStreamCopyAttributes(CUstream to_handle, CUstream from_handle) {
  std::shared_ptr<Stream> to, from;
  if (const CUresult error = resolve_stream(to_handle, to)) return error;
  if (const CUresult error = resolve_stream(from_handle, from)) return error;
  if (&to->context() != &from->context()) return CUDA_ERROR_INVALID_VALUE;
  for (const CUstreamAttrID attribute :
       {CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY,
        CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN}) {
    CUstreamAttrValue value{};
    if (const CUresult error = from->get_attribute(attribute, value)) return error;
    if (const CUresult error = to->set_attribute(attribute, value)) return error;
  }
  return CUDA_SUCCESS;
}
