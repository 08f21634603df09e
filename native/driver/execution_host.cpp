// Why a walk stopped. The work on the host that an execution waits for, and the claims that keep others behind it.
#include "execution.hpp"

#include <nanobind/stl/shared_ptr.h>  // else what is passed to Python has no type there

#include "host_needs.hpp"

namespace aiocuda::driver {

void AheadMemory::get(Engine& engine) {
  interpreter::guard_thread();
  if (engine.is_over()) return;
  ContextScope scope(engine);
  try {
    scope.bind(asking);
    buffer = engine.memory.allocate_ahead(kind, device, size_bytes);
  } catch (const Refusal&) {
  }
}

// A walk did not come to its end. True: something must come first. It is not inlined, so that a walk that comes to its
// end takes fewer lines of the cache.
[[gnu::noinline]] bool Execution::has_stopped(const Stop& stop, HostNeed need, Acting& acting, bool outermost,
                                              Halted& halted) {
  halted.reset(new Halt{.host = std::move(need), .is_outermost = outermost});
  Halt& halt = *halted;
  halt.claim = on_host_ ? on_host_->claim : 0;
  if (!halt.host.is_any()) forget_host();
  if (stop.is_turn_over) return halt.is_turn_over = true;  // the functions that are due stay so
  for (const dataflow::Path::Due& each : path_.due) halt.due.push_back({object_of(*each.frame->op), each.placement});
  if (halt.host.is_any()) return true;
  if (const auto& memory = stop.full_memory) {  // of an outermost walk: in the middle of one nobody waits for memory
    acting.keep();
    halt.full = {engine_.memory_line(memory->device), memory->most_bytes, memory->asked_bytes};
    halt.stands_in_line = true;
    return true;
  }
  if (stop.is_full) {
    acting.keep();
    halt.full = {.line = stop.waits.front().stream, .most = placement().max_in_flight, .until = stop.waits.front()};
    halt.stands_in_line = outermost && !stop.is_queue_full;
    if (halt.stands_in_line) return true;
  }
  halt.waits = engine_.incomplete(stop.waits);
  if (!halt.waits.empty() || !halt.due.empty()) return true;
  if (halt.claim) on_host_->claim = halt.claim;  // the walk goes on at once, and keeps its place
  return false;
}

// Returns the completion of the work on the host for which the walk stopped, or of the executions that go first; none
// if there is nothing left to wait for. Until then others that touch the same memory wait behind it.
CompletionRef Execution::wait_on_host(const Halt& halt, bool blocks) {
  CompletionRef until = halt.host.behind, behind = until;
  if (!on_host_) on_host_.reset(new OnHost);
  if (const AheadMemory& needed = halt.host.memory; needed.size_bytes) {
    const auto ahead = on_host_->ahead = std::make_shared<AheadMemory>(needed.unfilled());
    if (blocks) {
      ahead->get(engine_);
      return nullptr;
    }
    const nb::object work = engine_.hooks.get_ahead(ahead);
    const auto& begun = nb::cast<const HostWork&>(work);
    until = begun.ended, behind = begun.behind;
  } else if (!until) {
    Loading loading = begin(engine_.hooks, halt.host);
    if (loading.work.is_none()) return nullptr;
    const auto& begun = nb::cast<const HostWork&>(loading.work);
    until = begun.ended, behind = begun.behind;
    const Loading before = std::exchange(on_host_->loading, std::move(loading));
  }
  if (halt.is_outermost) {
    Claims::Place& claim = on_host_->claim;
    if (!claim) claim = engine_.claims.next_place();
    CompletionRef work;
    // The opening may have made the file, which is empty then: nobody may come between that and its first part.
    if (halt.host.op.is_valid() && halt.host.kind == HostNeed::Kind::file)
      work = until, behind = std::make_shared<completion::Completion>(1);
    engine_.claims.put(this, claim, std::move(behind), uses_left(), std::move(work));
  }
  return until;
}

// It stopped for room, or others have their turn. It may be in the middle of a file that it reads or writes in several
// copies, so others that touch the same files wait behind it.
void Execution::keep_files(Halt& halt) {
  const bool has_room_ahead = halt.full && halt.full->until.count != 0;
  if (!dataflow::FilePlaces::count || !(has_room_ahead || halt.is_turn_over) || !halt.is_outermost) return;
  const std::vector<dataflow::Use> uses = dataflow::UsesAhead::of_files(op());
  if (uses.empty()) return;
  if (!on_host_) on_host_.reset(new OnHost);
  on_host_->claim = halt.claim ? halt.claim : engine_.claims.next_place();
  if (has_room_ahead) halt.room = engine_.watch(engine_.arm(std::span<const Tick>(&halt.full->until, 1), {}));
  engine_.claims.put(this, on_host_->claim, std::make_shared<completion::Completion>(1), uses,
                     has_room_ahead ? halt.room : std::make_shared<completion::Completion>(0));
}

}  // namespace aiocuda::driver
