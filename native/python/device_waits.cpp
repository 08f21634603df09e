// Streams and events as Python waits for them: see device_waits.hpp.
#include "device_waits.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "../driver/passing.hpp"
#include "../driver/refused.hpp"
#include "awaiting.hpp"
#include "places.hpp"
#include "process.hpp"

namespace aiocuda {
namespace {
using namespace nb::literals;
using dataflow::StreamId;
using driver::Engine;
using driver::EventPassing;
using driver::Passing;

[[noreturn]] void raise_overdue(const Passing& passing, double waited_s) {
  driver::raise_exception(overdue().of_streams(passing.asked(), passing.named(), waited_s));
}

// An await of what the device passes; its subject keeps that.
class AwaitedPassing final : public Awaited {
 public:
  AwaitedPassing(nb::handle subject, Passing& passing) : Awaited(subject), passing_(passing) {}

  bool has_ended() override {
    try {
      return passing_.has_passed();
    } catch (nb::python_error&) {  // who goes on is told
      return false;
    }
  }
  Went go_on(LoopPort& port, PyObject* await) override {
    const Charged charged(port);
    const auto& placement = *nb::inst_ptr<dataflow::Placement>(dataflow::placement_in_force());
    do {
      armed_ = passing_.wait(driver::await_budget(process_engine(), placement.spin_us));
      if (!armed_) return Went::arrived;
      nb::object token = nb::borrow(await);
      if (armed_->tell(port.port, await)) {
        token.release();
        return Went::waits;
      }
    } while (!passing_.has_come(armed_->error()));
    return Went::arrived;
  }
  bool came_out(PyObject*, std::int32_t result) override {
    armed_ = nullptr;
    return passing_.has_come(result);
  }
  bool is_late(double waited_s) override {
    if (!passing_.has_passed()) raise_overdue(passing_, waited_s);
    return true;
  }
  void leave(PyObject* await) override {
    if (armed_ && !process_engine().is_over() && armed_->withdraw(await)) Py_DECREF(await);
  }
  nb::object outcome() override { return nb::none(); }

 private:
  Passing& passing_;
  driver::CompletionRef armed_;
};

void block(Passing& passing, double timeout_s) {
  if (!passing.block(timeout_s)) raise_overdue(passing, timeout_s);
}

template <class T>
PyObject* await_passing(PyObject* self) {
  return make_await(std::make_unique<AwaitedPassing>(self, *nb::inst_ptr<T>(nb::handle(self))));
}
template <class T>
nb::object await_with_limit(nb::handle_t<T> self, double timeout_s) {
  return checked(make_await(std::make_unique<AwaitedPassing>(self, *nb::inst_ptr<T>(self)), timeout_s));
}

// A wait for streams, and what keeps them open.
struct StreamWait : driver::StreamsPassing {
  StreamWait(std::vector<StreamId> streams, std::string asked, nb::object kept, std::int32_t device)
      : StreamsPassing(process_engine(), std::move(streams), std::move(asked), device), keepalive(std::move(kept)) {}
  nb::object keepalive;
};
int stream_wait_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<StreamWait>(nb::handle(self))->keepalive.ptr());
  return 0;
}
int stream_wait_clear(PyObject* self) {
  if (nb::inst_ready(self)) const nb::object gone = std::move(nb::inst_ptr<StreamWait>(nb::handle(self))->keepalive);
  return 0;
}
PyType_Slot stream_wait_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(stream_wait_traverse)},
                                   {Py_tp_clear, reinterpret_cast<void*>(stream_wait_clear)},
                                   {Py_am_await, reinterpret_cast<void*>(await_passing<StreamWait>)},
                                   {0, nullptr}};
PyType_Slot event_slots[] = {{Py_am_await, reinterpret_cast<void*>(await_passing<EventPassing>)}, {0, nullptr}};

