// A scheduler that runs a program again and again, each time with another order of what its threads do.
//
// Threads are fibers of one thread. Each operation on something shared (a lock, an atomic, a condition) is a step, and
// before a step another thread may go on. A store that is not sequentially consistent lies in a buffer of its thread
// until it is flushed, as on x86 and as C++ allows: others may go on meanwhile, and so may later loads of that thread.
//
// Always true: all orders are run that have at most `Limits::deviations` deviations from the plain one, in which each
// thread goes on until it must wait, and then the next one does (delay bounding: Emmi, Qadeer, Rakamaric, POPL 2011).
// To hold back a store is a deviation too; it is seen after ten more steps at the latest. Time stands still, except
// that a yield takes some; a time-out ends a wait only where nobody could go on otherwise.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace aiocuda::model {

using Duration = std::chrono::nanoseconds;

struct Limits {
  std::size_t deviations = 3;
  std::size_t steps = 20'000;      // of one order; more are a failure: it does not end
  std::size_t orders = 3'000'000;  // more are a failure: nothing was shown
  // The complaint when a wait ends by its time-out; empty: none. Its reads are no steps.
  std::function<std::string()> on_time_out{};
};

struct Found {
  std::string failure;  // what went wrong, and the steps that led there; empty: nothing did
  std::size_t orders = 0;
};

// Runs the program in all orders, until one fails. It fails where `require` says so, where it throws, where all threads
// wait, and where it does not end.
Found explore(const std::function<void()>& program, const Limits& limits = {});

// Functions for programs, on a thread that `explore` runs.
std::size_t spawn(std::function<void()> function);
void join(std::size_t thread);
void require(bool holds, const char* what);
// A step of the thread's: others may go on before it. `name` stands in what a failure says.
void step(const char* name);
// The thread goes on when it is ready: a step.
void wait_until(const char* name, const std::function<bool()>& ready);
// False: the time is over.
bool wait_until(const char* name, const std::function<bool()>& ready, Duration time);
// The thread goes on when another has made a step, or when nobody else can.
void yield();
Duration now();
// Does the scheduler ask whether somebody is ready? Then nothing is a step, and nothing may change.
bool is_looking();

// Memory that several threads use. `bits`: of the value, at most 8 bytes.
void store(const void* address, std::uint64_t bits, std::function<void()> write);
bool is_held_back(const void* address, std::uint64_t& bits);  // a store of this thread's own to there
void flush();                                                 // all of this thread's stores
void forget(const void* address);                             // it is no longer there: nobody's store is to reach it

}  // namespace aiocuda::model
