// See checking.hpp.
#include "checking/checking.hpp"

#include <algorithm>
#include <chrono>

#include "api.hpp"
#include "context.hpp"
#include "settings.hpp"
#include "stream.hpp"

namespace aiocuda::emulator::checking {

Checker* checker() noexcept {
  static Checker* const made = settings().checks.races ? new Checker : nullptr;
  return made;
}

}  // namespace aiocuda::emulator::checking

std::size_t aiocuda_emulator_take_race_reports(char* text, std::size_t capacity) {
  auto* const checker = aiocuda::emulator::checking::checker();
  return checker == nullptr ? 0 : checker->take_reports(text, capacity);
}

int aiocuda_emulator_finish_work(std::uint64_t patience_ms) {
  using namespace aiocuda::emulator;
  if (check_initialised() != CUDA_SUCCESS) return 1;  // a forked child has none of its parent's threads
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto end = now() + std::chrono::milliseconds(patience_ms);
  bool all_ended = true;
  for (const auto& context : contexts().find_if([](const Context& each) { return !each.lost(); })) {
    for (const auto& stream : context->streams()) {
      const Ticket tail = stream->tail();
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - now());
      if (stream->drain(std::max(left, std::chrono::milliseconds(0))) || context->lost()) {
        static_cast<void>(tail.wait());  // it has passed; its error is for whoever asks the driver
      } else {
        all_ended = false;
      }
    }
  }
  return all_ended ? 1 : 0;
}
