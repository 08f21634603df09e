// The recording of a trace: see recording.hpp.
#include "recording.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "../dataflow/story.hpp"
#include "../driver/recording.hpp"
#include "process.hpp"

namespace aiocuda {
namespace {
using namespace nb::literals;
using driver::Recording;
using trace::Number;

const char* name_of(trace::WorkKind kind) {
  static constexpr const char* names[] = {"launch", "allocate", "fill", "copy", "call", "graph", "function"};
  return names[static_cast<std::size_t>(kind)];
}
const char* name_of(trace::WorkState state) {
  static constexpr const char* names[] = {"submitted", "withdrawn", "refused", "measured"};
  return names[static_cast<std::size_t>(state)];
}
const char* name_of(trace::AskKind kind) {
  static constexpr const char* names[] = {"await", "sync", "submit", "future"};
  return names[static_cast<std::size_t>(kind)];
}
const char* name_of(trace::Outcome outcome) {
  static constexpr const char* names[] = {"open", "done", "failed", "cancelled", "timed out"};
  return names[static_cast<std::size_t>(outcome)];
}

nb::object tuple_of(std::span<const Number> numbers) {
  nb::list list;
  for (const Number each : numbers) list.append(each);
  return nb::tuple(list);
}

// In the order of the fields of `aiocuda._trace.model.Operation`.
nb::object as_tuple(const Recording& self, Number number, const trace::Work& work) {
  const trace::Recorder& recorder = self.recorder;
  const nb::object stream = work.tick.count ? nb::object(nb::int_(work.tick.stream)) : nb::none();
  return nb::make_tuple(number, name_of(work.kind), recorder.names()[work.name], work.place, work.ask, work.device,
                        stream, work.tick.count, name_of(work.state), work.size_bytes, work.held_bytes,
                        tuple_of(recorder.needs(work)), work.built, work.decided, work.called, work.returned,
                        work.started, work.ended, work.brought_by);
}
nb::object as_tuple(const Recording& self, const trace::Ask& ask) {
  const trace::Recorder& recorder = self.recorder;
  return nb::make_tuple(name_of(ask.kind), name_of(ask.outcome), recorder.names()[ask.name], ask.place,
                        recorder.names()[ask.who], tuple_of(ask.results), ask.begun, ask.ended);
}

const char* name_of(dataflow::Kind kind) {
  static constexpr const char* names[] = {"launch", "creation", "fill", "copy", "function",
                                          "zip",    "item",     "call", "graph"};
  return names[static_cast<std::size_t>(kind)];
}
const char* name_of(dataflow::Decided what) {
  static constexpr const char* names[] = {"submitted", "waits", "completed", "failed"};
  return names[static_cast<std::size_t>(what)];
}

// The last decisions as they are now. Most errors never tell them, so they become objects of Python's when they are
// read: (what, kind, kernel or None, (file, line) or None, stream, count, other stream).
class Decisions {
 public:
  Decisions() {
    made_.reserve(dataflow::Story::length);
    dataflow::story.each([&](const dataflow::Story::Decision& each) {
      made_.push_back(each);
      codes_.push_back(nb::borrow(each.code));
    });
  }

  nb::list read() const {
    nb::list decisions;
    for (std::size_t i = 0; i < made_.size(); ++i) {
      const dataflow::Story::Decision& each = made_[i];
      const nb::object location = dataflow::Origin::Place(codes_[i], each.instruction).location();
      const nb::object kernel = each.kernel ? nb::object(nb::str(each.kernel->c_str())) : nb::none();
      decisions.append(nb::make_tuple(name_of(each.what), name_of(each.kind), kernel, location, each.tick.stream,
                                      each.tick.count, each.other));
    }
    return decisions;
  }

