// Futures on their way, for `as_completed` and `wait`: each is taken once, when it is done, in the order in which its
// token came out of the loop's port.
//
// Always true: one step submits a turn's operations at most. None is taken before all have begun. A future that is
// given up, or taken, is told of nothing more, and keeps nothing alive. One port serves all. Guarded by the GIL.
#include "arrivals.hpp"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <unordered_map>

#include "../driver/execution.hpp"
#include "awaiting.hpp"
#include "execution.hpp"
#include "futures.hpp"
#include "process.hpp"

namespace aiocuda {
namespace {
using namespace nb::literals;
using dataflow::Op;

constexpr double never = std::numeric_limits<double>::infinity();

class Arrivals;

// The token of one future.
struct Arrival {
  Arrival(Arrivals& of, nb::object awaited) : arrivals(&of), future(std::move(awaited)) {}

  Arrivals* arrivals;  // null: nobody waits any more
  nb::object future;   // null: it was taken, or given up
  bool is_due = false;
  std::deque<Arrival*>* lane = nullptr;  // those of its stream, in order
};

class Arrivals {
 public:
  // `limit_s`: from now, on the clock of the loop that runs; negative: none. `is_iterated`: the end is a
  // StopAsyncIteration.
  Arrivals(const std::vector<nb::object>& futures, double limit_s, bool iterated)
      : is_iterated(iterated), place_(current_place()) {
    if (limit_s >= 0) end_s = place_.now_s() + limit_s;
    try {
      for (const nb::object& future : in_order_of_submission(futures)) add(future);
      begin_some();
    } catch (...) {
      close();
      throw;
    }
  }
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;
  ~Arrivals() { close(); }

  const bool is_iterated;
  double end_s = never;  // on the loop's clock
  std::vector<PyObject*> waiting{};

  const nb::object& port() const { return place_.port; }
  bool is_empty() const { return left_ == 0; }

  // Begins those that have not begun, as many as one turn of the loop has room for. False: there are more.
  // `is_new_turn`: else the turn goes on that some have begun in, as where an await follows another at once.
  bool begin_in_turn(bool is_new_turn) {
    if (is_new_turn) left_in_turn_ = driver::Execution::operations_in_turn;
    begin_some();
    return to_begin_.empty();
  }
  // There is more to do than this turn of the loop has room for. True once.
  bool ends_turn() { return std::exchange(is_turn_over_, false); }

  // The next future that is done; null: none is now.
  nb::object take() {
    wake_due(loop_port(), false);
    due_.insert(due_.end(), put_off_.begin(), put_off_.end());
    put_off_.clear();
    while (!due_.empty()) {
      Arrival& arrival = *due_.front();
      due_.pop_front();
      if (has_more_to_submit(arrival) && left_in_turn_ == 0) {  // those behind it may be done
        put_off(arrival);
        continue;
      }
      arrival.is_due = false;
      const nb::object token = nb::find(arrival);
      Went went;
      try {
        went = go_on_in_turn(arrival, token);
      } catch (...) {  // an interruption is not the end of the future
        note(arrival, 0);
        throw;
      }
      if (went == Went::turn_is_over) {
        put_off(arrival);
        continue;
      }
      if (went == Went::arrived && arrival.future.is_valid()) {
        --left_;
        arrival.lane = nullptr;
        return std::move(arrival.future);
      }
    }
    return {};
  }

  // Has a future looked at: it may be done, or go on.
  void note(Arrival& arrival, std::int32_t result) {
    if (result == completion::pause) {
      paused_.push_back(&arrival);
    } else {
      // Futures that were submitted before it have passed too, even if they are told of in another way, and later.
      if (arrival.lane && arrival.future.is_valid() && !has_end_of_its_own(arrival.future)) {
        auto& lane = *arrival.lane;
        while (!lane.empty()) {
          Arrival& earlier = *lane.front();
          lane.pop_front();
          if (&earlier == &arrival) break;
          make_due(earlier);
        }
      }
      make_due(arrival);
    }
    for (PyObject* const each : std::vector(waiting)) {  // each looks whether something is left for it
      const nb::object kept = nb::borrow(each);
      wake_await(each, result);
    }
  }

  bool has_paused() const { return !paused_.empty(); }
  // The loop has come round.
  void resume() {
    for (Arrival* const each : std::exchange(paused_, {})) make_due(*each);
  }

