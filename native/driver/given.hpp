// The operations whose work is on its way to the driver, which may refuse it yet; and what they end with then.
//
// Always true: an operation is kept until its work was made, or it was told that the work is lost. Errors are made by
// whoever asks, under the GIL. Guarded by the GIL.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "../dataflow/operation.hpp"
#include "hooks.hpp"
#include "submission_thread.hpp"

namespace aiocuda::driver {
namespace nb = nanobind;

class Given {
 public:
  explicit Given(SubmissionThread& submission) : submission_(submission) {}
  Given(const Given&) = delete;
  Given& operator=(const Given&) = delete;

  // An operation that work was given for, or that ends with others' results while there may be losses.
  [[gnu::noinline]] void note(dataflow::Op& op) {
    if (!kept_.empty() && nb::inst_ptr<dataflow::Op>(kept_.back().op) == &op) {
      kept_.back().number = submission_.given();
    } else {
      kept_.push_back({nb::find(op), submission_.given()});
    }
  }
  void note_finished(dataflow::Op& op) {
    if (submission_.is_used() && (!submission_.has_made_all() || submission_.losses.is_any())) note(op);
  }
  // Lets go of those whose work was made. To let go of them may come back here.
  void drop_made() {
    // Whether it was made, then whether it was lost: the thread says so in the other order.
    while (!kept_.empty() && submission_.has_made(kept_.front().number) && !submission_.losses.is_any()) {
      const nb::object gone = std::move(kept_.front().op);
      kept_.pop_front();
      nb::inst_ptr<dataflow::Op>(gone)->all_ready.reset();
    }
  }
  bool is_empty() const { return kept_.empty(); }

  // Ends the operations that depend on lost work, then forgets the losses. No walk goes on.
  void settle(const Hooks& hooks);
  // The cause for which a submitted operation is lost.
  std::optional<Losses::Cause> find_cause(const dataflow::Op& op) const;
  // The error for a cause.
  static nb::object error_of(const Losses::Cause& cause, const Hooks& hooks);

 private:
  struct Kept {
    nb::object op;
    std::uint64_t number;  // of the calls that had been given by then
  };

  SubmissionThread& submission_;
  std::deque<Kept> kept_;
  bool is_settling_ = false;
};

}  // namespace aiocuda::driver
