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

namespace {

// The first that a search finds among the submissions that an operation depends on.
template <class Find>
auto find_first(const Op& op, Find&& find) -> decltype(find(dataflow::Tick())) {
  auto search = [&](const auto& ticks) -> decltype(find(dataflow::Tick())) {
    for (const dataflow::Tick tick : ticks)
      if (const auto found = find(tick)) return found;
    return std::nullopt;
  };
  return op.all_ready ? search(*op.all_ready) : search(op.ready);
}

}  // namespace

std::optional<Losses::Cause> Given::find_cause(const Op& op) const {
  return find_first(op, [this](dataflow::Tick tick) { return submission_.losses.find(tick); });
}

// Python runs where errors are made, and where arguments are let go of. Until the end others find the losses, and what
// they submit meanwhile is looked at, too.
void Given::settle(const Hooks& hooks) {
  if (std::exchange(is_settling_, true)) return;
  std::vector<nb::object> errors;
  for (std::size_t next = 0, is_over = false; !is_over;) {
    submission_.drain();
    const std::uint64_t given = submission_.given();
    const Losses::Known known = submission_.losses.known();
    while (errors.size() < known.causes.size()) errors.push_back(error_of(known.causes[errors.size()], hooks));
    for (; next < kept_.size() && submission_.given() == given; ++next) {
      const nb::object kept = kept_[next].op;
      Op& op = *nb::inst_ptr<Op>(kept);
      const auto cause = find_first(op, [&](dataflow::Tick tick) { return known.find(tick); });
      if (cause && op.is_done()) op.fail(errors[*cause]);
    }
    is_over = next == kept_.size() && submission_.given() == given;
  }
  submission_.losses.forget();
  is_settling_ = false;
  const std::deque<Kept> kept = std::exchange(kept_, {});
}

}  // namespace aiocuda::driver
