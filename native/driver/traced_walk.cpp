// A walk that is traced. It is compiled apart, so that those that are not traced stay as they are.
#include <algorithm>

#include "execution.hpp"
#include "traced_sink.hpp"
#include "walking.hpp"

namespace aiocuda::driver {

bool Execution::walk_traced(Acting& acting, bool outermost, dataflow::Scratch<nb::handle>& scratch, Halted& halted) {
  return walk_with<TracedSink>(acting, outermost, scratch, halted);
}

namespace {
// An exception that is on its way stays as it is, and what the function raises is nobody's.
template <class F>
void tell(const nb::object& hook, F&& call) noexcept {
  if (!hook.is_valid()) return;
  const nb::error_scope kept;
  try {
    call();
  } catch (nb::python_error& error) {
    error.discard_as_unraisable(hook);
  }
}
}  // namespace

void Recording::note_written(const nb::object& owner, trace::Number by) {
  nb::object reference = nb::steal(PyWeakref_NewRef(owner.ptr(), nullptr));
  if (!reference) return PyErr_Clear();  // it takes none
  if (written_.size() >= written_most_) {
    std::erase_if(written_, [](const auto& each) { return each.second.reference().is_none(); });
    written_most_ = std::max(written_most_, 2 * written_.size());
  }
  written_.insert_or_assign(owner.ptr(), Written{std::move(reference), by});
}
trace::Number Recording::written_by(const nb::object& owner) const {
  const auto found = written_.find(owner.ptr());
  return found != written_.end() && found->second.reference().is(owner) ? found->second.by : trace::none;
}

trace::Number Recording::begin_ask(const void* key, trace::AskKind kind, const dataflow::Op& op) {
  std::string asked_by;
  try {
    asked_by = nb::cast<std::string>(who());
  } catch (nb::python_error& error) {
    error.discard_as_unraisable(who);
  }
  const auto title = nb::cast<std::string>(nb::find(op).attr("_title"));
  const trace::Number ask = recorder.begin_ask(
      key, {.kind = kind, .name = recorder.name(title), .place = place(op.origin), .who = recorder.name(asked_by)});
  tell(began, [&] { began(ask, title); });
  return ask;
}

void Recording::end_ask(const void* key, trace::Outcome outcome, const dataflow::Op& op) noexcept {
  const trace::Number ask = recorder.find_ask(key);
  recorder.end_ask(key, outcome, {op.ready.begin(), op.ready.end()});
  const nb::object error = op.state == dataflow::State::failed ? nb::object(op.outcome) : nb::none();
  if (ask != trace::none) tell(ended, [&] { ended(ask, error); });
}

Recording::~Recording() {
  if (recording == this) set_recording(nullptr);
}

void set_recording(Recording* to) {
  recording = to;
  dataflow::Origin::note_built =
      to ? +[](const dataflow::Origin& origin) { recording->recorder.note_built(&origin); } : nullptr;
}

trace::Outcome outcome_of_error(nb::handle type) {
  const std::string name = nb::cast<std::string>(type.attr("__name__"));
  if (name == "DeviceTimeoutError") return trace::Outcome::timed_out;
  const bool is_cancelled = name == "CancelledError" || name == "Cancelled" || name == "GeneratorExit";
  return is_cancelled ? trace::Outcome::cancelled : trace::Outcome::failed;
}

}  // namespace aiocuda::driver
