// Executions and ports as Python sees them.
#include "execution.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "driver/execution.hpp"
#include "driver/refused.hpp"
#include "execution_awaits.hpp"
#include "futures.hpp"
#include "loop_port.hpp"
#include "places.hpp"

namespace aiocuda {
namespace {
using namespace nb::literals;
using dataflow::Placement;
using driver::Engine;
using driver::Execution;
using Streams = std::vector<driver::StreamIndex>;

// Without those that were destroyed: all of theirs has passed.
Streams still_there(const std::vector<dataflow::StreamId>& streams) {
  const Engine& engine = Engine::get();
  Streams found;
  for (const dataflow::StreamId stream : streams) {
    const driver::StreamIndex slot = dataflow::slot_of(stream);
    if (slot < engine.stream_count() && engine.id_of(slot) == stream) found.push_back(slot);
  }
  return found;
}

// What comes out of a port.
struct Due {
  nb::object token;
  std::int32_t result;
};
std::vector<Due> take(LoopPort& port, bool begins_turn) {
  interpreter::guard_thread();
  Engine::get().require_not_forked();
  std::vector<Due> due;
  auto append = [&due](completion::Token token, std::int32_t result) {
    due.push_back({nb::steal(static_cast<PyObject*>(token)), result});
  };
  for (const auto& each : port.port->take()) append(each.token, each.result);
  if (port.time && begins_turn) {
    for (const completion::Token token : port.time->begin_turn()) append(token, completion::own_turn);
    port.look_for_turn();
  } else if (port.time && port.time->has_asked()) {
    port.port->ring();  // what was rung for has been taken back
  }
  drop_orphans();
  return due;
}

void require_open(const Execution& execution) { to_execute(execution.op(), execution.placement()); }

void raise_stream_error(const completion::Completion& completion, const Streams& streams, const std::string& asked) {
  Engine& engine = Engine::get();
  if (const std::int32_t error = completion.error())
    driver::raise_refused(engine, static_cast<CUresult>(error), "cuStreamQuery", asked, 0,
                          engine.stream(streams.front()).device);
}

}  // namespace

void bind_execution(nb::module_& module) {
  bind_loops(module);
  bind_awaiting(module);
  bind_execution_awaits(module);
  bind_futures(module);
  nb::class_<LoopPort>(module, "Port", nb::is_weak_referenceable())
      // `turn_us`: how long awaits may hold the loop in one turn of it; None: it is no loop's.
      .def(nb::init<bool, std::optional<std::int64_t>>(), "blocks"_a = false, "turn_us"_a = nb::none())
      .def("fileno", [](const LoopPort& self) { return self.port->fd(); })
      // Makes a token due now, and not when something has passed; with 0, or PAUSE.
      .def(
          "put",
          [](LoopPort& self, nb::object token, std::int32_t result) {
            Engine::get().require_not_forked();
            self.port->put(token.release().ptr(), result);
          },
          "token"_a, "result"_a = 0)
      // The tokens that are due, each with 0 or the driver's error. `begins_turn`: the loop asks, once in each turn.
      .def(
          "take",
          [](LoopPort& self, bool begins_turn) {
            nb::list due;
            for (const auto& [token, result] : take(self, begins_turn)) due.append(nb::make_tuple(token, result));
            return due;
          },
          "begins_turn"_a = false)
      // Tells all whose tokens are due, in the order in which they became so.
      .def(
          "wake_due",
          [](nb::handle_t<LoopPort> self, bool begins_turn) {
            const nb::object kept = nb::borrow(self);
            static PyObject* const name = PyUnicode_InternFromString("wake");
            for (const auto& [token, result] : take(*nb::inst_ptr<LoopPort>(self), begins_turn)) {
              if (wake_await(token.ptr(), result)) continue;
              token.attr(name)(result);
            }
          },
          "begins_turn"_a = false)
      // An await of an operation, or of something else, begins. False: it lines up, and enters when it is its turn.
      .def(
          "admits", [](LoopPort& self, nb::handle) { return self.time->admits(); }, nb::arg("op").none())
      .def("line_up", [](LoopPort& self) { return self.time->line_up(); })
      .def("enter",
           [](LoopPort& self, completion::LoopTime::Place place, nb::object token) {
             if (self.time->enter(place, token.ptr())) return true;
             token.release();
             self.look_for_turn();
             return false;
           })
      .def("leave_line",
           [](LoopPort& self, completion::LoopTime::Place place) {
             nb::steal(static_cast<PyObject*>(self.time->leave(place)));
           })
      .def_prop_ro("turn_calls", [](const LoopPort& self) { return self.time->calls(); });

  // Work of another thread, for who waits: tokens, or a thread that blocks. `end` is called once, when it has ended.
  nb::class_<driver::HostWork>(module, "HostWork", nb::is_weak_referenceable())
      .def(nb::init<>())
      .def("end", &driver::HostWork::end)
      .def_prop_ro("has_ended", [](const driver::HostWork& self) { return self.ended->has_ended(); })
      // False: it has ended already.
      .def("tell",
           [](const driver::HostWork& self, LoopPort& port, nb::object token) {
             PyObject* const owned = token.release().ptr();
             if (self.ended->tell(port.port, owned)) return true;
             Py_DECREF(owned);
             return false;
           })
      // Gives up the GIL, and looks for signals.
      .def("wait", [](const driver::HostWork& self) {
        interpreter::guard_thread();
        driver::wait_with_signals(*self.ended, -1.0);
      });

  module.attr("PAUSE") = completion::pause;
  module.attr("TURN") = completion::own_turn;

  module.def("submit", [](nb::handle_t<dataflow::Op> op, nb::handle_t<Placement> placement) {
    Execution execution(nb::borrow(op), nb::borrow(placement));
    require_open(execution);
    execution.submit();
  });
  // Executes an operation. False: the time (negative: none) passed first.
  module.def("wait", [](nb::handle_t<dataflow::Op> op, nb::handle_t<Placement> placement, double timeout_s) {
    Execution execution(nb::borrow(op), nb::borrow(placement));
    require_open(execution);
    return execution.wait(timeout_s);
  });
  // How often walks have looked at an operation.
  module.def("walk_visits", [] { return dataflow::Path::visits(); });
  module.def("has_passed", [](nb::handle_t<dataflow::Op> op) { return driver::has_passed(op); });
  // False: nothing to wait for. Covers everything the streams hold, also what others submitted.
  module.def("tell_when_streams_pass", [](const std::vector<dataflow::StreamId>& streams, const std::string& asked,
                                          LoopPort& port, nb::object token) {
    const Charged charged(port);
    const Streams lanes = still_there(streams);
    if (lanes.empty()) return false;
    const auto completion = driver::arm_streams(lanes, asked);
    PyObject* owned = token.inc_ref().ptr();
    if (completion->tell(port.port, owned)) return true;
    Py_DECREF(owned);
    raise_stream_error(*completion, lanes, asked);
    return false;
  });
  // False: `timeout_s` (negative: none) passed first.
  module.def("wait_for_streams",
             [](const std::vector<dataflow::StreamId>& streams, const std::string& asked, double timeout_s) {
               const Streams lanes = still_there(streams);
               if (lanes.empty()) return true;
               const auto completion = driver::arm_streams(lanes, asked);
               if (!driver::wait_with_signals(*completion, timeout_s)) return false;
               raise_stream_error(*completion, lanes, asked);
               return true;
             });
  // Those of some streams that still hold work, whoever submitted it, or that are broken.
  module.def("streams_at_work", [](const std::vector<dataflow::StreamId>& streams) {
    Engine& engine = Engine::get();
    driver::ContextScope scope(engine);
    nb::list at_work;
    for (const driver::StreamIndex stream : still_there(streams)) {
      const driver::StreamState& state = engine.stream(stream);
      scope.bind(state.device);
      if (engine.streams.query(state.handle) != CUDA_SUCCESS) at_work.append(engine.id_of(stream));
    }
    return at_work;
  });
}

}  // namespace aiocuda
