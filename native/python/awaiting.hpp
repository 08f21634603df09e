// An await without a coroutine: what a loop drives by `send`, `throw` and `close`, whatever is awaited.
//
// Always true: an await that has ended holds nothing and waits for nothing; a token of it that comes later does
// nothing. It is used once. Guarded by the GIL.
#pragma once
#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>

#include "loop_port.hpp"
#include "loops.hpp"

namespace aiocuda {

// The thing that one await waits for: an operation, a future, a stream or an event. Each kind derives from this class.
class Awaited {
 public:
  // The object that the await was made of, as messages name it.
  explicit Awaited(nb::handle subject) : subject_(nb::borrow(subject)) {}
  Awaited(const Awaited&) = delete;
  Awaited& operator=(const Awaited&) = delete;
  virtual ~Awaited() = default;

  const nb::object& subject() const { return subject_; }

  // The await's first step, in a loop. `end_s`: when its time is up, on the loop's clock; it may be changed.
  virtual void begin(const Place&, double& /*end_s*/) {}
  // Is it there already? Raises nothing.
  virtual bool has_ended() = 0;
  // Goes on as far as nothing has to be waited for. `waits`: a reference to `await` was taken for the port.
  virtual Went go_on(LoopPort& port, PyObject* await) = 0;
  // The token came out. True: it is there. False: it has to go on.
  virtual bool came_out(PyObject* await, std::int32_t result) = 0;
  // The time is up, so many seconds after the first step. True: it is there all the same. Otherwise it raises.
  virtual bool is_late(double waited_s) = 0;
  // The await ends. If a token of it is still on its way, it may be taken back.
  virtual void leave(PyObject* /*await*/) {}
  virtual nb::object outcome() = 0;
  // The operation whose result it is; null: it is none's.
  virtual const dataflow::Op* operation() const { return nullptr; }

  virtual int traverse(visitproc visit, void* arg) const {
    Py_VISIT(subject_.ptr());
    return 0;
  }

 private:
  const nb::object subject_;
};

// `limit_s`: on the loop's clock, from the first step; negative: none. Null, with Python's error, where there is no
// memory.
PyObject* make_await(std::unique_ptr<Awaited> awaited, double limit_s = -1);

// The functions of Python that make the errors of time-outs.
struct Overdue {
  nb::object of_op{};       // (op, waited_s)
  nb::object of_streams{};  // (what was asked for, in words, streams, waited_s)
};
Overdue& overdue();

// A token that came out of a port: if it is an await, tells it. False: it is something else.
bool wake_await(PyObject* token, std::int32_t result);

void bind_awaiting(nb::module_& module);

}  // namespace aiocuda