void bind_event(nb::module_& module) {
  nb::class_<EventPassing>(module, "Event", nb::type_slots(event_slots))
      // Recorded behind all that a stream holds now. `where`: such as "on stream 3 of device 0", for messages.
      .def(
          "__init__",
          [](EventPassing* self, std::string where, StreamId stream, bool has_timing, bool is_interprocess) {
            Engine& engine = process_engine();
            engine.require_usable();
            const driver::StreamIndex index = index_of(stream);
            auto words = [&] { return "recording an event " + where; };
            auto recorded = driver::doing(engine, words, engine.stream(index).device, [&] {
              return driver::Event::record(engine.devices, engine.streams, index, {has_timing, is_interprocess});
            });
            new (self) EventPassing(engine, std::move(recorded), std::move(where), stream);
          },
          "where"_a, "stream"_a, "has_timing"_a, "is_interprocess"_a)
      // Another process', which lent it by these bytes.
      .def(
          "__init__",
          [](EventPassing* self, std::string where, std::int32_t device, const nb::bytes& lent) {
            Engine& engine = process_engine();
            CUipcEventHandle handle{};
            if (lent.size() != sizeof handle.reserved) throw nb::value_error("such a handle has another size");
            std::memcpy(handle.reserved, lent.c_str(), sizeof handle.reserved);
            auto opened = driver::doing(engine, std::string("opening an event of another process"), device,
                                        [&] { return driver::Event::open(engine.devices, device, handle); });
            new (self) EventPassing(engine, std::move(opened), std::move(where), dataflow::no_stream);
          },
          "where"_a, "device"_a, "lent"_a)
      .def_prop_ro("_title", &EventPassing::title)
      .def_prop_ro("_where", &EventPassing::where)
      .def_prop_ro("_has_timing", [](const EventPassing& self) { return self.event().kind().has_timing; })
      .def_prop_ro("_is_interprocess", [](const EventPassing& self) { return self.event().kind().is_interprocess; })
      .def_prop_ro("_handle",
                   [](const EventPassing& self) { return reinterpret_cast<std::uintptr_t>(self.event().handle()); })
      .def("_has_passed", &EventPassing::has_passed)
      .def("_block", [](EventPassing& self, double timeout_s) { block(self, timeout_s); })
      .def("_await", await_with_limit<EventPassing>)
      // In milliseconds; both have passed.
      .def("_time_to",
           [](const EventPassing& self, const EventPassing& later) {
             auto words = [&] { return "measuring the time from " + self.title() + " to " + later.title(); };
             return driver::doing(process_engine(), words, self.device(),
                                  [&] { return self.event().milliseconds_to(later.event()); });
           })
      .def("_lend", [](const EventPassing& self) {
        const CUipcEventHandle handle =
            driver::doing(process_engine(), std::string("lending an event to another process"), self.device(),
                          [&] { return self.event().lend(); });
        return nb::bytes(handle.reserved, sizeof handle.reserved);
      });
  // Orders all later work of a stream after an event.
  module.def("order_after_event", [](StreamId stream, const EventPassing& event) {
    Engine& engine = process_engine();
    const driver::StreamIndex later = index_of(stream);
    driver::ContextScope scope(engine);
    scope.bind(engine.stream(later).device);
    auto words = [&] { return "ordering " + engine.streams.title_of(later) + " after " + event.title(); };
    driver::doing(engine, words, engine.stream(later).device, [&] {
      engine.streams.enter(later);
      driver::check(engine.now.wait(engine.stream(later).handle, event.event().handle()), "cuStreamWaitEvent");
    });
  });
}

}  // namespace

void bind_device_waits(nb::module_& module) {
  // A wait for all that streams hold when it is waited for, whoever submitted it; `asked` says what for. If the device
  // is not open, another thread opens it, and that is what is waited for.
  nb::class_<StreamWait>(module, "StreamWait", nb::type_slots(stream_wait_slots))
      .def(nb::init<std::vector<StreamId>, std::string, nb::object, std::int32_t>(), "streams"_a, "asked"_a,
           "keepalive"_a = nb::none(), "device"_a = dataflow::unknown_ordinal)
      // Raises when the time (negative: none) passed first.
      .def("_block", [](StreamWait& self, double timeout_s) { block(self, timeout_s); })
      .def("_await", await_with_limit<StreamWait>);
  bind_event(module);
  module.def("streams_at_work",
             [](const std::vector<StreamId>& streams) { return driver::streams_at_work(process_engine(), streams); });
}

}  // namespace aiocuda
