// What the operations of one execution have to do with streams of frameworks.
//
// Always true: what a framework had enqueued on its current stream comes before the operations that use its arrays. The
// stream is asked for, and its point recorded, once: at the first of them, in the thread that executes. Where the
// execution waits before that, the stream is the one that was current before it waited, and its point is recorded
// after. What the framework enqueues there afterwards comes behind all of them: `leave` has the stream wait, after all
// points were recorded, so the operations may overlap. The same holds for streams of borrowers of our arrays. Guarded
// by the GIL and the right to submit.
#pragma once
#include <span>
#include <vector>

#include "../dataflow/placing.hpp"
#include "../few.hpp"
#include "engine.hpp"

namespace aiocuda::driver {

class Tensors {
 public:
  explicit Tensors(Engine& engine) : engine_(engine) {}
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;

  // From here on the execution's operations come too late for arrays of frameworks, which have gone on.
  void close() { is_open_ = false; }
  void open() { is_open_ = true; }
  bool is_open() const { return is_open_; }
  // Was an operation submitted that uses an array of a framework's? Then the others must follow at once.
  bool has_begun() const { return has_begun_; }

  // The execution will wait before the first of these uses, and other tasks of the thread may make other streams
  // current meanwhile.
  void keep_streams(std::span<const dataflow::Use> uses);

  // Before an operation uses bytes that somebody else has to do with: theirs, or ours that they borrowed. Throws
  // Refusal, also where somebody captures the stream.
  void enter(const dataflow::Op& op, const dataflow::Use& use);
  // The use was submitted.
  void note(const dataflow::Use& use, Tick now);

  // What the others enqueue from here on comes behind what was noted; what was noted is forgotten. The next use asks
  // for the streams anew. Throws Refusal.
  void leave() {
    if (!visits_.empty() || !borrowed_.empty()) [[unlikely]]
      leave_now();
  }
  // The same, before a function of the program's, which may make other streams current.
  void leave_for_function() {
    leave();
    kept_.clear();
  }

  // The same where an error is on its way, which is told, and not one of this.
  void leave_after_error(nb::handle op) noexcept;

 private:
  // A framework's stream on a device, in this execution.
  struct Visit {
    dataflow::Lender* lender;
    CUstream theirs;   // null: it has not been asked
    Tick behind;       // what it held before
    Few<Tick> uses{};  // one for each stream
    std::vector<nb::object> written{};
  };
  // A stream that was current when the execution began to wait.
  struct Kept {
    dataflow::Lender* lender;
    CUstream theirs;
    nb::object keeper;  // of the stream; none, where nobody knows it
  };
  struct BorrowedUse {
    dataflow::BufferRef buffer;
    dataflow::Span span;
    bool writes;
  };
  Visit& visit(dataflow::Lender& lender);
  CUstream current(dataflow::Lender& lender) const;
  [[gnu::cold]] void leave_now();

  Engine& engine_;
  bool is_open_ = true;
  bool has_begun_ = false;
  Few<Visit> visits_;
  std::vector<Kept> kept_;
  std::vector<BorrowedUse> borrowed_;
};

}  // namespace aiocuda::driver
