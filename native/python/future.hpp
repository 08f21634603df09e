// The native half of a DeviceFuture: the operation, its execution, how it ended, and the awaits that wait for it.
//
// Always true: it ends once, and all who wait for it hear of that. Until somebody waits, it has no path and no
// container.
#pragma once
#include <nanobind/nanobind.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "../driver/execution.hpp"
#include "../few.hpp"
#include "process.hpp"

namespace aiocuda {
namespace nb = nanobind;

class Future {
 public:
  Future(nb::object op, nb::object placement, bool started)
      : is_started(started), op_(std::move(op)), placement_(std::move(placement)) {}
  Future(const Future&) = delete;
  Future& operator=(const Future&) = delete;

  bool is_started;
  nb::object audience{};  // Python's: who else is to be told; none until there is somebody

  const nb::object& op() const { return op_; }
  const nb::object& placement() const { return placement_; }
  const nb::object& end() const { return end_; }
  // False: it has ended already.
  bool end_with(nb::object end) {
    if (end_.is_valid()) return false;
    end_ = std::move(end);
    return true;
  }

  driver::Execution& execution() { return driven().execution; }
  bool is_waited_for() const { return driven_ && !driven_->waiting.empty(); }
  void add(PyObject* await, std::shared_ptr<completion::Port> port) {
    driven().waiting.push_back({await, std::move(port)});
  }
  void remove(PyObject* await) {
    if (!driven_) return;
    Few<Waiting>& all = driven_->waiting;
    const auto found =
        std::find_if(all.begin(), all.end(), [await](const Waiting& each) { return each.await == await; });
    if (found != all.end()) all.erase(found);
  }
  // Ends with the future: for threads that block until then.
  const driver::CompletionRef& given_up() {
    auto& made = driven().given_up;
    if (!made) made = std::make_shared<completion::Completion>(1);
    return made;
  }
  // Wakes all awaits, and threads that block. If they stand in a line, they leave it.
  void wake() {
    if (!driven_) return;
    if (driven_->given_up) driven_->given_up->part_done(0);
    for (Waiting& each : std::exchange(driven_->waiting, {})) {
      const nb::object kept = nb::borrow(each.await);
      if (driver::Execution::leave(execution().op(), each.await)) Py_DECREF(each.await);
      Py_INCREF(each.await);
      each.port->put(each.await, 0);
    }
  }

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(op_.ptr());
    Py_VISIT(placement_.ptr());
    Py_VISIT(end_.ptr());
    Py_VISIT(audience.ptr());
    return driven_ ? driven_->execution.traverse(visit, arg) : 0;
  }
  void clear() {
    const nb::object gone = std::move(audience);
    if (driven_) driven_->execution.clear();
  }

 private:
  struct Waiting {
    PyObject* await;  // which removes itself before it ends
    std::shared_ptr<completion::Port> port;
  };
  struct Driven {
    Driven(nb::object op, nb::object placement) : execution(process_engine(), std::move(op), std::move(placement)) {}
    driver::Execution execution;
    Few<Waiting> waiting{};
    driver::CompletionRef given_up{};
  };
  Driven& driven() {
    if (!driven_) [[unlikely]]
      make_driven();
    return *driven_;
  }
  [[gnu::noinline]] void make_driven() { driven_ = std::make_unique<Driven>(op_, placement_); }

  nb::object op_, placement_, end_;
  std::unique_ptr<Driven> driven_;
};

}  // namespace aiocuda
