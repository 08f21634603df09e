// The questions with which every function of the driver API begins: is the driver initialised, was the process forked,
// is a context current, is that context lost? No other driver state is touched before these questions are answered, so
// a forked child can never wait for a lock of its parent.
#pragma once

// The functions that cuda.h declares are the only symbols this library exports.
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

namespace aiocuda::emulator {

class Context;

inline constexpr int driver_version = 13050;

// CUDA_SUCCESS once cuInit has succeeded in this very process; CUDA_ERROR_NOT_INITIALIZED before,
// and for ever in a child forked after it.
CUresult check_initialised() noexcept;

// CUDA_SUCCESS, CUDA_ERROR_NOT_INITIALIZED, or CUDA_ERROR_INVALID_DEVICE.
CUresult check_device(CUdevice device) noexcept;

// The answer to "may this call go on, and in which context?". The context stays alive for the whole
// call: the calling thread's stack of contexts, which only this thread changes, owns it.
class Entry {
 public:
  explicit Entry(CUresult error) noexcept : error_(error) {}
  explicit Entry(Context& context) noexcept : context_(&context) {}
  explicit operator bool() const noexcept { return error_ == CUDA_SUCCESS; }
  CUresult error() const noexcept { return error_; }
  Context& context() const noexcept { return *context_; }

 private:
  CUresult error_ = CUDA_SUCCESS;
  Context* context_ = nullptr;
};

// For calls that need a working current context: NOT_INITIALIZED, INVALID_CONTEXT (none is current),
// CONTEXT_IS_DESTROYED, or the sticky error of a lost context.
//
//   const Entry entry = enter();
//   if (!entry) return entry.error();
Entry enter() noexcept;

// As enter(), for the few calls that are answered in a lost context, too.
Entry enter_even_if_lost() noexcept;

// CUDA_ERROR_NOT_PERMITTED inside a host function of a stream, where waiting would never end.
CUresult check_may_wait() noexcept;

// While one of these lives on a thread, the stream handle 0 means the thread's own default stream
// there: the `_ptds` and `_ptsz` forms of the API are the plain ones called under it.
class PerThreadDefaultStream {
 public:
  PerThreadDefaultStream() noexcept;
  ~PerThreadDefaultStream();
  PerThreadDefaultStream(const PerThreadDefaultStream&) = delete;
  PerThreadDefaultStream& operator=(const PerThreadDefaultStream&) = delete;
  static bool active() noexcept;

 private:
  bool previous_;
};

}  // namespace aiocuda::emulator
