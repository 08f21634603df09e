// Operations with arrays of other libraries, which an execution submits together: see execution.hpp and tensors.hpp.
#include "execution.hpp"
#include "host_needs.hpp"

namespace aiocuda::driver {

std::vector<dataflow::Use> Execution::uses_left() const {
  return dataflow::UsesAhead(engine_.staging.pageable()).of(op());
}

bool Execution::has_tensors_left() const {
  if (!dataflow::Loan::is_any_tensor() || op().is_done()) return false;
  const auto uses = uses_left();
  return std::any_of(uses.begin(), uses.end(), [](const dataflow::Use& use) { return use.tensor != nullptr; });
}

void Execution::raise_tensors_left() const {
  dataflow::raise(dataflow::error_types.argument_value,
                  nb::cast<std::string>(root_.attr("_title")) +
                      " needs an operation that uses an array of another library after a map(): it would be submitted "
                      "later than what that library enqueues next. Await the map first, and then the rest");
}

// Operations with arrays of other libraries are submitted together, so what they need is loaded before the first of
// them. Returns the completion of what comes next of that; none if all is there.
CompletionRef Execution::load_ahead() {
  if (!op().has_tensors || op().is_done() || tensors_.has_begun() || engine_.depth != 0) return nullptr;
  for (;;) {
    const std::vector<HostNeed> needs = needs_ahead(op());
    if (needs.empty()) return nullptr;
    tensors_.keep_streams(uses_left());
    for (const HostNeed& need : needs) {
      const bool has_failed = on_host_ && on_host_->loading.has_failed(subject_of(need), need.device);
      if (has_failed) return nullptr;  // the walk will say why
      begin(engine_.hooks, need);      // all at once
    }
    if (CompletionRef until = wait_on_host({.host = needs.front(), .is_outermost = true}, false)) return until;
  }
}

// After a step of an execution that waits for nothing: does it have operations with arrays of other libraries that must
// not come later? They may while it waits for the host or for room before the first of them.
bool Execution::keep_together(const Reached& reached) {
  if (!tensors_.is_open()) return false;
  const bool may_come_later = (reached.needs_host || reached.is_full()) && !tensors_.has_begun();
  if (!may_come_later) {
    if (!reached.is_submitted && has_tensors_left()) return true;
    tensors_.close();
  } else if (dataflow::Loan::is_any_tensor()) {
    tensors_.keep_streams(uses_left());
  }
  return false;
}

void Execution::begin_tensors() {
  if (op().has_tensors && op().state == dataflow::State::pending) submit_more();
}

}  // namespace aiocuda::driver
