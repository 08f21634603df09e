// Faults on purpose (AIOCUDA_EMULATOR_FAULTS): which of the driver's calls and which pieces of work go wrong, by plan
// or by seed. Without a plan nothing here counts anything. Every fault is one that a GPU's driver also has. The caller
// of `strikes` makes the fault.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

namespace aiocuda::emulator::injection {

// The kinds of calls and work that a fault can hit. Each is counted by itself, from the start of the process.
enum class Kind {
  alloc,         // a call that allocates: out of memory
  launch,        // a call that launches: out of resources
  stall,         // a piece of work of a stream: begins late
  slow_copy,     // a copy that runs: takes longer
  not_ready,     // a query of what has passed: has not
  illegal,       // a kernel that runs: an illegal access, and the context is lost
  lost,          // a piece of work of a stream: the context is lost
  no_memory_op,  // a call that has a stream write a value, or wait for one: not supported
};
inline constexpr std::size_t kinds = 8;

inline constexpr std::chrono::milliseconds stall_time{100};
inline constexpr std::chrono::milliseconds slow_copy_time{50};

struct Plan {
  struct Fault {
    Kind kind;
    std::uint64_t number;       // strikes that one, from 1
    std::optional<int> device;  // where only what happens on one is counted
  };
  // Faults from which a context recovers, at a rate.
  struct Draw {
    std::uint64_t seed;
    unsigned per_thousand;
  };
  std::vector<Fault> faults;
  std::optional<Draw> draw;
  bool empty() const noexcept { return faults.empty() && !draw; }
};

inline constexpr const char* grammar =
    "a comma-separated list of alloc:n, launch:n, stall:n, slow_copy:n, not_ready:n, illegal:n, lost:n, no_memory_op:n "
    "(n from 1 to "
    "1000000; each may end with @ and a device that there is) and at most one seed:n:rate (rate from 1 to 1000)";

// Nothing where the text is no plan for so many devices.
std::optional<Plan> parse_plan(std::string_view text, int devices);

// A plan, and how far it has come. Safe on all threads.
class Injection {
 public:
  explicit Injection(const Plan& plan);
  // Counts one more of a kind on a device; is it to go wrong?
  bool strikes(Kind kind, int device) noexcept;

 private:
  struct Counted {
    explicit Counted(const Plan::Fault& planned) : fault(planned) {}
    const Plan::Fault fault;
    std::atomic<std::uint64_t> seen{0};
  };
  std::deque<Counted> faults_;
  const std::optional<Plan::Draw> draw_;
  std::array<std::atomic<std::uint64_t>, kinds> drawn_{};
};

// The same of the process's own plan.
bool strikes(Kind kind, int device) noexcept;

}  // namespace aiocuda::emulator::injection
