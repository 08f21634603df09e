// The surroundings of the engine's parts, which their owner gives them: the process, the interpreter, and what concerns
// all parts. Knows no Python, so the C++ tests give the parts surroundings of their own.
//
// Always true: where `is_over()`, nobody calls the driver, and nobody takes a lock that another thread may have held.
#pragma once
#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <functional>

#include "../dataflow/at_end.hpp"
#include "../dataflow/tick.hpp"

namespace aiocuda::driver {

class Surroundings {
 public:
  // Must the driver be left alone? The interpreter is ending, or this process is a fork of the one that started the
  // driver.
  bool is_over() const { return is_forked() || is_ending(); }
  bool is_forked() const { return is_forked_.load(std::memory_order_relaxed); }
  // To be called where a call from Python begins that needs the driver, before it takes a lock. Throws where the engine
  // is over.
  void require_usable() const {
    if (is_over()) [[unlikely]]
      raise_over();
  }
  void require_not_forked() const {
    if (is_forked()) [[unlikely]]
      raise_over();
  }

  virtual bool is_ending() const = 0;
  [[noreturn]] virtual void raise_over() const = 0;
  // Somebody asks for a device that is not open.
  virtual void open(std::int32_t device) = 0;
  // Frees what is due in all parts.
  virtual void collect() = 0;
  // Something has come back, and may be due: it is freed now, unless a submission is going on.
  virtual void note_return() noexcept = 0;
  // Arrays hold less of a device's memory: somebody may wait for that.
  virtual void note_freed(std::int32_t device) = 0;
  // More comes to a stream than the work at its end, for which somebody may wait. Throws Refusal.
  virtual void mark_last(dataflow::AtEnd& last, dataflow::StreamIndex stream) = 0;
  // Makes a call that may take long. Other threads go on meanwhile, and may use the parts.
  virtual CUresult call_slowly(const std::function<CUresult()>& call) = 0;

 protected:
  Surroundings() = default;
  Surroundings(const Surroundings&) = delete;
  Surroundings& operator=(const Surroundings&) = delete;
  ~Surroundings() = default;

  std::atomic<bool> is_forked_{false};
};

}  // namespace aiocuda::driver