  // Gives up what is left: nobody is told of it any more.
  void close() {
    for (const nb::object& token : tokens_) {
      Arrival& arrival = *nb::inst_ptr<Arrival>(token);
      arrival.arrivals = nullptr;
      arrival.lane = nullptr;
      if (arrival.future.is_valid()) withdraw(arrival.future, token);
    }
    left_ = 0;
    to_begin_.clear();
    due_.clear();
    put_off_.clear();
    paused_.clear();
    policy_streams_.clear();
    for (const nb::object& token : std::exchange(tokens_, {}))
      const nb::object dropped = std::move(nb::inst_ptr<Arrival>(token)->future);
  }

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(place_.port.ptr());
    Py_VISIT(place_.loop.ptr());
    Py_VISIT(place_.face.ptr());
    for (const nb::object& token : tokens_) Py_VISIT(token.ptr());
    return 0;
  }

 private:
  LoopPort& loop_port() const { return *nb::inst_ptr<LoopPort>(place_.port); }

  // The first ones first, and each stream's in its order: hearing of one means hearing of all before it.
  static std::vector<nb::object> in_order_of_submission(std::vector<nb::object> futures) {
    auto op_of = [](const nb::object& each) -> const Op& { return *dataflow::as_op(operation_of(each)); };
    const auto others = std::stable_partition(futures.begin(), futures.end(), [&](const nb::object& each) {
      return op_of(each).state == dataflow::State::submitted;
    });
    std::stable_sort(futures.begin(), others, [&](const nb::object& one, const nb::object& other) {
      const auto &left = op_of(one).ready, &right = op_of(other).ready;
      return std::lexicographical_compare(left.begin(), left.end(), right.begin(), right.end(),
                                          [](const dataflow::Tick& a, const dataflow::Tick& b) {
                                            return std::pair(a.stream, a.count) < std::pair(b.stream, b.count);
                                          });
    });
    return futures;
  }

  void add(const nb::object& future) {
    nb::object token = nb::inst_alloc(nb::type<Arrival>());
    to_begin_.push_back(new (nb::inst_ptr<Arrival>(token)) Arrival(*this, future));
    nb::inst_mark_ready(token);
    tokens_.push_back(token);
    ++left_;
  }

  static bool has_more_to_submit(const Arrival& arrival) {
    return dataflow::as_op(operation_of(arrival.future))->state == dataflow::State::pending;
  }

  // Goes on with as many operations as the turn has left. A future that may have some counts as one at least.
  Went go_on_in_turn(const Arrival& arrival, const nb::object& token) {
    struct Counted {
      Counted(Arrivals& of, std::uint32_t least) : arrivals(of), at_least(least) {}
      Counted(const Counted&) = delete;
      Counted& operator=(const Counted&) = delete;
      ~Counted() {
        const std::uint64_t count = std::max(process_engine().performed - before, at_least);
        arrivals.left_in_turn_ -= static_cast<std::uint32_t>(std::min<std::uint64_t>(count, arrivals.left_in_turn_));
      }
      Arrivals& arrivals;
      const std::uint64_t at_least, before = process_engine().performed;
    };
    const Counted counted(*this, has_more_to_submit(arrival) ? 1 : 0);
    const nb::object future = arrival.future;
    return go_on(future, loop_port(), token, left_in_turn_);
  }

  void begin_some() {
    while (!to_begin_.empty()) {
      Arrival& arrival = *to_begin_.front();
      if (has_more_to_submit(arrival) && left_in_turn_ == 0) return;
      to_begin_.pop_front();
      try {
        if (begin(arrival)) continue;
      } catch (...) {  // an interruption is not the end of the future
        make_due(arrival);
        throw;
      }
      make_due(arrival);
      return;
    }
  }

  // False: the turn is over, and there is more of it.
  bool begin(Arrival& arrival) {
    nb::object token = nb::find(arrival);
    const nb::object future = arrival.future;
    const Went went = go_on_in_turn(arrival, token);
    if (went == Went::turn_is_over) return false;
    if (went == Went::arrived) {
      loop_port().port->put(token.release().ptr(), 0);  // behind those that came before it
      return true;
    }
    const Op& op = *dataflow::as_op(operation_of(future));
    if (op.ready.size() != 1) return true;
    arrival.lane = &policy_streams_[op.ready.begin()->stream];
    arrival.lane->push_back(&arrival);
    return true;
  }

  void make_due(Arrival& arrival) {
    if (arrival.is_due || !arrival.future.is_valid()) return;
    arrival.is_due = true;
    due_.push_back(&arrival);
  }

