// The interpreter's end, as threads that are in Python or in native code meet it.
//
// Always true: a thread that called `guard_thread` stops for good where it next wants the GIL of an interpreter that is
// ending. It does not end there: CPython before 3.14 ends it with pthread_exit, which unwinds its stack. Unwinding
// would end the process at the first frame that lets nothing through (those of nanobind and of destructors), and would
// drop references on the way without the GIL. CPython 3.14 stops the thread itself.
#pragma once
#include <Python.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <memory>

#if defined(__GLIBC__)
// The C library declares its buffers, and not these two functions of its binary interface.
extern "C" void _pthread_cleanup_push(struct _pthread_cleanup_buffer* buffer, void (*routine)(void*), void* argument);
#endif

namespace aiocuda::interpreter {

// True once the functions of `atexit` have run: threads other than the one that ends the interpreter never get the GIL
// again.
inline bool is_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

// The thread stays where it is until the process ends, deaf to signals: others are to have them.
[[noreturn, gnu::cold]] inline void stop_thread() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  for (;;) pause();
}

#if defined(__GLIBC__) && PY_VERSION_HEX < 0x030E0000
// glibc calls the routines of these buffers as pthread_exit unwinds: each before the first frame that lies above its
// buffer. This buffer is in the heap and not on the stack, so its routine is called before anything is unwound.
class ThreadGuard {
 public:
  ThreadGuard() : buffer_(std::make_unique<struct _pthread_cleanup_buffer>()) {
    _pthread_cleanup_push(buffer_.get(), meet_end, nullptr);
  }
  ThreadGuard(const ThreadGuard&) = delete;
  ThreadGuard& operator=(const ThreadGuard&) = delete;

 private:
  static void meet_end(void*) {
    if (is_ending()) stop_thread();
  }
  std::unique_ptr<struct _pthread_cleanup_buffer> buffer_;
};

// To be called by each thread that comes from Python, before it may give up the GIL; costs a look at a number of the
// thread's.
inline void guard_thread() { [[maybe_unused]] thread_local const ThreadGuard guard; }
#else
inline void guard_thread() {}  // nothing unwinds the stack there
#endif

}  // namespace aiocuda::interpreter
