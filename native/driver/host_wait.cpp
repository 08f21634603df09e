// How a thread waits for the device: see host_wait.hpp.
#include "host_wait.hpp"

#include "loop_stall.hpp"

namespace aiocuda::driver {
namespace {
using Clock = std::chrono::steady_clock;

// How long Ctrl-C may go unnoticed.
constexpr std::chrono::milliseconds signal_interval{50};

}  // namespace

std::chrono::microseconds await_budget(const Engine& engine, std::int32_t limit_us) {
  const bool is_worth_it = engine.recent_wait_us.load(std::memory_order_relaxed) <= 2.0f * static_cast<float>(limit_us);
  return std::chrono::microseconds(is_worth_it ? limit_us : 0);
}

bool spin(Engine& engine, const Engine::Armed& armed, std::chrono::microseconds budget) {
  if (!armed.has_tickets() || !spin(engine, budget, [&] { return engine.has_passed(armed); })) return false;
  engine.learn(armed);
  engine.submission.note_wait();
  return true;
}

Patience::Patience(double timeout_s, CompletionRef ends_with) : given_up(std::move(ends_with)) {
  if (timeout_s < 0) return;
  until = Clock::now() +
          std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(timeout_s, 1e9)));
}

bool wait_until(completion::Completion& completion, const Patience& patience) {
  // Ends with whichever of the two comes first.
  struct Either {
    Either(completion::Completion& of, completion::Completion& other) : first(of), second(other) {
      first.end_too(ended);
      second.end_too(ended);
    }
    Either(const Either&) = delete;
    Either& operator=(const Either&) = delete;
    ~Either() {
      first.forget(*ended);
      second.forget(*ended);
    }
    completion::Completion &first, &second;
    const CompletionRef ended = std::make_shared<completion::Completion>(1);
  };
  struct Stalled {
    Stalled() = default;
    Stalled(const Stalled&) = delete;
    Stalled& operator=(const Stalled&) = delete;
    ~Stalled() { note_stall(Clock::now() - begin); }
    const Clock::time_point begin = Clock::now();
  };
  const Stalled stalled;
  std::optional<Either> either;
  if (patience.given_up) either.emplace(completion, *patience.given_up);
  completion::Completion& awaited = either ? *either->ended : completion;
  for (;;) {
    bool ended;
    auto time = signal_interval;
    if (patience.until) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*patience.until - Clock::now());
      if (left.count() <= 0) return completion.has_ended();
      time = std::min(time, left);
    }
    {
      nb::gil_scoped_release release;
      ended = awaited.wait_for(time);
    }
    if (ended) return completion.has_ended();
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

std::int32_t device_of(Engine& engine, std::span<const Tick> waits) {
  std::int32_t device = dataflow::unknown_ordinal;
  for (const Tick tick : waits) {
    const std::int32_t found = engine.stream(tick.stream).device;
    if (device != dataflow::unknown_ordinal && device != found) return dataflow::unknown_ordinal;
    device = found;
  }
  return device;
}

}  // namespace aiocuda::driver
