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
// Goes on without spinning, until the future is settled, or `token` will come out of the port. An error that is not its
// operation's is the future's end; an interruption is raised. After `most` operations the turn is over.
Went go_on(nb::handle future, LoopPort& port, nb::handle token, std::uint32_t most);
// The token is not waited for any more.
void withdraw(nb::handle future, nb::handle token);

void bind_futures(nb::module_& module);

}  // namespace aiocuda
