// The class Context; see context.hpp. Its default streams are in stream.cpp.
#include "context.hpp"

#include <algorithm>
#include <cstdio>

#include "capture/capture.hpp"
#include "device.hpp"
#include "event.hpp"
#include "memory/memory.hpp"
#include "module.hpp"
#include "stream.hpp"
#include "texture/array.hpp"
#include "texture/texture.hpp"

namespace aiocuda::emulator {
namespace {

// How long the end of a lost context waits for a kernel that is still running. Memory that such a
// kernel may still touch is not released.
constexpr std::chrono::milliseconds patience_with_lost_work{2000};
constexpr std::chrono::milliseconds patience_with_work{24 * 60 * 60 * 1000};

// Local memory of a thread, which its stack is part of (CUDA C++ programming guide, "Technical specifications").
constexpr std::size_t most_local_bytes = std::size_t{512} << 10;

const char* name_of(CUresult error) {
  const char* name = nullptr;
  return cuGetErrorName(error, &name) == CUDA_SUCCESS ? name : "an unknown error";
}

}  // namespace

ContextTable& contexts() {
  static ContextTable* const table = new ContextTable;
  return *table;
}

std::vector<std::shared_ptr<Context>>& context_stack() {
  thread_local std::vector<std::shared_ptr<Context>> stack;
  return stack;
}

std::uint64_t next_id() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

Context::Context(CUdevice device, unsigned flags, CUcontext primary_handle)
    : device_(device),
      is_primary_(primary_handle != nullptr),
      id_(next_id()),
      handle_(is_primary_ ? primary_handle : reinterpret_cast<CUcontext>(this)),
      flags_(flags) {
  limits_[CU_LIMIT_STACK_SIZE] = 1024;
  limits_[CU_LIMIT_PRINTF_FIFO_SIZE] = std::size_t{1} << 20;
  limits_[CU_LIMIT_MALLOC_HEAP_SIZE] = std::size_t{8} << 20;
  limits_[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

void Context::fail(CUresult error, const std::string& message) {
  int none = CUDA_SUCCESS;
  if (!error_.compare_exchange_strong(none, error)) return;
  std::fprintf(stderr, "emulated CUDA driver: device %d is lost with %s: %s\n", device_, name_of(error),
               message.c_str());
  for (const auto& stream : streams()) stream->wake_waiters();
}

CUresult Context::synchronise() {
  for (const auto& stream : streams()) {
    if (const CUresult error = stream->tail().wait()) return error;
  }
  return error();
}

CUresult Context::synchronise_behind_gate() {
  const Gate::Closed closed(gate_);
  return synchronise();
}

CUresult Context::pass_gate() const {
  gate_.pass();
  return error();
}

void Context::add_stream(const std::shared_ptr<Stream>& stream) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(stream);
  if (ended()) stream->close();
}

void Context::remove_stream(Stream& stream) {
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [&](const std::weak_ptr<Stream>& each) {
    const auto live = each.lock();
    return !live || live.get() == &stream;
  });
}

std::vector<std::shared_ptr<Stream>> Context::streams() const {
  std::vector<std::shared_ptr<Stream>> live;
  const std::lock_guard lock(mutex_);
  live.reserve(streams_.size());
  for (const auto& each : streams_) {
    if (auto stream = each.lock()) live.push_back(std::move(stream));
  }
  return live;
}

void Context::end() {
  if (!lost()) static_cast<void>(synchronise());
  {
    const std::lock_guard lock(mutex_);  // from here on, no stream joins that is not closed
    ended_.store(true, std::memory_order_release);
  }
  const auto of_this = [this](const auto& object) { return &object.context() == this; };
  static_cast<void>(emulator::streams().take_if(of_this));
  static_cast<void>(events().take_if(of_this));
  bool all_ended = true;
  for (const auto& stream : streams()) {
    capture::leave(*stream);
    stream->close();
    all_ended &= stream->drain(lost() ? patience_with_lost_work : patience_with_work);
  }
  unload_modules_of(*this);
  if (all_ended) {
    texture::release_objects(*this);
    static_cast<void>(texture::mipmapped_arrays().take_if(of_this));
    static_cast<void>(texture::arrays().take_if(of_this));
    memory::release_context(*this);
  } else {
    std::fprintf(stderr,
                 "emulated CUDA driver: a kernel of a lost context is still running; its memory is not released\n");
  }
  const std::lock_guard lock(mutex_);
  legacy_used_.store(nullptr, std::memory_order_release);
  legacy_.reset();
  streams_.clear();
  peers_.clear();
}

CUresult Context::set_limit(CUlimit limit, std::size_t value) {
  const std::lock_guard lock(mutex_);
  switch (static_cast<int>(limit)) {
    case CU_LIMIT_STACK_SIZE:
      if (value > most_local_bytes) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      break;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
      if (value > 128) return CUDA_ERROR_INVALID_VALUE;
      break;
    default:
      return limit >= 0 && limit < CU_LIMIT_MAX ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_ERROR_INVALID_VALUE;
  }
  limits_[limit] = value;
  return CUDA_SUCCESS;
}

CUresult Context::get_limit(CUlimit limit, std::size_t& value) const {
  const std::lock_guard lock(mutex_);
  switch (static_cast<int>(limit)) {
    case CU_LIMIT_STACK_SIZE:
    case CU_LIMIT_PRINTF_FIFO_SIZE:
    case CU_LIMIT_MALLOC_HEAP_SIZE:
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
      value = limits_[limit];
      return CUDA_SUCCESS;
    default:
      return limit >= 0 && limit < CU_LIMIT_MAX ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Context::enable_peer_access(CUcontext peer) {
  const std::shared_ptr<Context> other = contexts().find(peer);
  if (!other || other.get() == this || other->device() == device_) return CUDA_ERROR_INVALID_CONTEXT;
  if (!can_access_peers()) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  const std::lock_guard lock(mutex_);
  return peers_.insert(peer).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult Context::disable_peer_access(CUcontext peer) {
  if (!contexts().find(peer)) return CUDA_ERROR_INVALID_CONTEXT;
  const std::lock_guard lock(mutex_);
  return peers_.erase(peer) > 0 ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

}  // namespace aiocuda::emulator
