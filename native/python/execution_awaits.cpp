// Awaits of what has an execution: see execution_awaits.hpp.
#include "execution_awaits.hpp"

#include <optional>

#include "../driver/refused.hpp"
#include "../spares.hpp"
#include "places.hpp"

namespace aiocuda {
using namespace nb::literals;
using dataflow::Op;
using driver::Execution;

namespace {

class AwaitedOp final : public AwaitedExecution, public SpareMemory<AwaitedOp> {
 public:
  using AwaitedExecution::AwaitedExecution;

  void begin(const Place& place, double&) override {
    execution_.emplace(process_engine(), subject(), dataflow::placement_in_force());
    begin_tensors(place);
  }
  Went go_on(LoopPort& port, PyObject* await) override { return drive(port, await); }
  bool came_out(PyObject*, std::int32_t result) override { return is_complete_with(result); }
  nb::object outcome() override { return dataflow::as_op(op())->outcome; }
  int traverse(visitproc visit, void* arg) const override {
    if (const int found = Awaited::traverse(visit, arg)) return found;
    return execution_ ? execution_->traverse(visit, arg) : 0;
  }

 protected:
  nb::handle op() const override { return subject(); }
  Execution& execution() override { return *execution_; }

 private:
  std::optional<Execution> execution_;
};

}  // namespace

bool AwaitedExecution::has_ended() {
  try {
    return driver::has_passed(process_engine(), op());
  } catch (nb::python_error&) {  // of a lost device: who awaits the operation is told
    return dataflow::as_op(op())->state == dataflow::State::failed;
  }
}

bool AwaitedExecution::is_late(double waited_s) { driver::raise_exception(overdue().of_op(op(), waited_s)); }

void AwaitedExecution::leave(PyObject* await) {
  if (is_standing_ && Execution::leave(*dataflow::as_op(op()), await)) Py_DECREF(await);
}

void AwaitedExecution::begin_tensors(const Place& place) {
  if (!dataflow::as_op(op())->has_tensors) [[likely]]
    return;
  const Charged charged(*nb::inst_ptr<LoopPort>(place.port));
  to_execute(execution().op(), execution().placement());
  execution().begin_tensors();
}

Went AwaitedExecution::drive(LoopPort& port, PyObject* await) {
  const Charged charged(port);
  to_execute(execution().op(), execution().placement());
  nb::object token = nb::borrow(await);
  const auto driven = execution().drive({port.port, await});
  if (driven == Execution::Driven::complete) return Went::arrived;
  if (driven == Execution::Driven::turn_is_over) return Went::turn_is_over;
  token.release();
  is_standing_ = true;
  completes_ = driven == Execution::Driven::completes;
  return Went::waits;
}

bool AwaitedExecution::is_complete_with(std::int32_t result) {
  is_standing_ = false;
  return completes_ && execution().ended(result);
}

PyObject* await_op(PyObject* op) { return make_await(std::make_unique<AwaitedOp>(op)); }

void bind_execution_awaits(nb::module_& module) {
  // `timeout_s`: on the loop's clock, from the first step; negative: none.
  module.def(
      "await_op",
      [](nb::handle_t<Op> op, double timeout_s) {
        return checked(make_await(std::make_unique<AwaitedOp>(op), timeout_s));
      },
      "op"_a, "timeout_s"_a);
}

}  // namespace aiocuda
