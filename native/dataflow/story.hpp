// The last decisions of the engine: what was submitted, what waited for what, what was complete, what failed. They are
// the story that an error can tell.
//
// Always true: to note a decision allocates nothing and takes no time of day. A decision keeps the code object of its
// line, and nothing else. Guarded by the GIL.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "launch.hpp"
#include "operation.hpp"
#include "tick.hpp"

namespace aiocuda::dataflow {

enum class Decided : std::uint8_t { submitted, waits, completed, failed };

class Story {
 public:
  static constexpr std::size_t length = 256;  // a power of two

  struct Decision {
    PyObject* code = nullptr;             // owned; with `instruction`, the line that built the operation
    const std::string* kernel = nullptr;  // of a launch, where it is known; kept for good
    Tick tick{};                          // what it is about; for work that waits, what comes next there
    StreamIndex other = 0;                // the stream that it waits for
    int instruction = -1;
    Kind kind = Kind::launch;
    Decided what = Decided::submitted;
  };

  void note(Decided what, const Op& op, Tick tick) { put(what, op, tick).kernel = nullptr; }
  // Its kernel is there yet.
  void note_pending(Decided what, const Op& op, Tick tick) {
    put(what, op, tick).kernel = op.kind == Kind::launch ? static_cast<const LaunchOp&>(op).signature.name : nullptr;
  }
  void note_wait(const Op& op, Tick tick, StreamIndex other) {
    note_pending(Decided::waits, op, tick);
    ring_[(made_ - 1) % length].other = other;
  }

  // Calls `f(decision)` for all that are kept, the earliest first.
  template <class F>
  void each(F&& f) const {
    for (std::uint64_t i = made_ - std::min<std::uint64_t>(made_, length); i < made_; ++i) f(ring_[i % length]);
  }

 private:
  Decision& put(Decided what, const Op& op, Tick tick) {
    Decision& decision = ring_[made_++ % length];
    if (decision.code != op.origin.code()) [[unlikely]]  // a program has few lines
      keep(decision, op);
    decision.tick = tick;
    decision.instruction = op.origin.instruction();
    decision.kind = op.kind;
    decision.what = what;
    return decision;
  }
  [[gnu::noinline]] static void keep(Decision& decision, const Op& op) {
    Py_XINCREF(op.origin.code());
    Py_XDECREF(std::exchange(decision.code, op.origin.code()));
  }

  std::array<Decision, length> ring_{};
  std::uint64_t made_ = 0;
};

// Of this process.
inline Story story;

// A text that is kept for good: names of kernels, of which a program has few.
inline const std::string* kept_for_good(const std::string& text) {
  static auto& texts = *new std::set<std::string>;
  return &*texts.insert(text).first;
}

}  // namespace aiocuda::dataflow
