// Futures as Python sees them, and awaits of them.
#pragma once
#include <nanobind/nanobind.h>

#include "loop_port.hpp"

namespace aiocuda {
namespace nb = nanobind;

// For a waiter for many futures at once:
nb::handle operation_of(nb::handle future);
// Did it end otherwise than its operation: was it cancelled, for one?
bool has_end_of_its_own(nb::handle future);
// A future for each operation, which is to be executed under a placement; a future is its own. Raises where something
// is neither.
nb::list futures_of(nb::handle ops, nb::handle placement);
// Goes on without spinning, until the future is settled, or `token` will come out of the port. An error that is not its
// operation's is the future's end; an interruption is raised. After `most` operations the turn is over. `completes`:
// the token will say all that there is to know: see `is_settled_by`.
Went go_on(nb::handle future, LoopPort& port, nb::handle token, std::uint32_t most, bool& completes);
// A token came out, or has to, of which `go_on` said that it completes the future. False: it is to go on.
bool is_settled_by(nb::handle future, nb::handle token, std::int32_t result);
// The token is not waited for any more.
void withdraw(nb::handle future, nb::handle token);

void bind_futures(nb::module_& module);

}  // namespace aiocuda
