// Operations whose work may be refused yet: see given.hpp.
#include "given.hpp"

#include <vector>

namespace aiocuda::driver {
using dataflow::Op;

// The operation is kept: by this, or by the walk that goes on.
nb::object Given::error_of(const Losses::Cause& cause, const Hooks& hooks) {
  const nb::object op = nb::find(*static_cast<const Op*>(cause.of.op));
  try {
    return hooks.refused(static_cast<int>(cause.result), cause.function, op, 0, cause.of.device);
  } catch (nb::python_error& error) {  // Ctrl-C, just now
    return nb::borrow(error.value());
  }
}

void Given::settle(const Hooks& hooks) {
  const Losses::Taken taken = submission_.losses.take();
  const std::deque<Kept> kept = std::exchange(kept_, {});
  std::vector<std::pair<Op*, std::size_t>> lost;
  for (const Kept& each : kept) {
    Op& op = *nb::inst_ptr<Op>(each.op);
    const auto cause = taken.find(std::span<const dataflow::Tick>(op.ready.begin(), op.ready.size()));
    if (cause && op.is_done()) lost.emplace_back(&op, *cause);
  }
  std::vector<nb::object> errors;
  for (const Losses::Cause& cause : taken.causes) errors.push_back(error_of(cause, hooks));
  for (const auto& [op, cause] : lost) op->fail(errors[cause]);
}

}  // namespace aiocuda::driver
