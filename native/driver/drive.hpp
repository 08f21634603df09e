// Executing an operation: walk, wait, walk again. Once for each await, sync or submit.
//
// Always true: after a function of the program's own, what follows it is submitted by another call, or after a look at the
// time: by then nobody may want it any more. Who finds a stream full stands in line.
#pragma once
#include "engine.hpp"
#include "../dataflow/planner.hpp"
#include "../dataflow/walk.hpp"

namespace aiocuda::driver {

// Submits what can be submitted before the host must wait for a result, and waits for room; marks where it ends.
void submit(nb::handle op, const dataflow::Placement& placement);

// The same, waiting for nothing. True: a function was called, and there is more to submit.
bool submit_more(nb::handle op, const dataflow::Placement& placement);

// Submits what can be. True: the operation's result is complete. False: it is not, and `token` will
// come out of `port` when it is worth driving again. `blocks`: this thread does nothing else until then. `spins`: as long
// as the placement says, before it waits.
bool drive(nb::handle op, const dataflow::Placement& placement, const std::shared_ptr<completion::Port>& port, completion::Token token,
           bool blocks, bool spins = true);

// A token that `drive` took is not waited for any more. True: it will not come out, and is the caller's again.
bool leave(nb::handle op, completion::Token token);

// Submits and waits, giving up the GIL. False: `timeout` (negative: none) passed first.
bool drive_and_wait(nb::handle op, const dataflow::Placement& placement, double timeout_s);

// Has everything passed that the operation submitted? (It must have been submitted.)
bool has_passed(nb::handle op);

// A wait for all that streams hold now, whoever submitted it; `asked` says what for, in words.
std::shared_ptr<completion::Completion> arm_streams(const std::vector<StreamIndex>& streams, const std::string& asked);
// Gives up the GIL, and looks for signals. False: `timeout_s` (negative: none) passed first.
bool wait_with_signals(completion::Completion& completion, double timeout_s);

// Records an operation, and all that it needs, into a graph's plan; gives back the handle of its result.
nb::object record_into(dataflow::Planner& planner, nb::handle op, const dataflow::Placement& placement);

// What the walk would do, as a list of steps; nothing is done.
nb::list record(nb::handle op, const dataflow::Placement& placement);

}  // namespace aiocuda::driver
