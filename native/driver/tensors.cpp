// The streams of frameworks: see tensors.hpp.
#include "tensors.hpp"

#include <algorithm>
#include <exception>

#include "refused.hpp"

namespace aiocuda::driver {
namespace {

CUstream handle_of(const dataflow::Lender& lender) {
  constexpr std::int32_t cuda = 2;
  if (void* theirs = nullptr; lender.work_stream) {
    if (lender.work_stream(cuda, lender.device, &theirs) == 0)
      return theirs ? static_cast<CUstream>(theirs) : CU_STREAM_LEGACY;
    throw nb::python_error();
  }
  nb::object handle = lender.current_stream;
  if (!PyLong_Check(handle.ptr())) handle = handle(lender.device);
  const auto number = nb::cast<std::uintptr_t>(handle);
  return number ? reinterpret_cast<CUstream>(number) : CU_STREAM_LEGACY;
}

[[noreturn, gnu::cold]] void raise_too_late(const dataflow::Op& op) {
  dataflow::raise(dataflow::error_types.argument_value,
                  nb::cast<std::string>(nb::find(op).attr("_title")) +
                      " uses an array of another library, and would be submitted later than what that library has "
                      "enqueued since: it comes after a map(); await that first, then build and await the rest");
}

}  // namespace

void Tensors::keep_streams(std::span<const dataflow::Use> uses) {
  for (const dataflow::Use& use : uses) {
    if (!use.tensor || !use.tensor->lender) continue;
    dataflow::Lender* const lender = use.tensor->lender;
    if (std::any_of(kept_.begin(), kept_.end(), [&](const Kept& each) { return each.lender == lender; })) continue;
    const CUstream theirs = handle_of(*lender);
    kept_.push_back(
        {lender, theirs,
         engine_.hooks.keeper_of_stream(nb::int_(reinterpret_cast<std::uintptr_t>(theirs)), lender->device)});
  }
}

CUstream Tensors::current(dataflow::Lender& lender) const {
  const auto kept = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& each) { return each.lender == &lender; });
  return kept == kept_.end() ? handle_of(lender) : kept->theirs;
}

Tensors::Visit& Tensors::visit(dataflow::Lender& lender) {
  for (Visit& each : visits_)
    if (each.lender == &lender) return each;
  visits_.push_back(Visit{&lender, nullptr, {}});
  return *(visits_.end() - 1);
}

void Tensors::enter(const dataflow::Op& op, const dataflow::Use& use) {
  if (use.buffer->is_lent) engine_.lending.admit(*use.buffer, use.span, use.writes);
  if (!use.tensor) return;
  if (!is_open_) raise_too_late(op);
  Visit& visit = this->visit(*use.tensor->lender);
  if (!visit.behind.count) {
    visit.theirs = current(*visit.lender);
    visit.behind = engine_.relays.behind(visit.theirs, visit.lender->device);
  }
  use.buffer->hazards.commit_of_others(use.span, visit.behind);
}

void Tensors::note(const dataflow::Use& use, Tick now) {
  auto is_same = [&](const BorrowedUse& each) {
    return each.buffer.get() == use.buffer && each.span.begin == use.span.begin && each.span.end == use.span.end &&
           each.writes == use.writes;
  };
  if (use.buffer->is_lent && std::none_of(borrowed_.begin(), borrowed_.end(), is_same))
    borrowed_.push_back({dataflow::BufferRef::another(*use.buffer), use.span, use.writes});
  if (!use.tensor) return;
  has_begun_ = true;
  Visit& visit = this->visit(*use.tensor->lender);
  if (!visit.theirs) visit.theirs = current(*visit.lender);  // it was left since, for a function of the program's
  const auto same =
      std::find_if(visit.uses.begin(), visit.uses.end(), [&](Tick tick) { return tick.stream == now.stream; });
  if (same == visit.uses.end())
    visit.uses.push_back(now);
  else
    same->count = now.count;
  if (!use.writes || !visit.lender->note_writes.is_valid()) return;
  const nb::object& owner = use.tensor->owner;
  if (std::none_of(visit.written.begin(), visit.written.end(), [&](const nb::object& each) { return each.is(owner); }))
    visit.written.push_back(owner);
}

void Tensors::leave_now() {
  const Engine::Submission submission(engine_);
  const Few<Visit> visits = std::exchange(visits_, {});
  const std::vector<BorrowedUse> borrowed = std::exchange(borrowed_, {});
  std::exception_ptr refused;  // the first; the others are told all the same
  auto try_to = [&](auto&& call) {
    try {
      call();
    } catch (const Refusal&) {
      if (!refused) refused = std::current_exception();
    }
  };
  {
    ContextScope scope(engine_);
    for (const Visit& each : visits)
      try_to([&] {
        scope.bind(each.lender->device);
        engine_.streams.order_others(each.theirs, each.lender->device, {each.uses.begin(), each.uses.end()});
      });
    for (const BorrowedUse& each : borrowed)
      try_to([&] { engine_.lending.tell(*each.buffer, each.span, each.writes); });
  }
  for (const Visit& each : visits) {
    if (each.written.empty()) continue;
    nb::list owners;
    for (const nb::object& owner : each.written) owners.append(owner);
    each.lender->note_writes(owners);
  }
  if (refused) std::rethrow_exception(refused);
}

void Tensors::leave_after_error(nb::handle op) noexcept {
  try {
    leave();
  } catch (const Refusal&) {  // of a stream that is gone or captured: nobody enqueues there
  } catch (nb::python_error& error) {
    error.discard_as_unraisable(op);
  }
}

}  // namespace aiocuda::driver