  // It has more to submit than this turn of the loop has room for.
  void put_off(Arrival& arrival) {
    is_turn_over_ = arrival.is_due = true;
    put_off_.push_back(&arrival);
  }

  const Place place_;
  std::vector<nb::object> tokens_;
  std::size_t left_ = 0;
  std::deque<Arrival*> to_begin_, due_, put_off_;
  std::uint32_t left_in_turn_ = driver::Execution::operations_in_turn;
  bool is_turn_over_ = false;
  std::deque<Arrival*> paused_;  // due when the loop has come round
  std::unordered_map<dataflow::StreamIndex, std::deque<Arrival*>> policy_streams_;
};

// An await of the next one.
class AwaitedArrival final : public Awaited {
 public:
  using Awaited::Awaited;

  void begin(const Place& place, double& end_s) override {
    if (!place.port.is(arrivals().port()))
      dataflow::raise(nb::module_::import_("aiocuda.errors").attr("AiocudaError"),
                      "as_completed() is iterated in the event loop in which it was called, and in no other");
    end_s = arrivals().end_s;
  }
  bool has_ended() override { return true; }  // what is there is taken, and looking for it is a checkpoint of trio's
  Went go_on(LoopPort& port, PyObject* await) override {
    if (!arrivals().begin_in_turn(std::exchange(has_suspended_, true))) return Went::turn_is_over;
    while (!arrivals().is_empty()) {
      found_ = arrivals().take();
      if (found_.is_valid()) return Went::arrived;
      if (arrivals().ends_turn()) return Went::turn_is_over;
      if (arrivals().is_empty()) break;
      arrivals().waiting.push_back(await);
      if (arrivals().has_paused()) port.port->put(Py_NewRef(await), completion::pause);
      return Went::waits;
    }
    return Went::arrived;
  }
  bool came_out(PyObject* await, std::int32_t) override {
    leave(await);
    arrivals().resume();
    return false;
  }
  bool is_late(double) override {
    found_ = arrivals().take();
    return true;
  }
  void leave(PyObject* await) override { std::erase(arrivals().waiting, await); }
  nb::object outcome() override {
    if (found_.is_valid()) return std::move(found_);
    if (!arrivals().is_iterated) return nb::none();
    PyErr_SetNone(PyExc_StopAsyncIteration);
    throw nb::python_error();
  }
  int traverse(visitproc visit, void* arg) const override {
    Py_VISIT(found_.ptr());
    return Awaited::traverse(visit, arg);
  }

 private:
  Arrivals& arrivals() const { return *nb::inst_ptr<Arrivals>(subject()); }

  nb::object found_{};
  bool has_suspended_ = false;  // where it goes on: it has been here before
};

PyObject* next_arrival(PyObject* arrivals) { return make_await(std::make_unique<AwaitedArrival>(arrivals)); }
PyObject* itself(PyObject* self) { return Py_NewRef(self); }

int arrival_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<Arrival>(nb::handle(self))->future.ptr());
  return 0;
}
int arrivals_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<Arrivals>(nb::handle(self))->traverse(visit, arg) : 0;
}
int arrivals_clear(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Arrivals>(nb::handle(self))->close();
  return 0;
}
PyType_Slot arrival_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(arrival_traverse)}, {0, nullptr}};
PyType_Slot arrivals_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(arrivals_traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(arrivals_clear)},
                                {Py_am_aiter, reinterpret_cast<void*>(itself)},
                                {Py_am_anext, reinterpret_cast<void*>(next_arrival)},
                                {0, nullptr}};

}  // namespace

void bind_arrivals(nb::module_& module) {
  nb::class_<Arrival>(module, "Arrival", nb::type_slots(arrival_slots))
      .def("wake", [](Arrival& self, std::int32_t result) {
        if (self.arrivals && self.future.is_valid()) self.arrivals->note(self, result);
      });
  nb::class_<Arrivals>(module, "Arrivals", nb::type_slots(arrivals_slots), nb::is_weak_referenceable())
      .def(nb::init<const std::vector<nb::object>&, double, bool>(), "futures"_a, "limit_s"_a = -1.0,
           "is_iterated"_a = false)
      // An await of the next one; where there is none any more, or the time is up, of None.
      .def("next", [](nb::handle_t<Arrivals> self) { return checked(next_arrival(self.ptr())); })
      .def("take",
           [](Arrivals& self) {
             nb::object found = self.take();
             return found.is_valid() ? found : nb::none();
           })
      .def("close", &Arrivals::close);
}

}  // namespace aiocuda
