// The port of an event loop, as Python sees it: the eventfd, and how awaits share the loop's time.
#pragma once
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "../completion/loop_time.hpp"
#include "../driver/engine.hpp"
#include "../driver/loop_stall.hpp"
#include "process.hpp"

namespace aiocuda {

// How often a loop was woken for something that was due. Written with the GIL, and read without it, too.
inline std::atomic<std::uint64_t> loop_wakes{0};

inline void drop_orphans() {
  if (process_engine().is_forked()) return;
  for (const completion::Token token : process_engine().orphans.take()) Py_DECREF(static_cast<PyObject*>(token));
}

// How far something that is awaited went.
enum class Went : std::uint8_t {
  arrived,      // it is there
  waits,        // the token comes out of the port when there is more to do
  turn_is_over  // there is more to do, when others have had their turn of the loop; the token was not taken
};

// A port whose tokens are Python objects. It ends with the loop; what comes later is dropped when
// somebody next has the GIL and asks.
struct LoopPort {
  explicit LoopPort(std::optional<std::int64_t> turn_us) {
    interpreter::guard_thread();
    if (turn_us) time.emplace(std::chrono::microseconds(*turn_us));
  }
  std::shared_ptr<completion::Port> port = std::make_shared<completion::Port>(process_engine().orphans);
  std::optional<completion::LoopTime> time;    // where awaits share it
  std::vector<completion::Port::Due> spare{};  // memory for what comes out next
  // In a forked process: is this port the parent's? The two processes share its eventfd, and a thread that is not here
  // may have held its lock. A port that was made here still tells whose turn it is in its loop: each await that comes
  // to its turn is then told that the process was forked.
  bool is_inherited() const { return process_engine().is_forked() && made_in_ != getpid(); }
  ~LoopPort() {
    if (process_engine().is_forked()) {  // the reactor may have been at it; it is the other process' as well
      static std::vector<std::shared_ptr<completion::Port>>& forked =
          *new std::vector<std::shared_ptr<completion::Port>>;
      forked.push_back(std::move(port));
      return;
    }
    if (time)
      for (const completion::Token token : time->close()) process_engine().orphans.add(token);
    port->close();
    drop_orphans();
  }
  void look_for_turn() {
    if (time->asks_for_turn()) port->ring();
  }

 private:
  const pid_t made_in_ = getpid();
};

// Charges what is done for an await, from here to the end of the scope, to its loop's turn.
class Charged {
 public:
  explicit Charged(LoopPort& port) : port_(port) {
    if (port.time) begin_ = Clock::now();
  }
  Charged(const Charged&) = delete;
  Charged& operator=(const Charged&) = delete;
  ~Charged() {
    if (!port_.time) return;
    const auto taken = Clock::now() - begin_;
    driver::note_stall_of_loop(taken);
    port_.time->spend(taken);
    port_.look_for_turn();
  }

 private:
  using Clock = std::chrono::steady_clock;
  LoopPort& port_;
  Clock::time_point begin_{};
};

}  // namespace aiocuda