 private:
  std::vector<dataflow::Story::Decision> made_;
  std::vector<nb::object> codes_;  // of each
};

void stop(Recording& self) {
  if (driver::recording == &self) driver::set_recording(nullptr);
  self.correlation.end_all();
  self.began.reset();  // they may hold whoever holds this
  self.ended.reset();
}

void set_times(Recording& self, Number number, trace::Nanoseconds started, trace::Nanoseconds ended) {
  if (number >= self.recorder.work_count()) return;  // the number is somebody else's
  trace::Work& work = self.recorder.work(number);
  if (work.state == trace::WorkState::withdrawn || work.state == trace::WorkState::refused) return;
  work.started = started;
  work.ended = ended;
  work.state = trace::WorkState::measured;
}

}  // namespace

void bind_recording(nb::module_& module) {
  nb::class_<Decisions>(module, "Decisions")
      .def(nb::init<>())
      .def("__iter__", [](const Decisions& self) { return nb::iter(self.read()); })
      .def("__reduce__", [](const Decisions& self) {  // plain values, which outlive the process
        return nb::make_tuple(nb::borrow(reinterpret_cast<PyObject*>(&PyTuple_Type)), nb::make_tuple(self.read()));
      });
  nb::class_<Recording>(module, "Recording")
      // `who()` says in words which loop and task run now, or which thread.
      .def("__init__",
           [](Recording* self, nb::object who) {
             new (self) Recording(process_engine().devices, process_engine().streams, std::move(who));
           })
      .def("start",
           [](Recording& self) {
             if (driver::recording) return false;
             driver::set_recording(&self);
             return true;
           })
      // `began(number, title)` and `ended(number, error)` are told of all who ask, as long as it is recorded.
      .def("tell",
           [](Recording& self, nb::object began, nb::object ended) {
             self.began = std::move(began);
             self.ended = std::move(ended);
           })
      // The addresses of CUPTI's functions, which are told of the work that the driver's calls are for.
      .def("correlate",
           [](Recording& self, std::uintptr_t push, std::uintptr_t pop) {
             self.correlation = {reinterpret_cast<driver::Correlation::Push>(push),
                                 reinterpret_cast<driver::Correlation::Pop>(pop)};
           })
      .def("set_times", set_times, "number"_a, "started"_a, "ended"_a)
      .def("stop", stop)
      // Reads what the device has passed. True: that is all.
      .def("read_times",
           [](Recording& self) {
             self.timing.read();
             return self.timing.has_read_all();
           })
      .def("size_bytes", [](const Recording& self) { return self.recorder.size_bytes(); })
      .def("work_count", [](const Recording& self) { return self.recorder.work_count(); })
      .def("work",
           [](const Recording& self, Number number) { return as_tuple(self, number, self.recorder.work(number)); })
      .def("asks",
           [](const Recording& self) {
             nb::list asks;
             for (const auto& [number, each] : self.recorder.asks()) asks.append(as_tuple(self, each));
             return asks;
           })
      // Takes what is complete out of the recording: pieces of work, as of `work`, and (number, ...) of those who
      // asked. It waits no longer than `patience_s` for the times of a piece of work before it looks at later ones;
      // with `all`, not at all.
      .def("take",
           [](Recording& self, double patience_s, bool all) {
             self.timing.read();
             nb::list works, asks;
             self.recorder.take_work(
                 static_cast<trace::Nanoseconds>(patience_s * 1e9), all,
                 [&](Number number, const trace::Work& work) { works.append(as_tuple(self, number, work)); });
             self.recorder.take_asks([&](Number number, const trace::Ask& ask) {
               asks.append(nb::make_tuple(number) + as_tuple(self, ask));
             });
             return nb::make_tuple(works, asks);
           })
      .def("steps",
           [](const Recording& self) {
             nb::list steps;
             for (const trace::Step& each : self.recorder.steps())
               steps.append(nb::make_tuple(each.ask, each.begun, each.ended));
             return steps;
           })
      // (file, line) of each place.
      .def("places", [](const Recording& self) {
        nb::list places;
        for (const dataflow::Maker& each : self.places) places.append(dataflow::Origin::place(each).location());
        return places;
      });
}

}  // namespace aiocuda
