// Stream captures of other libraries, and our calls beside them.
//
// Always true: while a RelaxedCaptures lives on a thread, no call of that thread disturbs another library's capture,
// whatever its mode. While a stream is captured in global mode, CUDA refuses "potentially unsafe" calls to all threads,
// such as allocations and questions. Such a call also ends the capture. CUDA allows these calls to threads in relaxed
// mode.
#pragma once
#include <utility>

#include "table.hpp"

namespace aiocuda::driver {

// Is it an answer that CUDA gives because of a capture? Nothing is lost then.
inline bool is_capture_error(int code) {
  return code >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && code <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

namespace captures {
struct Thread {
  int depth = 0;                                            // of the scopes below
  CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_GLOBAL;  // the mode that it had before the outermost
};
inline Thread& thread() {
  thread_local Thread of_this;
  return of_this;
}
inline void relax(const Table& table, Thread& of) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (table.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS) of.own = mode;
}
inline void restore(const Table& table, const Thread& of) {
  CUstreamCaptureMode mode = of.own;
  table.cuThreadExchangeStreamCaptureMode(&mode);
}
}  // namespace captures

class RelaxedCaptures {
 public:
  explicit RelaxedCaptures(const Table& table) : table_(table) {
    captures::Thread& of = captures::thread();
    if (of.depth++ == 0) captures::relax(table_, of);
  }
  RelaxedCaptures(const RelaxedCaptures&) = delete;
  RelaxedCaptures& operator=(const RelaxedCaptures&) = delete;
  ~RelaxedCaptures() {
    captures::Thread& of = captures::thread();
    if (--of.depth == 0) captures::restore(table_, of);
  }

 private:
  const Table& table_;
};

// While a function of the program's is called in the middle of such a scope, the thread has the mode that the program
// gave it: it may capture, and rely on what CUDA refuses then.
class ProgramsCaptures {
 public:
  explicit ProgramsCaptures(const Table& table) : table_(table), before_(std::exchange(captures::thread(), {})) {
    if (before_.depth) captures::restore(table_, before_);
  }
  ProgramsCaptures(const ProgramsCaptures&) = delete;
  ProgramsCaptures& operator=(const ProgramsCaptures&) = delete;
  ~ProgramsCaptures() {
    if (before_.depth) captures::relax(table_, before_);
    captures::thread() = before_;
  }

 private:
  const Table& table_;
  captures::Thread before_;
};

}  // namespace aiocuda::driver
