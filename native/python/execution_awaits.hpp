// Awaits of what has an execution: operations, and futures.
//
// Always true: the wake carries the outcome. An await that waited for its result alone does not drive again.
#pragma once
#include "../driver/execution.hpp"
#include "awaiting.hpp"

namespace aiocuda {

class AwaitedExecution : public Awaited {
 public:
  using Awaited::Awaited;

  bool has_ended() override;
  bool is_late(double waited_s) override;
  void leave(PyObject* await) override;
  const dataflow::Op* operation() const override { return dataflow::as_op(op()); }

 protected:
  virtual nb::handle op() const = 0;
  virtual driver::Execution& execution() = 0;

  // Operations with arrays of other libraries are submitted before the await first gives up the loop, also where it
  // has to line up for a turn: those libraries go on.
  void begin_tensors(const Place& place);
  Went drive(LoopPort& port, PyObject* await);
  // The token came out. True: so has the result.
  bool is_complete_with(std::int32_t result);

 private:
  bool completes_ = false;  // it waits for nothing but the result
  bool is_standing_ = false;
};

// `op.__await__()`.
PyObject* await_op(PyObject* op);

void bind_execution_awaits(nb::module_& module);

}  // namespace aiocuda
