// The walk of an execution with a sink of its choice.
#pragma once
#include "execution.hpp"
#include "submit_sink.hpp"

namespace aiocuda::driver {

template <class Sink>
inline bool Execution::walk_with(Acting& acting, bool outermost, dataflow::Scratch<nb::handle>& scratch,
                                 Halted& halted) {
  Sink sink(engine_, placement(), scratch.uses, outermost, acting.turn(), on_host_.get(), tensors_);
  for (;;) {
    dataflow::Walk<Sink> walk(sink, placement(), scratch, path_);
    if (outermost && !op().has_tensors) walk.stop_after(most_in_turn_);
    struct Counted {
      ~Counted() { count += walk.performed(); }
      std::uint64_t& count;
      const dataflow::Walk<Sink>& walk;
    };
    const Counted counted{engine_.performed, walk};
    if (walk.run(root_)) [[likely]] {
      forget_host();
      halted.reset();
      return true;
    }
    const Stop stop{walk.full_memory(), walk.is_full(), walk.is_queue_full(), walk.is_turn_over(), walk.waits()};
    if (has_stopped(stop, sink.take_host_need(), acting, outermost, halted)) return false;
  }
}

}  // namespace aiocuda::driver
