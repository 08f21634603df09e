// The thread that notices what the device can no longer tell: after a context error no host function
// runs, so somebody must ask. Knows neither CUDA nor Python: how to ask is given to it.
//
// Always true: while something is pending its streams are asked at least every `interval`; while
// nothing is, the thread sleeps without a time-out.
#pragma once
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "completion.hpp"

namespace aiocuda::completion {

class Watcher {
 public:
  // Answers 0 for a stream that is well, else the error that broke it.
  using Ask = std::function<std::int32_t(std::uint32_t stream)>;

  Watcher(Pending& pending, Ask ask, std::chrono::milliseconds interval)
      : pending_(pending), ask_(std::move(ask)), interval_(interval), thread_([this] { watch(); }) {}
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  ~Watcher() {
    pending_.stop();
    thread_.join();
  }

 private:
  void watch() {
    while (pending_.wait_until_busy()) {
      if (!pending_.pause(interval_)) return;
      for (const std::uint32_t stream : pending_.streams())
        if (const std::int32_t error = ask_(stream)) pending_.fail_stream(stream, error);
    }
  }

  Pending& pending_;
  const Ask ask_;
  const std::chrono::milliseconds interval_;
  std::thread thread_;
};

}  // namespace aiocuda::completion
