// Tells CUPTI which piece of work a thread's next driver calls are for.
//
// Always true: what is told at the begin of a piece of work is taken back behind it, or at the end of the trace.
#pragma once
#include <cstdint>

#include "../trace/recorder.hpp"

namespace aiocuda::driver {

// CUPTI's own functions: a stack of numbers for each thread, of which the driver's calls get the last.
class Correlation {
 public:
  using Push = int (*)(int kind, std::uint64_t number);
  using Pop = int (*)(int kind, std::uint64_t* last);

  Correlation() = default;
  Correlation(Push push, Pop pop) : push_(push), pop_(pop) {}

  void begin(trace::Number work) {
    if (push_) push_(kind, work);
  }
  void end() {
    std::uint64_t last = 0;
    if (pop_) pop_(kind, &last);
  }
  // Takes back what the driver refused, which was begun and never ended.
  void end_all() {
    std::uint64_t last = 0;
    while (pop_ && pop_(kind, &last) == 0) {
    }
  }

 private:
  static constexpr int kind = 3;  // CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0
  Push push_ = nullptr;
  Pop pop_ = nullptr;
};

}  // namespace aiocuda::driver
