// See checking.hpp.
#include "checking/checking.hpp"

#include "context.hpp"
#include "settings.hpp"

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

void aiocuda_emulator_finish_work() {
  using namespace aiocuda::emulator;
  // Their errors are for whoever asks the driver.
  for (const auto& context : contexts().find_if([](const Context&) { return true; }))
    static_cast<void>(context->synchronise());
}
