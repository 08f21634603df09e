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

// One future, and what its token is: an object that holds this.
struct Arrival {
  Arrival(Arrivals& of, nb::object awaited, PyObject* holder)
      : arrivals(&of), future(std::move(awaited)), object(holder) {}

  Arrivals* arrivals;  // null: nobody waits any more
  nb::object future;   // null: it was taken, or given up
  PyObject* const object;
  bool is_due = false;
  bool completes = false;                // it is done when its token comes out, or that of one behind it
  std::int32_t result = 0;               // what the token came out with
  std::deque<Arrival*>* lane = nullptr;  // those of its stream, in order
};

// The garbage collector does not know it: `Arrivals` shows what it holds.
struct ArrivalObject {
  PyObject_HEAD Arrival arrival;
};
PyTypeObject* arrival_type = nullptr;

Arrival& arrival_of(nb::handle token) { return reinterpret_cast<ArrivalObject*>(token.ptr())->arrival; }

nb::object make_token(Arrivals& of, const nb::object& future) {
  auto* const made = PyObject_New(ArrivalObject, arrival_type);
  if (!made) throw nb::python_error();
  auto* const object = reinterpret_cast<PyObject*>(made);
  new (&made->arrival) Arrival(of, future, object);
  return nb::steal(object);
}
void free_token(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  arrival_of(self).~Arrival();
  PyObject_Free(self);
  Py_DECREF(type);
}
PyType_Slot arrival_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(free_token)}, {0, nullptr}};
PyType_Spec arrival_spec = {"aiocuda._native.Arrival", sizeof(ArrivalObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, arrival_slots};

class Arrivals {
 public:
  // So many operations begin in a turn of the loop, fewer than of one await: each has a flag and a token of its own,
  // and takes 1.6 times as long (docs/measurements/2026-11-28-awaits.md).
  static constexpr std::uint32_t operations_in_turn = 96;

  // `limit_s`: from now, on the clock of the loop that runs; negative: none.
  Arrivals(const std::vector<nb::object>& futures, double limit_s) : place_(current_place()) {
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

  double end_s = never;  // on the loop's clock
  std::vector<PyObject*> waiting{};

  const nb::object& port() const { return place_.port; }
  bool is_empty() const { return left_ == 0; }

  // Begins those that have not begun, as many as one turn of the loop has room for. False: there are more.
  // `is_new_turn`: else the turn goes on that some have begun in, as where an await follows another at once.
  bool begin_in_turn(bool is_new_turn) {
    if (is_new_turn) left_in_turn_ = operations_in_turn;
    begin_some();
    return to_begin_.empty();
  }
  // There is more to do than this turn of the loop has room for. True once.
  bool ends_turn() { return std::exchange(is_turn_over_, false); }

  // The next future that is done; null: none is now.
  nb::object take() {
    if (due_.empty()) wake_due(loop_port(), false);
    for (Arrival* const each : put_off_) due_.push_back(each);
    put_off_.clear();
    while (!due_.empty()) {
      Arrival& arrival = *due_.front();
      due_.pop_front();
      if (has_more_to_submit(arrival) && left_in_turn_ == 0) {  // those behind it may be done
        put_off(arrival);
        continue;
      }
      arrival.is_due = false;
      const nb::object token = nb::borrow(arrival.object);
      Went went;
      try {
        const bool is_settled =
            std::exchange(arrival.completes, false) && is_settled_by(arrival.future, token, arrival.result);
        went = is_settled ? Went::arrived : go_on_in_turn(arrival, token);
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
      arrival.result = result;
      make_due(arrival);
    }
    // Each looks whether something is left for it, for all that come out meanwhile.
    for (PyObject* const each : std::exchange(waiting, {})) {
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
      Arrival& arrival = arrival_of(token);
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
      const nb::object dropped = std::move(arrival_of(token).future);
  }

  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(place_.port.ptr());
    Py_VISIT(place_.loop.ptr());
    Py_VISIT(place_.face.ptr());
    for (const nb::object& token : tokens_) Py_VISIT(arrival_of(token).future.ptr());
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
    const nb::object token = make_token(*this, future);
    to_begin_.push_back(&arrival_of(token));
    tokens_.push_back(token);
    ++left_;
  }

  static bool has_more_to_submit(const Arrival& arrival) {
    return dataflow::as_op(operation_of(arrival.future))->state == dataflow::State::pending;
  }

  // Goes on with as many operations as the turn has left. A future that may have some counts as one at least.
  Went go_on_in_turn(Arrival& arrival, const nb::object& token) {
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
    return go_on(future, loop_port(), token, left_in_turn_, arrival.completes);
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
    nb::object token = nb::borrow(arrival.object);
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
  std::uint32_t left_in_turn_ = operations_in_turn;
  bool is_turn_over_ = false;
  std::deque<Arrival*> paused_;  // due when the loop has come round
  std::unordered_map<dataflow::StreamIndex, std::deque<Arrival*>> policy_streams_;
};

// An await of some of them.
class AwaitedArrivals : public Awaited {
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
    if (const Went went = take(port); went != Went::waits) return went;
    if (arrivals().ends_turn()) return Went::turn_is_over;
    if (arrivals().is_empty()) return Went::arrived;
    arrivals().waiting.push_back(await);
    if (arrivals().has_paused()) port.port->put(Py_NewRef(await), completion::pause);
    return Went::waits;
  }
  bool came_out(PyObject* await, std::int32_t) override {
    leave(await);
    arrivals().resume();
    return false;
  }
  void leave(PyObject* await) override { std::erase(arrivals().waiting, await); }

 protected:
  Arrivals& arrivals() const { return *nb::inst_ptr<Arrivals>(subject()); }
  // Takes what is done. `waits`: that is not enough.
  virtual Went take(LoopPort& port) = 0;

 private:
  bool has_suspended_ = false;  // where it goes on: it has been here before
};

// Of the next one.
class AwaitedArrival final : public AwaitedArrivals {
 public:
  using AwaitedArrivals::AwaitedArrivals;

  bool is_late(double) override {
    found_ = arrivals().take();
    return true;
  }
  nb::object outcome() override {
    if (found_.is_valid()) return std::move(found_);
    PyErr_SetNone(PyExc_StopAsyncIteration);
    throw nb::python_error();
  }
  int traverse(visitproc visit, void* arg) const override {
    Py_VISIT(found_.ptr());
    return Awaited::traverse(visit, arg);
  }

 private:
  Went take(LoopPort&) override {
    found_ = arrivals().take();
    return found_.is_valid() ? Went::arrived : Went::waits;
  }

  nb::object found_{};
};

// Of as many as are enough: the set of those that are done.
class AwaitedSome final : public AwaitedArrivals {
 public:
  // `is_enough`: called with each future that is done; None: nothing but all is.
  AwaitedSome(nb::handle arrivals, nb::object is_enough)
      : AwaitedArrivals(arrivals), is_enough_(std::move(is_enough)), done_(checked(PySet_New(nullptr))) {}

  bool is_late(double) override {
    take_the_others();
    return true;
  }
  nb::object outcome() override { return std::move(done_); }
  int traverse(visitproc visit, void* arg) const override {
    Py_VISIT(is_enough_.ptr());
    Py_VISIT(done_.ptr());
    return Awaited::traverse(visit, arg);
  }

 private:
  // Taking so many holds the loop for as long as its time counts at least for an await.
  static constexpr std::uint32_t taken_for_an_await = 8;

  Went take(LoopPort& port) override {
    while (!arrivals().is_empty()) {
      const nb::object future = take_one();
      if (!future.is_valid()) return Went::waits;
      if (!is_enough_.is_none() && nb::cast<bool>(is_enough_(future))) {
        take_the_others();
        return Went::arrived;
      }
      if (++taken_ % taken_for_an_await == 0 && !arrivals().is_empty() && !port.time->admits())
        return Went::turn_is_over;
    }
    return Went::arrived;
  }
  nb::object take_one() {
    nb::object future = arrivals().take();
    if (future.is_valid() && PySet_Add(done_.ptr(), future.ptr()) != 0) throw nb::python_error();
    return future;
  }
  // What is done too, without waiting.
  void take_the_others() {
    while (take_one().is_valid()) {
    }
  }

  const nb::object is_enough_;
  nb::object done_;
  std::uint32_t taken_ = 0;
};

PyObject* next_arrival(PyObject* arrivals) { return make_await(std::make_unique<AwaitedArrival>(arrivals)); }
PyObject* itself(PyObject* self) { return Py_NewRef(self); }

int arrivals_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<Arrivals>(nb::handle(self))->traverse(visit, arg) : 0;
}
int arrivals_clear(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Arrivals>(nb::handle(self))->close();
  return 0;
}
PyType_Slot arrivals_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(arrivals_traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(arrivals_clear)},
                                {Py_am_aiter, reinterpret_cast<void*>(itself)},
                                {Py_am_anext, reinterpret_cast<void*>(next_arrival)},
                                {0, nullptr}};

}  // namespace

bool wake_arrival(PyObject* token, std::int32_t result) {
  if (Py_TYPE(token) != arrival_type) return false;
  Arrival& arrival = arrival_of(token);
  if (arrival.arrivals && arrival.future.is_valid()) arrival.arrivals->note(arrival, result);
  return true;
}

void bind_arrivals(nb::module_& module) {
  arrival_type = reinterpret_cast<PyTypeObject*>(checked(PyType_FromSpec(&arrival_spec)).release().ptr());
  nb::class_<Arrivals>(module, "Arrivals", nb::type_slots(arrivals_slots), nb::is_weak_referenceable())
      .def(nb::init<const std::vector<nb::object>&, double>(), "futures"_a, "limit_s"_a = -1.0)
      // An await of the set of those that are done. It ends when all are. It ends earlier if a function of one of them
      // says that it is enough, or the time is up; the set then has those that are done by then.
      .def(
          "done",
          [](nb::handle_t<Arrivals> self, nb::object is_enough) {
            return checked(make_await(std::make_unique<AwaitedSome>(self, std::move(is_enough))));
          },
          "is_enough"_a.none())
      .def("close", &Arrivals::close);
}

}  // namespace aiocuda
