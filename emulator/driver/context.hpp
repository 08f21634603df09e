// A CUDA context: one device's, with its own default streams, limits and error. Once an error is
// set it stays (as on a GPU), every later call answers it, and work that has not begun is dropped.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "api.hpp"
#include "gate.hpp"
#include "graph/executable_store.hpp"
#include "handle_table.hpp"

namespace aiocuda::emulator {

class Stream;

class Context : public std::enable_shared_from_this<Context> {
 public:
  // A primary context gets its device's handle, any other one (null) its own.
  Context(CUdevice device, unsigned flags, CUcontext primary_handle);

  CUdevice device() const noexcept { return device_; }
  bool is_primary() const noexcept { return is_primary_; }
  std::uint64_t id() const noexcept { return id_; }  // unique in the process, never used again
  unsigned flags() const noexcept { return flags_.load(std::memory_order_relaxed); }
  void set_flags(unsigned flags) noexcept { flags_.store(flags, std::memory_order_relaxed); }
  // A primary context that is retained again after a reset is a new object under the same handle.
  CUcontext handle() const noexcept { return handle_; }

  // CUDA_SUCCESS, or the error that lost this context.
  CUresult error() const noexcept { return static_cast<CUresult>(error_.load(std::memory_order_acquire)); }
  bool lost() const noexcept { return error() != CUDA_SUCCESS; }
  // Loses the context (the first error stays), says so on stderr, and releases everyone who waits.
  void fail(CUresult error, const std::string& message);

  // Waits for all work of all streams; answers the context's error.
  CUresult synchronise();
  // The same, while the context's gate is closed to other threads; see gate.hpp.
  CUresult synchronise_behind_gate();
  // Waits while the gate is closed; answers the context's error.
  CUresult pass_gate() const;

  // The default stream that orders itself with every blocking stream. Made at its first use.
  std::shared_ptr<Stream> legacy_stream();
  // Null while nobody has used the legacy stream yet.
  Stream* legacy_stream_if_used() const noexcept { return legacy_used_.load(std::memory_order_acquire); }
  // The calling thread's own default stream in this context.
  std::shared_ptr<Stream> per_thread_stream();

  void add_stream(const std::shared_ptr<Stream>& stream);
  void remove_stream(Stream& stream);
  std::vector<std::shared_ptr<Stream>> streams() const;

  // Finishes (or, when lost, drops) the context's work and destroys what it owns: streams, events,
  // modules, memory. Its handles are invalid afterwards; threads that have it on their stack get
  // CUDA_ERROR_CONTEXT_IS_DESTROYED. Called once.
  void end();
  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }

  CUresult set_limit(CUlimit limit, std::size_t value);
  CUresult get_limit(CUlimit limit, std::size_t& value) const;
  CUresult enable_peer_access(CUcontext peer);
  CUresult disable_peer_access(CUcontext peer);

  std::atomic<CUfunc_cache> cache_config{CU_FUNC_CACHE_PREFER_NONE};
  graph::ExecutableStore executable_store;

 private:
  const CUdevice device_;
  const bool is_primary_;
  const std::uint64_t id_;
  const CUcontext handle_;
  std::atomic<unsigned> flags_;
  std::atomic<int> error_{CUDA_SUCCESS};
  std::atomic<bool> ended_{false};
  std::atomic<Stream*> legacy_used_{nullptr};
  Gate gate_;
  mutable std::mutex mutex_;
  std::shared_ptr<Stream> legacy_;
  std::vector<std::weak_ptr<Stream>> streams_;
  std::array<std::size_t, CU_LIMIT_MAX> limits_{};
  std::set<CUcontext> peers_;
};

using ContextTable = HandleTable<Context, CUcontext>;
ContextTable& contexts();

// The stack of contexts of the calling thread; its top is the current one.
std::vector<std::shared_ptr<Context>>& context_stack();

// A process-wide counter for the ids of contexts, streams and whatever else needs one; from 1.
std::uint64_t next_id() noexcept;

}  // namespace aiocuda::emulator
